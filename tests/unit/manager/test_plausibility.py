"""A NodeMetric that cannot be right is found out, and one that is merely older than the manager's view is not."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.decisions import DecidedNode
from manager.nodeside.eviction import condition
from manager.nodeside.eviction.tracker import Tracker
from manager.nodeside.noderesource import plausibility
from manager.nodeside.noderesource.plausibility import ReportHistory
from manager.pods import NOTHING, NodeRequests
from shared import names
from shared.api.core import Condition
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB
from tests.unit.manager.test_decisions import World
from tests.unit.manager.test_mid import situation

REQUESTED = Resources(8000, 8 * GIB)
AMOUNTS = st.builds(Resources, st.integers(0, 10**6), st.integers(0, 1 << 44))


@pytest.mark.parametrize(
    ("reported", "contradicted"),
    [
        ({"reclaimable": None}, []),
        ({"reclaimable": REQUESTED}, []),
        ({"reclaimable": Resources(-5, -5), "prod": NOTHING}, []),
        ({"reclaimable": Resources(8001, GIB)}, ["cpu"]),
        ({"reclaimable": Resources(10**9, 1 << 50), "prod": NOTHING}, ["cpu", "memory"]),
        ({"reclaimable": Resources(8001, GIB), "lately": Resources(9000, 0)}, []),
        ({"reclaimable": Resources(5000, GIB), "peak": Resources(6000, GIB), "model": "n-sigma-v2"}, ["cpu"]),
        ({"reclaimable": Resources(2000, GIB), "peak": Resources(6000, GIB), "model": "n-sigma-v2"}, []),
        ({"reclaimable": Resources(5000, 8 * GIB), "peak": (6000, None), "model": "n-sigma-v2"}, ["cpu"]),
        ({"reclaimable": Resources(8000, 8 * GIB), "peak": (None, GIB), "model": "n-sigma-v2"}, ["memory"]),
        # Pod by pod, none lends less than nothing; who names no model is Koordinator's.
        ({"reclaimable": Resources(5000, GIB), "peak": Resources(6000, GIB), "model": "percentile"}, []),
        ({"reclaimable": Resources(5000, GIB), "peak": Resources(6000, GIB)}, []),
    ],
)
def test_more_than_is_requested_less_the_peak_is_a_contradiction(
    reported: Mapping[str, Any], contradicted: list[str]
) -> None:
    said = plausibility.contradiction(situation(**{"prod": REQUESTED, **reported}))
    assert [part.partition(":")[0] for part in said.split("; ") if part] == contradicted


@given(requested=AMOUNTS, peak=AMOUNTS, allocatable=AMOUNTS, gone=AMOUNTS, come=AMOUNTS, ratio=st.integers(0, 100))
def test_what_the_seed_makes_of_true_numbers_is_no_contradiction_though_pods_come_and_go(
    requested: Resources, peak: Resources, allocatable: Resources, gone: Resources, come: Resources, ratio: int
) -> None:
    entitled = requested.percent(cpu=ratio, memory=ratio)
    reclaimable = entitled.minus(peak).floored().least(allocatable.minus(peak).floored())
    now = requested.minus(gone).floored().plus(come)
    seen = situation(reclaimable=reclaimable, peak=peak, prod=now, lately=requested, model="n-sigma-v2")
    assert plausibility.contradiction(seen) == ""


def test_what_was_requested_counts_until_the_second_report_after_it() -> None:
    past = ReportHistory().after_report("first", REQUESTED)
    assert past.after_report("first", NOTHING).most_requested == REQUESTED
    second = past.after_report("first", NOTHING).after_report("second", NOTHING)
    assert second.most_requested == REQUESTED
    assert second.after_report("third", NOTHING).most_requested == NOTHING


class Watched(World):
    """A node whose prod pods request what a test says."""

    def __init__(self, strategy: str = '{"enable": true}') -> None:
        super().__init__(strategy, offers="mid")
        self.tracker = Tracker(self.clock)
        self.requests(REQUESTED)

    def requests(self, amount: Resources) -> None:
        self.known.asked = NodeRequests(amount, amount)

    def decided(self) -> DecidedNode:
        return self.decisions.decide(self.node)

    def conditions(self, look: DecidedNode) -> dict[str, str]:
        """What is due to be said on the Node, as type and status, and is said."""
        notice = self.tracker.track(look.node, look.strategy, look.decision, ())
        if notice is None:
            return {}
        self.tracker.record_notice(notice)
        written = tuple(Condition(type_, said.status, said.reason) for type_, said in notice.said.items())
        status = msgspec.structs.replace(self.node.status, conditions=written)
        self.node = msgspec.structs.replace(self.node, status=status)
        return {type_: said.status for type_, said in notice.said.items()}


def test_a_contradiction_is_bounded_at_once_and_said_on_the_node_with_the_second_report_in_a_row() -> None:
    world = Watched()
    world.requests(NOTHING)
    world.report("1000000")
    first = world.decided()
    assert first.decision.offers[Tier.MID].resources == NOTHING
    assert first.decision.offers[Tier.MID].explanation.cpu.bound == "reclaimable_limit"
    assert (first.decision.contradiction, world.conditions(first)) == ("", {})
    world.clock.advance(60)
    world.report("1000000")
    second = world.decided()
    assert "cpu: 1000000 is said to be reclaimable, but pods above Mid request 0" in second.decision.contradiction
    assert world.conditions(second) == {names.CONDITION_CONTRADICTION: condition.TRUE}
    assert world.conditions(world.decided()) == {}
    world.clock.advance(60)
    world.report("0", "0")
    assert world.decided().decision.contradiction == ""
    assert world.conditions(world.decided()) == {}
    world.clock.advance(60)
    assert world.conditions(world.decided()) == {names.CONDITION_CONTRADICTION: condition.FALSE}


def test_a_pod_that_comes_or_goes_between_two_reports_neither_moves_mid_nor_raises_an_alarm() -> None:
    world = Watched()
    for cpu, asked in (("6", 8000), ("6", 8000), ("2", 4000), ("2", 4000), ("6", 8000), ("6", 8000)):
        world.report(cpu)
        for amount in (8000, 4000, asked):  # one of two pods goes and comes back, or is gone by the next report
            world.requests(Resources(amount, 8 * GIB))
            look = world.decided()
            assert look.decision.contradiction == ""
            offered = look.decision.offers[Tier.MID]
            assert offered.explanation.cpu.result + offered.held_back.cpu_milli == int(cpu) * 1000
        world.clock.advance(60)


def test_a_manager_that_begins_is_not_alarmed_by_a_report_from_before_a_pod_went() -> None:
    world = Watched()
    world.report("6")
    world.requests(Resources(4000, 8 * GIB))
    world.restart()
    assert world.decided().decision.contradiction == ""
    world.clock.advance(60)
    world.report("2")
    assert world.decided().decision.contradiction == ""
