"""What holds of scale-down over successive rounds, while what is known of the cluster lags behind."""

from dataclasses import dataclass, field

from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.pricing.model import GIB
from manager.autoscaler.scale_down import planner
from manager.autoscaler.scale_down.drain import DrainInfo, PodController
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import GroupRules, ScaleDownDecision, ScaleDownHistory, ScaleDownRules
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.settings.scale_down import Parallelism, RemovalRules
from manager.autoscaler.snapshot.cluster import PODS, NodeInfo
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.quantity import Resources
from tests.support.properties import examples
from tests.unit.manager.objects import NOW

CORES = 4
ROUNDS = 5


def node(name: str) -> NodeInfo:
    amounts = {"cpu": CORES * 1000, "memory": 8 * GIB, PODS: 110}
    return NodeInfo(name, capacity=amounts, allocatable=amounts)


@dataclass
class Fleet:
    """One group, of which nodes go until none can; every pod uses the same share of what it requests."""

    nodes: list[NodeInfo]
    rules: ScaleDownRules
    cpu: dict[str, int] = field(default_factory=dict)  # what pods request, in milli
    on: dict[str, str] = field(default_factory=dict)
    used_percent: int = 100
    least: int = 0
    told: dict[str, Resources] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)

    def reports(self, name: str) -> None:
        """The agent of a node tells its peak."""
        self.told[name] = Resources(self.load(name), 0)
        self.untold -= {pod for pod, where in self.on.items() if where == name}

    def load(self, name: str) -> int:
        return sum(self.cpu[pod] * self.used_percent // 100 for pod, where in self.on.items() if where == name)

    def decided(self, number: int, gone: frozenset[str] = frozenset()) -> ScaleDownDecision:
        names = [each.name for each in self.nodes]
        who = DrainInfo("ns", controller=PodController("ReplicaSet", "web"))
        situation = ScaleDownContext(
            NOW + 10 * number,
            self.nodes,
            [PodOnNode(pod, where, PodInfo("ns", {}, {"cpu": self.cpu[pod]}), who) for pod, where in self.on.items()],
            self.rules,
            groups={"g": ShrinkingGroup(Group("g", self.least, 100, len(names) - len(gone)), GroupRules(1.0))},
            group_of=dict.fromkeys(names, "g"),
            memory=ScaleDownHistory(dict.fromkeys(names, NOW - 86_400)),
            peaks=self.told or None,
            untold=self.untold,
            leaving=gone,
        )
        return planner.decide(situation)

    def drain(self, decision: ScaleDownDecision) -> set[str]:
        """The nodes that go are gone at once, and their pods where the simulation has put them; where these are."""
        going = {each.node for each in decision.removals}
        reached = set()
        for left in decision.simulated:
            for pod, to in left.moves if left.node in going else ():
                if self.on[pod] == left.node:
                    self.on[pod] = to
                    self.untold.add(pod)
                    reached.add(to)
        self.nodes = [each for each in self.nodes if each.name not in going]
        return reached - going


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    names = [f"n{index}" for index in range(draw(st.integers(2, 7)))]
    rules = ScaleDownRules(
        parallelism=Parallelism(3, draw(st.integers(1, 2))),
        removal=RemovalRules(scale_down_peak_margin_percent=draw(st.sampled_from([10, 50]))),
    )
    made = Fleet([node(name) for name in names], rules, used_percent=draw(st.sampled_from([50, 100])))
    for name in names:
        for number in range(draw(st.integers(0, 3))):
            pod = f"ns/{name}-{number}"
            made.cpu[pod], made.on[pod] = 100 * draw(st.integers(1, 9)), name
    for name in names:
        made.reports(name)
    return made


@examples(150)
@given(fleets(), st.data())
def test_nodes_hold_their_peaks_however_long_they_do_not_tell_them(fleet: Fleet, data: st.DataObject) -> None:
    most = CORES * 1000 * (100 - fleet.rules.removal.scale_down_peak_margin_percent) // 100
    for number in range(ROUNDS):
        reached = fleet.drain(fleet.decided(number))
        event(f"round {number}: {len(reached)} nodes took pods")
        assert all(fleet.load(name) <= most for name in reached)
        for each in fleet.nodes:
            if data.draw(st.integers(1, 4)) == 1:
                fleet.reports(each.name)


@examples(100)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 5))
def test_minimums_hold_while_the_nodes_of_those_that_are_gone_are_still_there(size: int, low: int, least: int) -> None:
    rules = ScaleDownRules(bounds={"cpu": ResourceBounds(low)}, parallelism=Parallelism(3, 1))
    fleet = Fleet([node(f"n{index:02}") for index in range(size)], rules, least=least)
    gone: frozenset[str] = frozenset()
    for number in range(ROUNDS):
        going = {each.node for each in fleet.decided(number, gone).removals}
        assert not going & gone
        gone |= going
        assert not going or (size - len(gone) >= least and CORES * (size - len(gone)) >= low)
    assert len(gone) == max(0, min(size - max(least, -(-low // CORES)), 3 * ROUNDS))
