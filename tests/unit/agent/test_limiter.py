"""Whatever happens, no more goes out than a burst and then one each interval."""

from hypothesis import given
from hypothesis import strategies as st

from agent.reporter.limiter import Limiter


def test_a_burst_goes_out_at_once_and_then_one_each_interval() -> None:
    limiter = Limiter(2)
    went = []
    for now in range(40):
        if limiter.ready(float(now), 8.0):
            limiter.take()
            went.append(now)
    assert went == [0, 1, 8, 16, 24, 32]


@given(st.lists(st.floats(0, 20), max_size=200), st.integers(1, 5), st.floats(0.5, 30))
def test_no_window_holds_more_than_a_burst_and_its_share(steps: list[float], burst: int, each: float) -> None:
    limiter, now, went = Limiter(burst), 0.0, []
    for step in steps:
        now += step
        if limiter.ready(now, each):
            limiter.take()
            went.append(now)
    for place, begin in enumerate(went):
        for count, end in enumerate(went[place:], start=1):
            assert count <= burst + (end - begin) / each + 1e-6
