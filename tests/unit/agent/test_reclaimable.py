"""Nothing unknown is ever lent, and never more than was requested or than the node has above the peak."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache.series import Usage
from agent.predict_server import reclaimable
from agent.predict_server.models import History, NSigmaV1
from agent.predict_server.reclaimable import Inputs, Requests
from agent.states_informer.pods import NodePod
from shared.quantity import Resources
from tests.unit.agent.pods import NOW, pod

GIB = 2**30
COLD_START = 86400.0
NODE, REQUESTED, NONE = Resources(8000, 16 * GIB), Resources(6000, 8 * GIB), Resources()
MEAN, STDEV = Usage(1.0, GIB), Usage(0.1, GIB / 16)


def inputs(
    *,
    allocatable: Resources = NODE,
    requested: Resources = REQUESTED,
    cold: Resources = NONE,
    mean: Usage = MEAN,
    stdev: Usage = STDEV,
    ratio_percent: int = 100,
) -> Inputs:
    history = History(mean, stdev, samples=10, first_observed=NOW - 100)
    sigma = Usage(5.0, 5.0)
    return Inputs(
        allocatable=allocatable,
        requests=Requests(requested, cold),
        history=history,
        sigma=sigma,
        model_peak=NSigmaV1(sigma).peak(history),
        ratio_percent=ratio_percent,
        now=NOW,
    )


@pytest.mark.parametrize(
    ("case", "expected_cpu", "bound"),
    [
        (inputs(), 4500, "requested"),
        (inputs(allocatable=Resources(4000, GIB)), 2500, "allocatable"),
        (inputs(cold=Resources(2000, 0)), 2500, "requested"),
        (inputs(ratio_percent=50), 1500, "requested"),
        (inputs(mean=Usage(7.0, GIB)), 0, "peak"),
        (inputs(requested=Resources()), 0, "peak"),
    ],
)
def test_the_formula_and_its_bound(case: Inputs, expected_cpu: int, bound: str) -> None:
    answer = reclaimable.compute(case)
    assert (answer.result.cpu_milli, answer.explanation.cpu.bound) == (expected_cpu, bound)
    assert answer.explanation.cpu.result == expected_cpu


def test_the_explanation_holds_every_term_of_the_formula() -> None:
    answer = reclaimable.compute(inputs(cold=Resources(500, GIB)))
    terms = {term.name: term.value for term in answer.explanation.cpu.terms}
    assert terms == {
        "requested": 6000,
        "reclaimRatio": 100,
        "mean": 1000,
        "stdev": 100,
        "sigma": 500,
        "predictedPeak": 1500,
        "coldRequests": 500,
        "peak": 2000,
        "allocatable": 8000,
    }
    assert answer.peak.cpu_milli == 2000


AMOUNTS = st.builds(Resources, st.integers(0, 100_000), st.integers(0, 2**40))
USAGES = st.builds(Usage, st.floats(0, 100), st.floats(0, 2.0**40))


@given(AMOUNTS, AMOUNTS, AMOUNTS, USAGES, USAGES, st.integers(0, 100))
def test_never_negative_nor_above_requested_nor_above_allocatable_less_the_peak(
    allocatable: Resources, requested: Resources, cold: Resources, mean: Usage, stdev: Usage, ratio_percent: int
) -> None:
    answer = reclaimable.compute(
        inputs(
            allocatable=allocatable,
            requested=requested,
            cold=cold,
            mean=mean,
            stdev=stdev,
            ratio_percent=ratio_percent,
        )
    )
    for result, asked, room in zip(answer.result, requested, allocatable.minus(answer.peak), strict=True):
        assert 0 <= result <= min(asked, max(0, room))
    assert answer.peak.cpu_milli >= (mean.cpu_cores + 5 * stdev.cpu_cores) * 1000 - 1e-3


@given(AMOUNTS, USAGES, USAGES)
def test_a_higher_peak_never_frees_more(allocatable: Resources, mean: Usage, more: Usage) -> None:
    lower = reclaimable.compute(inputs(allocatable=allocatable, mean=mean))
    higher = reclaimable.compute(inputs(allocatable=allocatable, mean=mean.plus(more)))
    assert all(high <= low for high, low in zip(higher.result, lower.result, strict=True))


@pytest.mark.parametrize(
    ("described", "observed_since", "requested", "cold"),
    [
        (pod(), NOW - 2 * COLD_START, 1000, 0),
        (pod(age_seconds=60), NOW - 60, 1000, 1000),
        (pod(), NOW - 60, 1000, 1000),
        (pod(), NOW - COLD_START, 1000, 1000),
        (pod(), None, 1000, 1000),
        (pod(priority=7500), None, 0, 0),
        (pod(priority=5500), None, 0, 0),
        (pod(priority=None), None, 1000, 1000),
        (pod(phase="Succeeded"), None, 0, 0),
        (pod(terminating=True), None, 0, 0),
    ],
    ids=[
        "old and long observed",
        "young",
        "old but only now observed",
        "exactly the cold start",
        "never observed",
        "mid",
        "batch",
        "no class but requests",
        "finished",
        "terminating",
    ],
)
def test_whose_request_counts_and_who_is_cold(
    described: NodePod, observed_since: float | None, requested: int, cold: int
) -> None:
    got = reclaimable.requests([described], lambda _: observed_since, NOW, COLD_START)
    assert (got.requested.cpu_milli, got.cold.cpu_milli) == (requested, cold)
