"""The packages below `examples/`, each installed from its own wheel and used by Headroom's commands."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import example_packages
from tests.support.apiserver import ROOT
from tests.support.example_packages import EXAMPLES, NAMES
from tests.unit.backtest import traces

CAPACITY = {"cpu": "4", "memory": "16Gi", "pods": "110"}
CLOUD = {
    "machine_types": [{"name": "four", "capacity": CAPACITY}],
    "groups": [
        {"name": "spot", "machine_type": "four", "price": 9.0, "labels": {"karpenter.sh/capacity-type": "spot"}},
        {"name": "on-demand", "machine_type": "four", "price": 0.1},
    ],
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]},
    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
}


class Installation:
    """A folder of packages that a Python process of its own finds, beside this checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"

    def install(self, wheel: Path) -> None:
        example_packages.install(wheel, self.site)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(self.site), str(ROOT)))}
        command = [sys.executable, "-m", *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def headroom(self, *arguments: str | Path) -> Any:
        """The command's answer."""
        done = self.run("deploy.cli", *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each example."""
    return {each: example_packages.build_wheel(each, tmp_path_factory.mktemp(each)) for each in NAMES}


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture
def plan_of(installation: Installation) -> list[str | Path]:
    (installation.folder / "pods.yaml").write_text(yaml.safe_dump(POD))
    (installation.folder / "cloud.yaml").write_text(yaml.safe_dump(CLOUD))
    return ["plan", "-f", "pods.yaml", "--cloud-config", "cloud.yaml"]


def test_the_examples_pass_their_own_tests(installation: Installation, wheels: dict[str, Path]) -> None:
    for wheel in wheels.values():
        installation.install(wheel)
    tests = [test for example in NAMES for test in (EXAMPLES / example).glob("test_*.py")]
    assert len(tests) == len(NAMES)
    done = installation.run("pytest", "-q", "-p", "no:cacheprovider", "-n0", "-c", os.devnull, *tests)
    assert done.returncode == 0, done.stdout


def test_the_expander_chooses_in_a_plan(
    installation: Installation, wheels: dict[str, Path], plan_of: list[str | Path]
) -> None:
    installation.install(wheels["expander"])
    found = installation.headroom(*plan_of, "--expander", "spot-first,price")
    assert [step["expander"] for step in found["steps"]] == ["spot-first"]
    assert [each["group"] for each in found["decisions"]] == ["spot"], "which is ninety times as dear"


@pytest.mark.thorough
def test_an_expander_that_cannot_be_loaded_is_one_line_with_entry_point_and_reason(
    installation: Installation, wheels: dict[str, Path], plan_of: list[str | Path]
) -> None:
    installation.install(wheels["expander"])
    (installation.site / "spot_first.py").write_text("import not_there")
    done = installation.run("deploy.cli", *plan_of, "--expander", "spot-first")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "entry point spot-first = spot_first:SpotFirst in headroom.expanders" in line
    assert "No module named 'not_there'" in line


def test_the_predictor_is_judged_by_a_backtest(installation: Installation, wheels: dict[str, Path]) -> None:
    installation.install(wheels["predictor"])
    trace, limits = traces.write_wide(installation.folder)
    asked: list[str | Path] = ["backtest", trace, "--limits", limits, "--node-cores", "16", "--horizon", "24h"]
    found = installation.headroom(*asked, "--model", "recent-maximum")
    assert [(each["model"], each["nodes"]) for each in found["results"]] == [("recent-maximum", 3)]


@pytest.mark.thorough
def test_a_predictor_that_cannot_be_loaded_is_one_line_with_entry_point_and_reason(
    installation: Installation, wheels: dict[str, Path]
) -> None:
    installation.install(wheels["predictor"])
    (installation.site / "recent_maximum.py").write_text("raise OSError('no model file')")
    trace, limits = traces.write_wide(installation.folder)
    asked: list[str | Path] = ["backtest", trace, "--limits", limits, "--node-cores", "16", "--model", "recent-maximum"]
    done = installation.run("deploy.cli", *asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert "entry point recent-maximum = recent_maximum:RecentMaximum in headroom.predictors" in done.stderr
    assert "OSError: no model file" in done.stderr


def test_they_import_of_headroom_only_what_is_for_plugins() -> None:
    sources = [file for each in NAMES for file in (EXAMPLES / each).glob("*.py")]
    nodes = [node for file in sources for node in ast.walk(ast.parse(file.read_text()))]
    imported = {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "headroom_api" in imported
    assert not imported & {"agent", "deploy", "manager", "shared"}
