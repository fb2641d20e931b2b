"""Scale-down: which nodes go, which stay, and the reason that is given."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import Group, GroupOptions
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.pricing.model import GIB, NVIDIA_GPU
from manager.autoscaler.scale_down import drain, planner, pods_on_nodes, removal_status
from manager.autoscaler.scale_down.drain import (
    DisruptionBudget,
    DrainInfo,
    DrainOutcome,
    GangBudget,
    PodController,
    RemainingDisruptions,
)
from manager.autoscaler.scale_down.eligibility import ANNOTATION_DISABLED, NodeUtilization, node_utilization
from manager.autoscaler.scale_down.planner import AtomicSize, CroppedBuckets, NodeBucket, crop
from manager.autoscaler.scale_down.pods_on_nodes import DrainPlan, DrainPlanner, PodOnNode
from manager.autoscaler.scale_down.removal_status import (
    BlockingReason,
    CooldownTimestamps,
    DeletionCounts,
    GroupRules,
    NodeStanding,
    ScaleDownDecision,
    ScaleDownHistory,
    ScaleDownReason,
    ScaleDownRules,
    UnremovableNode,
    UnremovableReason,
)
from manager.autoscaler.scale_down.scale_down_context import EmptyNodeLimit, ScaleDownContext, ShrinkingGroup
from manager.autoscaler.settings.scale_down import Delays, DrainRules, Parallelism, RemovalRules
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, TAINT_TO_BE_DELETED, NodeInfo, NodeState
from manager.autoscaler.snapshot.pod_info import HostPort, NodeDemands, PodInfo, PodTerm
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from manager.autoscaler.snapshot.taints import SoftTaints, soft_taints
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from shared.api.core import Pod, Taint
from shared.api.meta import ObjectMeta
from shared.api.podgroup import LABEL_COSCHEDULING, PodGroup, PodGroupSpec
from shared.api.selectors import LabelRequirement, LabelSelector
from shared.errors import InvalidInput
from shared.names import MID_CPU
from shared.quantity import Resources
from tests.unit.manager.objects import NOW
from tests.unit.manager.wire_objects import ZONE

LONG_AGO = NOW - 86_400
UNREADY = NodeState.UNREADY
NOT_UNREADY_ONES = ScaleDownRules(removal=RemovalRules(scale_down_unready_enabled=False))
WEB = {"app": "web"}
RULES = ScaleDownRules()


def node(name: str, cores: float = 4, **more: Any) -> NodeInfo:
    amounts = {"cpu": round(cores * 1000), "memory": 8 * GIB, PODS: 110, **more.pop("amounts", {})}
    return NodeInfo(name, capacity=amounts, allocatable=amounts, **more)


def kind(cores: float = 0.5, **more: Any) -> PodInfo:
    requests = {"cpu": round(cores * 1000), **more.pop("requests", {})}
    return PodInfo("ns", more.pop("labels", WEB), requests, **more)


def pod(name: str, on: str, facts: PodInfo | None = None, **tenancy: Any) -> PodOnNode:
    given = {"namespace": "ns", "labels": WEB, "controller": PodController("ReplicaSet", "web"), **tenancy}
    return PodOnNode(f"ns/{name}", on, facts or kind(), DrainInfo(**given))


def daemon(name: str, on: str, cores: float = 0.5) -> PodOnNode:
    return pod(name, on, kind(cores, of_node=True), is_daemon=True, controller=PodController("DaemonSet", "agent"))


def decided(
    nodes: list[NodeInfo],
    pods: list[PodOnNode] | None = None,
    *,
    rules: ScaleDownRules = RULES,
    of_group: GroupRules | None = None,
    least: int = 0,
    deleting: int = 0,
    **more: Any,
) -> ScaleDownDecision:
    """Of a cluster with one group of all nodes, unneeded for a day unless something else is given."""
    names = [each.name for each in nodes]
    group = ShrinkingGroup(Group("g", least, 100, len(nodes)), of_group or GroupRules(), deleting)
    given = {
        "groups": {"g": group},
        "group_of": dict.fromkeys(names, "g"),
        "memory": ScaleDownHistory(dict.fromkeys(names, LONG_AGO)),
        **more,
    }
    return planner.decide(ScaleDownContext(NOW, nodes, pods or [], rules, **given))


def reasons(decision: ScaleDownDecision) -> dict[str, UnremovableReason | None]:
    return {name: verdict.reason for name, verdict in decision.statuses.items()}


def marked(age_seconds: float) -> tuple[Taint, ...]:
    return (Taint(TAINT_TO_BE_DELETED, str(round(NOW - age_seconds)), "NoSchedule"),)


def cordoned(readiness: NodeState) -> NodeInfo:
    return node("a", state=NodeState.CORDONED, unschedulable=True, readiness=readiness)


def test_an_underutilized_node_goes_and_its_pods_go_elsewhere() -> None:
    decision = decided([node("a"), node("b")], [pod("p", "a"), *(pod(f"q{each}", "b") for each in range(5))])
    assert reasons(decision) == {"a": None, "b": UnremovableReason.NOT_UNDERUTILIZED}
    (removal,) = decision.removals
    assert (removal.node, removal.group, removal.kind, removal.evicted) == (
        "a",
        "g",
        ScaleDownReason.UNDERUTILIZED,
        ("ns/p",),
    )
    assert decision.simulated[0].moves == (("ns/p", "b"),)
    assert (
        str(decision.statuses["a"]) == "a is deleted: 12.5% of its cpu is requested, and its 1 pods have other places"
    )
    assert str(decision.statuses["b"]) == (
        "b is not deleted, NotUnderutilized: 62.5% of its cpu is requested, more than 50.0%"
    )


def test_a_limit_on_empty_nodes_keeps_those_beyond_it_and_says_so() -> None:
    nodes = [node(name) for name in "abc"] + [node("d", state=UNREADY)]
    limit = EmptyNodeLimit(frozenset({"g"}), 1, "1;reasons=Empty")
    decision = decided(nodes, empty_node_limits=(limit,))
    assert [each.node for each in decision.removals] == ["a", "d"], "an unready node goes for another reason"
    assert reasons(decision) == {"a": None, "b": UnremovableReason.BUDGET, "c": UnremovableReason.BUDGET, "d": None}
    assert decision.statuses["b"].detail == (
        "the disruption limit '1;reasons=Empty' allows no more empty nodes to be deleted now"
    )
    elsewhere = replace(limit, groups=frozenset({"another"}))
    assert len(decided(nodes, empty_node_limits=(elsewhere,)).removals) == 4


def test_a_limit_on_empty_nodes_says_nothing_of_nodes_with_pods() -> None:
    limit = EmptyNodeLimit(frozenset({"g"}), 0, "0;reasons=Empty")
    decision = decided(
        [node("a"), node("b")],
        [pod("p", "a"), *(pod(f"q{each}", "b") for each in range(5))],
        empty_node_limits=(limit,),
    )
    assert [each.node for each in decision.removals] == ["a"]


def test_a_group_that_goes_as_a_whole_stays_where_a_limit_keeps_one_of_its_empty_nodes() -> None:
    limit = EmptyNodeLimit(frozenset({"g"}), 1, "1;reasons=Empty")
    decision = decided(
        [node("a"), node("b")], of_group=GroupRules(zero_or_max_node_scaling=True), empty_node_limits=(limit,)
    )
    assert decision.removals == ()
    assert reasons(decision) == {"a": UnremovableReason.ATOMIC, "b": UnremovableReason.BUDGET}


def test_a_node_with_nothing_but_pods_of_its_own_is_empty() -> None:
    own = [
        daemon("d", "a"),
        pod("mirror", "a", is_mirror=True, controller=None),
        pod("ended", "a", phase="Failed", controller=None),
        pod("stale", "a", deleted_at=NOW - 100),
    ]
    decision = decided([node("a")], own)
    assert [(each.kind, each.evicted) for each in decision.removals] == [(ScaleDownReason.EMPTY, ())]


def test_a_pending_pod_that_is_to_come_to_a_node_needs_another_place() -> None:
    waiting = PodOnNode("ns/waiting", "a", kind(1))
    alone = decided([node("a")], [waiting])
    assert reasons(alone) == {"a": UnremovableReason.NO_PLACE}
    assert alone.statuses["a"].detail == "no other node exists for pod ns/waiting"
    other = decided([node("a"), node("b")], [waiting, *(pod(f"q{each}", "b") for each in range(5))])
    assert [(each.node, each.evicted) for each in other.removals] == [("a", ())]


@pytest.mark.parametrize(
    ("nodes", "pods", "more", "reason"),
    [
        ([node("a", taints=marked(30))], [], {}, UnremovableReason.BEING_DELETED),
        ([node("a", taints=marked(300))], [], {}, None),
        ([node("a", taints=(Taint(TAINT_TO_BE_DELETED, "soon"),))], [], {}, UnremovableReason.BEING_DELETED),
        ([node("a", annotations={ANNOTATION_DISABLED: "true"})], [], {}, UnremovableReason.DISABLED),
        ([node("a", annotations={ANNOTATION_DISABLED: "false"})], [], {}, None),
        (
            [node("a", state=UNREADY)],
            [],
            {"rules": NOT_UNREADY_ONES},
            UnremovableReason.UNREADY_DISABLED,
        ),
        ([node("a", state=UNREADY)], [], {}, None),
        ([node("a", state=NodeState.NOT_STARTED)], [], {}, UnremovableReason.STARTING),
        ([node("a", state=NodeState.CORDONED, unschedulable=True)], [], {}, None),
        ([node("a", amounts={"cpu": 0})], [], {}, UnremovableReason.UNEXPECTED),
        ([node("a")], [], {"unreadable": {"a": "a pod makes no sense"}}, UnremovableReason.UNEXPECTED),
        ([node("a")], [], {"group_of": {}}, UnremovableReason.NOT_AUTOSCALED),
        ([node("a")], [], {"group_of": {"a": "someone else's"}}, UnremovableReason.NOT_AUTOSCALED),
        ([node("a")], [], {"least": 1}, UnremovableReason.AT_MINIMUM),
        ([node("a")], [], {"deleting": 1}, UnremovableReason.AT_MINIMUM),
        ([node("a")], [], {"rules": ScaleDownRules(bounds={"cpu": ResourceBounds(1)})}, UnremovableReason.BELOW_LIMIT),
        ([node("a")], [pod("p", "a", kind(2)), pod("q", "a", kind(0.001))], {}, UnremovableReason.NOT_UNDERUTILIZED),
        ([node("a")], [pod("p", "a", kind(2))], {}, UnremovableReason.NO_PLACE),
        ([node("a")], [pod("p", "a", controller=None)], {}, UnremovableReason.BLOCKED_BY_POD),
        ([node("a")], [pod("p", "a", safe_to_evict="on-completion")], {}, UnremovableReason.ON_COMPLETION_POD),
        ([node("a")], [], {"memory": ScaleDownHistory()}, UnremovableReason.NOT_UNNEEDED_LONG),
        ([node("a")], [], {"memory": ScaleDownHistory({"a": NOW - 600})}, UnremovableReason.NOT_UNNEEDED_LONG),
        ([node("a")], [], {"memory": ScaleDownHistory({"a": NOW - 600.1})}, None),
        (
            [node("a", state=UNREADY)],
            [],
            {"memory": ScaleDownHistory({"a": NOW - 1200})},
            UnremovableReason.NOT_UNREADY_LONG,
        ),
        ([node("a")], [], {"happened": CooldownTimestamps(added=NOW - 599)}, UnremovableReason.COOLDOWN),
        ([node("a")], [], {"happened": CooldownTimestamps(added=NOW - 600, deleted=NOW, failed=NOW - 180)}, None),
        ([node("a")], [], {"happened": CooldownTimestamps(failed=NOW - 179)}, UnremovableReason.COOLDOWN),
        ([node("a")], [], {"in_progress": DeletionCounts(empty=10)}, UnremovableReason.BUDGET),
        ([cordoned(UNREADY)], [], {"rules": NOT_UNREADY_ONES}, UnremovableReason.UNREADY_DISABLED),
        ([cordoned(UNREADY)], [], {"memory": ScaleDownHistory({"a": NOW - 1200})}, UnremovableReason.NOT_UNREADY_LONG),
        ([cordoned(NodeState.NOT_STARTED)], [], {}, UnremovableReason.STARTING),
        ([cordoned(NodeState.READY)], [], {"memory": ScaleDownHistory({"a": NOW - 601})}, None),
    ],
)
def test_each_obstacle_is_named(
    nodes: list[NodeInfo], pods: list[PodOnNode], more: dict[str, Any], reason: UnremovableReason | None
) -> None:
    decision = decided(nodes, pods, **more)
    assert reasons(decision) == {"a": reason}
    assert [each.node for each in decision.removals] == ["a"] * (reason is None)


def test_delays_may_be_those_of_the_nodes_own_group() -> None:
    happened: dict[str, Any] = {
        "happened": CooldownTimestamps(added=NOW),
        "happened_in": {"other": CooldownTimestamps(added=NOW)},
    }
    local = ScaleDownRules(delays=Delays(scale_down_delay_type_local=True))
    assert reasons(decided([node("a")], rules=local, **happened)) == {"a": None}
    happened["happened_in"] = {"g": CooldownTimestamps(added=NOW)}
    assert reasons(decided([node("a")], rules=local, **happened)) == {"a": UnremovableReason.COOLDOWN}


def test_why_a_pod_finds_no_place_is_counted_by_rule() -> None:
    picky = kind(0.5, demands=NodeDemands(selector=(("pool", "x"),)), ports=(HostPort("0.0.0.0", "TCP", 80),))
    nodes = [
        node("a"),
        node("b", cores=0.4, labels={"pool": "x"}),
        node("c"),
        node("d", labels={"pool": "x"}),
        node("e", cores=1.2, labels={"pool": "x"}),
    ]
    fillers = [pod("q", "e", kind(1)), pod("taken", "d", replace(picky, requests={"cpu": 3000}))]
    decision = decided(nodes, [pod("p", "a", picky), *fillers], group_of={"a": "g"})
    assert decision.statuses["a"].detail == (
        "pod ns/p fits on none of 4 other nodes: 1 not matched or tolerated, 2 Insufficient cpu, "
        "1 kept free by rules between pods"
    )


def test_a_node_found_unremovable_is_tried_again_only_after_a_while_or_once_it_is_empty() -> None:
    nodes, pods = [node("a")], [pod("p", "a")]
    first = decided(nodes, pods)
    assert first.memory.unremovable["a"].until == NOW + RULES.removal.unremovable_node_recheck_timeout_seconds
    later = decided(nodes, pods, memory=first.memory)
    assert reasons(later) == {"a": UnremovableReason.RECENTLY_UNREMOVABLE}
    assert later.statuses["a"].detail == ("a short while ago, NoPlaceToMovePods: no other node exists for pod ns/p")
    assert later.memory.unremovable == first.memory.unremovable
    assert reasons(decided(nodes, [], memory=first.memory)) == {"a": UnremovableReason.NOT_UNNEEDED_LONG}
    for until in (
        NOW,
        NOW + 4 * RULES.removal.unremovable_node_recheck_timeout_seconds,
    ):  # over, and set before the clock went back
        known = ScaleDownHistory({}, {"a": UnremovableNode(until, UnremovableReason.NO_PLACE, "")})
        assert reasons(decided(nodes, pods, memory=known)) == {"a": UnremovableReason.NO_PLACE}


@pytest.mark.parametrize(
    "why",
    [
        UnremovableReason.UNEXPECTED,
        UnremovableReason.NO_PLACE,
        UnremovableReason.PEAKS,
        UnremovableReason.BLOCKED_BY_POD,
    ],
)
def test_an_empty_node_is_tried_again_at_once_unless_its_deletion_failed(why: UnremovableReason) -> None:
    known = ScaleDownHistory({"a": LONG_AGO}, {"a": UnremovableNode(NOW + 100, why, "the cloud has said no")})
    decision = decided([node("a")], memory=known)
    assert reasons(decision) == {
        "a": UnremovableReason.RECENTLY_UNREMOVABLE if why is UnremovableReason.UNEXPECTED else None
    }
    assert decision.memory.unremovable == (known.unremovable if why is UnremovableReason.UNEXPECTED else {})


def test_a_node_that_was_needed_in_between_begins_anew() -> None:
    assert removal_status.unneeded_since({"a": 10.0, "b": 20.0}, ["b", "c"], 100.0) == {"b": 20.0, "c": 100.0}
    assert removal_status.unneeded_since({"a": 200.0}, ["a"], 100.0) == {"a": 100.0}  # the clock went back


def test_of_several_delays_the_last_to_end_is_named() -> None:
    happened = CooldownTimestamps(added=NOW - 590, failed=NOW - 60)
    assert removal_status.cooldown(happened, Delays(), NOW) == (
        "a deletion failed not long ago; nothing is deleted for another 2m0s"
    )


def test_only_as_many_nodes_are_unneeded_as_the_group_can_spare_those_unneeded_longest_first() -> None:
    nodes = [node(name) for name in "abcd"]
    memory = ScaleDownHistory({"c": LONG_AGO - 1, "d": LONG_AGO})
    decision = decided(nodes, least=2, memory=memory)
    assert decision.unneeded == ("c", "d")
    assert decision.statuses["a"].reason is UnremovableReason.AT_MINIMUM
    assert decision.statuses["a"].detail == "its group has 4 nodes, and its minimum is 2"


def test_disruption_budgets_are_used_up_within_a_pass() -> None:
    nodes = [node("a"), node("b"), node("c", annotations={ANNOTATION_DISABLED: "true"})]
    pods = [pod("p", "a"), pod("q", "b")]
    budget = DisruptionBudget("ns", "web", LabelSelector(WEB), 1)
    decision = decided(nodes, pods, disruption_budgets=[budget])
    assert reasons(decision) == {"a": None, "b": UnremovableReason.BLOCKED_BY_POD, "c": UnremovableReason.DISABLED}
    assert decision.statuses["b"].detail == "pod ns/q budget web allows no eviction now (NotEnoughPdb)"


def test_pods_that_are_still_to_be_evicted_from_nodes_on_their_way_out_use_up_budgets() -> None:
    nodes, pods = [node("a"), node("b"), staying("c")], [pod("q", "b")]
    budget = DisruptionBudget("ns", "web", LabelSelector(WEB), 1)

    def reason(of_leaving: list[PodOnNode]) -> UnremovableReason | None:
        return reasons(decided(nodes, [*pods, *of_leaving], leaving={"a"}, disruption_budgets=[budget]))["b"]

    assert reason([pod("p", "a")]) is UnremovableReason.BLOCKED_BY_POD
    assert reason([pod("p", "a", deleted_at=NOW - 1)]) is None, "what it took is off what is allowed"
    assert reason([daemon("d", "a"), pod("p", "a", safe_to_evict="on-completion"), PodOnNode("r", "a", kind())]) is None


def test_of_many_budgets_those_that_cover_a_pod_are_found() -> None:
    wanted = [{}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}, {"tier": "x"}, {"app": "a", "tier": "y"}]
    selectors = [*(LabelSelector(each) for each in wanted), LabelSelector(None, (LabelRequirement("tier", "Exists"),))]
    budgets = [DisruptionBudget("ns", f"b{number}", each, 1) for number, each in enumerate(selectors)]
    known = RemainingDisruptions([*budgets, DisruptionBudget("other", "all", LabelSelector(), 1)])
    for labels in ({}, {"app": "a"}, {"app": "a", "tier": "x"}, {"tier": "y", "app": "c"}, {"app": "b", "more": ""}):
        found = [known.budgets[number] for number in known.covering("ns", labels)]
        assert found == [each for each in budgets if each.covers("ns", labels)]
    assert known.covering("nowhere", {}) == ()


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        ([DisruptionBudget("ns", "web", LabelSelector(WEB), 1)], BlockingReason.NOT_ENOUGH_PDB),
        ([DisruptionBudget("ns", "web", LabelSelector(WEB), 2)], None),
        (
            [DisruptionBudget("ns", f"web-{each}", LabelSelector(WEB), 9) for each in "ab"],
            BlockingReason.NOT_ENOUGH_PDB,
        ),
        ([DisruptionBudget("ns", "nobody", None, 0)], None),
        ([DisruptionBudget("other", "web", LabelSelector(), 0)], None),
    ],
)
def test_a_node_stays_unless_all_of_its_evictions_are_allowed_together(
    budgets: list[DisruptionBudget], why: BlockingReason | None
) -> None:
    found = DrainPlanner(DrainRules(), NOW).plan([pod("p", "a"), pod("q", "a")], RemainingDisruptions(budgets))
    assert getattr(found, "why", None) is why


def test_a_budget_that_allows_nothing_keeps_pods_that_say_they_may_be_evicted() -> None:
    budgets = [DisruptionBudget("ns", "web", LabelSelector(WEB), 0)]
    safe = pod("p", "a", safe_to_evict="true")
    found = DrainPlanner(DrainRules(), NOW).plan([safe], RemainingDisruptions(budgets))
    assert getattr(found, "why", None) is BlockingReason.NOT_ENOUGH_PDB


GANG = "gang/ns/train"


def test_no_gang_is_brought_below_the_pods_that_it_needs_at_once() -> None:
    nodes = [node("a"), node("b"), node("c"), staying("d")]
    pods = [pod(name, on, labels={}, pod_group=GANG, safe_to_evict="true") for name, on in ("pa", "qb", "rc")]

    def kept(allowed: int, **more: Any) -> list[str]:
        decision = decided(nodes, pods, gangs=[GangBudget(GANG, 2, allowed)], **more)
        return [name for name, why in reasons(decision).items() if why is UnremovableReason.BLOCKED_BY_POD]

    assert kept(1) == ["b", "c"]
    assert kept(2) == ["c"]
    assert kept(2, leaving={"a"}) == ["c"], "its pod is still to be evicted"
    decision = decided(nodes, pods, gangs=[GangBudget(GANG, 3, 0), GangBudget("gang/ns/other", 3, 9)])
    assert decision.statuses["a"].detail == (
        'pod ns/p would be one more eviction than PodGroup "ns/train", which needs 3 pods at once, allows now '
        "(GangAtMinimum)"
    )


def test_a_gang_does_not_count_as_a_second_disruption_budget() -> None:
    left = RemainingDisruptions([DisruptionBudget("ns", "web", LabelSelector(WEB), 1)], [GangBudget(GANG, 2, 1)])
    found = DrainPlanner(DrainRules(), NOW).plan([pod("p", "a", pod_group=GANG)], left)
    assert isinstance(found, DrainPlan)
    left.take(found.disruptions)
    blocked = drain.drainability(
        DrainInfo("ns", {}, controller=PodController("ReplicaSet"), pod_group=GANG), DrainRules(), left, NOW
    )
    assert blocked == drain.Drainability(
        DrainOutcome.BLOCKED,
        BlockingReason.GANG,
        'PodGroup "ns/train", which needs 2 pods at once, allows no eviction now',
    )


def test_a_gang_allows_as_many_evictions_as_it_has_pods_beyond_those_it_needs() -> None:
    def member(name: str, group: str, **more: Any) -> Pod:
        meta = {"name": name, "namespace": "ns", "labels": {LABEL_COSCHEDULING: group}, **more.pop("metadata", {})}
        return msgspec.convert(
            {"metadata": meta, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}} | more, Pod
        )

    pods = [
        *(member(f"p{number}", "four") for number in range(4)),
        member("ended", "four", status={"phase": "Succeeded"}),
        member("waits", "four", spec={}),
        member("leaves", "four", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        member("one", "short"),
        member("single", "singles"),
    ]
    groups = [("four", 3), ("short", 2), ("singles", 1), ("without-pods", 2)]
    made = (PodGroup(ObjectMeta(name, "ns"), PodGroupSpec(None, least)) for name, least in groups)
    known = {each.key: each for each in made}
    assert drain.gang_budgets(pods, known) == [
        GangBudget("coscheduling/ns/four", 3, 1),
        GangBudget("coscheduling/ns/short", 2, 0),
    ]
    assert drain.gang_budgets(pods, None) == []


NAKED: dict[str, Any] = {"controller": None}


@pytest.mark.parametrize(
    ("fields", "rules", "expected"),
    [
        ({"controller": PodController("ReplicaSet", exists=False)}, {}, BlockingReason.CONTROLLER_NOT_FOUND),
        (
            {"controller": PodController("Job", exists=False)},
            {"skip_nodes_with_custom_controller_pods": False},
            DrainOutcome.UNDECIDED,
        ),
        (
            {"controller": PodController("ReplicaSet", replicas=1)},
            {"min_replica_count": 2},
            BlockingReason.MIN_REPLICAS,
        ),
        ({"controller": PodController("Job", replicas=1)}, {"min_replica_count": 2}, DrainOutcome.UNDECIDED),
        (
            {"controller": PodController("DaemonSet", exists=False), "is_daemon": True},
            {},
            BlockingReason.CONTROLLER_NOT_FOUND,
        ),
        ({"controller": PodController("StatefulSet")}, {}, DrainOutcome.UNDECIDED),
        (
            {"controller": PodController("Foo")},
            {"skip_nodes_with_custom_controller_pods": False},
            DrainOutcome.UNDECIDED,
        ),
        ({**NAKED, "safe_to_evict": "on-completion"}, {}, DrainOutcome.WAIT),
        ({**NAKED, "phase": "Succeeded", "restart_policy": "Never"}, {}, DrainOutcome.DRAIN),
        ({**NAKED, "phase": "Succeeded"}, {}, BlockingReason.NOT_REPLICATED),
        ({**NAKED, "deleted_at": NOW - 60, "grace_seconds": 30}, {}, BlockingReason.NOT_REPLICATED),
        ({**NAKED, "deleted_at": NOW - 61, "grace_seconds": 30}, {}, DrainOutcome.SKIP),
        (
            {"namespace": "kube-system", "created_at": NOW},
            {"skip_nodes_with_system_pods": False},
            DrainOutcome.UNDECIDED,
        ),
        ({"namespace": "kube-system", "created_at": NOW, "safe_to_evict": "false"}, {}, BlockingReason.KUBE_SYSTEM),
        ({"local_volumes": ("a", "b"), "safe_local_volumes": frozenset("a")}, {}, BlockingReason.LOCAL_STORAGE),
        ({"local_volumes": ("a", "b"), "safe_local_volumes": frozenset("ab")}, {}, DrainOutcome.UNDECIDED),
        ({"local_volumes": ("a",)}, {"skip_nodes_with_local_storage": False}, DrainOutcome.UNDECIDED),
        ({"local_volumes": ("a",), "safe_to_evict": "false"}, {}, BlockingReason.NOT_SAFE_TO_EVICT),
    ],
)
def test_the_first_rule_that_decides_counts(
    fields: dict[str, Any], rules: dict[str, Any], expected: DrainOutcome | BlockingReason
) -> None:
    who = DrainInfo(**{"controller": PodController("ReplicaSet"), **fields})
    found = drain.drainability(who, DrainRules(**rules), RemainingDisruptions(), NOW)
    assert (found.why or found.outcome) is expected


def test_pods_are_read_with_all_that_ties_them_to_their_node() -> None:
    given = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": WEB,
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "one, two",
            },
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "deletionTimestamp": "2023-11-14T22:14:20Z",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}],
        },
        "spec": {
            "nodeName": "a",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c"}],
            "volumes": [
                {"name": "one", "emptyDir": {}},
                {"name": "host", "hostPath": {"path": "/x"}},
                {"name": "quick", "emptyDir": {"medium": "Memory"}},
                {"name": "far", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
        "status": {"phase": "Running"},
    }
    there = PodController("ReplicaSet", "web", replicas=3)
    found = pods_on_nodes.read_pods([msgspec.convert(given, Pod)], ReferencedObjects(), {"ns/ReplicaSet/web": there})
    (resident,) = found.residents
    assert (resident.key, resident.node) == ("ns/p", "a")
    assert resident.drain_info == DrainInfo(
        "ns",
        WEB,
        there,
        "Running",
        "Never",
        NOW,
        NOW + 60,
        0.0,
        safe_to_evict="false",
        local_volumes=("one", "host"),
        safe_local_volumes=frozenset({"one", "two"}),
    )
    (orphan,) = pods_on_nodes.read_pods([msgspec.convert(given, Pod)], ReferencedObjects(), {}).residents
    assert orphan.drain_info is not None
    assert orphan.drain_info.controller == PodController("ReplicaSet", "web", exists=False)


def test_a_pod_that_cannot_be_read_keeps_its_node() -> None:
    given = {
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": {"cpu": "a lot"}}}]},
    }
    found = pods_on_nodes.read_pods([msgspec.convert(given, Pod)], ReferencedObjects())
    assert not found.residents
    assert "a lot" in found.unreadable["a"]
    assert reasons(decided([node("a")], unreadable=found.unreadable)) == {"a": UnremovableReason.UNEXPECTED}


def test_utilization_003_large_init_containers_count_as_they_do_for_the_scheduler() -> None:
    """A row of Cluster Autoscaler's cases that is told in words."""
    plain = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "200000"}}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m", "memory": "100000"}}}
    init = {"name": "i", "resources": {"requests": {"cpu": "50000m", "memory": "100000000"}}}
    specs: list[dict[str, Any]] = [
        {"containers": [plain]},
        {"containers": [plain], "initContainers": [sidecar]},
        {"containers": [plain], "initContainers": [init]},
    ]
    pods = [
        msgspec.convert({"metadata": {"name": f"p{index}"}, "spec": {**spec, "nodeName": "n"}}, Pod)
        for index, spec in enumerate(specs)
    ]
    requests = [each.facts.requests for each in pods_on_nodes.read_pods(pods, ReferencedObjects()).residents]
    assert sum(each["cpu"] for each in requests) / 2000 == 25.125
    where = NodeInfo("n", allocatable={"cpu": 2000, "memory": 2_000_000})
    assert node_utilization(where, requests) == NodeUtilization(50.25, "memory")


def test_ignored_pods_that_take_all_there_is_leave_nothing_to_utilize() -> None:
    where = NodeInfo("n", allocatable={"cpu": 1000, "memory": 1000})
    assert node_utilization(where, [], [{"cpu": 1000, "memory": 1000}]).share == 0.0
    assert node_utilization(where, [{"cpu": 1}], [{"cpu": 1000}]) == NodeUtilization(float("inf"), "cpu")
    with pytest.raises(InvalidInput, match=r"Node n: status\.allocatable\.memory"):
        node_utilization(NodeInfo("n", allocatable={"cpu": 1000}), [])


def test_gpu_nodes_have_a_threshold_of_their_own_and_none_of_the_others() -> None:
    gpus: dict[str, Any] = {"amounts": {NVIDIA_GPU: 4}}
    busy = [pod("p", "a", kind(3.9)), pod("q", "a", kind(0, requests={NVIDIA_GPU: 2}))]
    nodes = [node("a", **gpus), node("b", **gpus, annotations={ANNOTATION_DISABLED: "true"})]
    assert reasons(decided(nodes, busy))["a"] is None
    low = GroupRules(scale_down_gpu_utilization_threshold=0.4)
    assert reasons(decided(nodes, busy, of_group=low))["a"] is UnremovableReason.NOT_UNDERUTILIZED


def test_a_cloud_may_want_it_otherwise_for_a_group() -> None:
    wanted = GroupOptions(scale_down_utilization_threshold=0.0, scale_down_unneeded_time_seconds=7.0)
    assert GroupRules(zero_or_max_node_scaling=True).overridden_by(wanted) == GroupRules(
        0.0, scale_down_unneeded_time_seconds=7.0, zero_or_max_node_scaling=True
    )


def test_the_cluster_keeps_its_lower_bounds_over_a_whole_pass() -> None:
    nodes = [node(name, cores=3.5) for name in "abc"]  # which count as four cores each
    rules = ScaleDownRules(bounds={"cpu": ResourceBounds(8), "memory": ResourceBounds(GIB)})
    decision = decided(nodes, rules=rules)
    assert decision.unneeded == ("a",)
    assert decision.statuses["b"].detail == "the cluster would have too little cpu"


def test_nodes_on_their_way_out_are_not_there_for_the_lower_bounds() -> None:
    rules = ScaleDownRules(bounds={"cpu": ResourceBounds(8)})
    four = [node(name) for name in "abcd"]
    assert reasons(decided(four, rules=rules, leaving={"a", "b"}))["c"] is UnremovableReason.BELOW_LIMIT
    going = [node(name, taints=marked(30), state=NodeState.TO_BE_DELETED) for name in "ab"]
    assert reasons(decided([*going, *four[2:]], rules=rules))["c"] is UnremovableReason.BELOW_LIMIT
    assert reasons(decided(four, rules=rules, leaving={"a"}))["b"] is None


def test_nodes_there_is_no_time_for_are_told_so_and_stay() -> None:
    turns = iter((False, True, True))
    given = ScaleDownContext(
        NOW,
        [node(name) for name in "abc"],
        rules=RULES,
        groups={"g": ShrinkingGroup(Group("g", 0, 100, 3))},
        group_of=dict.fromkeys("abc", "g"),
        memory=ScaleDownHistory(dict.fromkeys("abc", LONG_AGO)),
    )
    decision = planner.decide(given, lambda: next(turns))
    assert reasons(decision) == {"a": None, "b": UnremovableReason.OUT_OF_TIME, "c": UnremovableReason.OUT_OF_TIME}
    assert decision.unneeded == ("a",)


def test_an_atomic_group_goes_as_a_whole_or_not_at_all() -> None:
    nodes = [node("a"), node("b")]
    whole = GroupRules(zero_or_max_node_scaling=True)
    assert [each.node for each in decided(nodes, of_group=whole).removals] == ["a", "b"]
    partly = decided(nodes, of_group=whole, memory=ScaleDownHistory({"a": LONG_AGO}))
    assert reasons(partly) == {"a": UnremovableReason.ATOMIC, "b": UnremovableReason.NOT_UNNEEDED_LONG}
    assert partly.statuses["a"].detail == "its group is deleted as a whole, and only 1 of its 2 nodes are due"


def test_an_atomic_group_that_is_too_large_for_now_keeps_the_next_one_waiting() -> None:
    atomic = {"eight": AtomicSize(8, 8), "three": AtomicSize(3, 3)}
    buckets = [
        NodeBucket(name, tuple(f"{name}-{each}" for each in range(size.target))) for name, size in atomic.items()
    ]
    nothing = CroppedBuckets((), ())
    assert crop(buckets, [], atomic, DeletionCounts(10), Parallelism()) == nothing
    assert [each.group for each in crop(buckets, [], atomic, DeletionCounts(5), Parallelism()).empty] == ["eight"]
    assert crop([], buckets, atomic, DeletionCounts(0, 1), Parallelism()) == nothing


def test_an_atomic_group_with_empty_nodes_keeps_no_atomic_group_waiting_that_only_drains() -> None:
    atomic = {"three": AtomicSize(3, 3), "eight": AtomicSize(8, 8), "four": AtomicSize(4, 4), "two": AtomicSize(2, 2)}
    buckets = {
        name: NodeBucket(name, tuple(f"{name}-{each}" for each in range(size.target))) for name, size in atomic.items()
    }
    three, eight, four, two = buckets.values()
    room = Parallelism(10, 2)
    assert crop([three, eight], [two], atomic, DeletionCounts(), room) == CroppedBuckets((three,), (two,))
    assert crop([three, eight, two], [], atomic, DeletionCounts(), room) == CroppedBuckets((three,), ())
    assert crop([three, eight], [four, two], atomic, DeletionCounts(), room) == CroppedBuckets((three,), ())


def test_a_half_of_an_atomic_group_never_goes() -> None:
    half = [NodeBucket("g", ("a", "b"))]
    assert crop(half, [], {"g": AtomicSize(4, 4)}, DeletionCounts(), Parallelism()) == CroppedBuckets((), ())


def test_by_default_one_node_is_drained_at_a_time_and_empty_ones_come_first() -> None:
    nodes = [*(node(name) for name in "abc"), node("z", annotations={ANNOTATION_DISABLED: "true"})]
    decision = decided(nodes, [pod("p", "a"), pod("q", "b")])
    assert [each.node for each in decision.removals] == ["c", "a"]
    assert decision.statuses["b"].reason is UnremovableReason.BUDGET
    assert decision.statuses["b"].standing is NodeStanding.UNNEEDED


PEAKS = {"a": Resources(1000, GIB), "b": Resources(2500, GIB)}


def peaked(**more: Any) -> ScaleDownDecision:
    """A node with one pod to move and one that may take it; both of 4 cores, of which one tenth is to stay free."""
    keep = node("b", annotations={ANNOTATION_DISABLED: "true"}, amounts={MID_CPU: 1000})
    pods = more.pop("pods", [pod("p", "a")])
    return decided([node("a"), keep], pods, **{"peaks": PEAKS, **more})


def test_a_node_leaves_only_if_the_others_hold_their_predicted_peaks_with_the_margin() -> None:
    assert reasons(peaked())["a"] is None  # 2500 and 1000 are within 3600
    tight = peaked(peaks={**PEAKS, "b": Resources(2601, GIB)})
    assert reasons(tight)["a"] is UnremovableReason.PEAKS
    assert tight.statuses["a"].detail == (
        "pod ns/p fits on 1 other nodes, none of which has room for its predicted peak"
    )
    assert reasons(peaked(peaks=None))["a"] is None
    assert (
        reasons(peaked(rules=ScaleDownRules(removal=RemovalRules(scale_down_peak_margin_percent=20))))["a"]
        is UnremovableReason.PEAKS
    )


def test_mid_that_would_vanish_counts_beyond_the_peak() -> None:
    mid = PodInfo("ns", WEB, {MID_CPU: 100})
    assert reasons(peaked(pods=[pod("p", "a"), pod("m", "a", mid)]))["a"] is None
    one_more = PodInfo("ns", WEB, {MID_CPU: 101})
    assert reasons(peaked(pods=[pod("p", "a"), pod("m", "a", one_more)]))["a"] is UnremovableReason.PEAKS
    there = pod("n", "b", PodInfo("ns", WEB, {MID_CPU: 1}))  # and so does the Mid that is held where they go
    assert reasons(peaked(pods=[pod("p", "a"), pod("m", "a", mid), there]))["a"] is UnremovableReason.PEAKS


def test_what_nothing_is_predicted_of_neither_moves_nor_takes_pods() -> None:
    assert reasons(peaked(peaks={"b": PEAKS["b"]}))["a"] is UnremovableReason.PEAK_UNKNOWN
    assert reasons(peaked(peaks={"b": PEAKS["b"]}, pods=[]))["a"] is None
    assert reasons(peaked(peaks={"a": PEAKS["a"]}))["a"] is UnremovableReason.NO_PLACE


def test_pods_that_a_peak_does_not_tell_of_count_beside_it() -> None:
    new = pod("new", "b", kind(0.2))
    calm = {**PEAKS, "b": Resources(2300, GIB)}  # beside the 1000 of a, 300 are left
    assert reasons(peaked(pods=[pod("p", "a"), new], peaks=calm))["a"] is None
    assert (
        reasons(peaked(pods=[pod("p", "a", kind(0.5)), new], peaks=calm, untold={"ns/new"}))["a"]
        is UnremovableReason.PEAKS
    )
    for requested, reason in ((0.3, None), (0.301, UnremovableReason.PEAKS)):
        coming = PodOnNode("ns/coming", "b", kind(requested))
        assert reasons(peaked(pods=[pod("p", "a"), coming], peaks=calm))["a"] is reason


def test_a_new_pod_is_reckoned_to_need_what_others_of_its_controller_do() -> None:
    there = [pod("p", "a", kind(0.1)), pod("q", "b", kind(0.3)), daemon("d", "a")]
    new = [
        pod("new", "b", kind(0.1)),
        pod("large", "b", kind(3)),
        pod("other", "b", kind(0.1), controller=PodController("Job", "web")),
        pod("bare", "b", kind(0.1), controller=None),
        daemon("e", "b"),
    ]
    on_node = pods_on_nodes.pods_by_node([*there, *new])
    found = pods_on_nodes.peaks_with_new_pods(PEAKS, on_node, {each.key for each in new})
    assert found == {"a": PEAKS["a"], "b": Resources(2500 + 2500 + 3000 + 100 + 100 + 500, 4 * GIB - GIB)}


def test_a_peak_goes_with_the_pods_by_what_they_request() -> None:
    moving = [{"cpu": 100, "memory": 7}, {"cpu": 300}, {MID_CPU: 50}]
    assert pods_on_nodes.shares(Resources(1000, 90), moving) == [
        Resources(250, 90),
        Resources(750, 0),
        Resources(50, 0),
    ]
    assert pods_on_nodes.shares(Resources(10, 0), [{}, {}, {}]) == [Resources(4, 0)] * 3  # rounded up
    left = pods_on_nodes.room({"cpu": 4000, "memory": 1000}, Resources(1000, 100), [{MID_CPU: 100}, {"cpu": 900}], 10)
    assert left == Resources(2500, 800)


def test_unneeded_nodes_are_marked_and_needed_ones_unmarked_a_few_at_a_time() -> None:
    soft = (Taint(TAINT_DELETION_CANDIDATE, "1", "PreferNoSchedule"),)
    nodes = [node("a", taints=soft), node("b", taints=soft), node("c"), node("d"), node("e", taints=soft)]
    assert soft_taints(nodes, ["c", "a", "d"], 10) == SoftTaints(("c", "d"), ("b", "e"))
    assert soft_taints(nodes, ["c", "a", "d"], 3) == SoftTaints(("c",), ("b", "e"))
    assert soft_taints(nodes, ["c"], 0) == SoftTaints()


def test_a_pass_says_what_is_to_be_marked_and_leaves_nodes_on_their_way_out_alone() -> None:
    soft = (Taint(TAINT_DELETION_CANDIDATE, "1", "PreferNoSchedule"),)
    nodes = [
        node("a"),
        node("b", taints=(*soft, *marked(10)), state=NodeState.TO_BE_DELETED),
        node("c", taints=soft, annotations={ANNOTATION_DISABLED: "true"}),
    ]
    assert decided(nodes).soft_taints == SoftTaints(("a",), ("c",))


def staying(name: str, **more: Any) -> NodeInfo:
    return node(name, annotations={ANNOTATION_DISABLED: "true"}, **more)


def apart(key: str) -> PodInfo:
    return kind(0.5, anti_affinity=(PodTerm(key, frozenset({"ns"}), LabelSelector(WEB)),))


def test_places_for_the_pods_of_a_node_that_is_being_deleted_are_not_given_away() -> None:
    going = node("going", taints=marked(10), state=NodeState.TO_BE_DELETED)
    pods = [pod("p", "going"), pod("much", "going", kind(9))]
    decision = decided([going, node("only")], pods)
    assert reasons(decision) == {"going": UnremovableReason.BEING_DELETED, "only": UnremovableReason.NO_PLACE}
    assert [(each.node, each.moves) for each in decision.going] == [("going", (("ns/p", "only"),))]
    assert reasons(decided([going, node("only"), staying("more")], pods))["only"] is None


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    """One of its kind in a zone: once it has left its node, it may go to another one there."""
    zone = {ZONE: "z1"}
    decision = decided([node("a", labels=zone), staying("b", labels=zone)], [pod("p", "a", apart(ZONE))])
    assert decision.simulated[0].moves == (("ns/p", "b"),)


def test_a_place_that_was_found_in_vain_is_free_again() -> None:
    alone = apart(LABEL_HOSTNAME)
    nodes = [
        *(node(name, labels={LABEL_HOSTNAME: name}) for name in "ab"),
        staying("c", labels={LABEL_HOSTNAME: "c"}),
    ]
    small = PodInfo("ns", {}, {"cpu": 1}, demands=NodeDemands(selector=(("pool", "none"),)))
    pods = [pod("p", "a", alone), pod("stuck", "a", small), pod("q", "b", alone), pod("r", "b", kind(0.1, labels={}))]
    decision = decided(nodes, pods)
    assert reasons(decision) == {"a": UnremovableReason.NO_PLACE, "b": None, "c": UnremovableReason.DISABLED}
    assert dict(decision.simulated[0].moves)["ns/q"] == "c"


def test_the_order_in_which_nodes_are_given_decides_nothing() -> None:
    nodes = [staying("b"), node("a"), staying("c")]
    pods = [pod("p", "a"), pod("q", "a", kind(1))]
    assert decided(nodes, pods) == decided(nodes[::-1], pods[::-1])


def test_a_cluster_of_nothing_has_nothing_to_say() -> None:
    assert decided([]).statuses == {}
    coming = node("soon", state=NodeState.UPCOMING)
    assert decided([coming], peaks={}).statuses == {}
    assert reasons(decided([node("a"), coming], [pod("p", "a")])) == {
        "a": UnremovableReason.NO_PLACE
    }  # it may never come


def test_of_two_thousand_nodes_the_twelve_hundred_that_are_little_used_are_unneeded() -> None:
    kinds = [PodInfo("ns", {"app": f"a{each}"}, {"cpu": 400, "memory": GIB // 4}) for each in range(40)]
    nodes = [node(f"n{each:04d}") for each in range(2000)]
    pods = [
        pod(f"p{index:04d}-{number}", each.name, kinds[(index + number) % len(kinds)])
        for index, each in enumerate(nodes)
        for number in range(6 if index % 5 < 2 else 2)
    ]
    decision = decided(nodes, pods, peaks={each.name: Resources(300, GIB // 2) for each in nodes})
    assert len(decision.unneeded) == 1200
    assert {each.reason for each in decision.statuses.values() if each.standing is NodeStanding.NEEDED} == {
        UnremovableReason.NOT_UNDERUTILIZED
    }


def test_pods_of_many_nodes_end_up_on_the_few_that_stay() -> None:
    """Every node is a tenth full, so that one in ten is enough."""
    nodes = [node(f"n{each:02d}") for each in range(40)]
    pods = [pod(f"p{each:02d}", f"n{each:02d}", kind(0.4)) for each in range(40)]
    assert len(decided(nodes, pods).unneeded) == 36


def test_the_nodes_that_leave_and_those_that_stay_do_not_change_from_pass_to_pass() -> None:
    nodes = [node(f"n{each}") for each in range(6)]
    pods = [pod(f"p{each}", f"n{each}", kind(1)) for each in range(6)]
    first = decided(nodes, pods, memory=ScaleDownHistory())
    again = decided(nodes, pods, memory=replace(first.memory, unremovable={}))
    assert first.unneeded == again.unneeded
    assert len(first.unneeded) == 4


def test_pods_of_one_group_are_read_once_for_all_that_agree_in_what_decides_their_eviction() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "u", "controller": True}
    apart: list[dict[str, Any]] = [
        {},
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}},
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "cache"}}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"ownerReferences": [{**owner, "kind": "Gadget"}]}},
        {"metadata": {"namespace": "kube-system", "creationTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"namespace": "kube-system", "creationTimestamp": "2026-01-01T00:00:01Z"}},
        {"status": {"phase": "Failed"}},
    ]
    pods = []
    for number, other in enumerate(apart + apart):
        meta = {"name": f"p{number}", "namespace": "team", "ownerReferences": [owner], **other.get("metadata", {})}
        pods.append(
            msgspec.convert(
                {"metadata": meta, "spec": {"nodeName": "n"}, "status": other.get("status", {"phase": "Running"})}, Pod
            )
        )
    read = {each.key: each.drain_info for each in pods_on_nodes.read_pods(pods, ReferencedObjects()).residents}
    assert read == {pod.metadata.key: pods_on_nodes.drain_info(pod) for pod in pods}
    assert len({id(each) for each in read.values()}) == len(apart)
