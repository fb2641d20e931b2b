"""A model's histogram in few bars says what the model itself says."""

from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import distribution, histogram
from agent.predict_server.bank import Bank
from agent.predict_server.histories import Histories
from agent.predict_server.table import ModelTable
from agent.reporter.measurements import MeasuredAverages
from manager.nodeside import usage_histograms
from manager.nodeside.noderesource import report as reports
from shared.api.nodemetric import MOST_BARS, NodeMetric
from tests.support import certain
from tests.unit.agent.pods import NOW
from tests.unit.agent.test_report import patched, trained

DAY = 86400.0


def bank_of(samples: list[float], buckets: histogram.Buckets = histogram.CPU) -> Bank:
    bank = Bank(buckets, DAY, rows=1)
    for place, value in enumerate(samples):
        bank.add(np.array([0]), np.array([value]), NOW + 30 * place)
    return bank


@given(st.lists(st.floats(0, 600), min_size=1, max_size=60))
def test_bars_are_few_and_adjoin_and_hold_all_samples(samples: list[float]) -> None:
    found = certain(distribution.of(bank_of(samples), 0, 1000))
    assert len(found.bounds) == len(found.shares) + 1 <= MOST_BARS + 1
    assert all(low < high for low, high in pairwise(found.bounds))
    assert sum(found.shares) == pytest.approx(distribution.SHARES, abs=MOST_BARS)
    assert found.bounds[0] <= 1000 * min(samples) + 1
    assert found.bounds[-1] >= 1000 * max(samples) - 1
    assert list(found.percentiles) == sorted(found.percentiles)
    assert all(found.bounds[0] <= each <= found.bounds[-1] + 1 for each in found.percentiles)


def test_a_rare_burst_has_a_bar_of_its_own_far_from_what_is_usual() -> None:
    found = certain(distribution.of(bank_of([0.5] * 96 + [6.0] * 4), 0, 1000))
    assert found.shares[0] == pytest.approx(9600, abs=10)
    assert found.shares[-1] == pytest.approx(400, abs=10)
    assert sum(found.shares[1:-1]) == 0
    median, p95, p98, _ = found.percentiles
    assert median == p95
    assert 500 <= median <= 550
    assert 6000 <= p98 <= 6300


def test_older_samples_weigh_less() -> None:
    bank = Bank(histogram.MEMORY, DAY, rows=1)
    for time, value in ((NOW, 2.0**30), (NOW + DAY, 2.0**31)):
        bank.add(np.array([0]), np.array([value]), time)
    found = certain(distribution.of(bank, 0, 1))
    assert (found.shares[0], found.shares[-1]) == (3333, 6667)


def test_without_a_sample_there_is_nothing_to_show() -> None:
    assert distribution.of(Bank(histogram.CPU, DAY, rows=1), 0, 1000) is None
    assert distribution.of(bank_of([2000.0]), 0, 1000) is not None  # above all buckets: the last one


def test_the_manager_shows_what_the_agent_has_learned_beside_the_promised_peak() -> None:
    table = ModelTable(cpu_half_life_seconds=DAY, memory_half_life_seconds=DAY)
    for place in range(20):
        table.train(["node"], np.array([[0.1 * place, 2.0**30]]), NOW + 30 * place)
    known = trained()
    assert known.prod is not None
    learned = Histories(table, ["node"]).first().distributions
    status = patched(
        replace(known, prod=known.prod._replace(distributions=learned)),
        MeasuredAverages({series.NODE: Usage(1.5, 2**30)}),
    )
    metric = msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "n1"}, "status": status}), type=NodeMetric)
    answer = usage_histograms.answer("n1", reports.read(metric))
    assert (answer.model, answer.problem) == ("n-sigma-v1", None)
    cpu, memory = answer.histograms
    assert (cpu.resource, cpu.bounds, cpu.shares) == ("cpu", list(learned[0].bounds), list(learned[0].shares))
    assert cpu.percentiles == dict(zip(("50", "95", "98", "99"), learned[0].percentiles, strict=True))
    assert (cpu.peak, memory.peak) == (1500, 2**30)
