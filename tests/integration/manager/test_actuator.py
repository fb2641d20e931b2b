"""Nodes on their way out, step by step, on a real API server: whatever goes wrong, none is lost and none is stuck."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from manager.autoscaler.actuation import actuator, deletion_machine
from manager.autoscaler.actuation.actuator import Actuator
from manager.autoscaler.actuation.node_deletion import DeletionOptions
from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.cloudprovider.contract import Group, Instance, InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, ProviderError, Refused, Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.listers import Listers, WatchedKinds
from manager.autoscaler.scale_down.drain import ANNOTATION_DAEMON_EVICTION, PodController
from manager.autoscaler.scale_down.removal_status import (
    DeletionProgress,
    DeletionStage,
    NodeToRemove,
    ScaleDownHistory,
    ScaleDownReason,
)
from manager.autoscaler.settings.scale_down import ActuationOptions, DrainRules
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from manager.autoscaler.snapshot.equivalence_groups import ANNOTATION_DAEMON_SET_POD, EXPENDABLE_BELOW
from manager.informers import SharedInformers
from shared.api.core import Node, Pod
from shared.api.podgroup import LABEL_COSCHEDULING
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.errors import Forbidden
from shared.kube.resources import COSCHEDULING_PODGROUPS, NODES, PODS, PRIORITYCLASSES, REPLICATIONCONTROLLERS
from shared.names import ANNOTATION_DO_NOT_DISRUPT
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule
from tests.support.custom_kinds import CRDS, definition_of, is_served
from tests.unit.manager.clouds import MemoryCloud

ours = pytest.mark.own_decision("the actuator and the cloud decide, whichever API server has the nodes")

DELAY_SECONDS, EVICTION_SECONDS, HOLD_SECONDS = 5.0, 120.0, 120.0
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class PickyCloud(MemoryCloud):
    """`objects` is told the nodes that are to be deleted, and says how many of them are before it fails; None: all."""

    def __init__(self, *groups: Group) -> None:
        super().__init__(*groups)
        self.objects: Callable[[Sequence[NodeRef]], tuple[int, ProviderError] | None] = lambda _: None

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        objection = self.objects(nodes)
        if objection is None:
            return super().delete_nodes(group, nodes)
        count, error = objection
        if count:
            super().delete_nodes(group, nodes[:count])
        raise error


class Yard:
    """A group of registered nodes, a cloud that does as it is told, and departures whose steps are taken by hand."""

    def __init__(self, cluster: Cluster, namespace: str, client: Client) -> None:
        self.client = client
        self.namespace = namespace
        self.clock = ManualClock()
        self.leads = True
        self.cloud = PickyCloud(Group("g", 0, 10, 0))
        self.guard = Guard(self.cloud, Ownership({"g": None}))
        self.lock = threading.Lock()
        self.loops = Loops(CollectorRegistry())
        informers = SharedInformers(client, with_autoscaler=True)
        self.listers = Listers(
            client,
            informers,
            WatchedKinds(controllers=True),
            expected=lambda _: {},
            peaks=lambda _: None,
            pending=lambda: None,
        )
        informers.start(self.loops)
        self.listers.start(self.loops)
        self.actuator = self.made()

    def made(self, expendable_below: int = EXPENDABLE_BELOW, **options: Any) -> Actuator:
        writer = NodeWriter(self.client, self.guard, self.lock, lambda: self.leads)
        chosen = DeletionOptions(ActuationOptions(**options), DrainRules(), expendable_below)
        return Actuator(writer, self.listers, chosen, self.clock)

    def add(self, *names: str, least: int = 0, **metadata: Any) -> None:
        for name in names:
            spec = {"providerID": f"id:{name}"}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "spec": spec}
            self.client.create(NODES, body)
            self.cloud.members["g"].append(Instance(f"id:{name}"))
        self.cloud.listed = [Group("g", least, 10, len(self.cloud.members["g"]))]
        eventually(lambda: not self.listers.unsynced() and not self.listers.stale())
        eventually(lambda: all(map(self.listers.node, names)))
        self.observe()

    def pod(self, name: str, node: str, **annotations: str) -> None:
        self.put(name, node, {SAFE: "true", **annotations}, terminationGracePeriodSeconds=0)

    def daemon(self, name: str, node: str, says: str | None = None, grace_seconds: int = 0) -> None:
        said = {} if says is None else {ANNOTATION_DAEMON_EVICTION: says}
        annotations = {ANNOTATION_DAEMON_SET_POD: "true", **said}
        self.put(name, node, annotations, terminationGracePeriodSeconds=grace_seconds)

    def put(self, name: str, node: str, annotations: dict[str, str], **spec: Any) -> None:
        metadata = {"name": name, "annotations": annotations}
        spec |= {"nodeName": node, "containers": [{"name": "c", "image": "none"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.client.create(PODS, body, self.namespace)
        eventually(lambda: name in [pod.metadata.name for pod in self.listers.pods_on({node}).get(node, [])])

    def turn(self, name: str, node: str, phase: str) -> None:
        """The pod's phase is that from now on."""
        self.client.patch(PODS, name, {"status": {"phase": phase}}, self.namespace, subresource="status")
        eventually(lambda: phase in [pod.status.phase for pod in self.listers.pods_on({node})[node]])

    def observe(self) -> None:
        with self.lock:
            nodes = self.client.list(NODES, into=Node).items
            self.actuator.cloud_observed(self.guard.observe([NodeRef.from_node(node) for node in nodes]))

    def begin(
        self, *names: str, evicted: tuple[str, ...] = (), atomic: tuple[str, ...] = (), grace: float | None = None
    ) -> list[str]:
        kind = ScaleDownReason.UNDERUTILIZED if evicted else ScaleDownReason.EMPTY
        nodes = {name: node for name in names if (node := self.listers.node(name)) is not None}
        removals = [NodeToRemove(name, "g", kind, 0.1, evicted, grace) for name in names]
        return self.actuator.begin(removals, nodes, atomic)

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.actuator.run_pass()

    def until_marked(self, *names: str) -> None:
        self.actuator.run_pass()
        assert all(map(self.is_marked, names))

    def is_marked(self, name: str) -> bool:
        node = self.client.get(NODES, name, into=Node)
        has_taint = any(taint.key == TAINT_TO_BE_DELETED for taint in node.spec.taints or ())
        assert has_taint is node.spec.unschedulable
        return has_taint

    def told(self) -> dict[str, DeletionStage]:
        return {each.node: each.stage for each in self.actuator.take_progress()}

    def pods(self) -> list[str]:
        return [pod.metadata.name for pod in self.client.list(PODS, self.namespace, into=Pod).items]

    def unseen(self, name: str) -> None:
        eventually(
            lambda: name not in [p.metadata.name for on in self.listers.pods_on({"a", "b"}).values() for p in on]
        )

    def close(self) -> None:
        self.loops.close()
        self.guard.close()


@pytest.fixture
def yard(server: ApiServer, cluster: Cluster) -> Iterator[Yard]:
    yard = Yard(cluster, server.add_namespace(), cluster.client)
    yield yard
    yard.close()


def garbles(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud answers, but what it says of the group cannot be believed."""
    answer = InvalidAnswer("memory", "g", "instances", 1, "garbled")

    def instances(group: str) -> Sequence[Instance]:
        raise answer

    monkeypatch.setattr(yard.cloud, "instances", instances)
    yard.observe()
    assert "g" in yard.guard.observed.refused


def failure(yard: Yard) -> DeletionProgress:
    (found,) = yard.actuator.take_progress()
    assert found.stage is DeletionStage.FAILED
    return found


def test_an_empty_node_is_marked_and_deleted_after_the_scheduler_had_time_to_see_it(yard: Yard) -> None:
    yard.add("a")
    assert yard.begin("a") == ["a"]
    assert yard.begin("a") == []
    yard.until_marked("a")
    yard.after(DELAY_SECONDS - 1)
    assert yard.told() == {"a": DeletionStage.MARKING}
    yard.after(1)
    assert yard.told() == {"a": DeletionStage.GONE}
    assert yard.told() == {}
    assert yard.cloud.target("g") == 0
    assert yard.actuator.take_accepted() == {"g": 1}
    underway = yard.actuator.deletions_in_progress((), ScaleDownHistory())
    assert underway.gone == {"a": "g"}
    assert (underway.happened.deleted, underway.happened_in["g"].deleted) == (yard.clock.now(), yard.clock.now())
    yard.client.delete(NODES, "a")
    eventually(lambda: yard.listers.node("a") is None)
    yard.actuator.run_pass()
    assert not yard.actuator.deletions_in_progress((), ScaleDownHistory()).gone


def test_pods_are_evicted_and_the_node_waits_until_they_have_gone(yard: Yard) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    assert yard.actuator.counts().drained == 1
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    assert yard.pods() == []
    (seen,) = yard.actuator.take_progress()
    assert (seen.stage, seen.waits_for) == (DeletionStage.DRAINING, (f"{yard.namespace}/p",))
    yard.unseen("p")
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE}


@pytest.fixture
def coscheduling(server: ApiServer, cluster: Cluster) -> Iterator[None]:
    """The cluster serves the PodGroups of the coscheduling plug-in, as long as the test runs."""
    client, definition = cluster.client, definition_of(COSCHEDULING_PODGROUPS, "PodGroup")
    client.create(CRDS, definition)
    eventually(lambda: is_served(client, COSCHEDULING_PODGROUPS))
    yield
    client.delete(CRDS, definition["metadata"]["name"])
    eventually(lambda: not is_served(client, COSCHEDULING_PODGROUPS))


@ours
def test_a_gang_that_needs_its_pods_by_now_keeps_them(coscheduling: None, yard: Yard) -> None:
    yard.add("a", "b")
    for name, node in (("p", "a"), ("q", "b")):
        yard.pod(name, node)
        yard.client.patch(PODS, name, {"metadata": {"labels": {LABEL_COSCHEDULING: "train"}}}, yard.namespace)
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    group = {"apiVersion": COSCHEDULING_PODGROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "train"}}
    yard.client.create(COSCHEDULING_PODGROUPS, {**group, "spec": {"minMember": 2}}, yard.namespace)
    eventually(lambda: [each.allowed for each in yard.listers.gang_budgets()] == [0])
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert f'PodGroup "{yard.namespace}/train", which needs 2 pods at once' in failure(yard).error
    assert not yard.is_marked("a")
    assert yard.pods() == ["p", "q"]


@ours
def test_a_pod_that_comes_to_an_empty_node_keeps_it(yard: Yard) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.pod("late", "a")
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert "came to it" in failure(yard).error
    assert not yard.is_marked("a")
    assert yard.pods() == ["late"]
    assert yard.cloud.target("g") == 1


def test_a_pod_that_only_the_api_server_knows_yet_keeps_its_node_too(yard: Yard) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.loops.close()  # from now on nothing is seen any more
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unseen"}}
    spec = {"nodeName": "a", "containers": [{"name": "c", "image": "none"}]}
    yard.client.create(PODS, {**body, "spec": spec}, yard.namespace)
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert yard.cloud.target("g") == 1
    assert not yard.cloud.written


@ours
def test_a_pod_that_may_not_be_evicted_keeps_its_node(yard: Yard) -> None:
    yard.add("a")
    yard.pod("p", "a", **{SAFE: "false"})
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert "no controller" in failure(yard).error
    assert not yard.is_marked("a")
    assert yard.pods() == ["p"]


def test_an_eviction_that_is_refused_is_tried_again_for_a_while_and_then_given_up(
    yard: Yard, server: ApiServer
) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    server.fault(rule("status", "/eviction", method="POST", times=0, status=429))
    yard.after(DELAY_SECONDS)
    for _ in range(int(EVICTION_SECONDS / 10)):
        yard.after(10)
        assert yard.is_marked("a")
    yard.after(10)
    yard.actuator.run_pass()
    assert "could not be evicted in time" in failure(yard).error
    assert not yard.is_marked("a")
    happened = yard.actuator.deletions_in_progress((), ScaleDownHistory()).happened
    assert (happened.failed, happened.deleted) == (yard.clock.now(), None)


PROTECTED = [{SAFE: "false"}, {SAFE: "true", ANNOTATION_DO_NOT_DISRUPT: "true"}]


@ours
@pytest.mark.parametrize("annotations", PROTECTED, ids=["not safe to evict", "do not disrupt"])
def test_a_node_that_has_to_go_waits_for_a_protected_pod_until_its_grace_is_over(
    yard: Yard, annotations: dict[str, str]
) -> None:
    yard.add("a")
    yard.pod("p", "a", **annotations)
    yard.pod("q", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p", f"{yard.namespace}/q"), grace=300)
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    yard.unseen("q")
    for _ in range(2):
        yard.after(149)
        assert yard.pods() == ["p"], "it is not evicted"
        assert yard.told() == {"a": DeletionStage.DRAINING}
        assert yard.cloud.target("g") == 1
    yard.after(2)
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE}
    assert yard.cloud.target("g") == 0
    assert yard.pods() == ["p"]


def test_a_node_that_has_to_go_does_so_after_its_grace_although_an_eviction_is_refused(
    yard: Yard, server: ApiServer
) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p",), grace=2 * EVICTION_SECONDS)
    yard.until_marked("a")
    server.fault(rule("status", "/eviction", method="POST", times=0, status=429))
    yard.after(DELAY_SECONDS)
    yard.after(EVICTION_SECONDS + 20)
    assert yard.told() == {"a": DeletionStage.DRAINING}
    yard.after(EVICTION_SECONDS)
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE}


@ours
def test_a_refused_batch_is_taken_apart_so_that_one_node_does_not_keep_the_others(yard: Yard) -> None:
    yard.add("a", "b", "c")
    yard.begin("a", "b", "c")
    yard.until_marked("a", "b", "c")
    refusal = Refused("memory", "g", "b is dear to me")
    yard.cloud.objects = lambda nodes: (0, refusal) if any(node.name == "b" for node in nodes) else None
    yard.after(DELAY_SECONDS)
    assert set(yard.told().values()) == {DeletionStage.DELETING}
    for _ in range(3):
        yard.observe()
        yard.actuator.run_pass()
        yard.actuator.run_pass()
    seen = {each.node: each.stage for each in yard.actuator.take_progress()}
    assert seen == {"a": DeletionStage.GONE, "b": DeletionStage.FAILED, "c": DeletionStage.GONE}
    assert not yard.is_marked("b")
    assert yard.cloud.target("g") == 1


@ours
def test_of_half_a_batch_that_went_each_node_is_what_the_cloud_says(yard: Yard) -> None:
    yard.add("a", "b")
    yard.begin("a", "b", atomic=("g",))
    yard.until_marked("a", "b")
    yard.cloud.objects = lambda nodes: (len(nodes) // 2, Unavailable("memory", "g", "gone away"))
    yard.after(DELAY_SECONDS)
    yard.observe()
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE, "b": DeletionStage.DELETING}
    assert yard.is_marked("b"), "it may still go"
    yard.clock.advance(deletion_machine.SILENCE_SECONDS)
    yard.observe()
    yard.actuator.run_pass()
    yard.actuator.run_pass()
    assert yard.told() == {"b": DeletionStage.FAILED}
    assert not yard.is_marked("b")
    assert yard.actuator.take_accepted() == {"g": 1}


@ours
def test_a_deletion_that_was_not_answered_and_done_counts_as_done(yard: Yard) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.cloud.fail(Unavailable("memory", "g", "no answer"), too_late=True)
    yard.after(DELAY_SECONDS)
    assert yard.told() == {"a": DeletionStage.DELETING}
    yard.observe()
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE}


@ours
def test_no_more_go_than_the_minimum_leaves_whatever_was_decided(yard: Yard) -> None:
    yard.add("a", "b", least=1)
    yard.begin("a", "b")
    yard.until_marked("a", "b")
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    yard.actuator.run_pass()
    assert sorted(yard.told().values()) == [DeletionStage.FAILED, DeletionStage.GONE]
    assert yard.cloud.target("g") == 1


@ours
def test_no_pod_is_evicted_for_a_node_that_its_group_cannot_do_without_any_more(yard: Yard) -> None:
    yard.add("a", "b", least=1)
    yard.pod("p", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    yard.cloud.members["g"] = [Instance("id:a")]
    yard.cloud.listed = [Group("g", 1, 10, 1)]
    yard.observe()
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert "its group can do without 0 nodes" in failure(yard).error
    assert yard.pods() == ["p"]


@ours
def test_nodes_that_were_chosen_before_take_what_a_group_can_do_without(yard: Yard) -> None:
    yard.add("a", "b", "c", least=1)
    for name in ("a", "b", "c"):
        yard.pod(f"on-{name}", name)
    yard.begin("a", "b", "c", evicted=(f"{yard.namespace}/any",))
    yard.until_marked("a", "b", "c")
    yard.after(DELAY_SECONDS)
    yard.unseen("on-a")
    yard.unseen("on-b")
    yard.actuator.run_pass()
    seen = {each.node: each for each in yard.actuator.take_progress()}
    assert {each.node: each.stage for each in seen.values()} == {
        "a": DeletionStage.GONE,
        "b": DeletionStage.GONE,
        "c": DeletionStage.FAILED,
    }
    assert "2 others are being deleted already" in seen["c"].error
    assert yard.pods() == ["on-c"]
    yard.begin("c", evicted=(f"{yard.namespace}/any",))
    yard.until_marked("c")
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert "its group can do without 0 nodes" in failure(yard).error, "not observed since, and yet known"
    assert yard.pods() == ["on-c"]


@ours
def test_no_pod_is_evicted_while_the_cloud_is_not_believed_about_its_group(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    garbles(yard, monkeypatch)
    yard.after(DELAY_SECONDS)
    assert (yard.told(), yard.pods()) == ({"a": DeletionStage.MARKING}, ["p"])
    monkeypatch.undo()
    yard.observe()
    yard.actuator.run_pass()
    assert (yard.told(), yard.pods()) == ({"a": DeletionStage.DRAINING}, [])


@ours
def test_a_node_does_not_wait_forever_for_a_cloud_that_is_not_believed(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    garbles(yard, monkeypatch)
    yard.after(deletion_machine.CLOUD_SECONDS + 1)
    yard.actuator.run_pass()
    assert "does not say how large its group is" in failure(yard).error
    assert not yard.is_marked("a")


@ours
def test_a_deletion_that_was_not_answered_is_not_done_because_the_group_is_not_believed(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.cloud.objects = lambda _: (0, Unavailable("memory", "g", "timeout"))
    yard.after(DELAY_SECONDS)
    garbles(yard, monkeypatch)
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.DELETING}
    assert yard.actuator.take_accepted() == {}
    monkeypatch.undo()
    yard.clock.advance(deletion_machine.SILENCE_SECONDS)
    yard.observe()
    yard.actuator.run_pass()
    yard.actuator.run_pass()
    assert "the cloud did not delete it" in failure(yard).error


@ours
def test_pods_that_nobody_minds_go_with_their_node(yard: Yard) -> None:
    yard.add("a")
    low = f"low-{yard.namespace}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": low}, "value": -11}
    yard.client.create(PRIORITYCLASSES, body)

    def admitted() -> bool:
        """A real server hears of new priorities by a watch."""
        with contextlib.suppress(Forbidden):
            yard.put("pause", "a", {}, priorityClassName=low)
            return True
        return False

    eventually(admitted)
    for name, phase in (("done", "Succeeded"), ("lost", "Unknown")):
        yard.pod(name, "a")
        yard.turn(name, "a", phase)
    yard.begin("a")
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    assert yard.told() == {"a": DeletionStage.GONE}
    assert sorted(yard.pods()) == ["done", "lost", "pause"], "nobody has evicted them"


@ours
def test_of_other_priorities_pods_nobody_minds_is_said_beforehand(yard: Yard) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.actuator = yard.made(expendable_below=1)
    yard.observe()
    yard.begin("a")
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    assert yard.told() == {"a": DeletionStage.GONE}


@ours
def test_pods_of_daemon_sets_are_evicted_once_the_others_have_gone(yard: Yard) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.daemon("d", "a")
    yard.daemon("stubborn", "a", says="false")
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    assert sorted(yard.pods()) == ["d", "stubborn"]
    yard.unseen("p")
    yard.actuator.run_pass()
    assert yard.pods() == ["stubborn"]
    assert yard.told() == {"a": DeletionStage.GONE}, "without a grace there is nothing to wait for"


@ours
def test_pods_of_daemon_sets_have_their_grace_and_no_more(yard: Yard) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.daemon("d", "a", grace_seconds=20)
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    yard.unseen("p")
    yard.actuator.run_pass()
    yard.after(19)
    (seen,) = yard.actuator.take_progress()
    assert (seen.stage, seen.waits_for) == (DeletionStage.DRAINING, (f"{yard.namespace}/d",))
    yard.after(1)
    assert yard.told() == {"a": DeletionStage.GONE}
    assert yard.pods() == ["d"], "no kubelet has ended it"


@ours
def test_a_pod_of_a_daemon_set_that_cannot_be_evicted_keeps_nobody(yard: Yard, server: ApiServer) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.daemon("d", "a", grace_seconds=20)
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    server.fault(rule("status", "/d/eviction", method="POST", times=0, status=429))
    yard.after(DELAY_SECONDS)
    yard.unseen("p")
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE}
    assert yard.pods() == ["d"]


@ours
def test_of_empty_nodes_pods_of_daemon_sets_are_evicted_where_they_say_so(yard: Yard) -> None:
    yard.add("a")
    yard.daemon("d", "a")
    yard.daemon("goes", "a", says="true")
    yard.daemon("stays", "a", says="false")
    yard.begin("a")
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    assert yard.told() == {"a": DeletionStage.GONE}
    assert sorted(yard.pods()) == ["d", "stays"]


def test_who_makes_pods_again_is_known_of_every_kind_that_does(yard: Yard) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    body = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}}
    spec = {"replicas": 0, "template": template}
    yard.client.create(REPLICATIONCONTROLLERS, {**body, "spec": spec}, yard.namespace)
    expected = PodController("ReplicationController", "web", replicas=0, namespace=yard.namespace)
    eventually(lambda: (yard.listers.controllers() or {}).get(expected.key) == expected)


@ours
def test_a_group_that_goes_as_a_whole_stays_as_a_whole(yard: Yard) -> None:
    yard.add("a", "b")
    yard.pod("p", "a", **{SAFE: "false"})
    yard.begin("a", "b", evicted=(f"{yard.namespace}/p",), atomic=("g",))
    yard.until_marked("a", "b")
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.FAILED, "b": DeletionStage.FAILED}
    assert not yard.is_marked("a")
    assert not yard.is_marked("b")
    assert not yard.cloud.written


@ours
@pytest.mark.parametrize("seconds", [-86_400, 86_400])
def test_a_wall_clock_that_jumps_changes_nothing(yard: Yard, seconds: float) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.clock.jump(seconds)
    yard.after(DELAY_SECONDS - 1)
    assert yard.told() == {"a": DeletionStage.MARKING}
    yard.after(1)
    assert yard.told() == {"a": DeletionStage.GONE}
    yard.clock.jump(-seconds)
    assert yard.actuator.deletions_in_progress((), ScaleDownHistory()).happened.deleted == yard.clock.now()


@ours
def test_whoever_leads_no_more_writes_nothing(yard: Yard) -> None:
    yard.add("a")
    yard.pod("p", "a")
    yard.begin("a", evicted=(f"{yard.namespace}/p",))
    yard.until_marked("a")
    yard.leads = False
    yard.after(DELAY_SECONDS)
    assert yard.pods() == ["p"]
    yard.actuator.leadership_lost()
    yard.leads = True
    yard.actuator.run_pass()
    assert yard.told() == {}
    assert yard.is_marked("a")
    yard.actuator.untaint_abandoned(["a"])
    yard.actuator.run_pass()
    assert not yard.is_marked("a")


def test_a_mark_that_cannot_be_written_is_given_up_and_one_that_cannot_be_taken_back_is_not(
    yard: Yard, server: ApiServer
) -> None:
    yard.client = yard.client.single_attempt()  # by the machine's clock, its retries would take a minute
    yard.actuator = yard.made()
    yard.add("a")
    yard.begin("a")
    server.fault(rule("status", "/nodes/a", method="PATCH", times=0, status=503))
    yard.actuator.run_pass()
    yard.after(deletion_machine.TAINTING_SECONDS)
    yard.actuator.run_pass()
    assert "could not be marked" in failure(yard).error
    server.heal()
    yard.begin("a")
    yard.until_marked("a")
    server.fault(rule("status", "/nodes/a", method="PATCH", times=0, status=503))
    yard.pod("late", "a")
    yard.after(DELAY_SECONDS)
    for _ in range(3):
        yard.after(deletion_machine.AGAIN_SECONDS)
        assert not yard.actuator.take_progress()[0].stage.is_over
        assert yard.actuator.counts().empty == 1
    server.heal()
    yard.after(deletion_machine.AGAIN_SECONDS)
    assert "came to it" in failure(yard).error
    assert not yard.is_marked("a")


@ours
def test_a_node_that_asks_to_be_kept_is_for_a_while(yard: Yard) -> None:
    yard.add("a", annotations={f"{actuator.ANNOTATION_HOLD}backup": "true"})
    yard.begin("a")
    yard.until_marked("a")
    yard.after(DELAY_SECONDS)
    yard.after(HOLD_SECONDS - 1)
    assert yard.told() == {"a": DeletionStage.DELETING}
    yard.after(1)
    assert yard.told() == {"a": DeletionStage.GONE}


@ours
def test_a_node_whose_mark_somebody_takes_off_stays(yard: Yard) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.client.patch(NODES, "a", {"spec": {"taints": []}})
    yard.after(DELAY_SECONDS)
    yard.actuator.run_pass()
    assert failure(yard).error == "another process removed its taint"
    assert yard.cloud.target("g") == 1


def test_another_node_of_the_same_name_is_left_alone(yard: Yard) -> None:
    yard.add("a")
    yard.begin("a")
    yard.client.delete(NODES, "a")
    yard.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    yard.actuator.run_pass()
    assert yard.told() == {"a": DeletionStage.GONE}
    assert not yard.is_marked("a")
    assert not yard.cloud.written


@ours
def test_a_machine_that_the_cloud_takes_away_by_itself_is_no_failure(yard: Yard) -> None:
    yard.add("a")
    yard.begin("a")
    yard.until_marked("a")
    yard.cloud.members["g"] = [Instance("id:a", InstanceState.DELETING)]
    yard.observe()
    yard.after(DELAY_SECONDS)
    assert yard.told() == {"a": DeletionStage.GONE}
    assert not yard.cloud.written
