"""What is seen once a decision is under way."""

import random
from dataclasses import replace

from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.estimator.limits import Quota, ResourceBounds
from manager.autoscaler.scale_up import orchestrator, salvo
from manager.autoscaler.scale_up.decisions import ScaleUpOutcome
from manager.autoscaler.scale_up.options import ScaleUpInput
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo, PodTerm, Spread
from shared.api.selectors import LabelSelector
from shared.names import MID_CPU
from tests.unit.manager.test_scale_up import PREFIX, ZONE, group, machine, pending, rules


def test_the_pods_that_nodes_were_chosen_for_are_on_them_and_the_others_are_asked_about_next() -> None:
    daemon = PodInfo(requests={"cpu": 500})
    small = group("small", machine(2))
    assert small.template is not None
    states = [replace(small, template=replace(small.template, daemons=(daemon,))), group("large", machine(8))]
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), [pending(1.5, 2), pending(7, 1, "large")], states, 0)
    only_small = rules(states, expanders=("most-pods",), ownership=Ownership({"small": None}))
    first = orchestrator.decide(situation, only_small, random.Random(1))
    assert first.nodes == {"small": 2}
    after = salvo.apply_decision(situation, first)
    assert [node.state for node in after.snapshot.nodes] == [NodeState.UPCOMING] * 2
    assert after.snapshot.free_of("cpu").tolist() == [0, 0]
    assert [each.pods for each in after.classes] == [("ns/large-0000",)]
    assert [each.group.target_size for each in after.groups] == [2, 0]
    second = orchestrator.decide(after, rules(states), random.Random(1))
    assert second.nodes == {"large": 1}
    third = orchestrator.decide(salvo.apply_decision(after, second), rules(states), random.Random(1))
    assert third.outcome is ScaleUpOutcome.NOT_NEEDED


def test_all_decisions_together_keep_to_the_limits() -> None:
    states = [group("small", machine(2), most=1), group("large", machine(4))]
    quota = Quota("of all", {"nodes": 3})
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), [pending(2, 9)], states, 0, (quota,))
    chosen = rules(states, expanders=("least-nodes",), bounds={"cpu": ResourceBounds(0, 9)})
    bought: dict[str, int] = {}
    decision = orchestrator.decide(situation, chosen, random.Random(1))
    while decision.outcome is ScaleUpOutcome.GROW:
        bought |= {name: bought.get(name, 0) + count for name, count in decision.nodes.items()}
        situation = salvo.apply_decision(situation, decision)
        decision = orchestrator.decide(situation, chosen, random.Random(1))
    assert bought == {"small": 1, "large": 1}  # 6 of 9 cores; the next large one would be too much


def test_a_group_that_is_to_be_created_is_no_option_any_more_and_counts() -> None:
    state = group(f"{PREFIX}-theory", machine(2), spec=GroupSpec("m", PREFIX))
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), [pending(2, 2)], [state], 0, new_groups=2)
    decision = orchestrator.decide(situation, rules([]), random.Random(1))
    after = salvo.apply_decision(situation, decision)
    assert (len(after.snapshot.nodes), list(after.groups), after.new_groups, list(after.classes)) == (2, [], 1, [])


def test_pods_that_reclaiming_serves_stay_served() -> None:
    node = replace(machine(4), name="n", allocatable={**machine(4).allocatable, MID_CPU: 0})
    mid = EquivalenceGroup(PodInfo("ns", requests={MID_CPU: 1000}), ("ns/mid",))
    states = [group("a", machine(9))]
    expected = {"n": {MID_CPU: 1000}}
    situation = ScaleUpInput(cluster.snapshot_of_nodes([node]), [mid, pending(9)], states, 1, expected=expected)
    decision = orchestrator.decide(situation, rules(states), random.Random(1))
    assert (decision.nodes, decision.demands[0].reclaimed) == ({"a": 1}, 1)
    after = salvo.apply_decision(situation, decision)
    assert list(after.classes) == []
    assert after.snapshot.free_of(MID_CPU).tolist() == [-1000, 0]  # of what is still to come


def test_a_pod_that_finds_room_on_the_nodes_of_an_earlier_decision_is_not_left() -> None:
    """Zone a gets one pod and b two; then a may take the fourth, on the node that it has."""
    zones = {zone: machine(2, labels={ZONE: zone}) for zone in "ab"}
    full = [replace(each, name=zone, allocatable={**each.allocatable, "cpu": 0}) for zone, each in zones.items()]
    spread = Spread(PodTerm(ZONE, frozenset({"ns"}), LabelSelector({"app": "x"})), 1, 1, True, False)
    states = [group(zone, each, most=1) for zone, each in zones.items()]
    facts = PodInfo("ns", {"app": "x"}, {"cpu": 1000}, spread=(spread,))
    pods = EquivalenceGroup(facts, tuple(f"ns/p-{index}" for index in range(4)))
    situation = ScaleUpInput(cluster.snapshot_of_nodes(full), [pods], states, 2)
    decisions = salvo.decide(situation, rules(states), random.Random(1), seconds=60.0, clock=None)
    assert [dict(each.nodes) for each in decisions] == [{"a": 1}, {"b": 1}]
    assert [len(each.triggered) for each in decisions] == [1, 2]
    assert decisions[-1].left == ()
