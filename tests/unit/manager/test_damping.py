"""An offer grows at once, unless its decision fell lately."""

from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import damping
from manager.nodeside.noderesource.damping import Damping
from shared.quantity import Resources

INTERVAL_SECONDS = 300.0


def remembered(*decisions: tuple[float, int]) -> Damping:
    known = None
    for at, cpu in decisions:
        known = damping.remember(known, Resources(cpu, 0), at, INTERVAL_SECONDS)
    assert known is not None
    return known


def test_a_decision_that_only_ever_rises_is_not_held_down() -> None:
    known = remembered((0, 10), (60, 20), (120, 30))
    assert known.ceiling.cpu_milli == 30
    assert known.lifted_at(INTERVAL_SECONDS) is None


def test_a_fall_counts_for_one_interval_at_least_and_two_at_most() -> None:
    fell = ((0.0, 30), (10.0, 10))
    assert remembered(*fell, (20, 30)).ceiling.cpu_milli == 10
    assert remembered(*fell, (20, 30)).lifted_at(INTERVAL_SECONDS) == 600
    assert remembered(*fell, (20, 30), (310, 30)).ceiling.cpu_milli == 10
    assert remembered(*fell, (20, 30), (310, 30)).lifted_at(INTERVAL_SECONDS) == 600
    assert remembered(*fell, (20, 30), (600, 30)).ceiling.cpu_milli == 30
    assert remembered(*fell, (900, 30)).ceiling.cpu_milli == 30


def test_each_resource_is_held_down_by_its_own_falls() -> None:
    known = damping.remember(Damping(Resources(10, 30), 0), Resources(20, 10), 1, INTERVAL_SECONDS)
    known = damping.remember(known, Resources(20, 30), 2, INTERVAL_SECONDS)
    assert known.ceiling == Resources(20, 10)


STEPS = st.lists(st.tuples(st.floats(0, 500), st.integers(0, 100)), min_size=1, max_size=30)


@given(STEPS)
def test_the_ceiling_is_never_above_the_decision_nor_above_a_fall_within_the_interval(
    steps: list[tuple[float, int]],
) -> None:
    now, known, falls, last = 0.0, None, list[tuple[float, int]](), None
    for seconds, cpu in steps:
        now += seconds
        known = damping.remember(known, Resources(cpu, 0), now, INTERVAL_SECONDS)
        if last is not None and cpu < last:
            falls.append((now, cpu))
        last = cpu
        ceiling = known.ceiling.cpu_milli
        assert ceiling <= cpu
        assert all(ceiling <= low for at, low in falls if now - at < INTERVAL_SECONDS)
        assert ceiling == cpu or ceiling in {low for at, low in falls if now - at <= 2 * INTERVAL_SECONDS}
        lifted_at = known.lifted_at(INTERVAL_SECONDS)
        assert (lifted_at is None) == (ceiling == cpu)
        if lifted_at is not None:
            lifted = damping.remember(known, Resources(cpu, 0), lifted_at + 1e-6, INTERVAL_SECONDS)
            assert lifted.ceiling.cpu_milli > ceiling
