"""Every layout a kubelet may have made is told by its files, and names pods as that kubelet does."""

from pathlib import Path

import pytest

from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Driver, PodName, Version
from shared.names import KubeQoS
from tests.support import certain
from tests.unit.agent import trees
from tests.unit.agent.trees import Counters, Tree

UID = "1a2b-3c4d"
OURS = PodName(KubeQoS.BURSTABLE, (trees.UID,))
NESTED = "system.slice/docker-0123456789ab.scope"


def mounted(root: Path, version: Version = Version.V2) -> Path:
    """Only the mounts; the root of cpu."""
    return Tree(root, version, Driver.CGROUPFS).cpu


def v2_hierarchy(root: Path) -> cgroups.Hierarchy:
    mounted(root)
    return certain(cgroups.hierarchy(root))


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
    top = mounted(tmp_path, version)
    (top / kubepods).mkdir(parents=True)
    layout = certain(cgroups.detect(tmp_path, parent))
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
    layout = cgroups.Layout(v2_hierarchy(tmp_path), driver)
    assert layout.container_dir("memory", qos, UID, "containerd://0123") == tmp_path / expected


@pytest.mark.parametrize(("runtime", "scope"), [("cri-o", "crio-9.scope"), ("docker", "docker-9.scope")])
def test_systemd_scopes_carry_the_runtimes_name(tmp_path: Path, runtime: str, scope: str) -> None:
    layout = cgroups.Layout(v2_hierarchy(tmp_path), Driver.SYSTEMD)
    assert layout.container_dir("cpu", KubeQoS.GUARANTEED, UID, f"{runtime}://9").name == scope


@pytest.mark.parametrize("directory", ["cri-containerd-99aa.scope", "99aa", "libpod-99aa.scope", "x-99aa.slice"])
@pytest.mark.parametrize("driver", list(Driver))
def test_a_container_is_found_by_its_id_whatever_its_runtime_calls_it(
    tmp_path: Path, driver: Driver, directory: str
) -> None:
    layout = cgroups.Layout(v2_hierarchy(tmp_path), driver)
    pod_path = layout.pod_path(KubeQoS.BURSTABLE, UID)
    for name in ("other", directory):
        (tmp_path / pod_path / name).mkdir(parents=True)
    assert layout.find_container(pod_path, "strange://99aa") == f"{pod_path}/{directory}"
    assert layout.find_container(pod_path, "strange://77") is None
    assert layout.find_container("nowhere", "strange://99aa") is None


@pytest.mark.parametrize("name", ["..", ".", "", "a/../../b", "/etc", "..\0"])
def test_a_name_from_outside_leads_nowhere_but_below_its_pod(tmp_path: Path, name: str) -> None:
    layout = cgroups.Layout(v2_hierarchy(tmp_path), Driver.CGROUPFS)
    pod_path = layout.pod_path(KubeQoS.BURSTABLE, UID)
    (tmp_path / pod_path / "a").mkdir(parents=True)
    assert layout.find_container(pod_path, f"containerd://{name}") is None
    assert layout.find_pod(KubeQoS.BURSTABLE, (name, f"{UID}/a", f"{UID}/..")) is None


def test_joint_cpu_mounts_are_understood(tmp_path: Path) -> None:
    for controller in ("cpu,cpuacct", "memory"):
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    hierarchy = certain(cgroups.hierarchy(tmp_path))
    assert hierarchy.roots["cpu"] == hierarchy.throttling == tmp_path / "cpu,cpuacct"


def test_where_nothing_is_mounted_or_no_kubelet_ran_there_is_no_layout(tmp_path: Path) -> None:
    assert cgroups.detect(tmp_path) is None
    mounted(tmp_path, Version.V1)
    assert cgroups.detect(tmp_path, pods=[OURS]) is None


@pytest.mark.parametrize("driver", list(Driver))
@pytest.mark.parametrize("version", list(Version))
def test_a_nested_tree_is_found_by_the_pods_in_it(tmp_path: Path, version: Version, driver: Driver) -> None:
    parent = f"{NESTED}/kubelet.slice" if driver is Driver.SYSTEMD else f"{NESTED}/kubelet"
    tree = Tree(tmp_path, version, driver, parent)
    tree.write(tree.pod_path(), Counters())
    (tree.cpu / "another/kubepods/burstable/podof-someone-else").mkdir(parents=True)
    layout = certain(cgroups.detect(tmp_path, pods=[OURS]))
    assert (layout.parent, layout.driver) == (parent, driver)
    assert layout.find_pod(*OURS) == tree.pod_path()
    assert cgroups.detect(tmp_path) is None, "without a pod to tell it by, a nested tree may be anybody's"


def test_the_tree_that_holds_our_pods_wins_over_the_usual_one(tmp_path: Path) -> None:
    host = Tree(tmp_path, Version.V2, Driver.SYSTEMD)
    host.write(host.pod_path("99999999-0000-1111-2222-333344445555"), Counters())
    nested = Tree(tmp_path, Version.V2, Driver.CGROUPFS, NESTED)
    nested.write(nested.pod_path(), Counters())
    assert (found := cgroups.detect(tmp_path, pods=[OURS]))
    assert found.parent == NESTED
    assert (found := cgroups.detect(tmp_path))
    assert (found.parent, found.driver) == ("", Driver.SYSTEMD)


def test_the_search_for_a_nested_tree_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, Version.V2, Driver.CGROUPFS, "z")
    tree.write(tree.pod_path(), Counters())
    for number in range(20):
        (tmp_path / f"a{number}").mkdir()
    assert cgroups.detect(tmp_path, pods=[OURS]) is not None
    monkeypatch.setattr(cgroups, "SEARCH_DIRECTORIES", 10)
    assert cgroups.detect(tmp_path, pods=[OURS]) is None
