"""Each flag of Cluster Autoscaler is one here, or the pages say what is in its place."""

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from manager.autoscaler.cloudprovider.aws import config
from manager.daemon_settings import DaemonSettings
from shared import settings
from tests.support.apiserver import ROOT

HOW_TO = ROOT / "docs" / "how-to"
PAGE = (HOW_TO / "cluster-autoscaler.md").read_text()
PAGES = PAGE + "".join((HOW_TO / f"{name}.md").read_text() for name in ("provisioning-requests", "capacity-buffers"))
THEIRS = set((Path(__file__).parent / "cluster_autoscaler_flags.txt").read_text().split())  # of its FAQ, August 2026
THEIRS_BEFORE = {"node-autoprovisioning-enabled", "max-empty-bulk-delete"}
CHOSEN_BY_CHART = "--cloud-provider"
OURS = {field.name.removesuffix("_seconds").replace("_", "-") for field in settings.fields(DaemonSettings)}


def flags_of(text: str) -> set[str]:
    return set(re.findall(r"--([a-z][a-z0-9-]*)", text))


def test_each_flag_of_theirs_is_one_of_ours_or_is_on_a_page() -> None:
    assert len(THEIRS) > 150
    assert sorted(THEIRS - OURS - flags_of(PAGES)) == []


def test_each_flag_on_the_page_is_theirs_or_ours() -> None:
    assert sorted(flags_of(PAGE) - THEIRS - THEIRS_BEFORE - OURS) == []


def test_a_flag_that_the_table_calls_absent_is_absent() -> None:
    absent = set().union(*(flags_of(row.split("|")[1]) for row in PAGE.splitlines() if "| none" in row))
    assert absent
    assert absent & OURS == set()


def test_the_arguments_of_the_example_become_its_settings(tmp_path: Path) -> None:
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^ {8}.*\n)+", PAGE, re.MULTILINE)]
    arguments = blocks[0].split()
    values = yaml.safe_load(blocks[1])["manager"]
    file = tmp_path / "manager.yaml"
    file.write_text(yaml.safe_dump(values["settings"]))
    common: Any = {"program": "manager", "description": "", "environment": {}}
    by_file = settings.load(DaemonSettings, argv=["--config", str(file)], **common)
    by_flags = settings.load(
        DaemonSettings, argv=[each for each in arguments if not each.startswith(CHOSEN_BY_CHART)], **common
    )
    one, other = by_file.autoscaler, by_flags.autoscaler
    found = config.parse_discovery(one.node_group_auto_discovery)
    assert found == config.parse_discovery(other.node_group_auto_discovery), "the command line splits it at commas"
    assert replace(one, node_group_auto_discovery=()) == replace(other, node_group_auto_discovery=())
    assert f"{CHOSEN_BY_CHART}={values['autoscaler']['cloudProvider']}" in arguments
