"""What is held back is what the offer of the node usually loses between two reports, and never much."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import buffer
from manager.nodeside.noderesource.buffer import (
    LEAST_STEPS,
    MOST_PERMILLE,
    RESOLUTION_PERMILLE,
    Learned,
    Learner,
    Share,
)
from shared.quantity import Resources


def learned(*offers: int) -> Share:
    learner = Learner()
    for cpu in offers:
        learner.learn(Resources(cpu, 1))
    assert learner.learned.memory.permille == 0
    return learner.learned.cpu


def test_without_history_nothing_is_held_back() -> None:
    assert Learner().learned == Learned(Share(0, 0), Share(0, 0))
    few = learned(*([1000, 500] * 10))
    assert (few.permille, few.steps) == (0, LEAST_STEPS - 1)
    assert few.source == "midBuffer auto: 19 steps between reports say nothing yet"


@given(st.integers(0, 10**6), st.integers(0, 600))
def test_what_never_changes_needs_no_buffer(cpu: int, many: int) -> None:
    assert learned(*([cpu] * many)).permille == 0


@given(st.lists(st.integers(1, 10**6), min_size=LEAST_STEPS + 1, max_size=60))
def test_the_share_covers_the_95th_percentile_of_the_steps_and_is_bounded(offers: list[int]) -> None:
    share = learned(*offers)
    lost = sorted(max(0.0, 1000 * (old - new) / old) for old, new in itertools.pairwise(offers))
    quantile = lost[-(-len(lost) * 95 // 100) - 1]
    assert share.steps == len(lost)
    assert 0 <= share.permille <= MOST_PERMILLE
    assert share.permille >= min(quantile, MOST_PERMILLE) - 1e-6
    assert share.permille < quantile + RESOLUTION_PERMILLE + 1


@pytest.mark.parametrize(("kept", "permille"), [(980, 20), (979, 25), (100, MOST_PERMILLE)])
def test_a_node_that_swings_holds_back_what_it_swings(kept: int, permille: int) -> None:
    share = learned(*([1000, kept] * 40))
    assert share.permille == permille
    assert share.source.endswith(f"steps between reports lost at most {permille / 10:g} %")


def test_a_single_fall_among_many_steps_is_not_usual() -> None:
    assert learned(*([1000] * 60), 100, *([1000] * 60)).permille == 0


def test_what_is_long_ago_fades() -> None:
    wild, calm = [1000, 800] * 200, [1000] * 2000
    assert learned(*wild).permille == MOST_PERMILLE
    assert learned(*wild, *calm).permille == 0


def test_what_came_before_an_interruption_is_not_compared() -> None:
    learner = Learner()
    for _ in range(LEAST_STEPS * 2):
        learner.learn(Resources(1000, 1))
        learner.interrupt()
        learner.learn(Resources(100, 1))
        learner.interrupt()
    assert learner.learned == Learned()


@given(st.integers(1, 10**13), st.integers(0, MOST_PERMILLE))
def test_what_was_held_back_before_is_held_back_again_and_no_more(raw: int, permille: int) -> None:
    shown = raw * (1000 - permille) // 1000
    learner = Learner()
    learner.inherit(Resources(raw, raw), Resources(shown, 2 * raw))
    cpu, memory = learner.learned
    assert raw * (1000 - cpu.permille) // 1000 == max(shown, raw * (1000 - MOST_PERMILLE) // 1000)
    assert (memory.permille, cpu.steps) == (0, 0)


def test_what_was_held_back_before_counts_until_enough_has_been_seen() -> None:
    learner = Learner()
    learner.inherit(Resources(1000, 1), Resources(930, 1))
    for _ in range(LEAST_STEPS):
        learner.learn(Resources(1000, 1))
    assert learner.learned.cpu == Share(70, LEAST_STEPS - 1)
    assert learner.learned.cpu.source.endswith("say nothing yet, 7 % were held back before")
    learner.learn(Resources(1000, 1))
    assert learner.learned.cpu == Share(0, LEAST_STEPS)


@given(st.lists(st.integers(0, 2000), max_size=700))
def test_the_counters_never_overflow(steps: list[int]) -> None:
    counters = bytearray(buffer.BINS)
    for permille in steps:
        buffer.count(counters, permille)
    assert len(counters) == buffer.BINS
