"""Which nodes are replaced by cheaper ones, and what is said of those that are not."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec.structs import replace as with_rules

from manager.autoscaler.cloudprovider.contract import Group, GroupSpec
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.disruption.candidates import LaunchTarget
from manager.autoscaler.disruption.disruption_limits import Allowed, DisruptionAllowance
from manager.autoscaler.disruption.price_purpose import PricePurpose, Prices
from manager.autoscaler.disruption.replacement_search import SearchInputs, search
from manager.autoscaler.disruption.verdicts import ConsolidationDecision, ConsolidationReason, Denied
from manager.autoscaler.estimator.limits import Quota, ResourceBounds
from manager.autoscaler.pricing.model import GIB
from manager.autoscaler.scale_down.drain import DisruptionBudget
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import GroupRules, ScaleDownRules
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.scale_up.groups import Headroom
from manager.autoscaler.settings.replacement import ConsolidationRules
from manager.autoscaler.snapshot.cluster import PODS, NodeInfo, NodeState, NodeTemplate
from shared import explanation
from shared.api.selectors import LabelSelector
from shared.quantity import Resources
from tests.unit.manager.objects import NOW
from tests.unit.manager.rounds import resident

HOURS = 730
SPOT = {"karpenter.sh/capacity-type": "spot"}
KEEN = ConsolidationRules(
    consolidation_min_savings_percent=10, consolidation_balance=0.5, consolidation_min_node_age_seconds=600
)
ONE = DisruptionAllowance(Allowed(1, "1"))
R = ConsolidationReason


def machine(name: str, cores: float, labels: Mapping[str, str] | None = None, **more: Any) -> NodeInfo:
    amounts = {"cpu": round(cores * 1000), "memory": 64 * GIB, PODS: 110}
    return NodeInfo(name, labels or {}, capacity=amounts, allocatable=amounts, **more)


def searched(
    context: ScaleDownContext,
    targets: list[LaunchTarget],
    prices: Prices,
    rules: ConsolidationRules,
    *,
    allowed: DisruptionAllowance | None = None,
    **more: Any,
) -> ConsolidationDecision:
    """A search for nodes to replace for their price; `more` is of the search or of the prices."""
    of_prices = {name: more.pop(name) for name in ("unknown", "unpriced", "created_at", "disruptions") if name in more}
    allowed = allowed or DisruptionAllowance(Allowed(100))
    inputs = SearchInputs(context=context, targets=targets, allowed={DisruptionReason.UNDERUTILIZED: allowed}, **more)
    return search(PricePurpose(inputs, replace(prices, **of_prices), rules))


@dataclass
class Shop:
    """Nodes of group "dear" with pods on them, and what other groups offer."""

    nodes: list[NodeInfo] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    pods: list[PodOnNode] = field(default_factory=list)
    targets: list[LaunchTarget] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # of scale-down's inputs
    group_of: dict[str, str] = field(default_factory=dict)
    least: int = 0

    def node(self, name: str, price: float | None, *cores_of_pods: float, cores: float = 8, **more: Any) -> None:
        self.nodes.append(machine(name, cores, **more))
        self.group_of.setdefault(name, "dear")
        if price is not None:
            self.prices[name] = price
        self.pods += [resident(f"{name}-{index}", name, asked) for index, asked in enumerate(cores_of_pods)]

    def offer(self, group: str, price: float, cores: float, most: int = 10, **more: Any) -> None:
        node = machine(f"template-{group}", cores, **more)
        state = GroupStatus(Group(group, 0, most, 0), template=NodeTemplate(group, node))
        assert state.template is not None
        is_spot = node.labels.get("karpenter.sh/capacity-type") == "spot"
        self.targets.append(LaunchTarget(state, state.template, price, is_spot))

    def could_create(self, machine_type: str, price: float, cores: float) -> None:
        """A group of such machines, by auto-provisioning."""
        node = machine(f"template-{machine_type}", cores)
        state = GroupStatus(
            Group(f"new-{machine_type}", 0, 10, 0),
            template=NodeTemplate(machine_type, node),
            spec=GroupSpec(machine_type, "new"),
        )
        assert state.template is not None
        self.targets.append(LaunchTarget(state, state.template, price))

    def decide(
        self, rules: ConsolidationRules = KEEN, down: ScaleDownRules | None = None, **more: Any
    ) -> ConsolidationDecision:
        sizes = {
            group: sum(each == group for each in self.group_of.values()) for group in set(self.group_of.values()) - {""}
        }
        groups = {name: ShrinkingGroup(Group(name, self.least, 10, size), GroupRules()) for name, size in sizes.items()}
        given: dict[str, Any] = {"groups": groups, "group_of": self.group_of, **self.more}
        context = ScaleDownContext(NOW, self.nodes, self.pods, down or ScaleDownRules(), **given)
        return searched(context, self.targets, Prices(self.prices), rules, **more)


def half_empty_pair() -> Shop:
    """Two nodes at 1 an hour that hold 3 of 8 cores each, with a pod each that is too large for the other."""
    shop = Shop()
    shop.node("a", 1.0, 3, 2.5)
    shop.node("b", 1.0, 3, 2.5)
    shop.offer("big", 0.9, 12)
    return shop


def added(of: ConsolidationDecision) -> dict[str, int]:
    assert of.option is not None, [str(each) for each in of.verdicts.values()]
    return dict(of.option.added)


def reasons(of: ConsolidationDecision) -> dict[str, ConsolidationReason | None]:
    return {name: each.reason for name, each in of.verdicts.items()}


def test_a_half_empty_pair_is_replaced_by_one_cheaper_node() -> None:
    found = half_empty_pair().decide()
    assert added(found) == {"big": 1}
    assert found.option is not None
    assert found.option.removed == ("a", "b")
    assert found.option.saves_per_month == pytest.approx(1.1 * HOURS)
    assert found.verdicts["a"].reason is None
    assert str(found.verdicts["a"]) == ("a is replaced: 2 nodes at 2/h by 1 of big at 0.9/h, which saves 803/month")
    assert {pod for pod, _ in found.option.moves} == {"ns/a-0", "ns/a-1", "ns/b-0", "ns/b-1"}


def test_a_group_is_created_where_none_of_the_existing_ones_is_as_cheap() -> None:
    shop = half_empty_pair()
    shop.could_create("large", 0.8, 12)
    found = shop.decide(new_groups=1).option
    assert found is not None
    assert dict(found.added) == {"new-large": 1}
    assert [(each.group, each.spec.machine_type, each.nodes) for each in found.creations] == [("new-large", "large", 1)]
    assert found.node_prices == {"new-large": 0.8}
    assert "by 1 of new group new-large at 0.8/h" in str(found)


@pytest.mark.parametrize(("price", "new_groups"), [(0.8, 0), (0.9, 1)])
def test_no_group_is_created_beyond_their_number_or_at_the_price_of_an_existing_one(
    price: float, new_groups: int
) -> None:
    shop = half_empty_pair()
    shop.could_create("large", price, 12)
    found = shop.decide(new_groups=new_groups).option
    assert found is not None
    assert (dict(found.added), found.creations) == ({"big": 1}, ())


def test_a_new_group_of_the_same_machines_at_the_same_price_saves_nothing() -> None:
    shop = Shop()
    shop.node("a", 1.0, 7, labels={"node.kubernetes.io/instance-type": "large"})
    shop.could_create("large", 1.0, 8)
    assert reasons(shop.decide(new_groups=1)) == {"a": R.NOT_CHEAPER}


def test_nodes_that_could_go_together_alone_share_what_that_would_have_saved() -> None:
    shop = half_empty_pair()
    found = shop.decide(with_rules(KEEN, consolidation_min_savings_percent=60))
    assert reasons(found) == {"a": R.SAVES_TOO_LITTLE, "b": R.SAVES_TOO_LITTLE}
    assert sum(each.saves_per_month or 0 for each in found.verdicts.values()) == pytest.approx(1.1 * HOURS)
    assert found.verdicts["a"].detail.startswith("with 1 other node: 2 nodes at 2/h by 1 of big at 0.9/h")


def test_one_dear_node_is_replaced_by_several_cheaper_ones() -> None:
    shop = Shop()
    shop.node("a", 2.0, 3, 3, 3, cores=16)
    shop.offer("small", 0.3, 4)
    assert added(shop.decide()) == {"small": 3}


def test_the_last_of_several_new_nodes_is_of_a_cheaper_group_where_that_is_enough() -> None:
    shop = Shop()
    shop.node("a", 2.0, 3, 3, 1, cores=16)
    shop.offer("small", 0.3, 3)
    shop.offer("tiny", 0.1, 1)
    assert added(shop.decide()) == {"small": 2, "tiny": 1}


def test_pods_go_to_free_room_of_nodes_that_stay_before_a_new_node_is_counted() -> None:
    shop = Shop()
    shop.node("a", 2.0, 3, 3, cores=16)
    shop.node("other", 0.1, cores=3)
    shop.group_of["other"] = ""
    shop.offer("small", 0.3, 3)
    assert added(shop.decide()) == {"small": 1}


def test_a_node_whose_pods_have_places_already_is_left_to_scale_down() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.node("other", 1.0, 1)
    shop.group_of["other"] = ""
    shop.offer("big", 0.5, 16)
    found = shop.decide(unneeded=())
    assert reasons(found) == {"a": R.LEFT_TO_SCALE_DOWN}
    assert found.verdicts["a"].saves_per_month == HOURS


def test_an_unknown_price_refuses_and_never_counts_as_zero() -> None:
    shop = Shop()
    shop.node("a", None, 6)
    shop.offer("big", 0.0, 16)
    found = shop.decide()
    assert found.option is None
    assert reasons(found) == {"a": R.PRICE_UNKNOWN}
    assert found.verdicts["a"].saves_per_month is None


def test_a_guessed_price_refuses_with_a_sentence_on_the_node_and_on_the_group() -> None:
    shop = Shop()
    shop.node("a", None, 6)
    shop.node("b", 1.0, 6)
    found = shop.decide(unknown={"a": "its size is a guess"}, unpriced={"big": "nobody lists it", "vast": "nor this"})
    assert reasons(found) == {"a": R.PRICE_UNKNOWN, "b": R.NOT_CHEAPER}
    assert found.verdicts["a"].detail == "its price is not known: its size is a guess"
    assert found.verdicts["b"].detail == (
        "no other group has nodes at less than 1/h; the price of group big is not known: nobody lists it, "
        "nor is that of 1 more group"
    )
    assert found.unpriced_groups == {"big": "nobody lists it", "vast": "nor this"}


@pytest.mark.parametrize(
    ("closed", "given", "limit"),
    [
        ("in backoff after failed scale-up", {}, "2 more nodes (in backoff after failed scale-up)"),
        ("", {"remaining": Headroom((Quota("q", {"cpu": 15}),))}, '2 more nodes (exceeded quota: "q", resources: cpu)'),
        (
            "",
            {"remaining": Headroom(nodes=1)},
            '2 more nodes (exceeded quota: "max-nodes-total", resources: nodes)',
        ),
    ],
)
def test_a_limit_that_keeps_cheaper_nodes_away_is_named(closed: str, given: dict[str, Any], limit: str) -> None:
    shop = Shop()
    shop.node("a", 1.0, 6, 6, cores=16)
    shop.offer("small", 0.2, 8)
    shop.offer("tiny", 0.1, 4)  # no pod fits on its nodes
    shop.targets = [replace(each, closed=closed) for each in shop.targets]
    (verdict,) = shop.decide(**given).verdicts.values()
    assert verdict.reason is R.NO_NEW_NODE
    assert verdict.detail == (f"cheaper nodes, at less than 1/h, cannot be launched: group small may not get {limit}")
    assert added(shop.decide()) == {"small": 2} if not closed else True


def test_a_saving_below_the_share_that_is_asked_for_is_named_and_refused() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.offer("big", 0.95, 8)
    found = shop.decide(with_rules(KEEN, consolidation_balance=0.0))
    assert reasons(found) == {"a": R.SAVES_TOO_LITTLE}
    verdict = found.verdicts["a"]
    assert verdict.saves_per_month == pytest.approx(0.05 * HOURS)
    assert verdict.detail == (
        "1 node at 1/h by 1 of big at 0.95/h, which saves 36.5/month: 5 %, less than 10 % of what it costs"
    )
    assert added(shop.decide(with_rules(KEEN, consolidation_balance=0.0, consolidation_min_savings_percent=5))) == {
        "big": 1
    }


def test_equal_cost_saves_nothing_even_where_no_share_is_asked_for() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.offer("big", 1.0, 8)
    assert reasons(shop.decide(with_rules(KEEN, consolidation_balance=0, consolidation_min_savings_percent=0))) == {
        "a": R.NOT_CHEAPER
    }


def test_a_saving_that_is_small_for_its_disruption_is_refused_with_both_shares() -> None:
    shop = Shop()
    shop.node("a", 1.0, *itertools.repeat(0.5, 9))
    shop.node("b", 1.0, 6)
    shop.offer("big", 0.7, 5)
    found = shop.decide(with_rules(KEEN, consolidation_min_savings_percent=0))
    assert reasons(found)["a"] is R.DISTURBS_TOO_MUCH
    assert found.verdicts["a"].saves_per_month == pytest.approx(0.3 * HOURS)
    assert "15.0% of the cost saved, 83.3% of the cluster disturbed, which scores 0.18 of 0.5" in str(
        found.verdicts["a"]
    )


def test_the_node_that_is_dearest_for_its_pods_goes_first() -> None:
    shop = Shop()
    shop.node("cheap", 1.0, 6)
    shop.node("dear", 2.0, 6)
    shop.offer("big", 0.5, 7)
    found = shop.decide(allowed=DisruptionAllowance(Allowed(1, "1")))
    assert found.option is not None
    assert found.option.removed == ("dear",)
    assert reasons(found) == {"cheap": R.NOT_ITS_TURN, "dear": None}


def test_pods_that_cost_more_to_evict_make_their_node_come_later() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.node("b", 1.0, 6)
    shop.offer("big", 0.5, 7)
    found = shop.decide(with_rules(KEEN, consolidation_balance=0), allowed=ONE, disruptions={"ns/a-0": 8.0})
    assert found.option is not None
    assert found.option.removed == ("b",)


def test_a_limit_of_none_delays_a_replacement_and_says_what_it_would_save() -> None:
    shop = half_empty_pair()
    shop.targets.clear()
    shop.offer("big", 0.5, 7)
    found = shop.decide(allowed=DisruptionAllowance(Allowed(0, "0;schedule=@daily;duration=1h")))
    assert found.option is None
    assert reasons(found) == {"a": R.LIMITED, "b": R.LIMITED}
    assert found.verdicts["a"].saves_per_month == pytest.approx(0.5 * HOURS)


def test_a_closed_limit_of_one_group_leaves_the_others_alone() -> None:
    shop = Shop()
    shop.node("a", 2.0, 6)
    shop.node("b", 1.0, 6)
    shop.group_of["a"] = "kept"
    shop.offer("big", 0.5, 7)
    limits = DisruptionAllowance(Allowed(5), {"kept": Allowed(0, "0")})
    found = shop.decide(with_rules(KEEN, consolidation_balance=0), allowed=limits)
    assert found.option is not None
    assert found.option.removed == ("b",)
    assert found.verdicts["a"].reason is R.LIMITED
    assert found.verdicts["a"].detail.startswith("the disruption limit '0' allows no node now")


def test_a_cooldown_delays_everything_and_still_says_what_would_be_saved() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.offer("big", 0.5, 7)
    found = shop.decide(blocked=Denied(R.COOLDOWN, "it waits 5m0s"))
    assert found.option is None
    assert str(found.verdicts["a"]) == (
        "a is not replaced, InCooldown: it waits 5m0s; 1 node at 1/h by 1 of big at 0.5/h, which saves 365/month then"
    )


def of_one_node(**more: Any) -> ConsolidationReason | None:
    """Why a node at 1 an hour is not replaced by one at half the price."""
    shop = Shop(more=more.pop("down", {}), least=more.pop("least", 0))
    shop.node("a", 1.0, 6, **more.pop("node", {}))
    shop.offer("big", 0.5, 7, **more.pop("offer", {}))
    bounds = more.pop("bounds", {})
    return shop.decide(down=ScaleDownRules(bounds=bounds), **more).verdicts["a"].reason


def budget(allowed: int) -> DisruptionBudget:
    return DisruptionBudget("ns", "web", LabelSelector(), allowed)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"created_at": {"a": NOW - 599}}, R.TOO_YOUNG),
        ({"created_at": {"a": NOW - 601}}, None),
        ({"protected": {"a": "its pod wants peace"}}, R.DO_NOT_DISRUPT),
        ({"node": {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}}, R.DO_NOT_DISRUPT),
        ({"node": {"state": NodeState.CORDONED}}, R.NOT_ELIGIBLE),
        ({"node": {"state": NodeState.UNREADY}}, R.NOT_ELIGIBLE),
        ({"down": {"leaving": frozenset({"a"})}}, R.NOT_ELIGIBLE),
        ({"down": {"unreadable": {"a": "a pod cannot be read"}}}, R.NOT_ELIGIBLE),
        ({"down": {"disruption_budgets": [budget(0)]}}, R.BLOCKED_BY_POD),
        ({"down": {"disruption_budgets": [budget(1)]}}, None),
        ({"down": {"peaks": {}}}, R.PEAK_UNKNOWN),
        ({"least": 1}, R.AT_MINIMUM),
        ({"offer": {"most": 0}}, R.NO_NEW_NODE),
        ({"remaining": Headroom(nodes=0)}, R.NO_NEW_NODE),
        ({"remaining": Headroom(nodes=1)}, None),
        ({"remaining": Headroom((Quota("q", {"cpu": 6}),))}, R.NO_NEW_NODE),
        ({"remaining": Headroom((Quota("q", {"cpu": 7}),))}, None),
        ({"bounds": {"cpu": ResourceBounds(8)}}, R.BELOW_LIMIT),
        ({"bounds": {"cpu": ResourceBounds(7)}}, None),
        ({"offer": {"labels": SPOT}}, R.FEW_ALTERNATIVES),
        ({"node": {"labels": SPOT}}, R.FEW_ALTERNATIVES),
    ],
)
def test_what_keeps_a_node(given: dict[str, Any], expected: ConsolidationReason | None) -> None:
    assert of_one_node(**given) is expected


def test_spot_nodes_are_bought_once_enough_spot_groups_would_save() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    for number in range(3):
        shop.offer(f"spot{number}", 0.3 + number / 100, 7, labels=SPOT)
    assert reasons(shop.decide(with_rules(KEEN, consolidation_spot_alternatives=4))) == {"a": R.FEW_ALTERNATIVES}
    found = shop.decide(with_rules(KEEN, consolidation_spot_alternatives=3))
    assert added(found) == {"spot0": 1}
    assert found.option is not None
    assert found.option.alternatives == 3


def test_where_spot_groups_are_too_few_the_cheapest_nodes_on_demand_are_bought() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.offer("spot", 0.3, 7, labels=SPOT)
    shop.offer("large", 0.5, 7)
    shop.offer("larger", 0.6, 7)
    found = shop.decide()
    assert added(found) == {"large": 1}
    assert found.option is not None
    assert found.option.alternatives is None


def test_no_spot_node_stands_in_for_the_last_of_several_where_spot_groups_are_too_few() -> None:
    shop = Shop()
    shop.node("a", 2.0, 3, 3, 1, cores=16)
    shop.offer("small", 0.3, 3)
    shop.offer("spot", 0.05, 1, labels=SPOT)
    assert added(shop.decide()) == {"small": 3}


def test_what_spot_nodes_would_save_is_said_where_nodes_on_demand_save_too_little() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.offer("spot", 0.3, 7, labels=SPOT)
    shop.offer("large", 0.99, 7)
    found = shop.decide()
    assert reasons(found) == {"a": R.FEW_ALTERNATIVES}
    assert found.verdicts["a"].saves_per_month == pytest.approx(0.7 * HOURS)
    assert not found.verdicts["a"].is_upper_bound


def test_spot_nodes_stay_where_spot_groups_are_too_few_even_beside_cheaper_ones_on_demand() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6, labels=SPOT)
    shop.offer("large", 0.5, 7)
    assert reasons(shop.decide()) == {"a": R.FEW_ALTERNATIVES}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"created_at": {"a": NOW - 1}}, R.TOO_YOUNG),
        ({"protected": {"a": "its pod wants peace"}}, R.DO_NOT_DISRUPT),
        ({"node": {"state": NodeState.CORDONED}}, R.NOT_ELIGIBLE),
        ({"down": {"disruption_budgets": [DisruptionBudget("ns", "web", LabelSelector(), 0)]}}, R.BLOCKED_BY_POD),
        ({"down": {"peaks": {}}}, R.PEAK_UNKNOWN),
        ({"least": 1}, R.AT_MINIMUM),
    ],
)
def test_a_node_that_may_not_be_replaced_says_what_that_would_save_at_most(
    given: dict[str, Any], reason: ConsolidationReason
) -> None:
    shop = Shop(more=given.pop("down", {}), least=given.pop("least", 0))
    shop.node("a", 1.0, 6, **given.pop("node", {}))
    shop.offer("big", 0.4, 7)
    verdict = shop.decide(**given).verdicts["a"]
    assert (verdict.reason, verdict.is_upper_bound) == (reason, True)
    assert verdict.saves_per_month == pytest.approx(0.6 * HOURS)
    assert str(verdict).endswith("; alone it would save 438/month at most")


def test_a_node_that_could_be_emptied_would_save_its_price_at_most() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.node("empty", 2.0)
    shop.node("other", 1.0)
    shop.group_of["other"] = ""
    found = shop.decide(protected={"a": "it is protected", "empty": "it is protected"}).verdicts
    assert {name: each.saves_per_month for name, each in found.items()} == {"a": HOURS, "empty": 2 * HOURS}


def test_a_node_that_even_nodes_for_nothing_would_not_justify_says_what_they_would_save_at_most() -> None:
    shop = Shop()
    shop.node("a", 1.0, *itertools.repeat(0.5, 15))
    shop.node("b", 9.0, 6)
    shop.offer("big", 0.7, 8)
    verdict = shop.decide(protected={"b": "it is protected"}).verdicts["a"]
    assert verdict.reason is R.DISTURBS_TOO_MUCH
    assert verdict.detail.startswith("even for nothing")
    assert verdict.saves_per_month == pytest.approx(0.3 * HOURS)
    assert verdict.is_upper_bound


def test_a_node_for_which_nothing_is_cheaper_would_save_nothing() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    verdict = shop.decide().verdicts["a"]
    assert (verdict.reason, verdict.saves_per_month, verdict.is_upper_bound) == (R.NOT_CHEAPER, 0.0, False)


def test_a_verdict_has_what_was_compared_in_terms() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.node("b", None, 6)
    shop.offer("big", 0.95, 8)

    def said(rules: ConsolidationRules, name: str = "a", **more: Any) -> str:
        return explanation.sentence(shop.decide(rules, **more).verdicts[name].terms)

    little = with_rules(KEEN, consolidation_balance=0.0)
    assert said(little) == "price 1/h, oldNodes 1/h, newNodes 0.95/h, saved 5 %, leastSaved 10 %"
    assert said(with_rules(KEEN, consolidation_min_savings_percent=0)) == (
        "price 1/h, oldNodes 1/h, newNodes 0.95/h, score 0.1, leastScore 0.5"
    )
    assert said(with_rules(little, consolidation_min_savings_percent=0)) == (
        "price 1/h, oldNodes 1/h, newNodes 0.95/h, score 0.1, leastScore 0"
    )
    assert said(KEEN, created_at={"a": NOW - 60}) == "price 1/h, age 1m0s, leastAge 10m0s"
    assert said(KEEN, "b") == ""
    shop.targets.clear()
    shop.offer("spot", 0.5, 8, labels=SPOT)
    assert said(with_rules(KEEN, consolidation_spot_alternatives=2)) == (
        "price 1/h, oldNodes 1/h, newNodes 0.5/h, spotGroups 1 group, leastSpotGroups 2 groups"
    )


def test_nodes_of_the_same_group_take_nobodys_place() -> None:
    shop = Shop()
    shop.node("a", 1.0, 6)
    shop.offer("dear", 0.5, 8)
    assert reasons(shop.decide()) == {"a": R.NOT_CHEAPER}


def test_a_new_node_holds_the_predicted_peaks_too() -> None:
    shop = Shop(more={"peaks": {"a": Resources(6000, 0)}})
    shop.node("a", 1.0, 3)
    shop.offer("tight", 0.3, 6)
    shop.offer("ample", 0.5, 7)
    assert added(shop.decide()) == {"ample": 1}, "a tenth of a node stays free above its peak"


def test_what_scale_down_removes_keeps_the_places_of_its_pods() -> None:
    shop = Shop()
    shop.node("idle", 1.0, 2)
    shop.node("a", 1.0, 2, 6)
    shop.node("other", 1.0, cores=2)
    shop.group_of["other"] = ""
    shop.offer("big", 0.2, 6, most=1)
    assert reasons(shop.decide(unneeded=("idle",)))["a"] is R.NO_NEW_NODE
    shop.offer("two", 0.3, 8)
    assert added(shop.decide(unneeded=("idle",))) == {"two": 1}


@pytest.mark.parametrize(
    ("peaks", "expected"), [(None, "six"), ({"idle": Resources(2000, 0), "a": Resources(4000, 0)}, "seven")]
)
def test_pods_that_scale_down_moves_to_a_replaced_node_have_places_on_the_new_one(
    peaks: dict[str, Resources] | None, expected: str
) -> None:
    shop = Shop(more={"peaks": peaks})
    shop.node("idle", 1.0, 2)
    shop.node("a", 1.0, 4)
    for name, price, cores in (("four", 0.3, 4), ("six", 0.4, 6), ("seven", 0.5, 7)):
        shop.offer(name, price, cores)
    found = shop.decide(unneeded=("idle",))
    assert added(found) == {expected: 1}
    assert found.option is not None
    assert [pod for pod, _ in found.option.moves] == ["ns/a-0"]


def test_a_pass_that_is_late_says_so_of_each_node() -> None:
    shop = half_empty_pair()
    groups = {"dear": ShrinkingGroup(Group("dear", 0, 10, 2), GroupRules())}
    context = ScaleDownContext(NOW, shop.nodes, shop.pods, groups=groups, group_of=shop.group_of)
    found = searched(context, shop.targets, Prices(shop.prices), KEEN, is_late=lambda: True)
    assert reasons(found) == {"a": R.OUT_OF_TIME, "b": R.OUT_OF_TIME}
    assert {each.saves_per_month for each in found.verdicts.values()} == {HOURS}
    assert all(each.is_upper_bound for each in found.verdicts.values())


def test_nodes_that_the_last_pass_had_no_time_for_come_first() -> None:
    shop = Shop()
    for number in range(3):
        shop.node(f"n{number}", 1.0, 6)
    shop.offer("big", 0.97, 7)
    groups = {"dear": ShrinkingGroup(Group("dear", 0, 10, 3), GroupRules())}
    down = ScaleDownContext(NOW, shop.nodes, shop.pods, groups=groups, group_of=shop.group_of)
    asked = itertools.count()
    found = searched(
        down,
        shop.targets,
        Prices(shop.prices),
        KEEN,
        allowed=DisruptionAllowance(Allowed(1)),
        untried={"n2"},
        is_late=lambda: next(asked) > 1,
    )
    tried = [name for name, each in found.verdicts.items() if each.reason is not R.OUT_OF_TIME]
    assert tried == ["n2"]
