"""What is remembered from one look to the next, and what becomes of what nobody foresaw."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside import policy
from manager.nodeside.decisions import NodeDecisions
from manager.nodeside.noderesource import holdings, prod_first, report, writing
from manager.nodeside.noderesource.buffer import LEAST_STEPS
from manager.nodeside.noderesource.prod_first import ProdWaiting
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.writing import Wait, Waiting, Write, WriteReason, WriteRule
from manager.nodeside.policy import ClusterPolicy
from manager.nodeside.reports import EventReporter
from manager.pods import NodeRequests, PodRecord
from manager.settings import ManagerSettings
from shared import names
from shared.api.colocation import DEFAULTS
from shared.api.core import ConfigMap, Node
from shared.clock import ManualClock
from shared.names import Tier
from shared.quantity import Resources
from tests.support import certain
from tests.unit.manager.objects import GIB, NOW, metric, node
from tests.unit.manager.shortfalls import mid_pod

ORIGIN = names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE
ALL = NodeRequests(Resources(10_000, 100 * GIB), Resources(10_000, 100 * GIB))


@dataclass
class Known:
    """A cluster of one node."""

    policy: ClusterPolicy
    reported: NodeReport | None = None
    records: tuple[PodRecord, ...] = ()
    asked: NodeRequests = ALL

    def report(self, name: str) -> NodeReport | None:
        return self.reported

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.records

    def requested(self, name: str) -> NodeRequests:
        return self.asked


class World:
    """Decisions about one node, of which a manager that writes what is due could not tell the difference."""

    def __init__(self, strategy: str = '{"enable": true}', **settings: Any) -> None:
        self.clock = ManualClock(NOW)
        config_map = ConfigMap(data={names.CONFIG_KEY_COLOCATION: strategy})
        self.known = Known(policy.next_policy(ClusterPolicy(), config_map, source="cm"))
        self.settings = ManagerSettings(**settings)
        self.node = node()
        self.restart()

    def restart(self) -> None:
        """A manager begins that remembers nothing."""
        self.decisions = NodeDecisions(self.known, self.settings, self.clock, EventReporter(None))

    def report(self, cpu: str, memory: str = "1Gi") -> None:
        """The agent reports now."""
        reported = metric(age_seconds=NOW - self.clock.now(), reclaimable={"cpu": cpu, "memory": memory})
        self.known.reported = report.read(reported)

    def look(self) -> Write | Wait | None:
        """One look, and the write that is due."""
        outcome = self.decisions.decide(self.node).outcome
        if isinstance(outcome, Write):
            listed: Mapping[str, str] = {}
            for tier, change in outcome.changes.items():
                listed = {**listed, **writing.listed(tier, change.new)}
            self.node = node(mid=dict(listed))
            self.decisions.written("n1", outcome)
        return outcome

    def mid(self) -> Resources | None:
        return holdings.on_offer(self.node, Tier.MID)


def reason(outcome: Write | Wait | None) -> str | None:
    return None if outcome is None else outcome.reason


def test_growth_after_a_fall_is_written_by_time_alone_once_it_has_lasted() -> None:
    world = World(offers="mid")
    for cpu, expected in (("2", WriteReason.DIFFERENCE), ("3", WriteReason.DIFFERENCE), ("1", WriteReason.DIFFERENCE)):
        world.report(cpu)
        assert reason(world.look()) == expected
        world.clock.advance(60)
    world.report("3")
    held = world.look()
    assert isinstance(held, Wait)
    assert (held.reason, world.mid()) == (Waiting.DAMPED, Resources(1000, GIB))
    assert world.decisions.due() == []
    assert held.until is not None
    world.clock.advance(held.until - world.clock.monotonic() + 1)
    assert world.decisions.due() == ["n1"]
    assert world.decisions.due() == []
    assert reason(world.look()) == WriteReason.DIFFERENCE
    assert world.mid() == Resources(3000, GIB)


def test_the_upstream_rule_writes_what_is_decided_as_it_comes() -> None:
    world = World(offers="mid", write_rule="upstream")
    for cpu in ("2", "1", "2", "1"):
        world.report(cpu)
        assert reason(world.look()) == WriteReason.DIFFERENCE
        assert world.mid() == Resources(int(cpu) * 1000, GIB)
    world.report("1010m")
    assert reason(world.look()) == Waiting.THRESHOLD
    world.report("990m")
    assert reason(world.look()) == Waiting.THRESHOLD


def test_a_node_that_swings_learns_to_hold_something_back_and_then_is_not_written_for_that_swing() -> None:
    world = World(offers="mid")
    written = 0
    for index in range(240):
        world.clock.advance(60)
        world.report("2" if index % 2 else "1920m")
        outcome = world.look()
        written += isinstance(outcome, Write) and index >= 60
    memory = world.decisions.history_of("n1")
    assert memory is not None
    assert memory.learner.learned.cpu.permille == 40
    assert memory.learner.learned.memory.permille == 0
    assert written == 0
    assert memory.decided is not None
    assert memory.decided.decision.offers[Tier.MID].held_back.cpu_milli == 80


def test_a_manager_that_begins_holds_back_what_the_one_before_did_until_it_has_learned_itself() -> None:
    world = World(offers="mid")
    for index in range(61):
        world.report("1920m" if index % 2 else "2")
        world.look()
        world.clock.advance(60)
    before = world.mid()
    assert before is not None
    assert before.cpu_milli < 1920
    world.restart()
    for _ in range(LEAST_STEPS):
        world.look()
        assert world.mid() == Resources(before.cpu_milli + 1, GIB)  # as a share is kept in thousandths
        world.clock.advance(60)
        world.report("2")
    world.look()
    assert world.decisions.decide(world.node).decision.offers[Tier.MID].held_back == Resources()


def test_a_manager_that_begins_while_nothing_can_be_read_learns_later_what_was_held_back() -> None:
    world = World(offers="mid")
    world.node = node(mid={names.MID_CPU: "1800", names.MID_MEMORY: str(GIB)})
    good, world.known.policy = world.known.policy, ClusterPolicy()
    world.report("2")
    world.look()
    world.known.policy = good
    world.look()
    assert world.mid() == Resources(1800, GIB)


def test_looking_twice_at_one_report_teaches_nothing() -> None:
    world = World()
    world.report("2")
    for _ in range(100):
        world.look()
    memory = world.decisions.history_of("n1")
    assert memory is not None
    assert memory.learner.learned.cpu.steps == 0


def test_a_node_metric_that_turns_stale_takes_every_tier_away_by_time_alone() -> None:
    world = World()
    world.report("2")
    world.look()
    assert world.mid() == Resources(2000, GIB)
    assert holdings.on_offer(world.node, Tier.BATCH) is not None
    world.clock.advance(15 * 60)
    assert world.decisions.due() == []
    world.clock.advance(0.1)
    assert world.decisions.due() == ["n1"]
    assert reason(world.look()) == WriteReason.DIFFERENCE
    assert [holdings.on_offer(world.node, tier) for tier in Tier] == [None, None]


def test_a_report_dated_ahead_is_not_believed_later_either() -> None:
    world = World()
    world.clock.jump(840)
    world.report("2")
    world.clock.jump(-840)
    for seconds in (0, 600, 240):
        world.clock.advance(seconds)
        world.look()
        assert world.mid() is None
    world.clock.advance(60)
    world.report("2")
    world.look()
    assert world.mid() == Resources(2000, GIB)


@pytest.mark.parametrize("tier", Tier)
def test_a_report_no_formula_foresaw_costs_its_tier_and_no_other(tier: Tier) -> None:
    world = World()
    world.report("2")
    world.look()
    assert world.known.reported is not None
    nonsense = cast(Resources, ("much", "more"))
    broken = {Tier.MID: {"reclaimable": nonsense}, Tier.BATCH: {"system_usage": nonsense}}[tier]
    world.known.reported = msgspec.structs.replace(world.known.reported, **broken)
    write = world.look()
    assert isinstance(write, Write)
    assert write.shrinks
    assert [each for each in Tier if holdings.on_offer(world.node, each) is None] == [tier]


def test_a_node_that_cannot_be_decided_about_offers_nothing_and_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.report("2")
    world.look()
    assert world.known.reported is not None
    world.known.reported = msgspec.structs.replace(world.known.reported, update_time=cast(float, "yesterday"))
    assert reason(world.look()) == WriteReason.DIFFERENCE
    assert [holdings.on_offer(world.node, tier) for tier in Tier] == [None, None]
    look = world.decisions.decide(world.node)
    for offer in look.decision.offers.values():
        assert offer.is_degraded
        assert "TypeError" in offer.reason
        assert "(explain.py:" in offer.reason
    assert sum("the decision failed, so" in record.getMessage() for record in caplog.records) == 1
    world.report("2")
    world.look()
    assert world.mid() == Resources(2000, GIB)


def test_a_node_that_is_gone_is_forgotten() -> None:
    world = World()
    world.report("2")
    world.look()
    world.decisions.forget("n1")
    assert world.decisions.history_of("n1") is None
    world.clock.advance(10_000)
    assert world.decisions.due() == []


def test_only_the_tiers_that_are_managed_are_written() -> None:
    for tier in Tier:
        world = World(offers=tier.value)
        world.report("2")
        world.node = _offering(names.TIER_RESOURCES[Tier.BATCH if tier is Tier.MID else Tier.MID])
        write = world.decisions.decide(world.node).outcome
        assert isinstance(write, Write)
        assert isinstance(status := write.patch["status"], dict)
        assert set(status["allocatable"]) == set(names.TIER_RESOURCES[tier])


PODS = st.lists(st.tuples(st.integers(0, 1500), st.sampled_from(["Running", "Pending"])), max_size=4)
CHURN = st.lists(st.tuples(st.floats(0, 400), st.integers(0, 3000), PODS), min_size=1, max_size=20)


@given(CHURN, st.sampled_from(WriteRule))
def test_under_churn_a_node_is_written_for_what_is_on_offer_or_once_an_interval(
    life: list[tuple[float, int, list[tuple[int, str]]]], rule: WriteRule
) -> None:
    world = World(write_rule=rule)
    last_write = None
    for seconds, cpu_milli, pods in life:
        world.clock.advance(seconds)
        world.report(f"{cpu_milli}m")
        world.known.records = tuple(mid_pod(f"p{at}", cpu, 1, phase=phase) for at, (cpu, phase) in enumerate(pods))
        for _ in range(2):  # the second look is that at the written Node
            metadata = msgspec.structs.replace(world.node.metadata, annotations={ORIGIN: "{}"})  # from another writer
            world.node = msgspec.structs.replace(world.node, metadata=metadata)
            outcome = world.look()
            if isinstance(outcome, Write):
                interval, now = DEFAULTS.update_time_threshold_seconds, world.clock.monotonic()
                changes = any(change.old != change.new for change in outcome.changes.values())
                assert changes or last_write is None or now - last_write > interval
                last_write = now


def _offering(resources: Collection[str]) -> Node:
    return node(mid=dict.fromkeys(resources, "7"))


def evicting_world() -> World:
    world = World(offers="mid")
    data = {
        names.CONFIG_KEY_COLOCATION: '{"enable": true}',
        names.CONFIG_KEY_THRESHOLDS: '{"clusterStrategy": {"enable": true, "evictEnabled": true}}',
    }
    world.known.policy = policy.next_policy(world.known.policy, ConfigMap(data=data), source="cm")
    return world


def test_a_node_where_lending_has_slowed_prod_lends_less_and_does_not_learn_that_as_a_change_of_its_offer() -> None:
    world = evicting_world()
    for percent in (0.0, 0.45, 0.0, 1.0) * 10:
        world.report("2")
        waits = {"cpu": ProdWaiting(1.0, 1.0, None, None, percent)}
        world.known.reported = msgspec.structs.replace(certain(world.known.reported), prod_waits=waits)
        decided = world.decisions.decide(world.node).decision.offers[Tier.MID]
        world.clock.advance(60)
    assert certain(decided.resources) == Resources(1000, GIB)
    assert decided.taught == Resources(1000, 0)
    assert certain(world.decisions.history_of("n1")).learner.learned.cpu.permille == 0
    assert "cpu 1 by reclaimable - prod_slowed_lately" in decided.reason


def test_while_prod_is_slowed_nothing_is_lent_anew_and_five_minutes_later_it_is_again() -> None:
    world = evicting_world()
    world.report("2")
    world.look()
    assert world.mid() == Resources(2000, GIB)
    world.clock.advance(10)
    slowed = ProdWaiting(40.0, 1.0, world.clock.now() - 30, world.clock.now())
    for _ in range(2):
        world.report("2")
        world.known.reported = msgspec.structs.replace(certain(world.known.reported), prod_waits={"cpu": slowed})
        world.look()
        assert world.mid() == Resources(0, 0)
        world.clock.advance(prod_first.HOLD_SECONDS / 2 + 1)
    world.report("2")
    world.known.reported = msgspec.structs.replace(certain(world.known.reported), prod_waits={"cpu": slowed})
    world.look()
    assert world.mid() == Resources(2000, GIB)
