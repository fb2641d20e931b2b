"""`headroom up` comes and goes without a trace, and goes on from what was kept."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from shared.kube.resources import EVENTS
from tests.e2e.conftest import UP, RunningCluster, processes_of
from tests.support import daemons, eventually

CGROUPS = Path("/sys/fs/cgroup")
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def cgroups_of(directory: Path) -> list[Path]:
    cluster_id = (directory / "state" / "cluster-id").read_text().strip()
    return [*CGROUPS.glob(f"headroom-{cluster_id}"), *CGROUPS.glob(f"*/headroom-{cluster_id}")]


def pods_run(cluster: RunningCluster) -> dict[str, str]:
    """uid by name of the sample pods, once all of them run."""

    def look() -> dict[str, str]:
        found = [cluster.pod(name) for name in ("idle", "steady", "bursty")] if cluster.serves() else []
        running = [pod for pod in found if pod and pod.get("status", {}).get("phase") == "Running"]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in running} if len(running) == 3 else {}

    return eventually(look)


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


@pytest.mark.real_only("kube-scheduler comes with a real control plane")
def test_kube_scheduler_places_the_pods_where_it_is_asked_to(
    start: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    running = start(tmp_path, "--nodes", "0", "--scheduler", "kube-scheduler")
    pods_run(running)
    events = running.client.list(EVENTS, "default", field_selector="reason=Scheduled").items
    assert {event["reportingComponent"] for event in events} == {"default-scheduler"}
    assert not any(event.get("firstTimestamp") for event in events), "ours writes the events of the core group"


def test_keep_dir_store_logs_kubeconfig_tokens_and_work_folders_are_private(cluster: RunningCluster) -> None:
    state = cluster.directory / "state"
    pods_run(cluster)
    shared_with_pods = state / "kubelet" / "volumes"
    seen = set()
    for top, folders, files in os.walk(state):
        for path in (Path(top), *(Path(top) / name for name in files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # replaced while we look
            if not stat.S_ISLNK(mode):
                assert not mode & 0o077, f"{path} has mode {stat.S_IMODE(mode):o}"
                seen.add(path.name)
        if Path(top) == shared_with_pods:
            folders.clear()  # what is in it has the modes that its pods need; the folder itself keeps others out
    assert {"kubeconfig", "token", "logs", "manager.log", "kubelet", "work", "agent"} <= seen


def test_a_directory_in_use_is_refused_in_one_line(cluster: RunningCluster) -> None:
    done = _up("--keep", str(cluster.directory / "state"), runtime_dir=cluster.directory)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(f"in use by the headroom up with pid {cluster.process.pid}")


def test_for_scripts_it_prints_the_documented_json_alone(cluster_kind: str, tmp_path: Path) -> None:
    ports = ("--port", "0", "--manager-port", "0", "--agent-port", "0")
    small = ("--nodes", "0", "--cloud", "none")
    done = _up("--cluster", cluster_kind, *small, "--for", "4s", "-o", "json", *ports, runtime_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = msgspec.json.decode(done.stdout)
    shape = msgspec.json.decode((SCHEMAS / "up.json").read_bytes())["$ref"]
    definitions = msgspec.json.decode((SCHEMAS / shape).read_bytes())["$defs"]
    assert set(answer) == set(definitions["Nodes"]["required"])
    assert [set(node) for node in answer["nodes"]] == [set(definitions["NodeRow"]["required"])]
    assert set(answer["nodes"][0]["allocatable"]) == set(definitions["Amount"]["required"])


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


def _up(*arguments: str, runtime_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UP, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"XDG_RUNTIME_DIR": str(runtime_dir)},
    )
