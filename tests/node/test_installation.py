"""The chart and the image on a real node: the processes as the kernel has them, and the first report."""

import subprocess
from pathlib import Path

import pytest

from agent.reporter.conditions import PROD_WAITS_MEASURED
from tests.node.cluster import NodeCluster
from tests.node.layout import Kind
from tests.node.release import NAMESPACE, Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("processes are confined by a container runtime")

SECCOMP_FILTER = "2"


def _of_process(release: Release, component: str, file: str) -> list[str]:
    """The lines of a file below /proc of a component's first pod."""
    pid = release.process(release.pods(component)[0])
    return release.cluster.inside("cat", f"/proc/{pid}/{file}").splitlines()


@pytest.mark.parametrize("component", ["agent", "manager"])
def test_every_pod_is_ready_and_has_never_been_restarted(installed: Release, component: str) -> None:
    pods = installed.pods(component)
    assert pods
    for pod in pods:
        for container in pod["status"]["containerStatuses"]:
            assert container["ready"], container
            assert container["restartCount"] == 0, container


@pytest.mark.parametrize("component", ["agent", "manager"])
def test_processes_run_without_any_privilege(installed: Release, component: str) -> None:
    lines = _of_process(installed, component, "status")
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert status["Uid"] == ["65532"] * 4
    assert status["Gid"] == ["65532"] * 4
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind][0], 16) == 0, kind
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == [SECCOMP_FILTER]


@pytest.mark.parametrize(("component", "read_only"), [("agent", ["/", "/host/cgroup"]), ("manager", ["/"])])
def test_what_is_mounted_read_only_is_so(installed: Release, component: str, read_only: list[str]) -> None:
    mounts = [line.split() for line in _of_process(installed, component, "mountinfo")]
    options = {words[4]: words[5].split(",") for words in mounts}
    for path in read_only:
        assert "ro" in options[path], options[path]


def test_the_agent_can_change_no_cgroup_although_those_of_v1_are_mounts_of_their_own(installed: Release) -> None:
    # A read-only mount says nothing of the mounts below it, and each hierarchy of v1 is one: the user's rights decide.
    script = """
import os
for top, folders, files in os.walk("/host/cgroup"):
    for path in (os.path.join(top, name) for name in [".", *files]):
        assert not os.access(path, os.W_OK) or os.path.islink(path), path
print("none")
"""
    (pod,) = installed.pods("agent")
    said = installed.cluster.kubectl(
        "exec", f"--namespace={NAMESPACE}", pod["metadata"]["name"], "--", "python3", "-c", script
    )
    assert said == "none\n"


def test_the_agent_stands_in_namespaces_of_its_own(installed: Release) -> None:
    agent, kubelet = installed.process(installed.pods("agent")[0]), installed.cluster.process("kubelet")
    for kind in ("net", "pid", "mnt", "ipc", "uts"):
        links = [f"/proc/{pid}/ns/{kind}" for pid in (agent, kubelet)]
        assert len(set(installed.cluster.inside("readlink", *links).split())) == 2, kind


def test_the_node_is_reported_and_every_condition_of_the_report_is_good(installed: Release, kind: Kind) -> None:
    def conditions() -> dict[str, str]:
        prediction = installed.node_metric().get("status", {}).get("prediction", {})
        found = {item["type"]: item["status"] for item in prediction.get("conditions", [])}
        if kind is Kind.V1:  # whose kernel tells no pod's pressure
            assert found.pop(PROD_WAITS_MEASURED, "False") == "False"
        return found

    eventually(lambda: conditions() and set(conditions().values()) == {"True"}, 120, 1.0)
    assert {"ModelReady", "PredictorHealthy", "PolicyAccepted", "CgroupsRead", "PodsComplete"} <= conditions().keys()
    reported = {pod["name"] for pod in installed.node_metric()["status"]["podsMetric"]}
    assert {pod["metadata"]["name"] for part in ("agent", "manager") for pod in installed.pods(part)} <= reported


def test_nothing_of_the_cluster_is_seen_from_this_machine(cluster: NodeCluster) -> None:
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    assert "cni0" not in links
    mounts = Path("/proc/self/mountinfo").read_text()
    assert cluster.name not in mounts
    listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=False).stdout
    ours = [line for line in listening.splitlines() if f":{cluster.layout.port} " in line]
    assert all(line.split()[3].startswith("127.0.0.1:") for line in ours)
