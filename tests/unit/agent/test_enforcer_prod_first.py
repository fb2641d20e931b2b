"""While Prod waits too long for CPU, best-effort Mid and Batch pods get less, and always get it back."""

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.enforcer import prod_first
from agent.enforcer.prod_first import HOLD_SECONDS, STEP_SECONDS, BestEffortCpu, CpuCap, capped, next_cap
from agent.reporter.interference import CALM_SECONDS, LEARNED_SECONDS, WINDOW_SECONDS, WaitState, judged
from tests.support import certain
from tests.support.properties import examples

NODE = 8000
CPU = BestEffortCpu(used_milli=4000, held_milli=500, others_milli=100, capacity_milli=NODE)
AMOUNTS = st.integers(0, NODE)


def moved(before: CpuCap | None, waited: float | None, now: float, cpu: BestEffortCpu | None = CPU) -> CpuCap | None:
    return next_cap(before, cpu, waited_seconds=waited, now=now)


def test_the_first_wait_caps_what_they_use_at_once_and_each_ten_seconds_halve_it() -> None:
    first = certain(moved(None, 0.0, 100.0))
    assert first == CpuCap(2000, 100.0, 100.0)
    assert moved(first, 0.0, 109.0) is first
    assert certain(moved(first, 0.0, 110.0, CPU._replace(used_milli=2000))).milli == 1000


def test_it_never_falls_below_what_mid_pods_request() -> None:
    assert certain(moved(None, 0.0, 0.0, CPU._replace(used_milli=100))).milli == 500
    assert capped(5000, CpuCap(200, 0.0, 0.0), CPU) == 500 + 100


def test_it_rises_by_a_tenth_of_the_node_after_a_minute_of_calm_and_ends() -> None:
    cap: CpuCap | None = CpuCap(7000, 0.0, 0.0)
    assert moved(cap, 59.0, 59.0) is cap
    assert moved(cap, None, 59.0) is cap
    cap = certain(moved(cap, None, 60.0))
    assert cap == CpuCap(7800, 60.0, 0.0)
    assert moved(cap, None, 69.0) is cap
    assert moved(cap, None, 70.0) is None


def test_a_wait_that_ends_holds_the_cap_where_it_is() -> None:
    cap = CpuCap(3000, 0.0, 0.0)
    assert moved(cap, prod_first.WAITING_SECONDS + 1, 30.0) is cap


@given(
    st.one_of(st.none(), st.builds(CpuCap, AMOUNTS, st.floats(-100, 0), st.just(-100.0))),
    st.one_of(st.none(), st.floats(0, 100)),
)
def test_without_such_pods_nothing_is_capped(before: CpuCap | None, waited: float | None) -> None:
    assert moved(before, waited, 0.0, None) is None
    assert capped(1234, before, None) == 1234


@given(AMOUNTS, st.builds(CpuCap, AMOUNTS, st.just(0.0), st.just(0.0)), st.builds(BestEffortCpu, *[AMOUNTS] * 4))
def test_the_lower_of_cap_and_rule_applies_and_mid_keeps_its_requests(
    left: int, cap: CpuCap, cpu: BestEffortCpu
) -> None:
    found = capped(left, cap, cpu)
    assert min(left, cpu.held_milli + cpu.others_milli) <= found <= left


@dataclass
class Loop:
    """The cap in a closed loop with a node on which Prod waits in proportion to what Mid and Batch use of the CPU."""

    harm: float  # share that Prod waits while they use the whole node
    noise: float
    delay: int  # seconds until a cap has its effect
    seed: int
    period: int  # of their load, in seconds; 0 for a constant one
    held_milli: int
    state: WaitState = field(default_factory=WaitState)
    cap: CpuCap | None = None
    now: float = 0.0
    shares: list[float] = field(default_factory=list)
    caps: list[int] = field(default_factory=list)

    def run(self, seconds: int, *, wanted: int = NODE, lends: bool = True) -> None:
        dice = random.Random(self.seed + int(self.now))
        for _ in range(seconds):
            self.now += 1
            in_effect = self.caps[-1 - self.delay] if len(self.caps) > self.delay else NODE
            is_idle = self.period and int(self.now) % self.period < self.period // 2
            used = 0 if is_idle or not lends else min(wanted, max(in_effect, self.held_milli))
            share = self.harm * used / NODE + 0.02 + dice.uniform(-self.noise, self.noise)
            self.shares.append(min(1.0, max(0.0, share)))
            window = self.shares[-WINDOW_SECONDS:]
            mean = sum(window) / len(window)
            self.state = judged(self.state, mean, threshold=0.1, lends=lends, now=self.now, seconds=1)
            since, last = self.state.since, self.state.last
            waited = None if since is None or last is None else self.now - last
            cpu = BestEffortCpu(used, self.held_milli, 0, NODE) if lends else None
            self.cap = moved(self.cap, waited, self.now, cpu)
            self.caps.append(NODE if self.cap is None else self.cap.milli)


LOOPS = st.builds(
    Loop,
    harm=st.floats(0.0, 0.9),
    noise=st.floats(0.0, 0.03),
    delay=st.integers(0, 10),
    seed=st.integers(0, 1000),
    period=st.sampled_from([0, 20, 60, 240, 1800]),
    held_milli=st.integers(0, NODE // 2),
)


@examples(20)
@given(LOOPS)
def test_it_always_gives_back_and_swings_no_faster_than_its_hold(loop: Loop) -> None:
    loop.run(int(LEARNED_SECONDS) + 5, lends=False)
    loop.run(2000)
    moves = [(at, b - a) for at, (a, b) in enumerate(itertools.pairwise(loop.caps)) if a != b]
    falls = [at for at, change in moves if change < 0]
    rises = [at for at, change in moves if change > 0]
    for each in (falls, rises):
        assert all(later - earlier >= STEP_SECONDS for earlier, later in itertools.pairwise(each))
    assert all(rise - max((fall for fall in falls if fall < rise), default=-NODE) >= HOLD_SECONDS for rise in rises)
    assert all(milli >= loop.held_milli for milli in loop.caps)
    if loop.harm + 2 * loop.noise < 0.08:
        assert not moves
    loop.run(int(CALM_SECONDS + HOLD_SECONDS + 12 * STEP_SECONDS), wanted=0)
    assert loop.cap is None


@pytest.mark.parametrize("delay", [0, 5])
def test_a_hog_is_held_down_within_half_a_minute_and_prod_waits_no_more(delay: int) -> None:
    loop = Loop(harm=0.6, noise=0.01, delay=delay, seed=1, period=0, held_milli=500)
    loop.run(int(LEARNED_SECONDS) + 5, lends=False)
    loop.run(40)
    assert loop.harm * loop.caps[-1] / NODE < 0.1
