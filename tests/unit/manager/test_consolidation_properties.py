"""What holds of every replacement that is found, whatever the cluster; places are judged by the independent checker."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group, GroupSpec
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.disruption.candidates import LaunchTarget
from manager.autoscaler.disruption.disruption_limits import Allowed, DisruptionAllowance
from manager.autoscaler.disruption.price_purpose import Prices
from manager.autoscaler.disruption.verdicts import HOURS_PER_MONTH, ConsolidationDecision, ReplacementOption
from manager.autoscaler.scale_down.eligibility import ANNOTATION_DISABLED
from manager.autoscaler.scale_down.removal_status import GroupRules
from manager.autoscaler.scale_up.groups import Headroom
from manager.autoscaler.settings.replacement import ConsolidationRules
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeState, NodeTemplate
from shared.api.core import Node
from shared.names import MID_CPU
from shared.quantity import Resources
from tests.support import independent_checker
from tests.support.independent_checker import Machine
from tests.support.properties import examples
from tests.unit.manager.test_consolidation import searched
from tests.unit.manager.test_scale_down_properties import Case, cases
from tests.unit.manager.wire_objects import ZONE, raw_node, raw_pod, world

Raw = dict[str, Any]

TYPE = "node.kubernetes.io/instance-type"
SPOT = {"karpenter.sh/capacity-type": "spot"}
PEAK_TENTHS = st.sampled_from([1, 5, 9, 10, 10, 12, 14])  # a new node of one core holds 9, with the margin
LIGHT, FULL = st.integers(3, 9), st.integers(9, 13)  # tenths of a core that a pod requests
OLD_PRICES = st.sampled_from([0.25, 0.6, 1.0, 2.0, 2.0])
PRICES = st.sampled_from([0.1, 0.2, 0.25, 0.5, 0.6, 1.0, 2.0])
TEMPLATES = {
    "tiny": ("z1", {"cpu": "1", "memory": "20Mi", "pods": "4"}),
    "small": ("z1", {"cpu": "3", "memory": "64Mi", "pods": "10"}),
    "large": ("z2", {"cpu": "8", "memory": "128Mi", "pods": "20"}),
}


@dataclass
class Market:
    """A cluster, what its nodes cost, and what is on offer; `templates` has the new nodes of each target."""

    case: Case
    prices: dict[str, float]
    targets: list[LaunchTarget]
    templates: dict[str, Raw]
    rules: ConsolidationRules
    remaining: Headroom
    allowed: int
    new_groups: int = 0
    own_allowed: dict[str, int] = field(default_factory=dict)

    def decided(self, **more: Any) -> ConsolidationDecision:
        context = self.case.situation()
        own = {group: Allowed(nodes, str(nodes)) for group, nodes in self.own_allowed.items()}
        given: dict[str, Any] = {
            "remaining": self.remaining,
            "allowed": DisruptionAllowance(Allowed(self.allowed, str(self.allowed)), own),
            "new_groups": self.new_groups,
            **more,
        }
        return searched(context, self.targets, Prices(self.prices), self.rules, **given)

    def target(self, group: str) -> LaunchTarget:
        return next(each for each in self.targets if each.id == group)

    def is_spot(self, name: str) -> bool:
        (node,) = [node for node, _ in self.case.nodes if node["metadata"]["name"] == name]
        return SPOT.items() <= (node["metadata"].get("labels") or {}).items()

    def new_machine(self, name: str, option: ReplacementOption) -> Machine:
        """One of the new nodes, of the group that its name begins with."""
        (group,) = [each for each in option.added if name.startswith(f"template-{each}-{each}-")]
        raw = dict(self.templates[group])
        labels = {**raw["metadata"]["labels"], LABEL_HOSTNAME: name}
        return independent_checker.machine(raw | {"metadata": raw["metadata"] | {"name": name, "labels": labels}})


def template(group: str, kind: str, labels: dict[str, str]) -> Raw:
    zone, amounts = TEMPLATES[kind]
    return raw_node(f"template-{group}", {ZONE: zone, "pool": "x", TYPE: kind, **labels}, amounts)


def fill(case: Case, draw: st.DrawFn, *, tenths: st.SearchStrategy[int], most: int) -> None:
    """Makes it a cluster in which nodes may be replaced and few can go without it."""
    for node, _ in case.nodes:
        name = node["metadata"]["name"]
        if name in case.more["leaving"]:
            continue
        node["spec"] = {"taints": [], "unschedulable": False}
        for number in range(draw(st.integers(1, most))):
            requests = {"cpu": f"{draw(tenths)}00m", "memory": "1Mi"}
            spec = {"containers": [{"name": "c", "resources": {"requests": requests}}], "nodeName": name}
            case.pods.append(raw_pod(f"{name}-more-{number}", f"default-more-{requests['cpu']}", spec))
    case.nodes = [
        (node, state if node["metadata"]["name"] in case.more["leaving"] else NodeState.READY)
        for node, state in case.nodes
    ]
    case.more["groups"] = {
        name: replace(each, group=replace(each.group, min_size=each.group.min_size // 3), rules=GroupRules())
        for name, each in case.more["groups"].items()
    }
    case.more["peaks"] = case.more["peaks"] if draw(st.booleans()) else None
    if case.more["peaks"] is not None:  # none of them fills its node
        case.more["peaks"] = {
            node["metadata"]["name"]: Resources(draw(PEAK_TENTHS) * 100, draw(st.integers(1, 9)) << 20)
            for node, _ in case.nodes
        }


def open_up(case: Case, draw: st.DrawFn) -> None:
    """Lets most nodes be replaced, of which few hold the pods of another."""
    case.pods = []
    for number, (node, _) in enumerate(case.nodes):
        node["metadata"].pop("annotations", None)
        case.more["group_of"][node["metadata"]["name"]] = f"g{number % 2}"
    case.more["disruption_budgets"] = []
    size = len(case.nodes)
    case.more["groups"] = {
        name: replace(each, group=replace(each.group, min_size=0, target_size=size), deleting=0)
        for name, each in case.more["groups"].items()
    }
    fill(case, draw, tenths=FULL, most=1)


@st.composite
def markets(draw: st.DrawFn, *, is_open: bool = False) -> Market:
    case = draw(cases())
    # Of the nodes that go already one is there, and its pods have gone.
    gone = [node["metadata"]["name"] for node, _ in case.nodes if case.is_leaving(node)]
    case.nodes = [(node, state) for node, state in case.nodes if node["metadata"]["name"] not in gone[1:]]
    case.pods = [pod for pod in case.pods if pod["spec"].get("nodeName") not in gone]
    case.more["leaving"] = frozenset(gone[:1])
    if is_open:
        open_up(case, draw)
    elif draw(st.integers(1, 6)) > 1:
        fill(case, draw, tenths=LIGHT, most=3)
    for node, _ in case.nodes:
        labels = node["metadata"].setdefault("labels", {})
        labels |= {TYPE: draw(st.sampled_from(sorted(TEMPLATES)))}
        labels |= SPOT if draw(st.integers(1, 12)) == 1 else {}
    names = [node["metadata"]["name"] for node, _ in case.nodes]
    targets, templates = [], {}
    for kind in TEMPLATES:
        for group in (kind, f"new-{kind}") if draw(st.booleans()) else (kind,):
            is_spot = draw(st.integers(1, 3)) == 1
            templates[group] = template(group, kind, SPOT if is_spot else {})
            made = NodeTemplate(group, cluster.node_info(msgspec.convert(templates[group], Node), NodeState.READY))
            spec = GroupSpec(kind, "new") if group != kind else None
            state = GroupStatus(Group(group, 0, draw(st.sampled_from([0, 1, 2, 4, 4])), 0), template=made, spec=spec)
            targets.append(LaunchTarget(state, made, draw(PRICES), is_spot))
    rules = ConsolidationRules(
        draw(st.sampled_from([0.0, 20.0])),
        draw(st.sampled_from([0.0, 0.0, 0.0, 0.5])),
        consolidation_spot_alternatives=draw(st.sampled_from([0, 1, 1, 2, 9])),
    )
    return Market(
        case,
        {name: draw(OLD_PRICES) for name in names if is_open or draw(st.integers(1, 12)) > 1},
        targets,
        templates,
        rules,
        Headroom(nodes=draw(st.sampled_from([None, None, None, None, 0, 1, 3]))),
        draw(st.sampled_from([1, 3, 7] if is_open else [0, 1, 3, 7])),
        draw(st.integers(0, 2)),
        draw(st.sampled_from([{}, {}, {}, {"g0": 0}, {"g0": 2, "g1": 1}])),
    )


@examples(200)
@given(st.booleans().flatmap(lambda is_open: markets(is_open=is_open)))
def test_a_replacement_saves_leaves_every_pod_a_place_and_stays_within_all_limits(market: Market) -> None:
    decision = market.decided()
    group_of = market.case.more["group_of"]
    ours = {name for name, group in group_of.items() if group in market.case.more["groups"]}
    assert decision.verdicts.keys() <= ours, "nothing foreign is judged"
    option = decision.option
    event(
        "none" if option is None else f"{len(option.removed)} -> {sum(option.added.values())}",
        payload="" if option is None else str(option),
    )
    if option is None:
        assert all(each.reason is not None for each in decision.verdicts.values())
        return
    after = sum(market.target(group).price * count for group, count in option.added.items())
    before = sum(market.prices[name] for name in option.removed)  # a node without a price is never replaced
    assert after < before
    assert before - after >= before * market.rules.consolidation_min_savings_percent / 100 - 1e-6
    assert option.removed
    shared = [name for name in option.removed if group_of[name] not in market.own_allowed]
    assert len(shared) <= market.allowed
    for group, most in market.own_allowed.items():
        assert sum(group_of[name] == group for name in option.removed) <= most
    nodes = {node["metadata"]["name"]: (node, state) for node, state in market.case.nodes}
    for name in option.removed:
        node, state = nodes[name]
        assert name in ours
        assert state is NodeState.READY
        assert not market.case.is_leaving(node), "a node that goes already is not replaced"
        assert (node["metadata"].get("annotations") or {}).get(ANNOTATION_DISABLED) != "true"
    for group, count in option.added.items():
        assert count <= market.target(group).state.room
    if market.remaining.nodes is not None:
        assert sum(option.added.values()) <= market.remaining.nodes
    for name, group in market.case.more["groups"].items():
        going = sum(group_of[node] == name for node in option.removed)
        assert not going or group.group.target_size - group.deleting - going >= group.group.min_size
    settled(market, option)


@examples(200)
@given(markets(is_open=True))
def test_groups_are_created_within_their_number_and_not_for_more_of_the_same(market: Market) -> None:
    option = market.decided().option
    if option is None:
        return
    created = {each.group: each for each in option.creations}
    event(f"{len(created)} created")
    assert created.keys() == {group for group in option.added if market.target(group).state.spec is not None}
    assert len(created) <= market.new_groups
    assert all(each.nodes == option.added[group] for group, each in created.items())
    types = {node["metadata"]["name"]: node["metadata"]["labels"][TYPE] for node, _ in market.case.nodes}
    for group, each in created.items():
        alike = [market.prices[name] for name in option.removed if types[name] == each.spec.machine_type]
        assert all(market.target(group).price < price for price in alike)


@examples(200)
@given(markets(is_open=True))
def test_spot_nodes_come_and_go_with_enough_alternatives_alone(market: Market) -> None:
    option = market.decided().option
    if option is None:
        return
    is_spot = any(map(market.is_spot, option.removed)) or any(market.target(group).is_spot for group in option.added)
    event("spot" if is_spot else "on demand")
    if is_spot:
        assert option.alternatives is not None
        assert (
            market.rules.consolidation_spot_alternatives
            <= option.alternatives
            <= sum(each.is_spot for each in market.targets)
        )
    else:
        assert option.alternatives is None


@examples(200)
@given(markets(is_open=True))
def test_offers_of_spot_nodes_hide_no_saving_by_nodes_on_demand(market: Market) -> None:
    every = list(market.targets)
    market.targets = [each for each in every if not each.is_spot]
    on_demand = market.decided().option
    market.targets = every
    event("without spot: " + ("none" if on_demand is None else "some"))
    assert on_demand is None or market.decided().option is not None


@examples(150)
@given(markets())
def test_every_priced_node_that_stays_says_what_its_replacement_would_save(market: Market) -> None:
    decision = market.decided()
    leaving = {node["metadata"]["name"] for node, _ in market.case.nodes if market.case.is_leaving(node)}
    for name, verdict in decision.verdicts.items():
        assert verdict.detail
        if verdict.reason is None or name in leaving:
            continue
        saves = verdict.saves_per_month
        assert (saves is None) is (name not in market.prices)
        assert saves is None or 0 <= saves <= market.prices[name] * HOURS_PER_MONTH + 1e-6
        assert (saves is None) is (not verdict.terms), "its price is a term"


@examples(200)
@given(markets(is_open=True))
def test_a_node_alone_never_saves_more_than_the_bound_that_is_said_where_it_is_held(market: Market) -> None:
    market.allowed, market.own_allowed = 1, {}
    option = market.decided().option
    if option is None or not is_plain(market.case):
        return
    (name,) = option.removed
    verdict = market.decided(protected=dict.fromkeys(market.prices, "it is protected")).verdicts[name]
    event("held")
    assert verdict.saves_per_month is not None
    assert option.saves_per_month <= verdict.saves_per_month + 1e-6


def is_plain(case: Case) -> bool:
    """Whether no pod asks anything of where other pods are."""
    return all(not pod["spec"].keys() & {"affinity", "topologySpreadConstraints"} for pod in case.pods)


def settled(market: Market, option: ReplacementOption) -> None:
    """Checks each place that a pod finds, one node after the other, and the predicted peaks in the end."""
    moves = dict(option.moves)
    machines = market.case.machines()
    new = {name: market.new_machine(name, option) for name in sorted(set(moves.values()) - machines.keys())}
    for group, count in option.added.items():
        assert sum(name.startswith(f"template-{group}-{group}-") for name in new) <= count
    for node, _ in market.case.nodes:
        if market.case.is_leaving(node):
            machines[node["metadata"]["name"]].accepts = False
    machines |= new
    checker = world(list(machines.values()))
    for name in option.removed:
        machines[name].accepts = False
    for name in option.removed:
        pods, machines[name].pods = machines[name].pods, []
        here = {f"{pod.namespace}/{pod.name}": pod for pod in pods}
        for key in [each for each in moves if each in here]:
            to, pod = moves[key], here.pop(key)
            assert checker.refusal(pod, machines[to]) == "", f"{key} of {name} on {to}"
            machines[to].pods.append(pod)
        for pod in here.values():  # it goes with its node
            assert pod.given["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    hold_their_peaks(market, option, new)


def hold_their_peaks(market: Market, option: ReplacementOption, new: dict[str, Machine]) -> None:
    """Each node that takes pods holds its own peak with the margin, and with each pod its share of the peak of the node
    that it leaves. Nothing runs on a new node yet.
    """
    peaks: dict[str, Resources] | None = market.case.more["peaks"]
    if peaks is None:
        return
    moves, before = dict(option.moves), market.case.machines()
    loads: dict[str, list[Fraction]] = {}
    for name in option.removed:
        own = [pod for pod in before[name].pods if f"{pod.namespace}/{pod.name}" in moves]
        for row, resource in enumerate(("cpu", "memory")):
            total = sum(pod.requests.get(resource, Fraction(0)) for pod in own)
            for pod in own:
                share = pod.requests.get(resource, Fraction(0)) / total if total else Fraction(1, len(own))
                load = share * peaks[name][row] + (pod.requests.get(MID_CPU, Fraction(0)) if not row else 0)
                loads.setdefault(moves[f"{pod.namespace}/{pod.name}"], [Fraction(0), Fraction(0)])[row] += load
    event(f"peaks on {len(loads)} nodes")
    left_over = 1 - Fraction(market.case.rules.removal.scale_down_peak_margin_percent, 100)
    for name, brought in loads.items():
        machine = new.get(name) or before[name]
        lent = sum(pod.requests.get(MID_CPU, Fraction(0)) for pod in machine.pods)
        own_peak = Resources() if name in new else peaks[name]
        for row, (resource, unit) in enumerate((("cpu", 1000), ("memory", 1))):
            if brought[row]:
                there = own_peak[row] + brought[row] + (lent if not row else 0)
                assert there <= machine.allocatable[resource] * unit * left_over, f"{resource} on {name}"


@examples(40)
@given(markets(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(market: Market, chance: Any) -> None:
    found = market.decided()
    chance.shuffle(market.case.nodes)
    chance.shuffle(market.case.pods)
    chance.shuffle(market.targets)
    again = market.decided()
    assert (found.option and found.option.removed, again.verdicts.keys()) == (
        again.option and again.option.removed,
        found.verdicts.keys(),
    )
    assert {name: each.reason for name, each in found.verdicts.items()} == {
        name: each.reason for name, each in again.verdicts.items()
    }
