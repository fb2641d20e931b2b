"""`headroom up` comes and goes without a trace, and goes on from what was kept."""

import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.e2e.conftest import RunningCluster, pods_run, processes_of, run_up
from tests.support import daemons, eventually

ours = pytest.mark.own_decision("the command prints and refuses it, whichever API server it would start")

CGROUPS = Path("/sys/fs/cgroup")
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def cgroups_of(directory: Path) -> list[Path]:
    cluster_id = (directory / "state" / "cluster-id").read_text().strip()
    return [*CGROUPS.glob(f"headroom-{cluster_id}"), *CGROUPS.glob(f"*/headroom-{cluster_id}")]


@pytest.mark.thorough
def test_killed_it_leaves_nothing_and_a_second_start_goes_on(
    start: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    first = start(tmp_path, "--nodes", "0")
    pods = pods_run(first)
    assert len(processes_of(tmp_path)) >= 6

    first.stop(signal.SIGKILL)
    eventually(lambda: not processes_of(tmp_path))

    second = start(tmp_path, "--nodes", "0")
    assert pods_run(second) == pods
    assert second.stop(signal.SIGINT) == 0
    assert processes_of(tmp_path) == []
    assert cgroups_of(tmp_path) == []


@ours
@pytest.mark.thorough
def test_for_scripts_it_prints_the_documented_json_alone(cluster_kind: str, tmp_path: Path) -> None:
    ports = ("--port", "0", "--manager-port", "0", "--agent-port", "0")
    small = ("--nodes", "0", "--cloud", "none")
    done = run_up("--cluster", cluster_kind, *small, "--for", "4s", "-o", "json", *ports, runtime_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = msgspec.json.decode(done.stdout)
    shape = msgspec.json.decode((SCHEMAS / "up.json").read_bytes())["$ref"]
    definitions = msgspec.json.decode((SCHEMAS / shape).read_bytes())["$defs"]
    assert set(answer) == set(definitions["Nodes"]["required"])
    assert [set(node) for node in answer["nodes"]] == [set(definitions["NodeRow"]["properties"])]
    assert set(answer["nodes"][0]["allocatable"]) == set(definitions["Amount"]["required"])


@ours
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "many"), "--nodes"),
        (("--for", "soon"), "--for"),
        (("--trace", "/no/such/file"), "/no/such/file"),
        (("--nodes", "-1"), "--nodes"),
        (("--unheard-of",), "--unheard-of"),
        (("--scheduler", "kube-scheduler"), "--scheduler"),
        (("--cloud", "/no/such/cloud.yaml"), "/no/such/cloud.yaml"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = daemons.run("deploy.cli", "up", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
