"""Every layout a kubelet may have made is told by its files, and names pods as that kubelet does."""

from pathlib import Path

import pytest

from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Driver, Version
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.pod_cgroups import PodCgroups, usage_usec_seconds, working_memory
from shared.names import KubeQoS
from tests.unit.agent.pods import pod

UID = "1a2b-3c4d"


def v1(root: Path, *, hybrid: bool = False, cpuacct: str = "cpuacct") -> Path:
    for controller in (cpuacct, "memory"):
        (root / controller).mkdir(parents=True)
        (root / controller / "cgroup.procs").touch()
    if hybrid:
        (root / "unified").mkdir()
        (root / "unified/cgroup.controllers").write_text("\n")
    return root / cpuacct


def v2(root: Path) -> Path:
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return root


@pytest.mark.parametrize(
    ("kubepods", "parent", "driver", "found_parent", "burstable_pod"),
    [
        ("kubepods", "", Driver.CGROUPFS, "", "kubepods/burstable/pod1a2b-3c4d"),
        (
            "kubepods.slice",
            "",
            Driver.SYSTEMD,
            "",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a2b_3c4d.slice",
        ),
        (
            "kubelet.slice/kubelet-kubepods.slice",
            "",
            Driver.SYSTEMD,
            "kubelet.slice",
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            "kubelet-kubepods-burstable-pod1a2b_3c4d.slice",
        ),
        ("kubelet/kubepods", "", Driver.CGROUPFS, "kubelet", "kubelet/kubepods/burstable/pod1a2b-3c4d"),
        ("a/b/kubepods", "/a/b/", Driver.CGROUPFS, "a/b", "a/b/kubepods/burstable/pod1a2b-3c4d"),
    ],
)
@pytest.mark.parametrize("version", list(Version))
def test_layouts_are_detected(
    tmp_path: Path,
    version: Version,
    kubepods: str,
    parent: str,
    driver: Driver,
    found_parent: str,
    burstable_pod: str,
) -> None:
    top = v2(tmp_path) if version is Version.V2 else v1(tmp_path, hybrid=version is Version.HYBRID)
    (top / kubepods).mkdir(parents=True)
    layout = cgroups.detect(tmp_path, parent)
    assert layout is not None
    assert (layout.hierarchy.version, layout.driver, layout.parent) == (version, driver, found_parent)
    assert layout.pod_dir("cpu", KubeQoS.BURSTABLE, UID) == top / burstable_pod


@pytest.mark.parametrize(
    ("driver", "qos", "expected"),
    [
        (Driver.CGROUPFS, KubeQoS.GUARANTEED, "kubepods/pod1a2b-3c4d/0123"),
        (Driver.CGROUPFS, KubeQoS.BEST_EFFORT, "kubepods/besteffort/pod1a2b-3c4d/0123"),
        (
            Driver.SYSTEMD,
            KubeQoS.GUARANTEED,
            "kubepods.slice/kubepods-pod1a2b_3c4d.slice/cri-containerd-0123.scope",
        ),
    ],
)
def test_containers_stand_below_their_pod(tmp_path: Path, driver: Driver, qos: KubeQoS, expected: str) -> None:
    v2(tmp_path)
    hierarchy = cgroups.hierarchy(tmp_path)
    assert hierarchy is not None
    layout = cgroups.Layout(hierarchy, driver)
    assert layout.container_dir("memory", qos, UID, "containerd://0123") == tmp_path / expected


@pytest.mark.parametrize(("runtime", "scope"), [("cri-o", "crio-9.scope"), ("docker", "docker-9.scope")])
def test_systemd_scopes_carry_the_runtimes_name(tmp_path: Path, runtime: str, scope: str) -> None:
    v2(tmp_path)
    hierarchy = cgroups.hierarchy(tmp_path)
    assert hierarchy is not None
    layout = cgroups.Layout(hierarchy, Driver.SYSTEMD)
    assert layout.container_dir("cpu", KubeQoS.GUARANTEED, UID, f"{runtime}://9").name == scope


def test_joint_cpu_mounts_are_understood(tmp_path: Path) -> None:
    top = v1(tmp_path, cpuacct="cpu,cpuacct")
    hierarchy = cgroups.hierarchy(tmp_path)
    assert hierarchy is not None
    assert hierarchy.roots["cpu"] == top


def test_where_nothing_is_mounted_or_no_kubelet_ran_there_is_no_layout(tmp_path: Path) -> None:
    assert cgroups.detect(tmp_path) is None
    v1(tmp_path)
    assert cgroups.detect(tmp_path) is None


V2_MEMORY = b"anon 1\nactive_anon 10\ninactive_anon 20\nunevictable 3\nfile 5\n"


def test_a_v2_pod_is_read_from_its_files_alone(tmp_path: Path) -> None:
    top = v2(tmp_path)
    directory = top / "kubepods/burstable/pod1a2b-3c4d"
    directory.mkdir(parents=True)
    (directory / "memory.stat").write_bytes(V2_MEMORY)
    (directory / "cpu.stat").write_bytes(b"usage_usec 1000000\nuser_usec 1\n")
    layout = cgroups.detect(tmp_path)
    assert layout is not None
    reader = PodCgroups(layout, Descriptors(limit=0))
    watched = [pod(UID).pod]
    assert reader.sample(watched, cpu_count=4) == {}
    (directory / "cpu.stat").write_bytes(b"usage_usec 500000\nuser_usec 1\n")
    assert reader.sample(watched, cpu_count=4) == {}, "a counter that went back tells nothing"
    (directory / "memory.stat").write_bytes(b"anon 1\n")
    assert reader.sample(watched, cpu_count=4) == {}, "a file without the keys tells nothing"
    reader.close()


@pytest.mark.parametrize("content", [b"", b"nr_periods 0\n", b"usage_usec \n"])
def test_a_cpu_stat_without_usage_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        usage_usec_seconds(content)


def test_working_memory_is_what_cannot_be_dropped() -> None:
    keys = (b"\ninactive_anon ", b"\nactive_anon ", b"\nunevictable ")
    assert working_memory(V2_MEMORY, keys) == 33
    with pytest.raises(ValueError):
        working_memory(b"active_anon 10\n", keys)
