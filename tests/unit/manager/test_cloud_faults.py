"""A cloud that lies, hangs, breaks down or does half of it, round after round: nothing is bought twice, the group is
left alone for a while, and once the cloud is well again books, targets and machines agree.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import (
    Created,
    ErrorClass,
    Group,
    GroupSpec,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
)
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership
from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.group_observation import ReconcileRules
from manager.autoscaler.cluster_state.reconciliation import Reconciliation
from manager.autoscaler.cluster_state.registry import (
    Registry,
    active_backoff,
    add_request,
    decode_registry,
    encode_registry,
    fail_request,
)
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.scale_up import candidates
from shared import durations
from shared.api.core import Condition, Node, NodeSpec, NodeStatus
from shared.api.meta import ObjectMeta
from tests.support import eventually
from tests.support.properties import examples
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW

WEB, OTHERS = Group("web", 0, 12, 0), Group("of others", 0, 9, 3)
SPEC = GroupSpec("m", DEFAULT_PREFIX)
STOCKOUT = InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT", "none left")
ROUND_SECONDS = 400.0

LIES = ("negative target", "an instance twice", "a nameless group", "target beyond all", "it breaks down", "no group")
FAILURES = ("refused", "lost before", "lost after", "half of it", "nothing made", "made none that works")


class FaultyCloud(MemoryCloud):
    """`lie` is told when it is asked, `failure` happens when it is written to."""

    def __init__(self, *groups: Group) -> None:
        super().__init__(*groups)
        self.lie = ""
        self.failure = ""

    def groups(self) -> Sequence[Group]:
        said = list(super().groups())
        match self.lie:
            case "negative target":
                return [replace(each, target_size=-1) for each in said]
            case "a nameless group":
                return [*said, Group("", 0, 1, 0)]
            case "target beyond all":
                return [replace(each, target_size=each.max_size + 5) for each in said]
            case "no group":
                return []
            case "it breaks down":
                raise KeyError("groups")
        return said

    def instances(self, group: str) -> Sequence[Instance]:
        said = list(super().instances(group))
        return [*said, *said, Instance("ghost"), Instance("ghost")] if self.lie == "an instance twice" else said

    def increase(self, group: str, delta: int) -> None:
        match self.failure:
            case "refused":
                raise Refused(self.name, group, "no")
            case "lost before":
                raise Unavailable(self.name, group, "lost")
            case "half of it":
                if delta > 1:
                    super().increase(group, delta // 2)
                raise Unavailable(self.name, group, "lost half-way")
            case "nothing made":
                self.written.append(group)
                self._resize(group, delta)
                return
        super().increase(group, delta)
        if self.failure == "made none that works":
            new = self.members[group][-delta:]
            self.members[group][-delta:] = [replace(each, error=STOCKOUT) for each in new]
        if self.failure == "lost after":
            raise RuntimeError("the connection broke")

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        match self.failure:
            case "refused":
                raise Refused(self.name, group, "no")
            case "lost before":
                raise Unavailable(self.name, group, "lost")
            case "half of it":
                super().delete_nodes(group, nodes[: len(nodes) // 2])
                raise Unavailable(self.name, group, "lost half-way")
        super().delete_nodes(group, nodes)
        if self.failure == "lost after":
            raise RuntimeError("the connection broke")

    def boot(self) -> None:
        """Everything that can work does."""
        for group, members in self.members.items():
            self.members[group] = [
                each if each.error else replace(each, state=InstanceState.RUNNING) for each in members
            ]

    def nodes(self, now: float) -> list[Node]:
        """Ready ones for all that works."""
        ready = NodeStatus(conditions=(Condition(type="Ready", status="True"),))
        working = [each for members in self.members.values() for each in members]
        return [
            Node(
                metadata=ObjectMeta(each.provider_id, creation_timestamp=durations.timestamp(now - 1)),
                spec=NodeSpec(provider_id=each.provider_id),
                status=ready,
            )
            for each in working
            if each.state is InstanceState.RUNNING and not each.error
        ]


class Rounds:
    """A loop as short as can be: it observes, puts right, notes what it is about to ask for, and asks."""

    def __init__(self, cloud: FaultyCloud) -> None:
        self.cloud = cloud
        self.guard = Guard(cloud, Ownership({"web": None}))
        self.registry = Registry()
        self.rules = ReconcileRules()
        self.now = NOW
        self.asked = 0

    def turn(self, grow: int) -> Reconciliation | None:
        """None where the cloud could not be observed: then nothing at all may have been written."""
        self.now += ROUND_SECONDS
        written = list(self.cloud.written)
        nodes = self.cloud.nodes(self.now)
        try:
            observed = self.guard.observe([NodeRef.from_node(node) for node in nodes])
        except ProviderError:
            with pytest.raises(ProviderError):
                self.guard.increase("web", 1)
            assert self.cloud.written == written
            return None
        found = reconciliation.reconcile(observed, nodes, self.registry, self.rules, self.now)
        self.registry = decode_registry(encode_registry(found.registry), "books", self.now)
        for action in found.corrections:
            with contextlib.suppress(ProviderError):
                if action.kind is ActionKind.DELETE_NODES:
                    self.guard.delete_nodes(
                        action.group, [NodeRef(each, each) for each in action.nodes], below_min=True
                    )
                else:
                    self.guard.decrease_target(action.group, action.from_size - action.to_size)
        if not found.corrections and not found.blocked_reason:
            self._grow(observed, grow)
        return found

    def _grow(self, observed: CloudObservation, nodes: int) -> None:
        seen = observed.groups.get("web")
        if not nodes or seen is None or active_backoff(self.registry, "web", self.now) is not None:
            return
        target = seen.group.target_size
        nodes = min(nodes, seen.group.max_size - target)
        if nodes <= 0:
            return
        wanted = Increase("web", target, target + nodes, seen.group.max_size)
        self.registry = add_request(self.registry, wanted, self.now, self.rules.max_node_provision_time_seconds)
        self.asked += nodes
        try:
            self.guard.increase("web", nodes)
        except ProviderError as error:
            in_doubt = error.leaves_doubt
            self.registry = fail_request(
                self.registry, wanted, str(error), self.now, self.rules.backoff, in_doubt=in_doubt
            )
            assert active_backoff(self.registry, "web", self.now) is not None
            assert self.guard.is_in_doubt("web") is in_doubt
            if in_doubt:
                written = list(self.cloud.written)
                with pytest.raises(Later, match="must be observed again first"):  # not before it has been looked at
                    self.guard.increase("web", 1)
                assert self.cloud.written == written


steps = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["", "", *LIES]), st.sampled_from(["", "", *FAILURES]), st.booleans()),
    max_size=8,
)


@examples(250)
@given(steps)
def test_whatever_the_cloud_does_targets_stay_within_what_was_asked_and_all_agrees_in_the_end(
    asked: Sequence[tuple[int, str, str, bool]],
) -> None:
    cloud = FaultyCloud(WEB, OTHERS)
    cloud.members["of others"] = [Instance(f"theirs/{number}") for number in range(3)]
    rounds = Rounds(cloud)
    for grow, cloud.lie, cloud.failure, boots in asked:
        rounds.turn(grow)
        if boots:
            cloud.boot()
        assert 0 <= cloud.target("web") <= min(WEB.max_size, rounds.asked)
        assert cloud.target("of others") == 3
        assert set(cloud.written) <= {"web"}
    event(f"nodes asked for: {'some' if rounds.asked else 'none'}")
    cloud.lie = cloud.failure = ""
    for _ in range(10):
        cloud.boot()
        found = rounds.turn(0)
    assert found is not None
    web = [each for each in cloud.members["web"] if each.state is InstanceState.RUNNING and not each.error]
    assert cloud.target("web") == len(cloud.members["web"]) == len(web) <= rounds.asked
    assert found.state.groups["web"].group.target_size == cloud.target("web")
    assert (rounds.registry.requests, rounds.registry.short, rounds.registry.unregistered) == ({}, {}, {})
    assert (found.corrections, found.blocked_reason) == ((), "")
    cloud.boot()
    before = cloud.target("web")
    if rounds.turn(1) is not None and before < WEB.max_size:
        assert active_backoff(rounds.registry, "web", rounds.now) is None  # hours later it may grow again
        assert cloud.target("web") == before + 1


def test_an_increase_that_is_done_after_its_deadline_is_noticed_and_not_repeated() -> None:
    cloud = FaultyCloud(WEB)
    rounds = Rounds(cloud)
    rounds.guard = Guard(cloud, Ownership({"web": None}), deadline_seconds=0.2)
    release = threading.Event()
    cloud.trouble = lambda: [release.wait(30)].clear()

    def turned(grow: int) -> Reconciliation | None:
        """Once the cloud was observed: that may outlast so short a deadline, too. No time passes meanwhile."""

        def turn() -> Reconciliation | None:
            rounds.now -= ROUND_SECONDS
            return rounds.turn(grow)

        return eventually(turn)

    turned(2)
    assert active_backoff(rounds.registry, "web", rounds.now) is not None
    assert rounds.registry.requests["web"].nodes == 2  # it may have happened
    assert rounds.turn(2) is None  # nothing is asked of a cloud that has not answered yet
    release.set()
    turned(0)
    assert cloud.target("web") == rounds.guard.observed.groups["web"].group.target_size == 2
    cloud.boot()
    turned(0)
    assert rounds.registry.requests == {}
    assert cloud.written == ["web"]


CREATION_FAULTS: dict[str, Callable[[Created], Created]] = {
    "an answer that is lost": lambda _: [][0],
    "a group that is not empty": lambda made: Created(replace(made.main, target_size=1)),
    "a group of another name": lambda made: Created(replace(made.main, id="elsewhere")),
    "the same group once more": lambda made: Created(made.main, (made.main,)),
}


@pytest.mark.parametrize("answer", CREATION_FAULTS.values(), ids=CREATION_FAULTS.keys())
def test_a_group_whose_creation_went_wrong_is_ours_once_it_is_seen_and_goes_again(
    answer: Callable[[Created], Created],
) -> None:
    class Lying(FaultyCloud):
        def create_group(self, spec: GroupSpec) -> Created:
            return answer(super().create_group(spec))

    cloud = Lying()
    ownership = Ownership()
    guard = Guard(cloud, ownership)
    guard.observe()
    for _ in range(2):  # the second one before anybody has looked
        with pytest.raises(ProviderError):
            guard.create_group(SPEC)
    assert [group.id for group in cloud.listed] == [f"{DEFAULT_PREFIX}-new"]
    with pytest.raises(Refused):
        guard.increase(f"{DEFAULT_PREFIX}-new", 1)
    observed = guard.observe()
    assert observed.groups.keys() == {f"{DEFAULT_PREFIX}-new"}
    groups = [each.group for each in observed.groups.values()]
    empty = candidates.unneeded_groups(
        groups, {name: len(each.instances) for name, each in observed.groups.items()}, ownership
    )
    for group in empty:
        guard.delete_group(group)
    assert cloud.listed == []
    assert guard.observed.groups == {}


def test_what_is_deleted_half_way_is_not_deleted_twice() -> None:
    cloud = FaultyCloud(WEB)
    rounds = Rounds(cloud)
    cloud.failure = "made none that works"
    rounds.turn(4)
    cloud.failure = "half of it"
    rounds.turn(0)
    assert (cloud.target("web"), len(cloud.members["web"])) == (2, 2)
    cloud.failure = ""
    rounds.turn(0)
    assert (cloud.target("web"), cloud.members["web"]) == (0, [])
    assert rounds.registry.requests == {}
