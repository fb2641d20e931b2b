"""After an outage of the API server agents get one report interval before what their nodes offer is withdrawn."""

import pytest

from manager.nodeside.decisions import NodeDecisions
from manager.nodeside.noderesource.writing import Waiting, Write, WriteReason
from manager.nodeside.outages import LONGEST_SECONDS, LOOK_SECONDS, Outage, sensed, spared_until
from manager.nodeside.reports import EventReporter
from shared.quantity import Resources
from tests.unit.manager.objects import GIB
from tests.unit.manager.test_decisions import World, reason

DEGRADE, INTERVAL = 900.0, 60.0


def test_an_outage_begins_when_nothing_is_heard_any_more_and_ends_when_anything_is() -> None:
    assert sensed(None, 0.0, 100.0) is None
    began = sensed(None, 3.0, 100.0)
    assert began == Outage(97.0)
    assert sensed(began, 50.0, 147.0) == Outage(97.0)
    ended = sensed(began, 0.0, 150.0)
    assert ended == Outage(97.0, 150.0)
    assert sensed(ended, 0.0, 200.0) == ended
    assert sensed(ended, 1.0, 300.0) == Outage(299.0)


@pytest.mark.parametrize(
    ("outage", "reported_at", "now", "until"),
    [
        (None, 0.0, 1000.0, None),
        (Outage(100.0, 1100.0), 90.0, 1100.0, 1160.0),
        (Outage(100.0, 1100.0), 90.0, 1159.0, 1160.0),
        (Outage(100.0, 1100.0), 90.0, 1160.0, None),  # bounded
        (Outage(1000.0, 2000.0), 99.0, 2001.0, None),  # silent before it
        (Outage(1000.0, 1050.0), 500.0, 1051.0, None),  # too short to be the reason
        (Outage(1000.0), 500.0, 1050.0, None),
        (Outage(100.0, 1100.0), 5000.0, 1101.0, None),  # a clock that is ahead is the reason
        (Outage(100.0), 90.0, 1500.0, 1500.0 + LOOK_SECONDS),
        (Outage(100.0), 90.0, 101.0 + DEGRADE + LONGEST_SECONDS, None),
    ],
)
def test_only_who_was_heard_before_it_is_spared_and_for_an_interval_alone(
    outage: Outage | None, reported_at: float, now: float, until: float | None
) -> None:
    found = spared_until(outage, reported_at=reported_at, degrade_seconds=DEGRADE, interval_seconds=INTERVAL, now=now)
    assert found == until


class Away(World):
    """An API server that can be away."""

    def restart(self) -> None:
        self.away_since: float | None = None
        self.decisions = NodeDecisions(
            self.known, self.settings, self.clock, EventReporter(None), unheard_seconds=self.unheard_seconds
        )

    def unheard_seconds(self) -> float:
        return 0.0 if self.away_since is None else self.clock.monotonic() - self.away_since


def test_after_an_outage_an_agent_that_reports_in_time_keeps_what_its_node_offers() -> None:
    world = Away(offers="mid")
    world.report("2")
    world.look()
    world.away_since = world.clock.monotonic()
    world.clock.advance(1800)
    world.decisions.due()
    assert reason(world.look()) == Waiting.OUTAGE
    world.away_since = None
    assert world.decisions.due() == []
    held = world.look()
    assert reason(held) == Waiting.OUTAGE
    assert held is not None
    assert held.why.startswith("the API server was away, so agents get one report interval")
    world.clock.advance(30)
    world.report("2")
    assert world.look() is None
    assert world.mid() == Resources(2000, GIB)


def test_after_an_outage_an_agent_that_stays_silent_loses_it_by_time_alone() -> None:
    world = Away(offers="mid")
    world.report("2")
    world.look()
    world.away_since = world.clock.monotonic()
    world.clock.advance(1800)
    world.decisions.due()
    world.away_since = None
    assert reason(world.look()) == Waiting.OUTAGE
    world.clock.advance(61)
    assert world.decisions.due() == ["n1"]
    outcome = world.look()
    assert isinstance(outcome, Write)
    assert (outcome.reason, world.mid()) == (WriteReason.DIFFERENCE, None)


def test_without_an_outage_a_stale_node_metric_takes_its_offers_away_at_once() -> None:
    world = Away(offers="mid")
    world.report("2")
    world.look()
    world.clock.advance(901)
    assert reason(world.look()) == WriteReason.DIFFERENCE
    assert world.mid() is None
