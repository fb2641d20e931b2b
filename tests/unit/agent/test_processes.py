"""Where there are no cgroups to read, a process still says whose it is."""

import pytest

from agent.metrics_advisor.processes import Owner, owner_of

UID, PLAIN = "1a2b3c4d-0000-1111-2222-333344445555", "1a2b3c4d000011112222333344445555"
ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
            f"/cri-containerd-{ID}.scope\n",
            Owner(PLAIN, ID),
        ),
        (f"0::/../../kubepods/besteffort/pod{UID}/{ID}\n", Owner(PLAIN, ID)),
        (f"4:memory:/kubepods/pod{PLAIN}/crio-{ID}\n3:cpuacct:/kubepods/pod{PLAIN}/crio-{ID}\n", Owner(PLAIN, ID)),
        (f"2:cpuacct:/\n1:memory:/kubepods/pod{UID}\n0::/\n", Owner(PLAIN)),
        ("0::/system.slice/podman.service\n", None),
        ("0::/\n", None),
        ("", None),
    ],
    ids=["systemd", "cgroupfs, seen from another namespace", "a static pod", "no container", "podman", "root", "empty"],
)
def test_a_process_belongs_to_the_pod_its_cgroup_names(cgroup: str, owner: Owner | None) -> None:
    assert owner_of(cgroup.encode()) == owner
