"""Every built-in model answers what its formula says, of the series its definition names."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import histogram, plugins
from agent.predict_server.decay import Floats
from agent.predict_server.models import BorgDefault, NSigmaV1, NSigmaV2, Parameters, Predictor, ResourceCentral
from agent.predict_server.percentile import BY_CLASS, BY_POD, Percentile
from agent.predict_server.plugins import Model
from tests.support import certain
from tests.unit.agent.models import entities, model_table, situation, train
from tests.unit.agent.pods import NOW

GIB = 2.0**30
REQUESTS = [Usage(1.0, GIB), Usage(2.0, GIB)]
LIMITS = [Usage(16.0, 64 * GIB)] * 2  # far above what the pods use
USAGES = st.builds(Usage, st.floats(0, 100), st.floats(0, 2.0**38))

# Two pods that take turns, so that together they are steady, and a system that uses a quarter core.
TURNS = [entities(a=Usage(a, GIB), b=Usage(1.0 - a, GIB), system=Usage(0.25, GIB)) for a in (0.0, 1.0)]


def asked(predictor: Predictor, ticks: list[dict[str, Usage]]) -> dict[str, Floats]:
    table = model_table()
    for step, tick in enumerate(ticks):
        train(table, tick, NOW + step)  # so close that decay does not show
    return {
        name: peak[0] for name, peak in predictor.peak(situation(table, ["a", "b"], REQUESTS, limits=LIMITS)).items()
    }


def test_v1_knows_that_pods_that_take_turns_are_steady_together() -> None:
    peak = asked(NSigmaV1(Parameters()), TURNS)["n-sigma-v1"]
    assert peak == pytest.approx([1.25, 3 * GIB])


def test_v2_adds_up_each_pods_own_mean_and_deviation_and_the_systems() -> None:
    candidates = asked(NSigmaV2(Parameters(sigma=np.array([2.0, 5.0]))), TURNS)
    assert candidates["n-sigma-v1"] == pytest.approx([1.25, 3 * GIB])
    assert candidates["pods-n-sigma"] == pytest.approx([2 * (0.5 + 2 * 0.5) + 0.25, 3 * GIB], rel=1e-4)


def test_v2_is_the_seeds_sum_over_pods_however_far_above_what_they_can_use() -> None:
    """A policy may cap a pod at its limit; the seed knows no such cap."""
    table = model_table()
    for step in range(40):
        first = Usage(2.0 * (step % 2), GIB)
        train(table, entities(a=first, b=Usage(2.0 - first.cpu_cores, GIB)), NOW + step)
    asked_of = situation(table, ["a", "b"], REQUESTS, limits=[Usage(2.0, GIB)] * 2)

    def peak_cores(*, cap: bool) -> float:
        candidates = NSigmaV2(Parameters(sigma_cap_pods=cap)).peak(asked_of)
        return max(float(peak[0, 0]) for peak in candidates.values())

    assert peak_cores(cap=False) == pytest.approx(2 * (1 + 5 * 1), rel=1e-4)
    assert peak_cores(cap=True) == pytest.approx(2 * 2.0)


def test_the_deviation_is_the_populations() -> None:
    peak = asked(
        NSigmaV1(Parameters(sigma=np.array([1.0, 1.0]))), [entities(a=Usage(u, 0), b=Usage(0, 0)) for u in (1.0, 3.0)]
    )
    assert peak["n-sigma-v1"][0] == pytest.approx(2.0 + 1.0, rel=1e-4)


def test_borg_divides_what_was_requested() -> None:
    assert asked(BorgDefault(Parameters()), TURNS)["borg-default"] == pytest.approx([3 / 1.1, 2 * GIB / 1.1])
    assert asked(BorgDefault(Parameters(borg_ratio=2.0)), TURNS)["borg-default"] == pytest.approx([1.5, GIB])


def test_resource_central_adds_up_percentiles_of_pods_and_system() -> None:
    parameters = Parameters(percentiles=np.array([1.0, 0.5]))
    table = model_table()
    for step, tick in enumerate(TURNS):
        train(table, tick, NOW + step)
    one = [table.cpu.histograms.percentiles(np.array([table.rows[key]]), np.ones(1)) for key in "ab"]
    system = table.cpu.histograms.percentiles(np.array([table.rows[series.SYSTEM]]), np.ones(1))
    asked_of = situation(table, ["a", "b"], REQUESTS, limits=LIMITS)
    answer = ResourceCentral(parameters).peak(asked_of)["resource-central"][0]
    assert answer[0] == pytest.approx(float(np.sum(one) + system[0, 0]))


def test_the_percentile_model_truncates_where_koordinator_does() -> None:
    candidates = asked(Percentile(Parameters()), TURNS)

    def end_milli(cores: float) -> int:
        return int(histogram.CPU.starts[histogram.CPU.find(np.array([cores]))[0] + 1] * 1000)

    assert candidates[BY_POD][0] * 1000 == pytest.approx(2 * int(end_milli(1.0) * 1.1))
    by_class = int((end_milli(1.0) + end_milli(0.0) + end_milli(0.25)) * 1.1)
    assert candidates[BY_CLASS][0] * 1000 == pytest.approx(by_class)


@pytest.mark.parametrize(
    ("name", "default"),
    [("n-sigma-v1", 0), ("n-sigma-v2", 0), ("borg-default", 0), ("resource-central", 0), ("percentile", 10)],
)
def test_the_safety_margin_is_the_models_own_unless_set(name: str, default: float) -> None:
    def peak(margin: float | None) -> float:
        predictor = plugins.load(name)(Parameters(safety_margin_percent=margin))
        return float(max(amount[0] for amount in asked(predictor, TURNS).values()))

    assert peak(None) == pytest.approx(peak(default))
    assert peak(100) == pytest.approx(peak(0) * 2, rel=1e-3)


def model(expression: str) -> Model:
    return Model(expression, Parameters(), source="test", on_failure=lambda name: None)


def largest(expression: str) -> Floats:
    table = model_table()
    for step, tick in enumerate(TURNS):
        train(table, tick, NOW + step)
    found = certain(model(expression).peak(situation(table, ["a", "b"], REQUESTS)))
    peak: Floats = np.max([amount[0, 0] for amount in found.values()], axis=0)
    return peak


def test_max_takes_the_largest_of_each_resource() -> None:
    together = largest("max( borg-default ,resource-central)")
    assert together.tolist() == np.maximum(largest("borg-default"), largest("resource-central")).tolist()
    assert model("max( n-sigma-v1, percentile, n-sigma-v1 )").name == "max(n-sigma-v1,percentile)"


@given(st.lists(st.tuples(USAGES, USAGES, USAGES), min_size=1, max_size=6), st.floats(0, 10), st.floats(0, 10))
def test_v2_is_never_below_v1(ticks: list[tuple[Usage, Usage, Usage]], sigma_cpu: float, sigma_memory: float) -> None:
    parameters = Parameters(sigma=np.array([sigma_cpu, sigma_memory]))
    table = model_table()
    for step, (a, b, system) in enumerate(ticks):
        train(table, entities(a=a, b=b, system=system), NOW + 30 * step)
    asked_of = situation(table, ["a", "b"], REQUESTS)
    v1 = NSigmaV1(parameters).peak(asked_of)["n-sigma-v1"]
    v2 = np.max(list(NSigmaV2(parameters).peak(asked_of).values()), axis=0)
    assert (v2 >= v1).all()


@given(st.lists(USAGES, min_size=1, max_size=5), st.lists(USAGES, min_size=1, max_size=5), USAGES)
def test_an_heir_counts_no_less_than_it_uses_and_otherwise_no_more_than_its_request(
    own: list[Usage], workload: list[Usage], request: Usage
) -> None:
    table = model_table()
    for step, usage in enumerate(workload):
        train(table, {**entities(), "workload:w": usage}, NOW + step)
    for step, usage in enumerate(own):
        train(table, {**entities(a=usage), "workload:w": usage}, NOW + 100 + step)
    heir = situation(table, ["a"], [request], heirs={"a": "workload:w"})
    (got,) = heir.by_pod(lambda histories: histories.means)
    (alone,) = situation(table, ["a"], [request]).by_pod(lambda histories: histories.means)
    (inherited,) = heir.workloads.means
    for resource in range(2):
        assert got[resource] >= alone[resource]
        assert got[resource] <= max(alone[resource], request[resource])
        if inherited[resource] <= request[resource]:
            assert math.isclose(got[resource], max(alone[resource], inherited[resource]))
