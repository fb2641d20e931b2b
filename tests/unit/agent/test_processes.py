"""Where there are no cgroups to read, a process still says whose it is."""

import os
import subprocess

import pytest

from agent.metrics_advisor.pod_cgroups import ANNOTATION_STATIC_POD_UID
from agent.metrics_advisor.processes import POD_UID_VARIABLE, Owner, PodProcesses, owner_of
from shared import names
from shared.api.core import Pod
from shared.api.meta import ObjectMeta, OwnerReference
from tests.support import eventually

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


def mirror(uid: str, static_uid: str) -> Pod:
    """As the node itself makes it, or somebody who writes what the node does."""
    annotations = {names.ANNOTATION_MIRROR: static_uid, ANNOTATION_STATIC_POD_UID: static_uid}
    node = OwnerReference(kind="Node", name="node", controller=True)
    return Pod(metadata=ObjectMeta(name=uid, uid=uid, annotations=annotations, owner_references=(node,)))


@pytest.mark.parametrize(
    ("pods", "owner"),
    [
        ([Pod(metadata=ObjectMeta(name="victim", uid=UID)), mirror("other", UID)], UID),
        ([mirror("other", UID), Pod(metadata=ObjectMeta(name="victim", uid=UID))], UID),
        ([mirror("first", UID), mirror("second", UID)], "first"),
    ],
    ids=["annotated later", "annotated before", "both annotated"],
)
def test_an_annotation_takes_no_processes_from_the_pod_that_has_them(pods: list[Pod], owner: str) -> None:
    with subprocess.Popen(["sleep", "60"], env=os.environ | {POD_UID_VARIABLE: UID}) as process:
        reader = PodProcesses()
        found = eventually(lambda: reader.sample(pods, 1).pods)
        process.kill()
    assert found.keys() == {owner}
