"""While Mid and Batch slow Prod, their node lends nothing anew and evicts some of them; then it gives back."""

import itertools
import math
import random
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.reporter.interference import CALM_SECONDS, LEARNED_SECONDS, WaitState, judged
from manager.nodeside import answers
from manager.nodeside.decisions import KnownNode
from manager.nodeside.eviction import relief
from manager.nodeside.eviction.notices import NOTICE_SECONDS
from manager.nodeside.eviction.relief import Last
from manager.nodeside.noderesource import explain, prod_first, writing
from manager.nodeside.noderesource.explain import PROD_SLOWED, Offer
from manager.nodeside.noderesource.prod_first import (
    COOL_DOWN_SECONDS,
    HOLD_SECONDS,
    OBJECTIVE_PERCENT,
    PATIENCE_SECONDS,
    ProdWaiting,
    Step,
    standing,
)
from manager.nodeside.noderesource.report import NodeReport, read
from manager.nodeside.noderesource.situation import NodeSituation
from manager.nodeside.noderesource.writing import NodeWriteRule, Write, WriteReason, WriteRule
from manager.nodeside.pressure import NodePressure, PodPressure
from manager.pods import NOTHING, NodeRequests, PodRecord
from shared.api import nodemetric
from shared.api.nodemetric import ProdWait
from shared.api.nodemetric_spec import ResourceThresholds
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY, Tier
from shared.quantity import Resources
from tests.support.properties import examples
from tests.unit.manager.objects import NOW, explanation, metric, node, node_report
from tests.unit.manager.shortfalls import GIB, mid_pod
from tests.unit.manager.test_relief import batch

EVICTS = ResourceThresholds(enable=True, evict_enabled=True)
UPDATED = "2023-11-14T22:13:20Z"


def waiting(since: float | None = NOW - 60, last: float | None = NOW, baseline: float | None = 2.0) -> ProdWaiting:
    return ProdWaiting(34.0, baseline, since, last)


@pytest.mark.parametrize(
    ("of", "step"),
    [
        (waiting(), Step.EVICT),
        (waiting(since=NOW - PATIENCE_SECONDS + 1), Step.HOLD),
        (waiting(baseline=None), Step.HOLD),
        (waiting(last=NOW - 30), Step.HOLD),  # it waits no more, and may begin again
        (waiting(since=None, last=NOW - HOLD_SECONDS), Step.HOLD),
        (waiting(since=None, last=NOW - HOLD_SECONDS - 1), Step.FREE),
        (waiting(since=None, last=None), Step.FREE),
        (waiting(last=NOW + 3600), Step.FREE),  # dated after its report
    ],
)
def test_the_steps(of: ProdWaiting, step: Step) -> None:
    found = standing(CPU, of, NOW, EVICTS, NOW)
    assert found.step is step
    assert found.why


NEVER = ResourceThresholds(enable=True, evict_enabled=True, prod_wait_threshold_percent=100)


@pytest.mark.parametrize("policy", [None, ResourceThresholds(), ResourceThresholds(enable=True), NEVER])
def test_without_leave_of_the_policy_it_is_only_reported(policy: ResourceThresholds | None) -> None:
    assert standing(CPU, waiting(), NOW, policy, NOW).step is Step.FREE
    assert not prod_first.hold({CPU: waiting()}, NOW, policy, NOW)


def test_the_reason_has_every_figure() -> None:
    assert prod_first.hold({CPU: waiting(baseline=None)}, NOW, EVICTS, NOW) == (
        "Prod pods wait too long for cpu since 2023-11-14T22:12:20Z: 34 % of their time; without a baseline no pod is "
        "evicted for it"
    )


def test_an_explanation_has_a_sentence_for_each_resource_whether_it_is_slowed_or_not() -> None:
    seen = node_report(prod_waits={CPU: waiting(), MEMORY: ProdWaiting(2.5, 1.25, None, None, slowed_percent=0.25)})
    observed = NodeSituation("n1", NOTHING, NOTHING, NOTHING, requested=NodeRequests(), report=seen)
    state = KnownNode(node(), NodeRequests(), explain.Decision({}, NOW, observed=observed), None)
    cpu, memory = answers.explained(state).prod_waits
    assert cpu.sentence.startswith("Prod pods wait too long for cpu since 2023-11-14T22:12:20Z: 34 % of their time")
    assert memory.sentence == "Prod pods wait for memory 2.5 % of their time, 1.25 % without Mid and Batch"
    assert (cpu.since, memory.since) == ("2023-11-14T22:12:20Z", None)
    row = answers.row(state)
    assert (row.prod_slowed, row.prod_slowed_minutes_per_day) == ([cpu], 3.6)


@pytest.mark.parametrize(
    ("odd", "where"),
    [
        (ProdWait("gpu"), "waits"),
        (ProdWait("cpu", wait_percent="x"), "waits[cpu].waitPercent"),
        (ProdWait("cpu", wait_percent="nan"), "waits[cpu].waitPercent"),
        (ProdWait("memory", baseline_percent="-1"), "waits[memory].baselinePercent"),
        (ProdWait("cpu", since="yesterday"), "waits[cpu].since"),
        (ProdWait("cpu", last_time="99999-01-01T00:00:00Z"), "waits[cpu].lastTime"),
        (ProdWait("cpu", slowed_percent="-1"), "waits[cpu].slowedPercent"),
    ],
)
def test_what_an_agent_cannot_have_measured_is_rejected_by_field_and_spoils_nothing_else(
    odd: ProdWait, where: str
) -> None:
    wire = nodemetric.Interference(waits=(odd,))
    with pytest.raises(InvalidInput) as raised:
        prod_first.read(wire, source="NodeMetric n1")
    assert raised.value.field == where
    reported = metric()
    found = read(msgspec.structs.replace(reported, status=msgspec.structs.replace(reported.status, interference=wire)))
    assert found.problem is None
    assert not found.prod_waits


def test_the_share_of_a_day_is_read_and_is_0_where_it_is_not_reported() -> None:
    waits = (ProdWait("cpu", slowed_percent="0.450"), ProdWait("memory"))
    found = prod_first.read(nodemetric.Interference(waits=waits), source="NodeMetric n1")
    assert [found[each].slowed_percent for each in (CPU, MEMORY)] == [0.45, 0]


def slowed(percent: float) -> dict[str, ProdWaiting]:
    return {CPU: ProdWaiting(1.0, 1.0, None, None, percent)}


@pytest.mark.parametrize(
    ("percent", "permille"),
    [
        (0.0, 0),
        (OBJECTIVE_PERCENT, 0),
        (OBJECTIVE_PERCENT + 100 / 1440 + 1e-6, 50),
        (0.45, 252),
        (1.0, 500),
        (100, 500),
    ],
)
def test_each_minute_a_day_beyond_the_objective_withholds_five_percent_and_at_most_half(
    percent: float, permille: int
) -> None:
    found = prod_first.lessons(slowed(percent), EVICTS)
    assert {resource: each.permille for resource, each in found.items()} == ({CPU: permille} if permille else {})


@pytest.mark.parametrize(
    "policy",
    [None, ResourceThresholds(enable=True), msgspec.structs.replace(EVICTS, prod_wait_threshold_percent=100)],
)
def test_without_leave_of_the_policy_nothing_is_withheld(policy: ResourceThresholds | None) -> None:
    assert not prod_first.lessons(slowed(1.0), policy)


@examples(30)
@given(safe=st.floats(0.2, 1.0), minutes=st.floats(0, 60))
def test_each_day_that_hurts_is_followed_by_less_and_all_comes_back_when_none_does(safe: float, minutes: float) -> None:
    """A day has some minutes in which Prod is slowed if more than a safe share of Mid is lent."""
    share, lent = 0.0, 1.0
    for _ in range(30):
        hurts, before = lent > safe, lent
        share = share * math.exp(-1) + (minutes / 1440 if hurts else 0.0)
        found = prod_first.lessons(slowed(100 * share), EVICTS)
        lent = 1 - (found[CPU].permille if found else 0) / 1000
        assert 0.5 <= lent <= 1
        assert lent >= before or hurts
        assert lent < 1 or not hurts or minutes < 1.5
    for _ in range(6):
        share *= math.exp(-1)
    assert not prod_first.lessons(slowed(100 * share), EVICTS)


def report(
    used: dict[PodRecord, Resources], waits: dict[str, ProdWaiting], *, at: float = NOW, updated: str = UPDATED
) -> NodeReport:
    pods = {pod.uid: PodPressure(usage, pod.held) for pod, usage in used.items()}
    usage = sum(each.cpu_milli for each in used.values())
    pressed = NodePressure((), Resources(16_000, 100 * GIB), Resources(15_000, 50 * GIB), 9000, usage, 9000, pods)
    return node_report(update_time=at, updated=updated, pressure=pressed, prod_waits=waits)


def test_a_quarter_of_what_they_use_goes_first_of_those_over_what_they_hold() -> None:
    within, over = batch(mid_pod("within", cpu_milli=2000)), mid_pod("over", cpu_milli=500)
    used = {within: Resources(1500, GIB), over: Resources(900, GIB)}
    found = relief.plan(report(used, {CPU: waiting()}), list(used), EVICTS, NOW)
    assert [each.pod.key for each in found.evictions] == ["default/over"]
    assert found.evictions[0].releases == 900
    assert found.evictions[0].why == (
        "Prod pods wait too long for cpu since 2023-11-14T22:12:20Z: 34 % of their time, 2 % without Mid and Batch: "
        "600m to release, a quarter of the 2400m that Mid and Batch use; this mid pod uses 900m of 500m requested"
    )


def test_after_an_eviction_the_next_waits_for_its_effect() -> None:
    pods = {mid_pod(name): Resources(800, GIB) for name in ("a", "b")}
    last = {CPU: Last(NOW - COOL_DOWN_SECONDS + 1, "before")}
    found = relief.plan(report(pods, {CPU: waiting()}), list(pods), EVICTS, NOW, last=last)
    assert not found.evictions
    assert "cooling down for 1 s" in found.reason
    later = NOW + 2
    again = relief.plan(report(pods, {CPU: waiting(last=later)}, at=later), list(pods), EVICTS, later, last=last)
    assert len(again.evictions) == 1


def test_waits_for_memory_release_memory() -> None:
    pods = {mid_pod(name, memory_bytes=8 * GIB): Resources(100, 4 * GIB) for name in ("a", "b")}
    found = relief.plan(report(pods, {MEMORY: waiting()}), list(pods), EVICTS, NOW)
    assert [(each.resource, each.releases) for each in found.evictions] == [(MEMORY, 4 * GIB)]


def paused(resources: Resources | None, floor: Resources) -> Offer:
    return Offer(resources, explanation("cap", *(resources or NOTHING)), Resources(200, 0), floor=floor, paused="why")


@pytest.mark.parametrize(
    ("resources", "floor", "shown"),
    [
        (Resources(2000, 4 * GIB), Resources(500, GIB), Resources(500, GIB)),
        (Resources(2000, 4 * GIB), NOTHING, NOTHING),
        (Resources(300, 4 * GIB), Resources(500, GIB), Resources(500, GIB)),
        (None, Resources(500, GIB), Resources(500, GIB)),
        (None, NOTHING, None),
    ],
)
def test_a_node_on_hold_shows_what_pods_hold_and_says_why(
    resources: Resources | None, floor: Resources, shown: Resources | None
) -> None:
    found = paused(resources, floor)
    assert (found.shown, found.resources) == (shown, resources)
    assert (found.told.cpu.result, found.told.memory.result) == (shown or NOTHING)
    assert "nothing more is lent: why" in found.reason


def test_the_hold_is_written_at_once_even_where_it_is_a_small_step() -> None:
    rule = NodeWriteRule(WriteRule.DAMPED, 0.1, 300, now=10.0, last_write=9.0)
    shown = node(mid=dict(writing.listed(Tier.MID, Resources(1000, GIB))))
    outcome = writing.plan(shown, {Tier.MID: paused(Resources(1000, GIB), Resources(950, GIB))}, rule)
    assert isinstance(outcome, Write)
    assert outcome.reason is WriteReason.SAFETY
    change = outcome.changes[Tier.MID]
    assert change.new == Resources(950, GIB)


def test_the_explanation_names_the_bound() -> None:
    decision = explain.Decision({Tier.MID: Offer(Resources(2000, GIB), explanation("cap", 2000, GIB))}, NOW)
    told = explain.paused(decision, "why").offers[Tier.MID].told
    assert (told.cpu.bound, told.memory.bound) == (PROD_SLOWED, PROD_SLOWED)


@dataclass
class Loop:
    """Agent and manager in a closed loop with a node on which Prod waits in proportion to what Mid takes.

    A scheduler fills what is lent within some seconds. Reports and evictions take effect after `delay` seconds.
    """

    harm: float  # share that Prod waits with Mid at full use
    delay: int
    noise: float
    seed: int
    load: int = 0  # period of Mid's load in seconds, 0 for a constant one
    mid: float = 0.0  # of what may be lent
    now: float = NOW
    state: WaitState = field(default_factory=WaitState)
    last_eviction: float = -1e9
    notice_over_at: float | None = None
    sent: list[tuple[float, ProdWaiting]] = field(default_factory=list)
    steps: list[tuple[float, Step, float]] = field(default_factory=list)

    def run(self, seconds: int, *, lends: bool = True) -> None:
        dice = random.Random(self.seed + int(self.now))
        for _ in range(seconds):
            self.now += 1
            is_idle = self.load and int(self.now) % self.load < self.load // 2
            used = 0.0 if is_idle else self.mid
            share = min(1.0, max(0.0, self.harm * used + 0.02 + dice.uniform(-self.noise, self.noise)))
            has_mid = self.mid > 0.01
            self.state = judged(self.state, share, threshold=0.1, lends=has_mid, now=self.now, seconds=1)
            known = self.state
            baseline = 100 * known.baseline if known.is_learned else None
            self.sent.append((self.now, ProdWaiting(100 * share, baseline, known.since, known.last)))
            at, seen = self.sent[max(0, len(self.sent) - 1 - self.delay)]
            step = standing(CPU, seen, at, EVICTS, self.now).step
            self.steps.append((self.now, step, self.mid))
            if step is Step.EVICT and self.now - self.last_eviction >= COOL_DOWN_SECONDS + self.delay:
                self.notice_over_at = self.notice_over_at or self.now + NOTICE_SECONDS
                if self.now >= self.notice_over_at:
                    self.last_eviction, self.notice_over_at = self.now, None
                    self.mid -= min(self.mid, max(0.25, self.mid / 4))
            elif step is Step.FREE and lends:
                self.mid = min(1.0, self.mid + 0.1)
            elif not lends:
                self.mid = max(0.0, self.mid - 0.1)


LOOPS = st.builds(
    Loop,
    harm=st.floats(0.0, 0.9),
    delay=st.integers(0, 15),
    noise=st.floats(0.0, 0.03),
    seed=st.integers(0, 1000),
    load=st.sampled_from([0, 20, 60, 240, 1800]),
)


@examples(20)
@given(LOOPS)
def test_it_always_gives_back_and_swings_no_faster_than_its_hold(loop: Loop) -> None:
    loop.run(int(LEARNED_SECONDS) + 5, lends=False)
    loop.run(2400)
    begins = [
        now
        for (_, before, _), (now, step, _) in itertools.pairwise(loop.steps)
        if before is Step.FREE and step is not Step.FREE
    ]
    assert all(later - earlier >= HOLD_SECONDS for earlier, later in itertools.pairwise(begins))
    if loop.harm + 2 * loop.noise < 0.08:
        assert not begins
    loop.run(int(CALM_SECONDS + HOLD_SECONDS) + 2 * loop.delay + 15, lends=False)
    assert loop.steps[-1][1] is Step.FREE


@examples(20)
@given(noise=st.floats(0, 1), seed=st.integers(0, 1000))
def test_however_long_prod_waits_without_mid_nothing_happens(noise: float, seed: int) -> None:
    loop = Loop(harm=0.0, delay=0, noise=noise, seed=seed)
    loop.run(600, lends=False)
    assert {step for _, step, _ in loop.steps} == {Step.FREE}


@pytest.mark.parametrize("delay", [0, 5, 15])
def test_a_hog_is_gone_after_a_few_steps(delay: int) -> None:
    loop = Loop(harm=0.6, delay=delay, noise=0.02, seed=1)
    loop.run(int(LEARNED_SECONDS) + 5, lends=False)
    loop.run(240 + 4 * delay)
    assert loop.mid * loop.harm < 0.1
