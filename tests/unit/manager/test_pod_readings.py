"""Pods on nodes are read again only where something has changed, and always as they would be read afresh."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manager.autoscaler.scale_down import pods_on_nodes
from manager.autoscaler.scale_down.drain import PodController
from manager.autoscaler.scale_down.pods_on_nodes import NodePods, PodOnNode, PodReadings
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import PersistentVolume, PersistentVolumeClaim, Pod
from shared.api.podgroup import PodGroup
from shared.api.storage import CSINode, VolumeAttachment

NOTHING = ReferencedObjects()


def a_pod(name: str, owner: str, cpu: str = "1", node: str = "a", claim: str = "") -> Pod:
    owners = [{"kind": owner.partition("-")[0], "name": owner, "uid": owner, "controller": True}] if owner else []
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": owners}
    spec: dict[str, object] = {"nodeName": node, "containers": [container]}
    if claim:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def bound_to(volume: str) -> ReferencedObjects:
    """Claim "c" of a volume in a zone of its name."""
    claim = msgspec.convert({"metadata": {"name": "c"}, "spec": {"volumeName": volume}}, PersistentVolumeClaim)
    labels = {"topology.kubernetes.io/zone": volume}
    there = msgspec.convert({"metadata": {"name": volume, "labels": labels}}, PersistentVolume)
    return ReferencedObjects(claims={"ns/c": claim}, volumes={volume: there})


def facts(read: NodePods) -> tuple[list[object], dict[str, str]]:
    def one(pod: PodOnNode) -> object:
        return pod.key, pod.node, pod.drain_info, [getattr(pod.facts, each.name) for each in fields(pod.facts)]

    return sorted(map(one, read.residents), key=str), dict(read.unreadable)


made = st.builds(
    a_pod,
    st.sampled_from([f"p{number}" for number in range(6)]),
    st.sampled_from(["", "ReplicaSet-1", "ReplicaSet-2", "DaemonSet-1"]),
    st.sampled_from(["1", "2", "a lot"]),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "c"]),
)
controllers = st.sampled_from([None, {}, {"ns/ReplicaSet/ReplicaSet-1": PodController("ReplicaSet", "x", replicas=3)}])
surroundings = st.sampled_from(
    [
        NOTHING,
        ReferencedObjects(claims={}),
        ReferencedObjects(namespaces={"ns": {"a": "b"}}),
        bound_to("zone-a"),
        bound_to("zone-b"),
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.lists(made, unique_by=lambda pod: pod.metadata.key), surroundings, controllers), max_size=5)
)
def test_each_pass_reads_what_a_fresh_one_would(
    passes: list[tuple[list[Pod], ReferencedObjects, dict[str, PodController] | None]],
) -> None:
    readings = PodReadings()
    for pods, known, there in passes:
        for controllers_then in ({}, there):
            found = readings.read(pods, known, controllers_then)
            assert facts(found) == facts(pods_on_nodes.read_pods(pods, known, controllers_then))
            assert readings.read(list(pods), known, controllers_then) is found


def test_what_did_not_change_is_the_same_object_and_what_went_is_forgotten() -> None:
    readings = PodReadings()
    stays, changes, goes = a_pod("p", "ReplicaSet-1"), a_pod("q", "ReplicaSet-2"), a_pod("r", "ReplicaSet-3")
    before = {each.key: each for each in readings.read([stays, changes, goes], NOTHING).residents}
    of_question = readings.copy()
    after = {each.key: each for each in readings.read([stays, a_pod("q", "ReplicaSet-2", "2")], NOTHING).residents}
    assert after["ns/p"] is before["ns/p"]
    assert after["ns/q"].facts.requests["cpu"] == 2000
    assert after.keys() == {"ns/p", "ns/q"}
    (back,) = readings.read([goes], NOTHING).residents
    assert back is not before["ns/r"], "it was dropped with its pod"
    (asked,) = of_question.read([goes], NOTHING).residents
    assert asked is before["ns/r"], "a copy keeps what it began with"


@pytest.mark.parametrize(
    "changes",
    [
        {"csi_nodes": {"a": CSINode()}},
        {"attachments": {"one": VolumeAttachment()}},
        {"pod_groups": {"ns/gang": PodGroup()}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_nodes_have_attached_and_which_gangs_there_are_read_no_pod_again(changes: dict[str, Any]) -> None:
    readings, pods = PodReadings(), [a_pod("p", "ReplicaSet-1"), a_pod("q", "StatefulSet-1", claim="c")]
    before = readings.read(pods, bound_to("zone-a"))
    assert readings.read(pods, replace(bound_to("zone-a"), **changes)) is before


def test_where_other_objects_have_changed_only_the_pods_that_refer_to_any_are_read_again() -> None:
    readings, pods = PodReadings(), [a_pod("p", "ReplicaSet-1"), a_pod("q", "StatefulSet-1", claim="c")]
    before = {each.key: each for each in readings.read(pods, bound_to("zone-a")).residents}
    after = {each.key: each for each in readings.read(pods, bound_to("zone-b")).residents}
    assert after["ns/p"] is before["ns/p"]
    zones = [each["ns/q"].facts.demands.zones for each in (before, after)]
    assert zones == [(("topology.kubernetes.io/zone", (zone,)),) for zone in ("zone-a", "zone-b")]
