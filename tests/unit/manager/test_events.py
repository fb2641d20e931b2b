"""What Events tell of a round."""

from collections.abc import Sequence
from dataclasses import replace

from manager.autoscaler.cloudprovider.contract import ErrorClass, Group, GroupSpec, InstanceError
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.reconciliation import NEVER_CAME, NOT_MADE, NOT_THERE, UNREGISTERED
from manager.autoscaler.cluster_state.state import (
    AcceptableRange,
    ClusterState,
    GroupStatus,
    Incident,
    IncidentKind,
    Increase,
    Readiness,
)
from manager.autoscaler.expander import priority
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import events
from manager.autoscaler.scale_up.decisions import (
    ExpanderStep,
    GroupCreation,
    Reasons,
    ScaleUpDecision,
    ScaleUpOutcome,
    UnscheduledPods,
)
from manager.autoscaler.settings.modes import Mode
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation
from shared.kube.events import ObjectRef
from tests.unit.manager.objects import NOW

STATUS = ObjectRef("v1", "ConfigMap", "cluster-autoscaler-status", "kube-system")
GROWN = Action(ActionKind.INCREASE, "pool", from_size=1, to_size=3, max_size=5, done=True)
ADVISED = replace(GROWN, mode=Mode.RECOMMEND, done=False)
GROW = ScaleUpDecision(ScaleUpOutcome.GROW, increases=(Increase("pool", 1, 3, 5),), triggered=("team/a", "team/b"))


def status_of(group: str) -> GroupStatus:
    return GroupStatus(Group(group, 0, 5, 1), Mode.ENFORCE, Readiness(ready=1), AcceptableRange(1, 1, 1), healthy=True)


def a_round(*actions: Action, decision: ScaleUpDecision | None = None, incidents: Sequence[Incident] = ()) -> Iteration:
    state = ClusterState({group: status_of(group) for group in ("pool", "spare")})
    return Iteration(1, NOW, state, decision=decision, actions=actions, incidents=tuple(incidents))


def said(made: Iteration) -> list[tuple[str, str, str, str]]:
    """Name of the object, type, reason and message."""
    return [(each.regarding.name, *each[1:]) for each in events.events(made, STATUS, max_nodes_total=7)]


def about_cluster(*actions: Action, incidents: Sequence[Incident] = ()) -> list[tuple[str, str, str]]:
    told = said(a_round(*actions, incidents=incidents))
    assert all(name == STATUS.name for name, *_ in told)
    return [(kind, reason, message) for _, kind, reason, message in told]


def test_pods_are_told_what_they_triggered() -> None:
    told = events.events(a_round(GROWN, decision=GROW), STATUS, uids={"team/a": "uid-a"})
    message = "pod triggered scale-up: [{pool 1->3 (max: 5)}]"
    assert told[2:] == [
        (ObjectRef("v1", "Pod", "a", "team", "uid-a"), "Normal", "TriggeredScaleUp", message),
        (ObjectRef("v1", "Pod", "b", "team"), "Normal", "TriggeredScaleUp", message),
    ]


def test_what_is_wrong_with_priorities_is_told() -> None:
    wrong = InvalidInput(source=priority.SOURCE, field="priorities", value=None, problem="there is none")
    told = said(replace(a_round(), invalid_objects={priority.SOURCE: wrong}))
    assert [(name, kind, reason) for name, kind, reason, _ in told] == [
        (STATUS.name, "Warning", "PriorityConfigMapInvalid")
    ]
    assert "there is none" in told[0][3]
    some = ScaleUpDecision(
        ScaleUpOutcome.NOT_NEEDED, steps=(ExpanderStep("priority", ("pool",)),), unmatched=("spare",)
    )
    assert [(reason, "spare" in message) for _, _, reason, message in said(a_round(decision=some))] == [
        ("PriorityConfigMapNotMatchedGroup", True)
    ]
    none = replace(some, steps=(ExpanderStep("priority", ("pool", "spare")),), unmatched=("pool", "spare"))
    assert [reason for _, _, reason, _ in said(a_round(decision=none))] == [
        *["PriorityConfigMapNotMatchedGroup"] * 2,
        "PriorityConfigMapNoGroupMatched",
    ]


def test_an_increase_is_told_as_it_was_begun_and_as_it_ended() -> None:
    begun = ("Normal", "ScaledUpGroup", "Scale-up: setting group pool size to 3 instead of 1 (max: 5)")
    assert about_cluster(GROWN) == [
        begun,
        ("Normal", "ScaledUpGroup", "Scale-up: group pool size set to 3 instead of 1 (max: 5)"),
    ]
    assert about_cluster(replace(GROWN, done=False, error="quota")) == [
        begun,
        ("Warning", "FailedToScaleUpGroup", "Scale-up failed for group pool: quota"),
    ]


def test_a_pod_is_not_told_of_nodes_that_the_cloud_refused() -> None:
    failed = replace(GROWN, done=False, error="quota")
    assert "TriggeredScaleUp" not in {reason for _, _, reason, _ in said(a_round(failed, decision=GROW))}


def test_what_is_only_recommended_is_told_as_that_and_nothing_else() -> None:
    assert said(a_round(ADVISED, decision=GROW)) == [
        (
            "cluster-autoscaler-status",
            "Normal",
            "RecommendedScaleUp",
            "Scale-up: group pool size would be set to 3 instead of 1 (max: 5)",
        ),
        ("a", "Normal", "RecommendedScaleUp", "pod would trigger scale-up: [{pool 1->3 (max: 5)}]"),
        ("b", "Normal", "RecommendedScaleUp", "pod would trigger scale-up: [{pool 1->3 (max: 5)}]"),
    ]


def test_each_of_several_decisions_speaks_of_its_own_groups() -> None:
    spare = replace(GROWN, group="spare", from_size=0, to_size=1)
    second = ScaleUpDecision(ScaleUpOutcome.GROW, increases=(Increase("spare", 0, 1, 5),), triggered=("team/c",))
    made = replace(a_round(GROWN, spare, decision=GROW), further=(second,))
    told = {name: message for name, _, reason, message in said(made) if reason == "TriggeredScaleUp"}
    assert told["a"] == "pod triggered scale-up: [{pool 1->3 (max: 5)}]"
    assert told["c"] == "pod triggered scale-up: [{spare 0->1 (max: 5)}]"


def test_a_group_that_would_be_created_is_recommended_by_its_future_name() -> None:
    creation = GroupCreation("nap-e2", GroupSpec("e2", "nap"), 2)
    decision = ScaleUpDecision(ScaleUpOutcome.GROW, creations=(creation,), triggered=("team/a",))
    action = Action(ActionKind.CREATE_GROUP, "nap-e2", Mode.RECOMMEND, to_size=2, max_size=9)
    assert said(a_round(action, decision=decision)) == [
        (
            "cluster-autoscaler-status",
            "Normal",
            "RecommendedScaleUp",
            "NodeAutoprovisioning: node group nap-e2 would be created",
        ),
        ("a", "Normal", "RecommendedScaleUp", "pod would trigger scale-up: [{nap-e2 0->2 (max: 9)}]"),
    ]


def no_options(*positions: int) -> ScaleUpDecision:
    def why_not(position: int) -> Reasons:
        if position == 0:
            return {
                "pool": ("Insufficient cpu", "node(s) had untolerated taint(s)"),
                "spare": ("Insufficient cpu",),
                "theoretical": ("Insufficient cpu",),
            }
        return {"theoretical": ("Insufficient memory",)}

    left = tuple(UnscheduledPods(each, (f"team/p{each}", f"team/q{each}"), awaiting=False) for each in positions)
    return ScaleUpDecision(ScaleUpOutcome.NO_OPTIONS, left=left, why_not=why_not)


def test_pods_that_no_group_can_take_are_told_why_counted_over_the_groups_there_are() -> None:
    told = said(a_round(decision=no_options(0)))
    assert told == [
        (
            name,
            "Normal",
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 2 Insufficient cpu, 1 node(s) had untolerated taint(s)",
        )
        for name in ("p0", "q0")
    ]


def test_groups_that_could_be_created_count_where_there_are_no_others() -> None:
    assert [message for *_, message in said(a_round(decision=no_options(1)))] == [
        "pod didn't trigger scale-up: 1 Insufficient memory"
    ] * 2


def test_one_pod_of_every_kind_is_told_before_the_second_of_any() -> None:
    assert [name for name, *_ in said(a_round(decision=no_options(0, 1)))] == ["p0", "p1", "q0", "q1"]


def test_no_round_tells_more_pods_than_are_let_through() -> None:
    many = tuple(f"team/{index}" for index in range(5000))
    unhelped = replace(no_options(0), left=(UnscheduledPods(0, many, awaiting=False),))
    assert len(said(a_round(decision=unhelped))) == events.MOST_TOLD
    triggered = said(a_round(GROWN, decision=replace(GROW, triggered=many)))
    assert len(triggered) == events.MOST_TOLD + 2


def test_the_most_nodes_there_may_be_are_told_to_cluster_and_pods() -> None:
    decision = ScaleUpDecision(ScaleUpOutcome.ALL_NODES, left=(UnscheduledPods(0, ("team/a",), awaiting=True),))
    assert said(a_round(decision=decision)) == [
        ("cluster-autoscaler-status", "Warning", "MaxNodesTotalReached", "Max total nodes in cluster reached: 7"),
        ("a", "Normal", "NotTriggerScaleUp", "pod didn't trigger scale-up: max total nodes in cluster reached"),
    ]


def test_pods_that_are_not_helped_beside_others_that_are_wait_for_their_own_round() -> None:
    decision = replace(GROW, left=(UnscheduledPods(0, ("team/c",), awaiting=True),))
    assert "c" not in {name for name, *_ in said(a_round(GROWN, decision=decision))}


def test_groups_that_come_and_go_are_told() -> None:
    assert about_cluster(
        Action(ActionKind.CREATE_GROUP, "nap-1", done=True),
        Action(ActionKind.CREATE_GROUP, "nap-2", error="no"),
        Action(ActionKind.DELETE_GROUP, "nap-3", done=True),
        Action(ActionKind.DELETE_GROUP, "nap-4", error="no"),
        Action(ActionKind.DELETE_GROUP, "nap-5", Mode.RECOMMEND),
    ) == [
        ("Normal", "CreatedNodeGroup", "NodeAutoprovisioning: created new node group nap-1"),
        (
            "Warning",
            "FailedToCreateNodeGroup",
            "NodeAutoprovisioning: attempt to create node group nap-2 failed: no",
        ),
        ("Normal", "DeletedNodeGroup", "NodeAutoprovisioning: removed node group nap-3"),
        (
            "Warning",
            "FailedToDeleteNodeGroup",
            "NodeAutoprovisioning: attempt to delete node group nap-4 failed: no",
        ),
        ("Normal", "RecommendedCleanup", "NodeAutoprovisioning: node group nap-5 would be removed"),
    ]


def test_what_was_put_right_is_told_where_somebody_may_miss_it() -> None:
    def deletion(reason: str, *, done: bool = False, error: str = "", mode: Mode = Mode.ENFORCE) -> Action:
        return Action(ActionKind.DELETE_NODES, "pool", mode, 3, 2, 5, ("id-x",), ScaleExplanation(reason), done, error)

    down = Action(ActionKind.DECREASE_TARGET, "pool", from_size=3, to_size=2, max_size=5, error="no")
    assert about_cluster(
        deletion(UNREGISTERED, done=True),
        deletion(UNREGISTERED, error="no"),
        deletion(NOT_MADE, done=True),
        deletion(NOT_MADE, error="no"),
        deletion(NOT_MADE, mode=Mode.RECOMMEND),
        replace(down, explanation=ScaleExplanation(NEVER_CAME)),
        replace(down, explanation=ScaleExplanation(NOT_THERE)),
        replace(down, error="", mode=Mode.RECOMMEND, explanation=ScaleExplanation(NOT_THERE)),
    ) == [
        ("Normal", "DeleteUnregistered", "Removed unregistered node id-x"),
        ("Warning", "DeleteUnregisteredFailed", "Failed to remove node id-x: no"),
        ("Warning", "DeleteNodesFailed", f"Failed to remove 1 nodes of group pool ({NOT_MADE}): no"),
        ("Normal", "RecommendedCleanup", f"nodes id-x of group pool would be removed: {NOT_MADE}"),
        ("Warning", "FailedToRevertScaleUp", "Failed to set group pool size to 2 instead of 3 (max: 5): no"),
        ("Warning", "FailedToFixNodeGroupSize", "Failed to set group pool size to 2 instead of 3 (max: 5): no"),
        ("Normal", "RecommendedCleanup", f"group pool size would be set to 2 instead of 3: {NOT_THERE}"),
    ]


def test_increases_that_failed_later_are_told() -> None:
    error = InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT", "none left")
    assert about_cluster(
        incidents=[
            Incident(IncidentKind.TIMED_OUT, "pool", 2, 900.2),
            Incident(IncidentKind.CREATION_FAILED, "pool", 3, error=error),
            Incident(IncidentKind.REGISTERED, "pool", 3, 40.0),
        ]
    ) == [
        ("Warning", "ScaleUpTimedOut", "Nodes added to group pool failed to register within 15m0s"),
        (
            "Warning",
            "ScaleUpFailed",
            "Failed adding 3 nodes to group pool due to OutOfResources.STOCKOUT; source errors: none left",
        ),
    ]


def test_what_a_cloud_has_noticed_is_told() -> None:
    assert about_cluster(
        incidents=[
            Incident(IncidentKind.DELETED_BY_OTHERS, "pool", 1, message="node n1 goes"),
            Incident(IncidentKind.DELAYED, "pool", 2, message="2 of its nodes wait"),
        ]
    ) == [
        ("Warning", "NodeDeletedByOthers", "Group pool: node n1 goes"),
        ("Normal", "ScaleUpDelayed", "Group pool: 2 of its nodes wait"),
    ]


def test_an_unhealthy_cluster_is_told() -> None:
    made = Iteration(1, NOW, ClusterState(healthy=False), blocked_reason="too many are unready")
    assert said(made) == [
        ("cluster-autoscaler-status", "Warning", "ClusterUnhealthy", "Cluster is unhealthy: too many are unready")
    ]


def test_a_dry_run_tells_nothing() -> None:
    assert said(replace(a_round(GROWN, decision=GROW), dry_run=True)) == []


def test_what_was_neither_done_nor_recommended_is_not_told() -> None:
    assert said(a_round(replace(GROWN, done=False), decision=GROW)) == []
