"""One round: what is decided of a cluster and a cloud, and what holds it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    Group,
    GroupSpec,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused, Unavailable, Unsupported
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_created_groups, add_request, back_off, fail_request
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import AUTO, PROVIDER, DecisionSettings
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.expander import priority
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import cluster_view, iteration_plan
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.cluster_view import open_view
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pricing.model import Machine, UnitPrices
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up import groups, orchestrator
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.decisions import BELOW_MINIMUM
from manager.autoscaler.scale_up.options import ScaleUpSettings
from manager.autoscaler.settings.estimates import HealthLimits
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import taints
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.utilization.node_groups import NodeGroup, ScalingPolicy
from manager.autoscaler.utilization.rules import scan_rules
from manager.autoscaler.utilization.scan import DueScans
from shared import durations
from shared.api.core import DaemonSet, Node, Pod, Taint
from shared.names import BATCH_CPU
from shared.quantity import Amounts
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW

ZONE = "topology.kubernetes.io/zone"
AMOUNTS = {"cpu": "4", "memory": "16Gi", "pods": "110"}
OLD, YOUNG = NOW - 86_400, NOW - 60


def node(name: str, *, at: float = OLD, ready: str = "True", more: dict[str, str] | None = None) -> Node:
    amounts = {**AMOUNTS, **(more or {})}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": durations.timestamp(at)}
    raw = {
        "metadata": {"name": name, "creationTimestamp": durations.timestamp(at)},
        "spec": {"providerID": f"id:{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }
    return msgspec.convert(raw, Node)


def pod(name: str, requests: dict[str, str] | None = None, *, at: float = OLD, **spec: Any) -> Pod:
    """One that the scheduler has found no place for."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    container = {"name": "c", "resources": {"requests": requests or {"cpu": "3"}}}
    raw = {
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": durations.timestamp(at)},
        "spec": {"containers": [container], **spec},
        "status": {"conditions": [condition]},
    }
    return msgspec.convert(raw, Pod)


class Cloud(MemoryCloud):
    """One that has machines of a single kind, and makes groups of them."""

    def __init__(self, *groups: Group) -> None:
        super().__init__(*groups)
        self.given_template = node("template")
        self.types: Sequence[str] = ()
        self.asked: list[GroupSpec] = []

    def machine_types(self) -> Sequence[str]:
        return self.types

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        self.asked.append(spec)
        made = msgspec.structs.replace(
            self.given_template,
            metadata=msgspec.structs.replace(self.given_template.metadata, labels=dict(spec.labels)),
        )
        return Theoretical(spec, f"{spec.prefix}-{spec.machine_type}-{len(spec.labels)}", 1000, made)

    def has(self, group: str, *nodes: Node) -> None:
        self.members[group] += [Instance(each.spec.provider_id) for each in nodes]


def config(*listed: str, **more: Any) -> DecisionSettings:
    decides = {"pricing": FilePricing(), **more.pop("decides", {})}
    settings = ScaleUpSettings(Ownership(dict.fromkeys(listed)), **decides)
    return DecisionSettings(scale_up=settings, prices=FilePricing(), **{"scale_down_enabled": False, **more})


def planned(cloud: Cloud, chosen: DecisionSettings, known: Registry | None = None, **more: Any) -> PlannedIteration:
    objects = {key: more.pop(key) for key in list(more) if key in ClusterObjects.__dataclass_fields__}
    guard = Guard(cloud, chosen.ownership)
    made = ClusterObjects(NOW, **objects)
    guard.observe([NodeRef.from_node(each) for each in made.nodes])
    opened = {key: more.pop(key) for key in ("chance", "cache", "offered_by", "underway") if key in more}
    try:
        view = open_view(made, guard, known or Registry(), chosen, **{"chance": random.Random(3), **opened})
        return iteration_plan.plan(view, **more)
    finally:
        guard.close()


def actions(of: PlannedIteration) -> list[tuple[ActionKind, str, int]]:
    return [(action.kind, action.group, action.to_size) for action in of.iteration.actions]


def reasons(of: PlannedIteration) -> dict[str, str]:
    assert of.iteration.decision is not None
    return {each.group: each.reason for each in of.iteration.decision.skipped}


def test_a_pod_that_fits_nowhere_makes_a_group_grow() -> None:
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), pods=(pod("p"),))
    assert actions(found) == [(ActionKind.INCREASE, "a", 1)]
    assert (found.iteration.actions[0].mode, found.iteration.actions[0].done) == (Mode.ENFORCE, False)


@pytest.mark.parametrize("mark", [taints.TO_BE_REMOVED, taints.FORCE])
def test_a_group_of_which_every_node_is_to_go_grows_for_a_pod(mark: str) -> None:
    leaving = node("n")
    spec = msgspec.structs.replace(leaving.spec, taints=(Taint(mark, str(int(YOUNG)), "NoSchedule"),))
    leaving = msgspec.structs.replace(leaving, spec=spec)
    cloud = Cloud(Group("a", 0, 5, 1))
    cloud.has("a", leaving)
    both = NodeGroup(name="jobs", cloud_provider_group_name="a", policy=ScalingPolicy.BOTH)
    found = planned(cloud, config("a", groups=(both,)), nodes=(leaving,), pods=(pod("p"),))
    assert actions(found) == [(ActionKind.INCREASE, "a", 2)]


def test_a_pod_that_fits_on_a_node_there_is_makes_none() -> None:
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), nodes=(node("n"),), pods=(pod("p"),))
    assert actions(found) == []


def test_what_is_on_its_way_is_not_bought_again() -> None:
    cloud = Cloud(Group("a", 0, 5, 1))
    cloud.members["a"].append(Instance("id:a-0", InstanceState.CREATING))
    under_way = add_request(Registry(), Increase("a", 0, 1, 5), NOW - 10, 900)
    assert actions(planned(cloud, config("a"), under_way, pods=(pod("p"),))) == []
    assert actions(planned(cloud, config("a"), under_way, pods=(pod("p"), pod("q")))) == [(ActionKind.INCREASE, "a", 2)]


@pytest.mark.parametrize("limit", [{"max_nodes_total": 1}, {"bounds": {"cpu": ResourceBounds(high=4)}}])
def test_a_node_that_has_not_started_counts_towards_limits_whoever_asked_for_it(limit: dict[str, Any]) -> None:
    starting = node("stranger", at=NOW - 30, ready="False")
    chosen = config("a", decides=limit)
    assert actions(planned(Cloud(Group("a", 0, 5, 0)), chosen, nodes=(starting,), pods=(pod("p"),))) == []
    assert actions(planned(Cloud(Group("a", 0, 5, 0)), chosen, pods=(pod("p"),))) == [(ActionKind.INCREASE, "a", 1)]


def test_a_node_that_has_not_started_and_is_upcoming_counts_once() -> None:
    cloud = Cloud(Group("a", 0, 5, 1))
    starting = node("n", at=NOW - 30, ready="False")
    cloud.has("a", starting)
    under_way = add_request(Registry(), Increase("a", 0, 1, 5), NOW - 60, 900)
    chosen = config("a", decides={"max_nodes_total": 2})
    found = planned(cloud, chosen, under_way, nodes=(starting,), pods=(pod("p"), pod("q")))
    assert actions(found) == [(ActionKind.INCREASE, "a", 2)]
    assert [each.state for each in found.view.current.nodes] == [NodeState.UPCOMING]


def test_a_cloud_that_still_tells_the_old_target_is_not_asked_for_the_same_again() -> None:
    under_way = add_request(Registry(), Increase("a", 0, 1, 5), NOW - 5, 900)
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), under_way, pods=(pod("p"), pod("q")))
    assert actions(found) == []
    assert reasons(found) == {"a": cluster_view.UNCONFIRMED}
    beside = planned(Cloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0)), config("a", "b"), under_way, pods=(pod("p"),))
    assert actions(beside) == []
    later = add_request(Registry(), Increase("a", 0, 1, 5), NOW - 61, 900)
    assert actions(planned(Cloud(Group("a", 0, 5, 0)), config("a"), later, pods=(pod("p"),))) == [
        (ActionKind.INCREASE, "a", 1)
    ]


@pytest.mark.parametrize(("target", "bought"), [(1, []), (0, [(ActionKind.INCREASE, "b", 1)])])
def test_after_no_answer_the_target_says_whether_another_group_is_to_help(target: int, bought: list[Any]) -> None:
    chosen, increase = config("a", "b"), Increase("a", 0, 1, 5)
    asked = add_request(Registry(), increase, NOW - 5, 900)
    in_doubt = fail_request(asked, increase, "no answer", NOW - 5, chosen.backoff, in_doubt=True)
    cloud = Cloud(Group("a", 0, 5, target), Group("b", 0, 5, 0))
    assert actions(planned(cloud, chosen, in_doubt, pods=(pod("p"),))) == bought


class Quiet(Cloud):
    """It does not describe the nodes of group a while it is `quiet`."""

    quiet = True

    def template(self, group: str) -> Node:
        if self.quiet and group == "a":
            raise Unavailable(self.name, group, "lost")
        return super().template(group)


def test_while_nobody_describes_what_is_on_its_way_nothing_is_bought_until_its_time_is_over() -> None:
    cloud = Quiet(Group("a", 0, 5, 1), Group("b", 0, 5, 0))
    cloud.members["a"].append(Instance("id:a-0", InstanceState.CREATING))
    chosen, increase = config("a", "b"), Increase("a", 0, 1, 5)
    under_way = add_request(Registry(), increase, NOW - 900, 900)
    found = planned(cloud, chosen, under_way, pods=(pod("p"),))
    assert (actions(found), found.iteration.blocked_reason) == (
        [],
        f"{iteration_plan.UNKNOWN_UPCOMING}: memory: group a: lost",
    )
    found = planned(cloud, chosen, add_request(Registry(), increase, NOW - 901, 900), pods=(pod("p"),))
    assert (actions(found), found.iteration.blocked_reason) == ([(ActionKind.INCREASE, "b", 1)], "")
    cache = AutoscalerCache(chosen)
    for cloud.quiet in (False, True):  # it is as it was described last
        found = planned(cloud, chosen, under_way, cache=cache, pods=(pod("p"),))
        assert (actions(found), found.iteration.blocked_reason) == ([], "")


def test_while_nobody_can_judge_what_is_on_its_way_nothing_is_bought_until_its_time_is_over() -> None:
    cloud = Cloud(Group("a", 0, 5, -1), Group("b", 0, 5, 0))
    chosen, increase = config("a", "b"), Increase("a", 0, 1, 5)
    found = planned(cloud, chosen, add_request(Registry(), increase, NOW - 900, 900), pods=(pod("p"),))
    assert actions(found) == []
    assert found.iteration.blocked_reason.startswith(
        f"{iteration_plan.UNKNOWN_UPCOMING}: memory: group a: target_size: -1"
    )
    found = planned(cloud, chosen, add_request(Registry(), increase, NOW - 901, 900), pods=(pod("p"),))
    assert (actions(found), found.iteration.blocked_reason) == ([(ActionKind.INCREASE, "b", 1)], "")


def test_a_group_that_is_observed_is_no_option_and_says_so() -> None:
    cloud = Cloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0))
    found = planned(cloud, config("a", "b", group_modes={"a": Mode.OBSERVE}), pods=(pod("p"),))
    assert actions(found) == [(ActionKind.INCREASE, "b", 1)]
    assert reasons(found) == {"a": cluster_view.OBSERVED}


def test_acts_carry_the_mode_of_their_group() -> None:
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a", mode=Mode.RECOMMEND), pods=(pod("p"),))
    assert [action.mode for action in found.iteration.actions] == [Mode.RECOMMEND]


def test_a_group_that_is_only_recommended_keeps_no_pod_from_one_that_may_grow() -> None:
    modes = {"advised": Mode.RECOMMEND}
    cloud = Cloud(Group("advised", 0, 5, 0), Group("done", 0, 5, 0))
    chosen = config("advised", "done", group_modes=modes, decides={"expanders": ("priority",)})
    found = planned(cloud, chosen, pods=(pod("p"),), priorities="10: [advised]\n1: [done]")
    assert [(action.group, action.mode) for action in found.iteration.actions] == [
        ("advised", Mode.RECOMMEND),
        ("done", Mode.ENFORCE),
    ]
    assert [decision.advice for decision in found.decisions] == [True, False]
    assert {each.group: each.reason for each in found.decisions[1].skipped} == {"advised": iteration_plan.RECOMMENDED}


def test_advice_keeps_no_other_group_from_its_minimum() -> None:
    class Tainting(Cloud):
        def template(self, group: str) -> Node:
            made = super().template(group)
            taints = (Taint("own", effect="NoSchedule"),) if group == "short" else None
            return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, taints=taints))

    cloud = Tainting(Group("advised", 0, 5, 0), Group("short", 2, 2, 0))
    modes = {"advised": Mode.RECOMMEND}
    chosen = config("advised", "short", group_modes=modes, decides={"enforce_node_group_min_size": True})
    found = planned(cloud, chosen, pods=(pod("p"),))
    assert [(action.group, action.mode, action.to_size) for action in found.iteration.actions] == [
        ("advised", Mode.RECOMMEND, 1),
        ("short", Mode.ENFORCE, 2),
    ]


def test_where_every_group_is_only_recommended_all_is_advice() -> None:
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a", mode=Mode.RECOMMEND), pods=(pod("p"),))
    assert [(action.group, action.mode) for action in found.iteration.actions] == [("a", Mode.RECOMMEND)]
    assert [decision.advice for decision in found.decisions] == [True]


def test_the_order_of_what_is_known_does_not_matter() -> None:
    def told(turn: Callable[[list[Any]], Sequence[Any]]) -> list[tuple[ActionKind, str, int]]:
        cloud = Cloud(*turn([Group("a", 0, 5, 1), Group("b", 0, 5, 1), Group("c", 0, 5, 0)]))
        nodes = [node("a-0"), node("b-0")]
        cloud.has("a", nodes[0])
        cloud.has("b", nodes[1])
        pending = [pod(f"p{number}", {"cpu": f"{number % 3 + 1}"}) for number in range(9)]
        return actions(planned(cloud, config("a", "b", "c"), nodes=tuple(turn(nodes)), pods=tuple(turn(pending))))

    straight = told(lambda each: each)
    assert straight
    assert told(lambda each: each[::-1]) == straight


def test_new_pods_are_waited_for_and_the_next_round_knows_how_long() -> None:
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), pods=(pod("p", at=NOW - 1),))
    assert (found.iteration.blocked_reason, found.iteration.actions, found.again_seconds) == (
        iteration_plan.SETTLING,
        (),
        1.0,
    )


def test_gpu_pods_are_waited_for_longer() -> None:
    young = pod("p", {"cpu": "1", "nvidia.com/gpu": "1"}, at=NOW - 3)
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), pods=(young, pod("old")))
    assert (found.iteration.blocked_reason, found.again_seconds) == (iteration_plan.SETTLING, 27.0)


def test_a_pod_nominated_for_a_node_that_is_gone_makes_a_group_grow() -> None:
    nominated = msgspec.structs.replace(
        pod("p"), status=msgspec.structs.replace(pod("p").status, nominated_node_name="n")
    )
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), pods=(nominated,))
    assert actions(found) == [(ActionKind.INCREASE, "a", 1)]
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), nodes=(node("n"),), pods=(nominated,))
    assert actions(found) == []


def test_a_machine_type_that_the_cloud_does_not_have_is_reported_while_a_pod_could_need_it() -> None:
    cloud = Cloud()
    cloud.types = ("small",)
    chosen = config(
        autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True, machine_types=frozenset({"small", "typo"}))
    )
    assert list(planned(cloud, chosen, pods=(pod("p"),)).iteration.invalid_objects) == ["machine type typo"]
    assert list(planned(cloud, chosen).iteration.invalid_objects) == []


def scanned(**more: Any) -> DecisionSettings:
    """Group a scales by both pending pods and the utilization of its nodes, all of which it selects."""
    group = NodeGroup(
        name="a",
        label_key="node.kubernetes.io/instance-type",
        label_value="m",
        cloud_provider_group_name="a",
        policy=ScalingPolicy.BOTH,
        min_nodes=1,
        max_nodes=5,
        taint_lower_capacity_threshold_percent=30,
        taint_upper_capacity_threshold_percent=50,
        scale_up_threshold_percent=70,
        scale_up_cool_down_period="2m",
    )
    return config("a", groups=(group,), scanned=(scan_rules(group),), **more)


def test_a_scan_waits_for_nodes_that_the_same_iteration_requests() -> None:
    found = planned(Cloud(Group("a", 0, 5, 0)), scanned(), pods=(pod("p"),), scans=DueScans())
    assert actions(found) == [(ActionKind.INCREASE, "a", 1)]
    assert [(each.locked, each.delta) for each in found.iteration.scans] == [(True, 1)]


def test_groups_are_scanned_in_blocked_iterations_and_only_when_that_is_due() -> None:
    chosen = scanned(health=HealthLimits(0, 0.0))
    blocked = planned(Cloud(Group("a", 0, 5, 0)), chosen, nodes=(node("n", ready="False"),), scans=DueScans())
    assert blocked.iteration.blocked_reason
    assert [(each.group, each.error) for each in blocked.iteration.scans] == [("a", "")]
    assert planned(Cloud(Group("a", 0, 5, 0)), scanned()).iteration.scans == ()


def test_a_group_whose_size_is_put_right_waits_and_others_help() -> None:
    cloud = Cloud(Group("a", 0, 5, 1), Group("b", 0, 5, 0))
    error = InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT")
    cloud.members["a"].append(Instance("id:a-0", InstanceState.CREATING, error))
    found = planned(cloud, config("a", "b"), pods=(pod("p"),))
    assert actions(found) == [(ActionKind.DELETE_NODES, "a", 0), (ActionKind.INCREASE, "b", 1)]
    assert reasons(found) == {"a": cluster_view.CORRECTED}


def test_a_group_that_failed_is_backed_off() -> None:
    known = back_off(Registry(), "a", "no", NOW - 1, config().backoff, code="x")
    found = planned(Cloud(Group("a", 0, 5, 0)), config("a"), known, pods=(pod("p"),))
    assert (actions(found), reasons(found)) == ([], {"a": groups.BACKED_OFF})


def test_a_group_nobody_can_judge_says_why() -> None:
    found = planned(Cloud(Group("a", 5, 2, 0), Group("b", 0, 5, 0)), config("a", "b"), pods=(pod("p"),))
    assert actions(found) == [(ActionKind.INCREASE, "b", 1)]
    assert "min_size" in reasons(found)["a"]


def test_what_cannot_be_read_is_left_out_alone() -> None:
    broken = node("broken", more={"cpu": "many"})
    found = planned(
        Cloud(Group("a", 0, 5, 0)), config("a"), nodes=(broken,), pods=(pod("p"), pod("odd", {"cpu": "much"}))
    )
    assert actions(found) == [(ActionKind.INCREASE, "a", 1)]
    assert sorted(found.iteration.invalid_objects) == ["broken", "ns/odd"]


@pytest.mark.parametrize(
    ("text", "left"), [("[", 1), ("10: [", 1), ("10: &a [*a]", 1), ("{1: [(]}", 1), ("", 2), (" ", 2), (None, 2)]
)
def test_priorities_that_cannot_be_read_leave_the_last_ones_and_without_any_every_group_is_left_in(
    text: str | None, left: int
) -> None:
    cloud = Cloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0))
    chosen = config("a", "b", decides={"expanders": ("priority", "price")})
    cache = AutoscalerCache(chosen)
    good = planned(cloud, chosen, cache=cache, pods=(pod("p"),), priorities="{1: [a], 2: [b]}")
    assert (actions(good), good.iteration.invalid_objects) == ([(ActionKind.INCREASE, "b", 1)], {})
    for kept, expected in ((cache, left), (AutoscalerCache(chosen), 2)):
        bad = planned(cloud, chosen, cache=kept, pods=(pod("p"),), priorities=text)
        assert [len(each.groups) for each in bad.decisions[0].steps if each.expander == "priority"] == [expected]
        assert list(bad.iteration.invalid_objects) == [f"ConfigMap {priority.CONFIG_MAP}"]


@pytest.mark.parametrize("text", ["{1: [a], 2: [b]}", "[", None])
def test_priorities_are_read_once_for_each_text_whether_they_can_be_read_or_not(text: str | None) -> None:
    cloud = Cloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0))
    chosen = config("a", "b", decides={"expanders": ("priority", "price")})
    cache = AutoscalerCache(chosen)
    rounds = [planned(cloud, chosen, cache=cache, pods=(pod("p"),), priorities=text) for _ in range(2)]
    read = cache.priorities
    assert read is not None
    assert [actions(each) for each in rounds] == [[(ActionKind.INCREASE, "b" if read.problem is None else "a", 1)]] * 2
    assert [each.iteration.invalid_objects.get(priority.SOURCE) for each in rounds] == [read.problem] * 2
    planned(cloud, chosen, cache=cache, pods=(pod("p"),), priorities=text)
    assert cache.priorities is read


def test_groups_without_a_priority_are_named() -> None:
    cloud = Cloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0))
    chosen = config("a", "b", decides={"expanders": ("priority",)})
    for text, unmatched in (("1: [b]", ("a",)), ("1: [c]", ("a", "b")), ("1: [a, b]", ())):
        found = planned(cloud, chosen, pods=(pod("p"),), priorities=text)
        assert found.decisions[0].unmatched == unmatched


def test_prices_that_the_cloud_does_not_have_are_told_and_are_the_reason() -> None:
    chosen = replace(config("a"), prices=PROVIDER)
    found = planned(Cloud(Group("a", 0, 5, 0)), chosen, pods=(pod("p"),))
    assert list(found.iteration.invalid_objects) == ["--prices"]
    (left,) = found.decisions[0].left
    assert found.decisions[0].reasons(left) == {"a": (orchestrator.NO_PRICES,)}
    without = replace(chosen, scale_up=replace(chosen.scale_up, expanders=("least-waste",)))
    found = planned(Cloud(Group("a", 0, 5, 0)), without, pods=(pod("p"),))
    assert (actions(found), found.iteration.invalid_objects) == ([(ActionKind.INCREASE, "a", 1)], {})


class Priced(FilePricing):
    """Prices in a currency of its own, and none of large machines."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(units=UnitPrices(cpu=100.0, memory_gib=10.0, gpu=0.0, disk_gib=0.0))
        self._error = error

    def node_price(self, machine: Machine) -> float:
        if machine.capacity["cpu"] > 4000:
            raise self._error
        return super().node_price(machine)


@pytest.mark.parametrize("error", [Refused("memory", "", "which machine?"), Unavailable("memory", "", "not now")])
def test_a_machine_that_the_cloud_cannot_price_is_not_bought_beside_those_it_can(error: ProviderError) -> None:
    cloud = Cloud(Group("priced", 0, 5, 1), Group("unpriced", 0, 5, 1))
    cloud.model = Priced(error)
    nodes = (node("one"), node("two", more={"cpu": "5"}))
    for group, each in zip(("priced", "unpriced"), nodes, strict=True):
        cloud.has(group, each)
    chosen = replace(config("priced", "unpriced", decides={"expanders": ("price",)}), prices=AUTO)
    found = planned(cloud, chosen, nodes=nodes, pods=(pod("p"), pod("q"), pod("r")))
    assert actions(found) == [(ActionKind.INCREASE, "priced", 2)]
    assert {each.group: each.ranked.problem for each in found.decisions[0].considered} == {
        "priced": "",
        "unpriced": str(error),
    }
    assert found.iteration.cost.unpriced == ("two",)


def test_a_salvo_ends_when_no_group_helps_any_more() -> None:
    cloud = Cloud(Group("a", 0, 1, 0), Group("b", 0, 1, 0))
    pending = tuple(pod(f"p{number}") for number in range(3))
    single = planned(cloud, config("a", "b"), pods=pending)
    assert len(single.iteration.actions) == 1
    salvo = planned(cloud, config("a", "b", salvo_seconds=60.0), pods=pending)
    assert sorted(actions(salvo)) == [(ActionKind.INCREASE, "a", 1), (ActionKind.INCREASE, "b", 1)]
    assert len(salvo.decisions) == 2
    assert sum(len(each.triggered) for each in salvo.decisions) == 2


def test_groups_are_made_for_the_pods_that_have_no_place() -> None:
    cloud = Cloud(Group("a", 0, 1, 1))
    cloud.types = ("m",)
    there = node("a-0")
    cloud.has("a", there)
    chosen = config("a", autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    placed = tuple(pod(f"fits{number}", {"cpu": "100m"}) for number in range(5))
    found = planned(cloud, chosen, nodes=(there,), pods=(*placed, pod("p", nodeSelector={"team": "db"})))
    assert [(what, size) for what, _, size in actions(found)] == [(ActionKind.CREATE_GROUP, 1)]
    assert [dict(spec.labels) for spec in cloud.asked if spec.labels] == [{"team": "db"}]


class Picky(Cloud):
    """One that makes no machine with certain labels, has zones of its own, and makes groups several at a time."""

    def __init__(self, *groups: Group, refuses: str = "", zone: str = "", at_once: int = 1) -> None:
        super().__init__(*groups)
        self.types = ("m",)
        self.refuses, self.zone, self.at_once = refuses, zone, at_once

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        if self.refuses in spec.labels.values():
            raise Refused("picky", "", f"no {self.refuses}")
        found = super().theoretical(spec)
        labels = {ZONE: self.zone, **(found.template.metadata.labels or {})}
        made = msgspec.structs.replace(
            found.template, metadata=msgspec.structs.replace(found.template.metadata, labels=labels)
        )
        name = "-".join((found.id, *sorted(spec.labels.values())))
        return replace(found, id=name, template=made, groups=self.at_once)


def test_where_the_most_popular_labels_are_of_no_use_the_next_are_tried() -> None:
    chosen = config(autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    pods = tuple(pod(f"p{number}", nodeSelector={"team": team}) for number, team in enumerate("aab"))
    first = planned(Picky(), chosen, pods=pods)
    assert actions(first) == [(ActionKind.CREATE_GROUP, "nodeautoprovisioning-m-1-a", 2)]
    refused = planned(Picky(refuses="a"), chosen, pods=pods)
    assert actions(refused) == [(ActionKind.CREATE_GROUP, "nodeautoprovisioning-m-1-b", 1)]
    assert reasons(refused) == {"nodeautoprovisioning-m": "no a"}
    known = back_off(Registry(), "nodeautoprovisioning-m-1-a", "no", NOW - 1, chosen.backoff, code="x")
    failed = planned(Picky(), chosen, known, pods=pods)
    assert actions(failed) == [(ActionKind.CREATE_GROUP, "nodeautoprovisioning-m-1-b", 1)]
    assert reasons(failed) == {"nodeautoprovisioning-m-1-a": groups.BACKED_OFF}


def test_where_the_most_popular_pods_find_no_place_on_their_machine_others_do() -> None:
    """They are to be beside a pod that there is none of, which only the cluster tells."""
    chosen = config(autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "gone"}}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [pod(f"p{number}", nodeSelector={"team": "a"}, affinity=beside) for number in range(2)]
    found = planned(Picky(), chosen, pods=(*pods, pod("q", nodeSelector={"team": "b"})))
    assert actions(found) == [(ActionKind.CREATE_GROUP, "nodeautoprovisioning-m-1-b", 1)]


def test_pods_that_no_machine_would_take_are_told_why() -> None:
    chosen = config(autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    found = planned(Picky(), chosen, pods=(pod("p", {"cpu": "99"}),))
    (left,) = found.decisions[0].left
    assert found.decisions[0].reasons(left) == {"nodeautoprovisioning-m-0": ("Insufficient cpu",)}


def test_a_group_is_made_in_the_zone_that_a_pod_selects() -> None:
    chosen = config(autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    found = planned(Picky(zone="a"), chosen, pods=(pod("p", nodeSelector={ZONE: "b"}),))
    ((creation,),) = (each.creations for each in found.decisions)
    assert creation.spec.labels == {ZONE: "b"}
    beside = pod("q", {"cpu": "1"}, nodeSelector={"team": "t"})
    both = planned(Picky(zone="a"), chosen, pods=(pod("p", nodeSelector={ZONE: "b"}), beside))
    assert actions(both) == [(ActionKind.CREATE_GROUP, "nodeautoprovisioning-m-2-b-t", 1)]
    nowhere = planned(Picky(refuses="b"), chosen, pods=(pod("p", nodeSelector={ZONE: "b"}),))
    assert (actions(nowhere), reasons(nowhere)) == ([], {"nodeautoprovisioning-m": "no b"})


@pytest.mark.parametrize(("most", "makes"), [(3, True), (2, False)])
def test_groups_that_come_with_another_count_towards_the_limit(most: int, makes: bool) -> None:
    chosen = config(
        autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True, max_autoprovisioned_node_group_count=most)
    )
    found = planned(Picky(at_once=3), chosen, pods=(pod("p"),))
    assert [what for what, _, _ in actions(found)] == ([ActionKind.CREATE_GROUP] if makes else [])
    assert reasons(found) == ({} if makes else {"nodeautoprovisioning-m-0": groups.AT_MOST_GROUPS})


def test_no_other_group_is_made_of_what_has_just_failed() -> None:
    cloud = Cloud(Group("nodeautoprovisioning-m-x", 0, 5, 0, autoprovisioned=True))
    cloud.types = ("m",)
    chosen = config(autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    made = add_created_groups(Registry(), ["nodeautoprovisioning-m-x"], "nodeautoprovisioning-m-0")
    failed = back_off(made, "nodeautoprovisioning-m-x", "none left", NOW - 1, chosen.backoff, code="STOCKOUT")
    first = planned(cloud, chosen, failed, pods=(pod("p"),))
    assert actions(first) == [(ActionKind.DELETE_GROUP, "nodeautoprovisioning-m-x", 0)]
    assert reasons(first)["nodeautoprovisioning-m-0"] == groups.BACKED_OFF
    without = Cloud()
    without.types = ("m",)
    assert actions(planned(without, chosen, first.registry, pods=(pod("p"),))) == []
    cloud.types = without.types = ("m", "n")
    assert actions(planned(without, chosen, first.registry, pods=(pod("p"),))) == [
        (ActionKind.CREATE_GROUP, "nodeautoprovisioning-n-0", 1)
    ]


def test_no_cloud_is_asked_about_groups_while_every_pod_has_a_place() -> None:
    cloud = Cloud(Group("a", 0, 1, 0))
    cloud.types = ("m",)
    planned(
        cloud,
        config("a", autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True)),
        nodes=(node("n"),),
        pods=(pod("p"),),
    )
    assert cloud.asked == []


@pytest.mark.parametrize("seed", range(5))
def test_a_group_there_is_grows_before_another_of_the_same_kind_is_made(seed: int) -> None:
    name = "nodeautoprovisioning-m-x"
    cloud = Cloud(Group(name, 0, 5, 1, autoprovisioned=True))
    cloud.types = ("m",)
    there = node("n")
    cloud.has(name, there)
    chosen = config(autoprovisioning=AutoprovisioningRules(node_autoprovisioning=True))
    full = msgspec.structs.replace(pod("full"), spec=msgspec.structs.replace(pod("full").spec, node_name="n"))
    found = planned(cloud, chosen, nodes=(there,), pods=(full, pod("p")), chance=random.Random(seed))
    assert actions(found) == [(ActionKind.INCREASE, name, 2)]


def test_a_group_that_was_made_goes_when_it_is_empty_unless_it_is_needed() -> None:
    name = "nodeautoprovisioning-m"
    cloud = Cloud(Group(name, 0, 5, 0, autoprovisioned=True))
    assert actions(planned(cloud, config())) == [(ActionKind.DELETE_GROUP, name, 0)]
    assert actions(planned(cloud, config(), pods=(pod("p"),))) == [(ActionKind.INCREASE, name, 1)]
    assert actions(planned(cloud, config(mode=Mode.OBSERVE))) == []
    assert actions(planned(Cloud(Group(name, 0, 5, 0)), config())) == []


def lends(amount: int) -> Callable[[Node], Amounts]:
    return lambda _: {BATCH_CPU: amount}


def test_a_new_node_is_bought_for_the_batch_it_will_offer() -> None:
    cloud, wants = Cloud(Group("a", 0, 5, 0)), (pod("p", {BATCH_CPU: "2000"}),)
    assert actions(planned(cloud, config("a"), pods=wants)) == []
    assert actions(planned(cloud, config("a"), pods=wants, offered_by=lends(2000))) == [(ActionKind.INCREASE, "a", 1)]
    assert actions(planned(cloud, config("a"), pods=wants, offered_by=lends(1999))) == []


def test_what_comes_with_a_node_takes_of_the_batch_it_will_offer() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "500m"}}}
    daemon = msgspec.convert(
        {"metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": {"spec": {"containers": [container]}}}},
        DaemonSet,
    )
    cloud, wants = Cloud(Group("a", 0, 5, 0)), (pod("p", {BATCH_CPU: "2000"}),)

    def bought(amount: int) -> bool:
        return bool(actions(planned(cloud, config("a"), pods=wants, daemon_sets=(daemon,), offered_by=lends(amount))))

    assert bought(2500)
    assert not bought(2499)


@pytest.mark.parametrize(("at", "more", "bought"), [(OLD, {}, False), (YOUNG, {}, True), (OLD, {BATCH_CPU: "0"}, True)])
def test_no_batch_is_expected_where_no_node_of_the_group_ever_offers_any(
    at: float, more: dict[str, str], bought: bool
) -> None:
    cloud, there = Cloud(Group("a", 0, 5, 1)), node("a-0", at=at, more=more)
    cloud.has("a", there)
    wants = (pod("p", {BATCH_CPU: "2000"}),)
    found = planned(cloud, config("a"), nodes=(there,), pods=wants, offered_by=lends(3000))
    assert bool(actions(found)) is bought


def test_nothing_is_bought_for_what_the_next_report_gives() -> None:
    cloud, wants = Cloud(Group("a", 0, 5, 0)), (pod("p", {BATCH_CPU: "2000"}),)
    found = planned(
        cloud,
        config("a"),
        nodes=(node("n"),),
        pods=wants,
        expected={"n": {BATCH_CPU: 2000}},
        offered_by=lends(3000),
    )
    assert actions(found) == []
    assert found.iteration.decision is not None
    assert [each.reclaimed for each in found.iteration.decision.demands] == [1]


def test_what_is_offered_is_lent_until_less_is_whoever_else_waits() -> None:
    there = node("n", more={BATCH_CPU: "2000"})
    fits, other = pod("fits", {BATCH_CPU: "2000"}), pod("other", {"cpu": "9"})
    for waiting in ((fits,), (fits, other)):
        found = planned(
            Cloud(Group("a", 0, 5, 0)), config("a"), nodes=(there,), pods=waiting, expected={"n": {BATCH_CPU: -500}}
        )
        assert actions(found) == []
        assert found.iteration.decision is not None
        assert [each.schedulable for each in found.iteration.decision.demands if "ns/fits" in each.pods] == [1]


def test_groups_below_their_minimum_are_brought_up_to_it_where_that_is_wanted() -> None:
    cloud = Cloud(Group("a", 2, 5, 0))
    assert actions(planned(cloud, config("a"))) == []
    chosen = config("a")
    enforcing = replace(chosen, scale_up=replace(chosen.scale_up, enforce_node_group_min_size=True))
    found = planned(cloud, enforcing)
    assert actions(found) == [(ActionKind.INCREASE, "a", 2)]
    assert found.iteration.actions[0].reason == BELOW_MINIMUM


def test_a_dry_run_is_marked_as_one() -> None:
    assert planned(Cloud(), config(), dry_run=True).iteration.dry_run


class Counting:
    """A cloud's own prices; it counts how often it is asked for that of a machine."""

    def __init__(self, *, offered: bool = True) -> None:
        self.asked = 0
        self._offered = offered

    def node_price(self, machine: Machine) -> float:
        self.asked += 1
        if not self._offered:
            raise Unsupported("memory", "", "no prices")
        return 2.0

    def pod_price(self, requests: Amounts) -> float:
        return 1.0


@pytest.mark.parametrize("offered", [True, False])
def test_a_cloud_is_not_asked_for_the_price_of_every_node(offered: bool) -> None:
    cloud, counting = Cloud(Group("a", 0, 50, 40)), Counting(offered=offered)
    cloud.model = counting
    nodes = tuple(node(f"a-{number}", more={BATCH_CPU: str(number)}) for number in range(40))
    cloud.has("a", *nodes)
    found = planned(cloud, replace(config("a"), prices=PROVIDER), nodes=nodes)
    assert counting.asked == 1
    assert found.iteration.cost.total == (80.0 if offered else 0.0)
    assert len(found.iteration.cost.unpriced) == (0 if offered else 40)
