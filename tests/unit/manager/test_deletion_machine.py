"""The deletion of nodes ends well wherever it is interrupted: a node is deleted, or neither tainted nor cordoned."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.actuation import deletion_machine, node_deletion
from manager.autoscaler.actuation.node_deletion import (
    BatchDeleted,
    BatchInspected,
    CloudObserved,
    DeleteBatch,
    DeleteNode,
    DeletionFailed,
    DeletionOptions,
    DeletionState,
    EndedTaken,
    Event,
    EvictionTried,
    EvictPod,
    InspectBatch,
    Inspection,
    InstancesChosen,
    Instruction,
    LeadershipEnded,
    LogLine,
    NodeDeletion,
    NodeGone,
    NodesChosen,
    NodesObserved,
    NodeTainted,
    NodeUntainted,
    PassEnding,
    TaintedChosen,
    TaintFailed,
    TaintNode,
    TaintsAbandoned,
    UntaintNode,
)
from manager.autoscaler.actuation.node_drain import PodsToDrain
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.scale_down import drain
from manager.autoscaler.scale_down.drain import GangBudget
from manager.autoscaler.scale_down.removal_status import DeletionStage, NodeToRemove, ScaleDownReason
from manager.autoscaler.utilization.memory import Memory
from manager.autoscaler.utilization.node_groups import NodeGroup
from manager.autoscaler.utilization.observation import GroupNode, Observation
from manager.autoscaler.utilization.reaping import TaintedNodeReason
from manager.autoscaler.utilization.review import NodeReview
from manager.autoscaler.utilization.rules import ScanRules
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node, NodeSpec, Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.api.podgroup import LABEL_COSCHEDULING, PodGroup, PodGroupSpec
from tests.support.properties import examples

OPTIONS = DeletionOptions()
WHY = TaintedNodeReason.EMPTY
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
MOST_PASSES = 400  # five seconds each: longer than any patience
ANSWERS = ("accepted", "refused", "silent", "silently done")


@dataclass
class Model:
    """A group in a cluster and a cloud, and one process after the other that deletes its nodes.

    `answers` are the cloud's, one a call, the last one from then on; `broken` writes get no answer, by their number.
    """

    least: int = 1
    answers: list[str] = field(default_factory=lambda: ["accepted"])
    broken: frozenset[int] = frozenset()
    now: float = 1000.0
    machines: dict[str, bool] = field(default_factory=dict)  # whether the node is tainted and cordoned
    tainted_at: dict[str, float] = field(default_factory=dict)
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    state: DeletionState = field(default_factory=DeletionState)
    carried_out: list[Instruction] = field(default_factory=list)
    in_doubt: bool = False
    pod_groups: Mapping[str, PodGroup] = field(default_factory=dict)

    def add(self, name: str, *pods: str, labels: dict[str, str] | None = None) -> None:
        self.machines[name] = False
        self.pods[name] = [
            Pod(
                metadata=ObjectMeta(name=pod, namespace="ns", uid=f"uid:{pod}", annotations=SAFE, labels=labels),
                spec=PodSpec(node_name=name, termination_grace_period_seconds=0),
            )
            for pod in pods
        ]

    def apply(self, event: Event) -> tuple[Instruction, ...]:
        self.state, instructions = deletion_machine.step(self.state, event, OPTIONS)
        return instructions

    def choose(self, *names: str, atomic: bool = False) -> None:
        removals = {
            name: NodeToRemove(name, "g", ScaleDownReason.EMPTY, 0.0, tuple(p.metadata.key for p in self.pods[name]))
            for name in names
        }
        self.apply(
            NodesChosen(
                tuple(
                    NodeDeletion(each, NodeRef(name, name), f"uid:{name}", 0.0, self.now, atomic)
                    for name, each in removals.items()
                )
            )
        )

    def restart(self) -> None:
        """The process ends at once, and the next one finds the taints."""
        self.state = DeletionState()
        self.in_doubt = False
        self.observe()
        self.apply(TaintsAbandoned(tuple(name for name, tainted in self.machines.items() if tainted)))

    def observe(self) -> None:
        self.in_doubt = False
        self.apply(CloudObserved(frozenset(self.machines), frozenset(), {"g": len(self.machines) - self.least}))

    def run_pass(self, stop_after: int | None = None) -> None:
        """Carries out at most so many instructions in all."""
        self.now += 5.0
        self.observe()
        of_gangs = drain.gang_budgets_of_nodes(
            self.gang_budgets(), {name: self.pods[name] for name in self.state.deletions}
        )
        pods = {name: replace(self.to_drain(name), gang_budgets=of_gangs[name]) for name in self.state.deletions}
        for event in (NodesObserved(self.now, pods, {}), PassEnding(self.now)):
            queue = list(self.apply(event))
            while queue:
                instruction = queue.pop(0)
                if isinstance(instruction, LogLine):
                    continue
                if stop_after is not None and len(self.carried_out) >= stop_after:
                    return
                self.carried_out.append(instruction)
                result = self.carry_out(instruction)
                queue[:0] = () if result is None else self.apply(result)

    def gang_budgets(self) -> list[GangBudget]:
        return drain.gang_budgets((pod for there in self.pods.values() for pod in there), self.pod_groups)

    def to_drain(self, name: str) -> PodsToDrain:
        return PodsToDrain(tuple(self.pods.get(name, ())), None, (), self.now)

    def carry_out(self, what: Instruction) -> Event | None:
        if isinstance(what, TaintNode | UntaintNode) and what.node not in self.machines:
            return NodeGone(what.node)
        is_broken = len(self.carried_out) in self.broken
        match what:
            case TaintNode():
                if is_broken:
                    return TaintFailed(what.node, self.now, "no answer")
                self.machines[what.node] = True
                self.tainted_at[what.node] = self.now
                return NodeTainted(what.node, self.now)
            case UntaintNode():
                if is_broken:
                    return None
                self.machines[what.node] = False
                return NodeUntainted(what.node)
            case EvictPod():
                self.check_tainted(what.node)
                if is_broken:
                    return EvictionTried(what.node, what.pod.uid, self.now, "no answer", answered=False)
                self.pods[what.node] = [p for p in self.pods[what.node] if p.metadata.uid != what.pod.uid]
                return EvictionTried(what.node, what.pod.uid, self.now)
            case InspectBatch():
                return None if self.in_doubt else self.inspected(what)
            case DeleteBatch():
                return self.deleted(what)
        raise AssertionError(what)

    def inspected(self, what: InspectBatch) -> BatchInspected:
        found = [
            Inspection(name, is_gone=True)
            if name not in self.machines
            else Inspection(name, pods=self.to_drain(name))
            if self.machines[name]
            else Inspection(name, stays="its taint is gone")
            for name in (each.name for each in what.nodes)
        ]
        return BatchInspected(what.group, tuple(found), self.now)

    def deleted(self, what: DeleteBatch) -> Event:
        names = tuple(each.name for each in what.nodes)
        assert not self.in_doubt, "the cloud was asked again before its answer was known"
        for name in names:
            self.check_tainted(name)
            assert not self.pods[name]
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.in_doubt = answer.startswith("silent")
        if answer in ("accepted", "silently done"):
            assert len(self.machines) - len(names) >= self.least, "the group is below its minimum"
            for name in names:
                del self.machines[name]
        if answer == "accepted":
            return BatchDeleted(what.group, names, self.now)
        return DeletionFailed(what.group, names, self.now, answer, answer == "refused", self.in_doubt)

    def check_tainted(self, name: str) -> None:
        assert self.machines[name]
        assert self.now - self.tainted_at[name] >= OPTIONS.actuation.node_delete_delay_after_taint_seconds

    def settle(self) -> None:
        """Passes until there is nothing left to do."""
        for _ in range(MOST_PASSES):
            self.run_pass()
            if not self.state.deletions and not self.state.abandoned:
                break
        assert not self.state.deletions
        assert not any(self.machines.values()), "a node that stays is tainted"


def group(model: Model | None = None) -> Model:
    """Three nodes that are chosen, in the order of their names, and one that is kept."""
    model = model or Model()
    model.add("a")
    model.add("b", "p", "q")
    model.add("c", "r")
    model.add("kept")
    model.choose("a", "b", "c")
    return model


def test_chosen_nodes_are_tainted_drained_and_deleted_in_this_order() -> None:
    model = group()
    model.settle()
    assert set(model.machines) == {"kept"}
    of_b = [type(each) for each in model.carried_out if getattr(each, "node", "") == "b"]
    assert of_b == [TaintNode, EvictPod, EvictPod]
    assert {each.stage for each in model.state.ended} == {DeletionStage.GONE}
    assert model.state.accepted == {"g": 3}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("instruction", range(12))
def test_any_instruction_may_be_the_last_one_before_a_restart(answer: str, instruction: int) -> None:
    model = group(Model(answers=[answer, "accepted"]))
    for _ in range(MOST_PASSES):
        model.run_pass(stop_after=instruction)
        if len(model.carried_out) >= instruction or not model.state.deletions:
            break
    model.restart()
    model.settle()


@pytest.mark.parametrize("answer", ANSWERS)
def test_whatever_the_cloud_says_each_node_goes_or_is_untainted(answer: str) -> None:
    model = group(Model(answers=[answer]))
    model.settle()
    goes = answer in ("accepted", "silently done")
    assert set(model.machines) == ({"kept"} if goes else {"a", "b", "c", "kept"})


def test_a_machine_that_stays_although_the_cloud_said_that_it_goes_is_believed_after_five_minutes() -> None:
    model = Model()
    model.add("a")
    model.add("kept")
    model.choose("a")
    model.settle()
    model.machines["a"], still_there = True, {"a": "uid:a"}
    found = []
    for waited in (300.0, 301.0):
        model.apply(NodesObserved(model.now + waited, {}, still_there))
        model.apply(TaintsAbandoned(("a",)))
        found.append(set(model.state.abandoned))
    assert found == [set(), {"a"}]
    model.settle()


@given(
    least=st.integers(0, 4),
    answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5),
    broken=st.frozensets(st.integers(1, 20), max_size=6),
    restarts=st.sets(st.integers(0, 30), max_size=3),
    atomic=st.booleans(),
)
@examples(150)
def test_interrupted_anywhere_and_as_often_as_may_be_all_ends_well(
    least: int, answers: list[str], broken: frozenset[int], restarts: set[int], atomic: bool
) -> None:
    model = Model(least=least, answers=[*answers, "accepted"], broken=broken)
    for name, pods in (("a", ()), ("b", ("p", "q")), ("c", ("r",)), ("kept", ())):
        model.add(name, *pods)
    model.choose("a", "b", "c", atomic=atomic)
    for stop in sorted(restarts):
        for _ in range(MOST_PASSES):
            model.run_pass(stop_after=stop)
            if len(model.carried_out) >= stop or not model.state.deletions:
                break
        model.restart()
        model.choose(*(name for name in ("a", "c") if name in model.machines and not model.machines[name]))
    model.settle()
    assert len(model.machines) >= least


def test_instances_that_never_became_nodes_go_at_once_and_lower_what_the_group_can_do_without() -> None:
    model = group()  # four nodes, one of which stays
    model.observe()
    lost = NodeRef("lost", "lost")
    (delete,) = model.apply(InstancesChosen("g", (lost, NodeRef("never", "never"))))
    assert delete == DeleteBatch("g", (lost, NodeRef("never", "never")), below_min=True)
    assert model.apply(BatchDeleted("g", ("lost", "never"), model.now)) == ()
    assert (model.state.cloud.spare, model.state.accepted) == ({"g": 1}, {})


def tainted(*names: str) -> TaintedChosen:
    """Nodes that a scan has tainted, and that are empty."""
    now = 1000.0
    chosen = []
    for name in names:
        node = GroupNode(name, provider_id=name)
        review = NodeReview(ScanInputs(ScanRules(NodeGroup()), Observation(), Memory(), now), node, WHY, True)
        found = Node(metadata=ObjectMeta(name=name, uid=f"uid:{name}"), spec=NodeSpec(provider_id=name))
        chosen.append(node_deletion.reviewed("g", review, found, 0.0, now))
    return TaintedChosen(tuple(chosen))


def test_nodes_that_a_scan_has_tainted_are_inspected_and_deleted_with_their_nodes_within_the_minimum() -> None:
    model = Model(least=2)
    for name in "abcd":
        model.add(name)
    model.observe()
    (inspect,) = model.apply(tainted("a", "b", "c"))
    assert isinstance(inspect, InspectBatch)
    assert [each.name for each in inspect.nodes] == ["a", "b", "c"]
    assert model.apply(NodesObserved(model.now, {}, {})) == model.apply(PassEnding(model.now)) == ()  # no pass acts
    ready = [Inspection(name, pods=model.to_drain(name)) for name in "abc"]
    (delete,) = model.apply(BatchInspected("g", tuple(ready), model.now))
    assert isinstance(delete, DeleteBatch)
    assert [each.name for each in delete.nodes] == ["a", "b"]
    told = model.apply(BatchDeleted("g", ("a", "b"), model.now))
    done = [each for each in told if not isinstance(each, LogLine)]
    assert done == [DeleteNode(name, f"uid:{name}") for name in "ab"]
    ended = {each.node: (each.stage, each.error) for each in model.state.ended}
    kept = DeletionStage.FAILED, "c: the cloud's minimum"
    assert ended == {"c": kept, **dict.fromkeys("ab", (DeletionStage.GONE, ""))}
    assert model.apply(EndedTaken(frozenset("abc"))) == ()
    assert (model.state.deletions, model.state.ended) == ({}, ())


def test_of_a_scans_nodes_that_the_cloud_refuses_together_each_is_asked_for_alone_and_no_taint_is_removed() -> None:
    model = Model(least=0)
    for name in "ab":
        model.add(name)
    model.observe()
    model.apply(tainted("a", "b"))
    ready = [Inspection(name, pods=model.to_drain(name)) for name in "ab"]
    model.apply(BatchInspected("g", tuple(ready), model.now))
    told = model.apply(DeletionFailed("g", ("a", "b"), model.now, "no", True, False))
    alone = [[node.name for node in each.nodes] for each in told if isinstance(each, InspectBatch)]
    assert alone == [["a"], ["b"]]
    model.apply(DeletionFailed("g", ("a",), model.now, "no", True, False))
    assert [(each.node, each.error) for each in model.state.ended] == [("a", "no")]
    model.apply(EndedTaken(frozenset("ab")))
    assert (model.state.deletions, model.state.abandoned) == ({}, {})


def test_answers_that_come_after_leadership_was_lost_begin_nothing() -> None:
    model = group()
    model.run_pass()
    model.apply(LeadershipEnded())
    late: list[Event] = [
        NodeTainted("a", model.now),
        EvictionTried("b", "uid:p", model.now),
        BatchInspected("g", (Inspection("a", pods=model.to_drain("a")),), model.now),
        BatchDeleted("g", ("a",), model.now),
    ]
    assert [model.apply(event) for event in late] == [()] * 4
    assert replace(model.state, cloud=DeletionState().cloud) == DeletionState()


def gang(needed: int) -> Model:
    """Four pods of a gang on nodes that are chosen, two of them on one, and two on a node that is kept."""
    needing = PodGroup(ObjectMeta("train", "ns"), PodGroupSpec(None, needed))
    model = Model(pod_groups={needing.key: needing})
    for name, pods in {"a": ("p",), "b": ("q", "r"), "c": ("s",), "kept": ("t", "u")}.items():
        model.add(name, *pods, labels={LABEL_COSCHEDULING: "train"})
    model.choose("a", "b", "c")
    return model


@pytest.mark.parametrize(
    ("needed", "deleted"), [(2, {"a", "b", "c"}), (3, {"a", "b"}), (4, {"a"}), (5, {"a"}), (6, set())]
)
def test_no_eviction_leaves_a_gang_with_fewer_pods_than_it_needs_although_it_was_chosen(
    needed: int, deleted: set[str]
) -> None:
    model = gang(needed)
    model.settle()
    assert {"a", "b", "c", "kept"} - set(model.machines) == deleted
    assert sum(map(len, model.pods.values())) >= needed
    said = {each.node: each.error for each in model.state.ended if each.error}
    assert set(said) == {"a", "b", "c"} - deleted
    assert all(
        each.endswith(f'PodGroup "ns/train", which needs {needed} pods at once, allows no eviction now')
        for each in said.values()
    )


def test_a_drain_ends_when_a_pod_of_the_gang_ends_meanwhile() -> None:
    model = gang(3)
    model.run_pass()
    assert all(model.machines[name] for name in "abc"), "nothing is evicted before the taint has had its effect"
    model.pods["kept"] = []
    model.settle()
    assert sum(map(len, model.pods.values())) == 3
    assert set(model.machines) == {"b", "c", "kept"}
