"""A file of host applications says what it means or is refused by field and value."""

from pathlib import Path

import pytest

from agent.metrics_advisor.cgroups import Driver, Hierarchy, Layout, Version
from agent.metrics_advisor.host_applications import relative_path
from agent.states_informer import host_applications
from shared.api.nodeslo import CgroupBase, CgroupPath, HostApplication
from shared.errors import InvalidInput

UID = "1a2b3c4d-0000-1111-2222-333344445555"
GOOD = """
hostApplications:
- name: nginx
  priority: koord-prod
  qos: LS
- name: backup
  qos: BE
  cgroupPath: {base: KubepodsBesteffort, parentDir: jobs, relativePath: backup/}
"""


def load(directory: Path, text: str) -> tuple[HostApplication, ...]:
    file = directory / "applications.yaml"
    file.write_text(text)
    return host_applications.load(file)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    nginx, backup = load(tmp_path, GOOD)
    assert (nginx.name, nginx.priority, nginx.qos, nginx.cgroup_path) == ("nginx", "koord-prod", "LS", None)
    assert backup.cgroup_path is not None
    assert backup.cgroup_path.base is CgroupBase.BEST_EFFORT
    assert load(tmp_path, "hostApplications:\n") == ()


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("[1]", "(document)", "[1]"),
        ("", "(document)", "None"),
        ("applications: []", "(document)", "{'applications': []}"),
        ("hostApplications: {}", "(document)", "{'hostApplications': {}}"),
        ("a: [", "file", "applications.yaml"),
        ("hostApplications: [nginx]", "hostApplications[0]", "'nginx'"),
        ("hostApplications: [{}]", "hostApplications[0].name", "''"),
        ("hostApplications: [{name: 5}]", "hostApplications[0].name", "5"),
        ("hostApplications: [{name: a/b}]", "hostApplications[0].name", "'a/b'"),
        ("hostApplications: [{name: '..'}]", "hostApplications[0].name", "'..'"),
        ("hostApplications: [{name: .}]", "hostApplications[0].name", "'.'"),
        ("hostApplications: [{name: a, nice: 5}]", "hostApplications[0]", "nice"),
        ("hostApplications: [{name: a}, {name: a}]", "hostApplications[1].name", "'a'"),
        ("hostApplications: [{name: a, qos: best}]", "hostApplications[0].qos", "'best'"),
        ("hostApplications: [{name: a, priority: high}]", "hostApplications[0].priority", "'high'"),
        ("hostApplications: [{name: a, cgroupPath: {base: Top}}]", "hostApplications[0].cgroupPath.base", "Top"),
        ("hostApplications: [{name: a, cgroupPath: {dir: x}}]", "hostApplications[0].cgroupPath", "dir"),
        ("hostApplications: [{name: a, cgroupPath: {}}]", "hostApplications[0].cgroupPath", "''"),
        ("hostApplications: [{name: a, cgroupPath: {parentDir: /./}}]", "hostApplications[0].cgroupPath", "''"),
        (
            "hostApplications: [{name: a, cgroupPath: {relativePath: x/../..}}]",
            "hostApplications[0].cgroupPath.relativePath",
            "'x/../..'",
        ),
        *(
            (f"hostApplications: [{{name: a, cgroupPath: {{{path}}}}}]", "hostApplications[0].cgroupPath", value)
            for path, value in {
                "relativePath: kubepods": "'kubepods'",
                "relativePath: /kubepods.slice/": "'kubepods.slice'",
                "parentDir: x, relativePath: x-kubepods.slice": "'x/x-kubepods.slice'",
                "parentDir: kubepods, relativePath: burstable": "'kubepods/burstable'",
                "base: Kubepods, relativePath: kubepods-besteffort.slice": "'kubepods-besteffort.slice'",
                f"base: Kubepods, relativePath: pod{UID}": UID,
                f"base: KubepodsBurstable, relativePath: kubepods-burstable-pod{UID.replace('-', '_')}.slice/x": "pod",
            }.items()
        ),
        *(
            (f"hostApplications: [{{name: a{first}}}, {{name: b{second}}}]", "hostApplications[1].cgroupPath", "of a")
            for first, second in [
                (", cgroupPath: {relativePath: x}", ", cgroupPath: {parentDir: /x/}"),
                (", cgroupPath: {relativePath: x}", ", cgroupPath: {relativePath: x/y}"),
                (", cgroupPath: {relativePath: x/y}", ", cgroupPath: {relativePath: x}"),
                (", qos: BE", ", cgroupPath: {relativePath: host-best-effort}"),
                (
                    ", cgroupPath: {base: KubepodsBesteffort, relativePath: x}",
                    ", cgroupPath: {relativePath: kubepods.slice/kubepods-besteffort.slice/x}",
                ),
            ]
        ),
    ],
)
def test_what_means_nothing_is_refused_by_field_and_value(tmp_path: Path, text: str, field: str, value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(tmp_path, text)
    assert refused.value.field == field
    assert value in str(refused.value)
    assert "\n" not in str(refused.value)


def test_neighbours_are_no_overlap(tmp_path: Path) -> None:
    paths = ["{relativePath: x/y}", "{relativePath: x/yz}", "{relativePath: a-burstable.slice}"]
    paths += ["{relativePath: b-burstable.slice}", "{base: Kubepods, relativePath: x/y}", "{relativePath: kubepods/z}"]
    listed = [f"{{name: a{number}, cgroupPath: {path}}}" for number, path in enumerate(paths)]
    assert len(load(tmp_path, f"hostApplications: [{', '.join(listed)}]")) == len(paths)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        host_applications.load(tmp_path / "missing.yaml")


NESTED = Layout(Hierarchy(Version.V2, {"cpu": Path("/c"), "memory": Path("/c")}), Driver.SYSTEMD, parent="b/c")
LAYOUT = Layout(Hierarchy(Version.V2, {"cpu": Path("/c"), "memory": Path("/c")}), Driver.SYSTEMD)


@pytest.mark.parametrize(
    ("application", "layout", "path"),
    [
        (HostApplication("a", qos="LSR"), None, "host-latency-sensitive/a"),
        (HostApplication("a", qos="BE"), None, "host-best-effort/a"),
        (HostApplication("a"), None, "a"),
        (HostApplication("a", cgroup_path=CgroupPath(parent_dir="/b/", relative_path="c")), None, "b/c"),
        (HostApplication("a", cgroup_path=CgroupPath(CgroupBase.KUBEPODS, "", "c")), LAYOUT, "kubepods.slice/c"),
        (
            HostApplication("a", cgroup_path=CgroupPath(CgroupBase.BURSTABLE, "b", "c")),
            LAYOUT,
            "kubepods.slice/kubepods-burstable.slice/b/c",
        ),
        (HostApplication("a", cgroup_path=CgroupPath(CgroupBase.BURSTABLE, "b", "c")), None, None),
        (HostApplication("a", cgroup_path=CgroupPath(relative_path="b")), LAYOUT, "b"),
        (HostApplication("a", cgroup_path=CgroupPath(relative_path="b")), NESTED, None),
    ],
)
def test_paths_follow_koordinators_rules(application: HostApplication, layout: Layout | None, path: str | None) -> None:
    assert relative_path(application, layout) == path
