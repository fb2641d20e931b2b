"""The bank does what VPA's histogram does, for all models at once."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.predict_server import compact, histogram
from agent.predict_server.bank import Bank
from agent.predict_server.histogram import Buckets

GOLDEN = json.loads((Path(__file__).parents[2] / "conformance/data/histogram_golden.json").read_text())
BASE = 1_700_000_000.0
LAYOUTS = {"cpu": histogram.CPU, "memory": histogram.MEMORY}
ROW = np.array([0])

# The scenarios whose samples the table gives as a formula.
FORMULAS: dict[str, Callable[[int], float]] = {
    "1 day of minutes, value=0.5+((7*i)%40)*0.1": lambda i: 0.5 + ((7 * i) % 40) * 0.1,
    "7 days, 1 core baseline and 6 cores between hour 9 and 11 each day (hour index=(i/60)%24)": lambda i: (
        6.0 if 9 <= (i // 60) % 24 < 11 else 1.0
    ),
    "3 days sawtooth memory value=(1+(i%1440)/144)<<28 bytes (integer division)": lambda i: float(
        (1 + (i % 1440) // 144) << 28
    ),
}


def samples(scenario: dict[str, Any]) -> list[tuple[float, float, float]]:
    if scenario.get("samples"):
        return [(sample["value"], sample["weight"], sample["unix"]) for sample in scenario["samples"]]
    formula = FORMULAS.get(scenario["name"])
    return [(formula(i), 1.0, BASE + 60 * i) for i in range(scenario["numSamples"])] if formula else []


@pytest.mark.parametrize("scenario", GOLDEN["scenarios"], ids=lambda scenario: scenario["name"])
def test_golden_scenarios_hold(scenario: dict[str, Any]) -> None:
    given_samples = samples(scenario)
    assert len(given_samples) == scenario["numSamples"], "the scenario's samples are not known here"
    bank = Bank(LAYOUTS[scenario["resource"]], scenario["halfLifeSeconds"], rows=1)
    for value, weight, time in given_samples:
        bank.add(ROW, np.array([value], float), time, weight)
    saved = compact.save(bank, 0)
    expected = scenario["checkpoint"]
    assert {str(b): w for b, w in saved.bucket_weights.items()} == expected.get("bucketWeights", {})
    assert saved.total_weight == pytest.approx(expected.get("totalWeight", 0.0), rel=1e-9)
    for p, value in scenario["percentiles"].items():
        got = bank.histograms.percentiles(ROW, np.array([float(p)]))[0, 0]
        assert got == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("heaviest", [5e-324, 2.0**-1060, 1.0, 2.0**1000])
def test_weights_are_saved_relative_to_the_heaviest_however_small_or_large_it_is(heaviest: float) -> None:
    bank = Bank(histogram.CPU, 43200.0, rows=1)
    bank.histograms.weights[0, 3], bank.histograms.weights[0, 5] = heaviest, heaviest / 2
    bank.histograms.widen(ROW, np.array([3]), np.array([5]))
    expected = {3: 10000} | ({5: 5000} if heaviest / 2 else {})
    assert compact.save(bank, 0).bucket_weights == expected


def test_buckets_below_epsilon_outside_of_the_others_are_not_saved_as_in_vpa() -> None:
    epsilon = histogram.DEFAULT_EPSILON
    bank = Bank(histogram.CPU, math.inf, rows=1)
    for place, weight in zip((2, 3, 4, 5, 6), (0.9, 1.0, 0.5, 2.0, 0.9), strict=True):
        value = histogram.CPU.starts[place : place + 2].mean(keepdims=True)
        bank.histograms.add(ROW, value, np.array([weight * epsilon]))
    assert compact.save(bank, 0).bucket_weights == {3: 5000, 4: 2500, 5: 10000}


@pytest.mark.parametrize("name", ["cpu", "mem"])
def test_golden_layouts_hold(name: str) -> None:
    options = GOLDEN[f"{name}_options"]
    layout = LAYOUTS["memory" if name == "mem" else name]
    assert layout.count == options["numBuckets"]
    for point in options["bucketStart"]:
        assert layout.starts[point["bucket"]] == pytest.approx(point["start"], rel=1e-14)
    for point in options["findBucket"]:
        assert layout.find(np.array([point["value"]]))[0] == point["bucket"]


@given(st.floats(0, 1100) | st.sampled_from(histogram.CPU.starts.tolist()))
def test_a_bucket_is_found_exactly_as_by_vpas_logarithm(value: float) -> None:
    exact = 0 if value < 0.025 else int(math.log(value * (1.05 - 1) / 0.025 + 1) / math.log(1.05))
    assert histogram.CPU.find(np.array([value]))[0] == min(exact, 157)


def one_by_one(layout: Buckets, samples_of_one: list[tuple[float, float]], p: float) -> float:
    """VPA's percentile as its source reads, of samples with their weights."""
    weights, total = [0.0] * layout.count, 0.0
    for value, weight in samples_of_one:
        weights[int(layout.find(np.array([value]))[0])] += weight
        total += weight
    filled = [bucket for bucket, weight in enumerate(weights) if weight >= layout.epsilon]
    if not filled:
        return 0.0
    bucket, last, partial = filled[0], filled[-1], 0.0
    while bucket < last:
        partial += weights[bucket]
        if partial >= p * total:
            break
        bucket += 1
    return float(layout.starts[min(bucket + 1, layout.count - 1)])


EPSILON = histogram.DEFAULT_EPSILON
weighted_samples = st.lists(st.tuples(st.floats(0, 2000), st.sampled_from([EPSILON / 4, EPSILON, 1.0])), max_size=12)


@given(st.lists(weighted_samples, min_size=1, max_size=5), st.lists(st.floats(0, 1), min_size=1, max_size=4))
@example([[], [(0.5, 1.0)]], [0.5])
# What is too small to count stands before the first bucket that counts, and would reach the share too early.
@example([[(0.1, EPSILON / 4), (0.5, 0.5), (9.0, 0.5)], [(0.05, 1.0)]], [(0.5 + EPSILON / 8) / (1 + EPSILON / 4)])
def test_many_models_at_once_answer_as_each_alone(models: list[list[tuple[float, float]]], ps: list[float]) -> None:
    found = histogram.Histograms(histogram.CPU, len(models))
    for position in range(max(map(len, models))):
        rows = np.array([row for row, given_samples in enumerate(models) if position < len(given_samples)])
        values, weights = np.array([models[row][position] for row in rows]).T
        found.add(rows, values, weights)
    got = found.percentiles(np.arange(len(models)), np.array(ps))
    expected = [[one_by_one(histogram.CPU, given_samples, p) for p in ps] for given_samples in models]
    assert got.tolist() == expected


@given(st.lists(st.floats(0, 1500), min_size=1, max_size=30), st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_percentiles_never_fall_as_p_rises(values: list[float], ps: list[float]) -> None:
    bank = Bank(histogram.CPU, 43200, rows=1)
    for index, value in enumerate(values):
        bank.add(ROW, np.array([value]), BASE + 30 * index)
    got = bank.histograms.percentiles(ROW, np.array(sorted(ps)))[0].tolist()
    assert got == sorted(got)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10_000_000)), min_size=1, max_size=20),
    st.integers(-200, 200),
)
def test_decay_commutes_with_a_shift_by_half_lives(seen: list[tuple[float, int]], half_lives: int) -> None:
    """Only differences of times count: the same samples any number of half-lives later give the same statistics."""
    banks = [Bank(histogram.CPU, 43200, rows=1) for _ in range(2)]
    for bank, offset in zip(banks, (0, half_lives * 43200), strict=True):
        for value, after in sorted(seen, key=lambda sample: sample[1]):
            bank.add(ROW, np.array([value]), BASE + offset + after)
    one, other = banks
    assert one.histograms.weights[0].tolist() == pytest.approx(other.histograms.weights[0].tolist(), rel=1e-9)
    assert one.moments.means[0] == pytest.approx(other.moments.means[0], rel=1e-9)
    assert one.references[0] + half_lives * 43200 == other.references[0]


def test_changing_the_half_life_keeps_what_every_sample_weighs_now() -> None:
    bank = Bank(histogram.CPU, 3600, rows=2)
    bank.add(ROW, np.array([1.0]), BASE)
    bank.add(ROW, np.array([5.0]), BASE + 3600)
    bank.change_half_life(7200, BASE + 7200)
    bank.add(ROW, np.array([9.0]), BASE + 7200 + 7200)
    # The first sample is two old half-lives older than the change, then one new one passes.
    weights = bank.histograms.weights[0]
    found = [weights[histogram.CPU.find(np.array([value]))[0]] for value in (1.0, 5.0, 9.0)]
    assert [weight / found[2] for weight in found] == pytest.approx([1 / 8, 1 / 4, 1.0])
    assert bank.moments.means[0] == pytest.approx((1 / 8 + 5 / 4 + 9) / (1 / 8 + 1 / 4 + 1))
    assert bank.histograms.empty(np.array([1]))[0]


def test_a_value_after_a_hundred_half_lives_outweighs_all_before() -> None:
    bank = Bank(histogram.CPU, 60, rows=1)
    for _ in range(1000):
        bank.add(ROW, np.array([9.0]), BASE)
    bank.add(ROW, np.array([1.0]), BASE + 60 * 1200)
    assert bank.histograms.percentiles(ROW, np.array([1.0]))[0, 0] < 1.1
    assert bank.moments.means[0] == pytest.approx(1.0)
