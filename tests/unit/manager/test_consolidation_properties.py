"""What holds of every replacement that is found, whatever the cluster; places are judged by the independent checker."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.disruption import consolidation_search
from manager.autoscaler.disruption.candidates import LaunchTarget
from manager.autoscaler.disruption.consolidation_rules import ConsolidationRules
from manager.autoscaler.disruption.consolidation_search import ConsolidationInputs
from manager.autoscaler.disruption.disruption_limits import Allowed, DisruptionAllowance
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.scale_down.eligibility import ANNOTATION_DISABLED
from manager.autoscaler.scale_down.inputs import ScaleDownContext
from manager.autoscaler.scale_down.rules import GroupRules
from manager.autoscaler.scale_up.groups import Headroom
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeState, NodeTemplate
from shared.api.core import Node
from tests.support import independent_checker
from tests.support.properties import examples
from tests.unit.manager.test_scale_down_properties import Case, cases
from tests.unit.manager.wire_objects import ZONE, raw_node, raw_pod, world

PRICES = st.sampled_from([0.1, 0.25, 0.5, 0.6, 1.0, 2.0])
TEMPLATES = {
    "tiny": ("z1", {"cpu": "1", "memory": "20Mi", "pods": "4"}),
    "small": ("z1", {"cpu": "3", "memory": "64Mi", "pods": "10"}),
    "large": ("z2", {"cpu": "8", "memory": "128Mi", "pods": "20"}),
}


@dataclass
class Market:
    """A cluster, what its nodes cost, and what is on offer."""

    case: Case
    prices: dict[str, float]
    targets: list[LaunchTarget]
    rules: ConsolidationRules
    remaining: Headroom
    allowed: int

    def decided(self) -> ConsolidationDecision:
        context = ScaleDownContext(self.case.situation(), self.case.rules)
        inputs = ConsolidationInputs(
            self.prices,
            self.targets,
            remaining=self.remaining,
            allowed=DisruptionAllowance(Allowed(self.allowed, str(self.allowed))),
        )
        return consolidation_search.search(context, inputs, self.rules)


def template(group: str) -> dict[str, Any]:
    zone, amounts = TEMPLATES[group]
    return raw_node(f"template-{group}", {ZONE: zone, "pool": "x"}, amounts)


def fill(case: Case, draw: st.DrawFn) -> None:
    """Makes it a cluster in which nodes may be replaced and few can go without it."""
    for node, _ in case.nodes:
        node["spec"] = {"taints": [], "unschedulable": False}
        name = node["metadata"]["name"]
        for number in range(draw(st.integers(1, 3))):
            requests = {"cpu": f"{draw(st.integers(3, 9))}00m", "memory": "1Mi"}
            spec = {"containers": [{"name": "c", "resources": {"requests": requests}}], "nodeName": name}
            case.pods.append(raw_pod(f"{name}-more-{number}", f"default-more-{requests['cpu']}", spec))
    case.nodes = [(node, NodeState.READY) for node, _ in case.nodes]
    case.more["groups"] = {
        name: replace(each, group=replace(each.group, min_size=each.group.min_size // 3), rules=GroupRules())
        for name, each in case.more["groups"].items()
    }
    case.more["peaks"] = case.more["peaks"] if draw(st.integers(1, 4)) == 1 else None


@st.composite
def markets(draw: st.DrawFn) -> Market:
    case = draw(cases())
    # Nodes under deletion have no prices and no part in this.
    gone = {node["metadata"]["name"] for node, _ in case.nodes if case.is_leaving(node)}
    case.nodes = [(node, state) for node, state in case.nodes if node["metadata"]["name"] not in gone]
    case.pods = [pod for pod in case.pods if pod["spec"].get("nodeName") not in gone]
    case.more["leaving"] = frozenset()
    if draw(st.integers(1, 4)) > 1:
        fill(case, draw)
    names = [node["metadata"]["name"] for node, _ in case.nodes]
    targets = []
    for group in TEMPLATES:
        made = cluster.node_info(msgspec.convert(template(group), Node), NodeState.READY)
        state = GroupStatus(Group(group, 0, draw(st.integers(0, 4)), 0), template=NodeTemplate(group, made))
        targets.append(LaunchTarget(state, NodeTemplate(group, made), draw(PRICES)))
    rules = ConsolidationRules(draw(st.sampled_from([0.0, 20.0])), draw(st.sampled_from([0.0, 0.0, 0.5])))
    return Market(
        case,
        {name: draw(PRICES) for name in names if draw(st.integers(1, 12)) > 1},
        targets,
        rules,
        Headroom(nodes=draw(st.sampled_from([None, None, 0, 1, 3]))),
        draw(st.sampled_from([0, 1, 3, 7])),
    )


@examples(120)
@given(markets())
def test_a_replacement_saves_leaves_every_pod_a_place_and_stays_within_all_limits(market: Market) -> None:
    decision = market.decided()
    ours = {name for name, group in market.case.more["group_of"].items() if group in market.case.more["groups"]}
    assert decision.verdicts.keys() <= ours, "nothing foreign is judged"
    option = decision.option
    event(
        "none" if option is None else f"{len(option.removed)} -> {sum(option.added.values())}",
        payload="" if option is None else str(option),
    )
    if option is None:
        assert all(each.reason is not None for each in decision.verdicts.values())
        return
    prices = {each.id: each.price for each in market.targets}
    after = sum(prices[group] * count for group, count in option.added.items())
    before = sum(market.prices[name] for name in option.removed)  # a node without a price is never replaced
    assert after < before
    assert before - after >= before * market.rules.min_savings_percent / 100 - 1e-6
    assert 0 < len(option.removed) <= market.allowed
    nodes = {node["metadata"]["name"]: (node, state) for node, state in market.case.nodes}
    for name in option.removed:
        node, state = nodes[name]
        assert name in ours
        assert state is NodeState.READY
        assert (node["metadata"].get("annotations") or {}).get(ANNOTATION_DISABLED) != "true"
    for group, count in option.added.items():
        assert count <= next(each.state.room for each in market.targets if each.id == group)
    if market.remaining.nodes is not None:
        assert sum(option.added.values()) <= market.remaining.nodes
    for name, group in market.case.more["groups"].items():
        going = sum(market.case.more["group_of"][node] == name for node in option.removed)
        assert not going or group.group.target_size - group.deleting - going >= group.group.min_size
    settled(market.case, decision)


def settled(case: Case, decision: ConsolidationDecision) -> None:
    """Checks each place that a pod finds, one node after the other."""
    assert decision.option is not None
    machines = case.machines()
    for group, count in decision.option.added.items():
        for number in range(count):
            name = f"template-{group}-{group}-{number}"
            raw = template(group)
            raw["metadata"] |= {"name": name, "labels": {**raw["metadata"]["labels"], LABEL_HOSTNAME: name}}
            machines[name] = independent_checker.machine(raw)
    checker = world(list(machines.values()))
    moves = dict(decision.option.moves)
    for name in decision.option.removed:
        machines[name].accepts = False
    for name in decision.option.removed:
        pods, machines[name].pods = machines[name].pods, []
        here = {f"{pod.namespace}/{pod.name}": pod for pod in pods}
        for key in [each for each in moves if each in here]:
            to, pod = moves[key], here.pop(key)
            assert checker.refusal(pod, machines[to]) == "", f"{key} of {name} on {to}"
            machines[to].pods.append(pod)
        for pod in here.values():  # it goes with its node
            assert pod.given["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"


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
