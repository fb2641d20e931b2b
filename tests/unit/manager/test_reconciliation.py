"""What has become of what was asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    ErrorClass,
    Group,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NoticeKind,
)
from manager.autoscaler.cloudprovider.errors import Refused
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.group_observation import ReconcileRules
from manager.autoscaler.cluster_state.reconciliation import (
    NEVER_CAME,
    NOT_MADE,
    NOT_THERE,
    STRAY,
    UNREGISTERED,
    Reconciliation,
    initial_registry,
    reconcile,
)
from manager.autoscaler.cluster_state.registry import (
    Registry,
    Shortage,
    add_created_groups,
    add_request,
    back_off,
    decode_registry,
    encode_registry,
)
from manager.autoscaler.cluster_state.state import (
    GroupBackoff,
    Incident,
    IncidentKind,
    Increase,
    Readiness,
    ScaleUpRequest,
)
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeState
from shared import durations
from shared.api.core import Condition, Node, NodeSpec, NodeStatus, Taint
from shared.api.meta import ObjectMeta
from tests.unit.manager.objects import NOW

MINUTE = 60.0
STOCKOUT = InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT", "none left in zone a")
QUOTA = InstanceError(ErrorClass.OUT_OF_RESOURCES, "QUOTA", "the quota is used up")


def machine(
    name: str, *, ready: bool = True, age: float = 3600.0, unready_for: float = 0.0, tainted: bool = False
) -> Node:
    """The Node `name` of the instance "id-<name>"."""
    turned = durations.timestamp(NOW - (0.0 if ready else unready_for))
    return Node(
        metadata=ObjectMeta(name=name, creation_timestamp=durations.timestamp(NOW - age)),
        spec=NodeSpec(
            provider_id=f"id-{name}",
            taints=(Taint(key=TAINT_TO_BE_DELETED, effect="NoSchedule"),) if tainted else None,
        ),
        status=NodeStatus(
            conditions=(Condition(type="Ready", status="True" if ready else "False", last_transition_time=turned),)
        ),
    )


def starting(name: str) -> Node:
    return machine(name, ready=False, age=60.0, unready_for=60.0)


def seen(
    *names: str,
    target: int | None = None,
    least: int = 0,
    most: int = 10,
    leaving: Sequence[str] = (),
    broken: Mapping[str, InstanceError] | None = None,
    options: GroupOptions | None = None,
    group: str = "pool",
) -> CloudObservation:
    """One group with the instances "id-<name>", those of Nodes and those without alike."""
    instances = (
        *(Instance(f"id-{name}") for name in names),
        *(Instance(f"id-{name}", InstanceState.DELETING) for name in leaving),
        *(Instance(f"id-{name}", InstanceState.CREATING, error) for name, error in (broken or {}).items()),
    )
    size = len(names) + len(broken or {}) if target is None else target
    found = ObservedGroup(Group(group, least, most, size), instances, options or GroupOptions())
    return CloudObservation({group: found}, group_of_node=dict.fromkeys((*names, *leaving), group))


def asked(nodes: int, to_size: int, *, ago: float = MINUTE, group: str = "pool") -> Registry:
    """Books with an increase that was asked for."""
    return add_request(Registry(), Increase(group, to_size - nodes, to_size, 100), NOW - ago, 900.0)


def judged(
    observed: CloudObservation,
    nodes: Sequence[Node],
    registry: Registry | None = None,
    rules: ReconcileRules | None = None,
) -> Reconciliation:
    return reconcile(observed, nodes, registry or Registry(), rules or ReconcileRules(), NOW)


def test_a_group_at_rest_has_all_of_its_nodes_and_nothing_to_tell() -> None:
    found = judged(seen("a", "b"), [machine("b"), machine("a"), machine("stranger")])
    status = found.state.groups["pool"]
    assert (status.readiness, status.upcoming, status.healthy) == (Readiness(ready=2), 0, True)
    assert (status.nodes, found.state.ungrouped) == (("a", "b"), ("stranger",))
    assert found.state.readiness == Readiness(ready=3)
    assert (found.registry, found.corrections, found.incidents, found.blocked_reason) == (Registry(), (), (), "")


def test_no_more_of_what_could_not_be_made_is_deleted_than_the_target_is_for() -> None:
    broken = {"x": STOCKOUT, "y": STOCKOUT, "z": STOCKOUT}
    (action,) = judged(seen(broken=broken, target=2), []).corrections
    assert (action.kind, action.nodes, action.to_size) == (ActionKind.DELETE_NODES, ("id-x", "id-y"), 0)
    assert judged(seen(broken=broken, target=0), []).corrections == ()


def test_instances_of_unknown_groups_that_never_become_nodes_are_deleted_by_the_mode_of_all_groups() -> None:
    observed = replace(seen("a"), strays={"gone": ("x", "y")})
    (action,) = judged(observed, [machine("a")]).corrections
    assert (action.kind, action.group, action.mode) == (ActionKind.DELETE_NODES, "gone", Mode.ENFORCE)
    assert (action.nodes, action.from_size, action.reason) == (("x", "y"), 2, STRAY)
    advised = judged(observed, [machine("a")], rules=ReconcileRules(own_modes=lambda _: Mode.RECOMMEND))
    assert [each.mode for each in advised.corrections] == [Mode.RECOMMEND]
    assert judged(observed, [machine("a")], rules=ReconcileRules(own_modes=lambda _: Mode.OBSERVE)).corrections == ()


@pytest.mark.parametrize("unready", [0, 10])
@pytest.mark.parametrize("mode", list(Mode))
def test_instances_that_a_cloud_has_given_up_are_deleted_once_however_the_group_scales(
    mode: Mode, unready: int
) -> None:
    observed = replace(seen("a", broken={"x": STOCKOUT}, target=2), strays={"pool": ("id-x",)})
    sick = [machine(f"n{number}", ready=False) for number in range(unready)]
    found = judged(observed, [machine("a"), *sick], rules=ReconcileRules(modes=lambda _: mode))
    (action,) = found.corrections
    assert (action.kind, action.nodes, action.reason) == (ActionKind.DELETE_NODES, ("id-x",), NOT_MADE)
    assert (action.mode, action.from_size, action.to_size) == (
        Mode.ENFORCE if mode is Mode.OBSERVE else mode,
        2,
        1,
    ), "a group that scales by utilization alone is observed for pending pods"


def test_what_a_group_was_made_as_is_known_for_as_long_as_there_is_the_group() -> None:
    made = add_created_groups(Registry(), ["pool"], "candidate")
    assert judged(seen(), [], made).registry.made_as == {"pool": "candidate"}
    assert judged(CloudObservation(), [], made).registry.made_as == {}


def test_nodes_that_were_asked_for_are_upcoming_until_they_are_ready() -> None:
    found = judged(seen("a", "b", target=4), [machine("a"), starting("b")], asked(3, 4))
    status = found.state.groups["pool"]
    assert (status.upcoming, found.node_states["b"]) == (3, NodeState.NOT_STARTED)
    assert status.request == asked(3, 4).requests["pool"]
    assert (status.acceptable.low, status.acceptable.high, status.healthy) == (1, 4, True)
    assert found.incidents == ()


def test_without_books_what_is_not_up_of_a_target_is_on_its_way_and_no_more() -> None:
    observed = seen("a", "b", "c", "d", target=6, leaving=("e",), broken={"x": STOCKOUT})
    nodes = [machine("a"), starting("b"), machine("c", ready=False), machine("e", tainted=True)]
    registry = initial_registry(observed, nodes, ReconcileRules(), NOW)
    assert registry == asked(4, 6, ago=0)
    found = judged(observed, nodes, registry)
    assert found.registry.requests == asked(3, 5, ago=0).requests
    assert found.state.groups["pool"].upcoming == 2  # b and d
    assert initial_registry(seen("a", "c"), nodes, ReconcileRules(), NOW) == Registry()
    slow = seen("b", options=GroupOptions(max_node_provision_time_seconds=1800.0))
    assert initial_registry(slow, nodes, ReconcileRules(), NOW).requests["pool"].deadline == NOW + 1800


def test_an_increase_ends_when_all_of_its_nodes_are_up_and_so_does_an_earlier_backoff() -> None:
    registry = back_off(asked(1, 2), "pool", "once", NOW - 500, ReconcileRules().backoff, code="c")
    found = judged(seen("a", "b"), [machine("a"), machine("b")], registry)
    assert found.incidents == (Incident(IncidentKind.REGISTERED, "pool", 1, MINUTE),)
    assert found.registry == Registry()


def test_an_increase_of_which_a_part_failed_leaves_the_group_backed_off_when_the_rest_is_up() -> None:
    registry = back_off(asked(1, 2), "pool", "stockout", NOW - 30, ReconcileRules().backoff, code="c")
    found = judged(seen("a", "b"), [machine("a"), machine("b")], registry)
    assert [each.kind for each in found.incidents] == [IncidentKind.REGISTERED]
    assert found.state.groups["pool"].backoff == registry.backoffs["pool"]


def test_a_target_that_was_lowered_since_is_no_success() -> None:
    found = judged(seen("a"), [machine("a")], asked(3, 4, ago=90.0))
    assert found.incidents == (Incident(IncidentKind.TAKEN_BACK, "pool", 3, 90.0),)
    assert found.registry.requests == {}


def test_a_cloud_that_does_not_tell_the_new_target_yet_is_given_a_moment() -> None:
    found = judged(seen("a"), [machine("a")], asked(3, 4, ago=10.0))
    assert (found.incidents, found.registry) == ((), asked(3, 4, ago=10.0))


def test_an_increase_that_is_not_there_in_time_is_taken_back_and_backs_the_group_off() -> None:
    found = judged(seen("a", "late", target=4), [machine("a")], asked(3, 4, ago=901.0))
    assert found.incidents == (Incident(IncidentKind.TIMED_OUT, "pool", 3, 901.0),)
    backoff = found.state.groups["pool"].backoff
    assert backoff is not None
    assert (backoff.code, backoff.reason) == ("timeout", "scale-up timed out for node group pool after 15m1s")
    assert found.registry.requests == {}
    assert found.state.groups["pool"].upcoming == 0
    # One of the three has an instance, which may still register.
    (back,) = found.corrections
    assert (back.kind, back.from_size, back.to_size, back.reason) == (ActionKind.DECREASE_TARGET, 4, 2, NEVER_CAME)


def test_at_its_very_deadline_an_increase_is_still_under_way() -> None:
    assert judged(seen("a", target=2), [machine("a")], asked(1, 2, ago=900.0)).incidents == ()


def test_what_is_taken_back_never_goes_below_the_minimum() -> None:
    found = judged(seen("a", target=4, least=3), [machine("a")], asked(3, 4, ago=901.0))
    assert [(each.from_size, each.to_size) for each in found.corrections] == [(4, 3)]


def test_of_what_is_deleted_and_what_is_taken_back_together_the_minimum_stays() -> None:
    registry = Registry(unregistered={"pool": {"id-lost": NOW - 901}}, short={"pool": Shortage(NOW - 901, 2)})
    found = judged(seen("a", "lost", target=4, least=2), [machine("a")], registry)
    assert [(each.kind, each.from_size, each.to_size) for each in found.corrections] == [
        (ActionKind.DELETE_NODES, 4, 3),
        (ActionKind.DECREASE_TARGET, 3, 2),
    ]


def test_only_what_is_late_of_an_increase_is_told_and_taken_back() -> None:
    found = judged(seen("a", "b", target=4), [machine("a"), machine("b")], asked(3, 4, ago=901.0))
    assert found.incidents == (Incident(IncidentKind.TIMED_OUT, "pool", 2, 901.0),)
    assert [(each.from_size, each.to_size) for each in found.corrections] == [(4, 2)]


def test_instances_that_could_not_be_made_are_told_once_and_deleted_until_they_are_gone() -> None:
    observed = seen("a", "b", broken={"x": STOCKOUT, "y": STOCKOUT, "z": QUOTA}, least=4)
    found = judged(observed, [machine("a"), starting("b")], asked(4, 5))
    assert found.incidents == (
        Incident(IncidentKind.CREATION_FAILED, "pool", 2, error=STOCKOUT),
        Incident(IncidentKind.CREATION_FAILED, "pool", 1, error=QUOTA),
    )
    status = found.state.groups["pool"]
    assert status.backoff == GroupBackoff("none left in zone a", NOW, 300, NOW + 300, "STOCKOUT")
    assert status.request is not None
    assert (status.request.nodes, status.request.to_size, status.errors) == (1, 2, (STOCKOUT, STOCKOUT, QUOTA))
    (deletion,) = found.corrections
    assert (deletion.nodes, deletion.reason) == (("id-x", "id-y", "id-z"), NOT_MADE)
    assert (deletion.from_size, deletion.to_size) == (5, 2)

    again = judged(observed, [machine("a"), starting("b")], found.registry)
    assert (again.incidents, again.registry, again.corrections) == ((), found.registry, found.corrections)

    gone = judged(seen("a", "b"), [machine("a"), machine("b")], again.registry)
    assert [each.kind for each in gone.incidents] == [IncidentKind.REGISTERED]
    assert (gone.registry.failed, gone.registry.requests) == ({}, {})


def test_the_part_of_an_increase_that_is_booting_is_upcoming_although_another_part_failed() -> None:
    found = judged(seen("a", "b", "c", broken={"x": STOCKOUT}), [machine("a"), starting("b")], asked(3, 4))
    assert found.state.groups["pool"].upcoming == 2


def test_what_failed_and_is_not_deleted_yet_neither_comes_nor_is_waited_for() -> None:
    observed = seen("a", "b", broken={"x": STOCKOUT})
    registry = add_request(Registry(failed={"pool": ("id-x",)}), Increase("pool", 1, 2, 10), NOW - MINUTE, 900.0)
    booting = judged(observed, [machine("a"), starting("b")], registry)
    assert booting.state.groups["pool"].upcoming == 1
    up = judged(observed, [machine("a"), machine("b")], booting.registry)
    assert [each.kind for each in up.incidents] == [IncidentKind.REGISTERED]


def test_what_a_whole_group_or_none_cannot_use_goes_with_what_failed() -> None:
    observed = seen("a", "b", broken={"x": QUOTA}, options=GroupOptions(zero_or_max_node_scaling=True))
    found = judged(observed, [machine("a")])
    assert [each.nodes for each in found.corrections] == [("id-b", "id-x")]


def test_an_instance_without_a_node_is_deleted_after_its_time_and_not_below_the_minimum() -> None:
    observed = seen("a", "lost", "lost too", least=2)
    first = judged(observed, [machine("a")])
    assert first.registry.unregistered == {"pool": {"id-lost": NOW, "id-lost too": NOW}}
    assert first.state.groups["pool"].readiness == Readiness(ready=1, unregistered=2)
    in_time = reconcile(observed, [machine("a")], first.registry, ReconcileRules(), NOW + 900)
    assert in_time.corrections == ()
    late = reconcile(observed, [machine("a")], first.registry, ReconcileRules(), NOW + 901)
    assert late.state.groups["pool"].readiness.long_unregistered == 2
    assert [(each.kind, each.nodes, each.reason) for each in late.corrections] == [
        (ActionKind.DELETE_NODES, ("id-lost",), UNREGISTERED)
    ]
    forced = reconcile(
        observed, [machine("a")], first.registry, ReconcileRules(force_delete_unregistered_nodes=True), NOW + 901
    )
    assert [each.nodes for each in forced.corrections] == [("id-lost", "id-lost too")]


def test_an_instance_that_registers_is_forgotten_and_begins_anew_when_it_is_lost_again() -> None:
    known = judged(seen("a"), [])
    there = reconcile(seen("a"), [machine("a")], known.registry, ReconcileRules(), NOW + 600)
    assert there.registry.unregistered == {}
    lost = reconcile(seen("a"), [], there.registry, ReconcileRules(), NOW + 1200)
    assert lost.registry.unregistered == {"pool": {"id-a": NOW + 1200}}


def test_a_group_has_its_own_time_to_provision() -> None:
    observed = seen("lost", options=GroupOptions(max_node_provision_time_seconds=30.0))
    first = judged(observed, [])
    assert len(reconcile(observed, [], first.registry, ReconcileRules(), NOW + 31).corrections) == 1


def test_a_target_without_instances_is_lowered_after_its_time_and_holds_the_round() -> None:
    observed = seen("a", target=3, least=1)
    first = judged(observed, [machine("a")])
    assert (first.corrections, first.blocked_reason) == ((), "")
    assert first.registry.short == {"pool": Shortage(NOW, 2)}
    assert reconcile(observed, [machine("a")], first.registry, ReconcileRules(), NOW + 900).corrections == ()
    late = reconcile(observed, [machine("a")], first.registry, ReconcileRules(), NOW + 901)
    (down,) = late.corrections
    assert (down.kind, down.from_size, down.to_size, down.reason) == (ActionKind.DECREASE_TARGET, 3, 1, NOT_THERE)
    assert late.blocked_reason == "target sizes are being put right: pool"
    # A cloud that refuses it does not hold all rounds to come.
    refused = reconcile(observed, [machine("a")], late.registry, ReconcileRules(), NOW + 911)
    assert (refused.corrections, refused.blocked_reason) == ((), "")
    assert len(reconcile(observed, [machine("a")], refused.registry, ReconcileRules(), NOW + 1802).corrections) == 1


def test_nothing_is_missing_while_it_is_asked_for_or_its_node_came_before_its_instance() -> None:
    assert judged(seen("a", target=4), [machine("a")], asked(3, 4)).registry.short == {}
    early = replace(seen("a", target=2), group_of_node={"a": "pool", "b": "pool"})
    assert judged(early, [machine("a"), machine("b")]).registry.short == {}


def test_a_group_that_is_only_just_filled_is_healthy_without_any_node() -> None:
    assert judged(seen(target=3, least=2), [], asked(3, 3)).state.groups["pool"].healthy
    assert not judged(seen(target=3, least=2), []).state.groups["pool"].healthy


def test_a_group_has_its_own_time_to_start() -> None:
    observed = seen("a", options=GroupOptions(max_node_startup_time_seconds=30.0))
    found = judged(observed, [starting("a")])
    assert (found.node_states["a"], found.state.readiness) == (NodeState.UNREADY, Readiness(unready=1))


def test_a_shortage_that_changes_begins_anew_and_one_that_ends_is_forgotten() -> None:
    registry = Registry(short={"pool": Shortage(NOW - 890, 2)})
    assert judged(seen("a", "b", target=3), [machine("a")], registry).registry.short == {"pool": Shortage(NOW, 1)}
    assert judged(seen("a"), [machine("a")], registry).registry.short == {}


def test_an_unhealthy_cluster_holds_the_round_and_only_lets_unregistered_instances_go() -> None:
    sick = [machine(f"n{index}", ready=False, unready_for=1800) for index in range(4)]
    names = [each.metadata.name for each in sick]
    observed = seen("a", *names, "lost", broken={"x": QUOTA})
    registry = Registry(unregistered={"pool": {"id-lost": NOW - 901}})
    found = judged(observed, [machine("a"), *sick], registry)
    assert (found.state.healthy, found.blocked_reason) == (False, "the cluster is unhealthy: 4 of 5 nodes are unready")
    assert not found.state.groups["pool"].healthy
    assert [each.nodes for each in found.corrections] == [("id-lost",)]


def test_backoffs_end_once_and_are_remembered_until_they_are_old() -> None:
    registry = back_off(Registry(), "pool", "no", NOW - 301, ReconcileRules().backoff, code="c")
    found = judged(seen("a"), [machine("a")], registry)
    assert found.incidents == (Incident(IncidentKind.BACKOFF_ENDED, "pool", seconds=300),)
    assert found.state.groups["pool"].backoff is None
    assert judged(seen("a"), [machine("a")], found.registry).incidents == ()
    again = back_off(found.registry, "pool", "no", NOW, ReconcileRules().backoff, code="c")
    assert again.backoffs["pool"].seconds == 600
    assert reconcile(seen("a"), [machine("a")], found.registry, ReconcileRules(), NOW + 10_500).registry.backoffs == {}


def test_nodes_that_leave_are_being_deleted_whatever_else_they_are() -> None:
    gone = machine("gone", ready=False, unready_for=1800)  # its instance is not listed any more
    observed = replace(seen("a", leaving=["b"]), group_of_node={"a": "pool", "b": "pool", "gone": "pool"})
    found = judged(observed, [machine("a", tainted=True), machine("b"), gone])
    assert found.state.groups["pool"].readiness == Readiness(ready=1, being_deleted=2)
    assert found.state.groups["pool"].acceptable.high == 2
    assert (found.node_states["a"], found.node_states["b"]) == (NodeState.TO_BE_DELETED, NodeState.TO_BE_DELETED)


def test_every_notice_of_the_cloud_is_an_incident() -> None:
    notices = tuple(CloudNotice(kind, "pool", 2, "so it is") for kind in NoticeKind)
    found = judged(CloudObservation(notices=notices), [], Registry())
    assert found.incidents == (
        Incident(IncidentKind.DELETED_BY_OTHERS, "pool", 2, message="so it is"),
        Incident(IncidentKind.DELAYED, "pool", 2, message="so it is"),
    )


def test_a_group_that_cannot_be_judged_keeps_its_books_and_one_that_is_gone_does_not() -> None:
    registry = Registry(
        requests={name: ScaleUpRequest(name, 1, NOW - 2000, NOW - 1000, 1) for name in ("odd", "gone")},
        backoffs={"theoretical": GroupBackoff("no", NOW, 300, NOW + 300)},
        unregistered={"odd": {"id-o": NOW - 2000}, "gone": {"id-g": NOW}},
        failed={"odd": ("id-f",), "gone": ("id-h",)},
        short={"odd": Shortage(NOW - 2000, 1), "gone": Shortage(NOW, 1)},
    )
    observed = CloudObservation(refused={"odd": Refused("cloud", "odd", "cannot be")})
    found = judged(observed, [], registry)
    assert found.state.refused == {"odd": "cloud: group odd: cannot be"}
    assert (found.corrections, found.incidents) == ((), ())
    kept = found.registry
    assert kept.requests == {"odd": registry.requests["odd"]}
    assert kept.backoffs == registry.backoffs
    assert (kept.unregistered, kept.failed) == ({"odd": {"id-o": NOW - 2000}}, {"odd": ("id-f",)})
    assert kept.short == {"odd": Shortage(NOW - 2000, 1)}


def test_nothing_is_put_right_in_a_group_that_is_only_observed() -> None:
    observed = seen("lost", broken={"x": QUOTA}, target=5)
    registry = Registry(unregistered={"pool": {"id-lost": NOW - 2000}}, short={"pool": Shortage(NOW - 2000, 3)})
    watched = judged(observed, [], registry, ReconcileRules(modes=lambda _: Mode.OBSERVE))
    assert (watched.corrections, watched.registry.short) == ((), registry.short)
    advised = judged(observed, [], registry, ReconcileRules(modes=lambda _: Mode.RECOMMEND))
    assert {each.mode for each in advised.corrections} == {Mode.RECOMMEND}
    assert (len(advised.corrections), advised.blocked_reason) == (3, "")


@pytest.mark.parametrize(("mode", "upcoming"), [(Mode.OBSERVE, 3), (Mode.RECOMMEND, 3), (Mode.ENFORCE, 0)])
def test_what_others_add_to_a_group_that_is_not_ours_to_grow_is_upcoming(mode: Mode, upcoming: int) -> None:
    found = judged(
        seen("a", "b", "c", target=4), [machine("a"), starting("b")], rules=ReconcileRules(modes=lambda _: mode)
    )
    assert found.state.groups["pool"].upcoming == upcoming


def test_what_others_asked_for_in_vain_is_upcoming_no_longer() -> None:
    registry, rules = Registry(short={"pool": Shortage(NOW - 901, 3)}), ReconcileRules(modes=lambda _: Mode.RECOMMEND)
    observed = seen("a", "b", target=5)
    found = reconcile(observed, [machine("a"), starting("b")], registry, rules, NOW)
    later = reconcile(observed, [machine("a"), starting("b")], found.registry, rules, NOW + 9)
    assert [each.state.groups["pool"].upcoming for each in (found, later)] == [1, 1]


# Any cloud, any nodes, any books.

GROUPS = ("a", "b", "c")


@st.composite
def situations(draw: st.DrawFn) -> tuple[CloudObservation, list[Node], Registry, ReconcileRules]:
    groups: dict[str, ObservedGroup] = {}
    nodes: list[Node] = []
    placed: dict[str, str] = {}
    requests: dict[str, ScaleUpRequest] = {}
    backoffs: dict[str, GroupBackoff] = {}
    unregistered: dict[str, dict[str, float]] = {}
    failed: dict[str, tuple[str, ...]] = {}
    short: dict[str, Shortage] = {}
    ago = st.sampled_from([0.0, 1.0, 59.0, 300.0, 301.0, 899.0, 900.0, 901.0, 5000.0, 20000.0])
    kinds = st.sampled_from(["ready", "starting", "unready", "tainted", "no node"])
    for group in GROUPS:
        instances = []
        for index in range(draw(st.integers(0, 5))):
            name = f"{group}-{index}"
            state = draw(st.sampled_from(InstanceState))
            error = draw(st.sampled_from([None, None, STOCKOUT, QUOTA]))
            if draw(st.integers(0, 5)):
                instances.append(Instance(f"id-{name}", state, error))
            match draw(kinds):
                case "ready":
                    nodes.append(machine(name))
                case "starting":
                    nodes.append(starting(name))
                case "unready":
                    nodes.append(machine(name, ready=False, unready_for=1800))
                case "tainted":
                    nodes.append(machine(name, tainted=True))
            placed[name] = group
            if draw(st.booleans()):
                unregistered.setdefault(group, {})[f"id-{name}"] = NOW - draw(ago)
            if draw(st.booleans()):
                failed[group] = (*failed.get(group, ()), f"id-{name}")
        least = draw(st.integers(0, 3))
        staying = sum(each.state is not InstanceState.DELETING for each in instances)
        target = staying + draw(st.integers(0, 4))
        options = GroupOptions(zero_or_max_node_scaling=draw(st.booleans()))
        groups[group] = ObservedGroup(Group(group, least, max(10, least), target), tuple(instances), options)
        if draw(st.booleans()):
            started = NOW - draw(ago)
            requests[group] = ScaleUpRequest(
                group, draw(st.integers(1, 6)), started, started + 900, draw(st.integers(0, target + 2))
            )
        if draw(st.booleans()):
            since = NOW - draw(ago)
            backoffs[group] = GroupBackoff("no", since, 300, since + 300, "c", draw(st.booleans()))
        if draw(st.booleans()):
            short[group] = Shortage(NOW - draw(ago), draw(st.integers(1, 4)))
    if draw(st.booleans()):
        nodes.append(machine("stranger"))
    there = {node.metadata.name for node in nodes}
    observed = CloudObservation(groups, group_of_node={name: group for name, group in placed.items() if name in there})
    modes = {group: draw(st.sampled_from(Mode)) for group in GROUPS}
    rules = ReconcileRules(modes=modes.__getitem__, force_delete_unregistered_nodes=draw(st.booleans()))
    return observed, draw(st.permutations(nodes)), Registry(1, requests, backoffs, unregistered, failed, short), rules


@given(situations())
def test_every_node_is_in_exactly_one_state_and_in_one_group_or_none(
    situation: tuple[CloudObservation, list[Node], Registry, ReconcileRules],
) -> None:
    observed, nodes, registry, rules = situation
    state = reconcile(observed, nodes, registry, rules, NOW).state
    listed = [name for group in state.groups.values() for name in group.nodes]
    assert sorted([*listed, *state.ungrouped]) == sorted(node.metadata.name for node in nodes)
    assert state.readiness.registered == len(nodes)
    assert all(each.readiness.registered == len(each.nodes) for each in state.groups.values())


@given(situations())
def test_no_group_ever_has_fewer_than_no_nodes_upcoming_or_more_than_its_target(
    situation: tuple[CloudObservation, list[Node], Registry, ReconcileRules],
) -> None:
    for status in reconcile(*situation, NOW).state.groups.values():
        target = status.group.target_size + status.unconfirmed
        assert 0 <= status.upcoming <= target
        assert status.upcoming + status.readiness.ready <= max(target, status.readiness.ready)


@given(situations())
def test_the_same_observation_twice_changes_nothing(
    situation: tuple[CloudObservation, list[Node], Registry, ReconcileRules],
) -> None:
    observed, nodes, registry, rules = situation
    first = reconcile(observed, nodes, registry, rules, NOW)
    second = reconcile(observed, list(reversed(nodes)), first.registry, rules, NOW)
    assert (second.registry, second.state, second.incidents) == (first.registry, first.state, ())
    assert second.node_states == first.node_states
    kept = decode_registry(encode_registry(first.registry), "books", NOW)
    assert kept == first.registry


@given(situations())
def test_corrections_never_touch_what_works_nor_go_below_the_minimum_without_need(
    situation: tuple[CloudObservation, list[Node], Registry, ReconcileRules],
) -> None:
    observed, nodes, registry, rules = situation
    registered = {node.spec.provider_id for node in nodes}
    sizes = {name: each.group.target_size for name, each in observed.groups.items()}
    gone: set[str] = set()
    for action in reconcile(observed, nodes, registry, rules, NOW).corrections:
        group = observed.groups[action.group]
        members = {each.provider_id: each for each in group.instances}
        assert rules.modes(action.group) is not Mode.OBSERVE
        assert action.from_size == sizes[action.group]
        assert 0 <= action.to_size < action.from_size
        sizes[action.group] = action.to_size
        if action.kind is ActionKind.DECREASE_TARGET:
            left = [each for each in group.instances if each.provider_id not in gone]
            assert action.to_size >= sum(each.state is not InstanceState.DELETING for each in left)
            assert action.to_size >= group.group.min_size
            continue
        assert action.from_size - action.to_size == len(set(action.nodes))
        assert not set(action.nodes) & (registered | gone)
        gone |= set(action.nodes)
        assert all(members[each].state is not InstanceState.DELETING for each in action.nodes)
        if action.reason == UNREGISTERED and not rules.force_delete_unregistered_nodes:
            assert action.to_size >= group.group.min_size
