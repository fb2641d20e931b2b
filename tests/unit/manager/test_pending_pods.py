"""Which pending pods a round of the autoscaler is about."""

from typing import Any

import msgspec
import pytest

from manager.autoscaler.scale_up import pending_pods
from manager.autoscaler.settings.pending_pods import PendingRules
from shared import durations
from shared.api.core import PersistentVolumeClaim, Pod

NOW = 1_700_000_000.0
NODES = frozenset({"n"})


def pod(name: str = "p", age: float = 60, **more: Any) -> Pod:
    meta = {"name": name, "namespace": "ns", "creationTimestamp": durations.timestamp(NOW - age)}
    meta |= more.pop("metadata", {})
    condition = {"type": "PodScheduled", "status": "False", "reason": more.pop("reason", "Unschedulable")}
    condition["message"] = more.pop("message", "")
    status = {"conditions": [condition], **more.pop("status", {})}
    spec = {"containers": [{"name": "c", "resources": {"requests": more.pop("requests", {})}}], **more}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


@pytest.mark.parametrize(
    ("given", "rules", "reason"),
    [
        (pod(), PendingRules(), None),
        (pod(reason="SchedulerError"), PendingRules(), pending_pods.NOT_JUDGED),
        (pod(reason="", schedulerName="mine"), PendingRules(bypassed_scheduler_names=("mine",)), None),
        (
            pod(schedulerName="other"),
            PendingRules(allowed_scheduler_names=("default-scheduler",)),
            pending_pods.OTHER_SCHEDULER,
        ),
        (pod(priority=-10), PendingRules(), None),
        (pod(priority=-11), PendingRules(), pending_pods.EXPENDABLE),
        (
            pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}),
            PendingRules(),
            pending_pods.DAEMON,
        ),
        (
            pod(schedulingGates=[{"name": "quota"}], reason="SchedulingGated"),
            PendingRules(),
            "waiting for scheduling gates: [quota]",
        ),
        (pod(message="0/3 nodes are available: 3 Insufficient cpu."), PendingRules(), None),
        (
            pod(message="0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"),
            PendingRules(),
            pending_pods.UNBOUND,
        ),
        (pod(age=30), PendingRules(new_pod_scale_up_delay_seconds=30), pending_pods.TOO_YOUNG),
        (pod(age=31), PendingRules(new_pod_scale_up_delay_seconds=30), None),
        (pod(metadata={"annotations": {pending_pods.ANNOTATION_DELAY: "2m"}}), PendingRules(), pending_pods.TOO_YOUNG),
        (
            pod(age=20, metadata={"annotations": {pending_pods.ANNOTATION_DELAY: "1s"}}),
            PendingRules(new_pod_scale_up_delay_seconds=30),
            pending_pods.TOO_YOUNG,
        ),
        (pod(metadata={"annotations": {pending_pods.ANNOTATION_DELAY: "soon"}}), PendingRules(), None),
    ],
)
def test_a_pod_counts_or_is_left_aside_with_a_reason(given: Pod, rules: PendingRules, reason: str | None) -> None:
    found = pending_pods.list_pending_pods([given], rules, NOW, NODES)
    assert found.skipped_pods == ({} if reason is None else {"ns/p": reason})
    assert found.pods == ((given,) if reason is None else ())


@pytest.mark.parametrize(
    "given",
    [
        pod(nodeName="n"),
        pod(status={"nominatedNodeName": "n"}),
        pod(status={"phase": "Succeeded"}),
        pod(metadata={"deletionTimestamp": durations.timestamp(NOW)}),
    ],
)
def test_a_pod_that_needs_no_node_is_not_spoken_of(given: Pod) -> None:
    assert pending_pods.list_pending_pods([given], PendingRules(), NOW, NODES) == pending_pods.PendingPods(())


def test_a_pod_that_was_nominated_for_a_node_that_is_gone_waits_for_another() -> None:
    given = pod(status={"nominatedNodeName": "gone"})
    assert pending_pods.list_pending_pods([given], PendingRules(), NOW, NODES).pods == (given,)


def claim(mode: str) -> PersistentVolumeClaim:
    return msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"accessModes": [mode]}}, PersistentVolumeClaim
    )


def mounting(name: str, **more: Any) -> Pod:
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}], **more)


@pytest.mark.parametrize(
    ("user", "waits"),
    [
        (mounting("user", nodeName="n", status={"phase": "Running"}), False),
        (mounting("user", nodeName="n", metadata={"deletionTimestamp": durations.timestamp(NOW)}), False),
        (mounting("user", status={"nominatedNodeName": "n"}), False),
        (mounting("user", nodeName="n", status={"phase": "Succeeded"}), True),
        (mounting("user", nodeName="n", metadata={"namespace": "elsewhere"}), True),
        (mounting("user", reason="SchedulerError", priority=5), True),
        (pod("user", nodeName="n"), True),
    ],
)
def test_no_node_helps_a_pod_whose_claim_another_has_for_itself(user: Pod, waits: bool) -> None:
    given = mounting("p")
    for order in ([user, given], [given, user]):
        found = pending_pods.list_pending_pods(order, PendingRules(), NOW, NODES, {"ns/c": claim("ReadWriteOncePod")})
        assert found.pods == ((given,) if waits else ())
        assert found.skipped_pods.get("ns/p") == (None if waits else pending_pods.CLAIM_IN_USE)
        shared = pending_pods.list_pending_pods(order, PendingRules(), NOW, NODES, {"ns/c": claim("ReadWriteOnce")})
        assert shared.pods == (given,)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (mounting("z", age=90), mounting("a", age=80)),
        (mounting("z", age=80, priority=1), mounting("a", age=90)),
        (mounting("a"), mounting("z")),
    ],
)
def test_of_pods_that_want_one_claim_for_themselves_the_one_the_scheduler_takes_up_first_counts(
    first: Pod, second: Pod
) -> None:
    for order in ([first, second], [second, first]):
        found = pending_pods.list_pending_pods(order, PendingRules(), NOW, NODES, {"ns/c": claim("ReadWriteOncePod")})
        assert found.pods == (first,)
        assert found.skipped_pods == {second.metadata.key: pending_pods.CLAIM_IN_USE}


@pytest.mark.parametrize(
    ("given", "in_seconds"),
    [
        ([], None),
        ([pod(age=1)], 1),
        ([pod(age=1), pod("older", age=2)], None),
        ([pod(age=1, requests={"nvidia.com/gpu": "1"})], 29),
        ([pod(age=10, requests={"nvidia.com/gpu": "1"})], 20),
        ([pod(age=10, requests={"nvidia.com/gpu": "1"}), pod("old", age=90)], 20),
        ([pod(age=30, requests={"nvidia.com/gpu": "1"})], None),
    ],
)
def test_a_round_waits_while_all_pods_are_new(given: list[Pod], in_seconds: float | None) -> None:
    settled_at = pending_pods.list_pending_pods(given, PendingRules(), NOW, NODES).settled_at
    assert settled_at == (None if in_seconds is None else NOW + in_seconds)


def on_node(owner: str = "ReplicaSet", node: str = "leaving", phase: str = "Running", **more: Any) -> Pod:
    metadata = {"ownerReferences": [{"kind": owner, "name": "o", "controller": True}]} if owner else {}
    return pod(metadata=metadata | more.pop("metadata", {}), nodeName=node, status={"phase": phase}, **more)


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        (on_node(), True),
        (on_node(owner="Workflow"), True),
        (on_node(priority=-10), True),
        (on_node(node="staying"), False),
        (on_node(owner=""), False),
        (on_node(owner="DaemonSet"), False),
        (on_node(phase="Succeeded"), False),
        (on_node(priority=-11), False),
        (on_node(metadata={"deletionTimestamp": durations.timestamp(NOW)}), False),
        (on_node(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), False),
    ],
)
def test_pods_that_controllers_make_anew_wait_while_their_node_is_drained(given: Pod, waits: bool) -> None:
    assert pending_pods.recreatable_pods([given], {"leaving"}, PendingRules()) == ((given,) if waits else ())
