"""A fleet moves the prior, within bounds; no node and no liar does."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import predictionprior
from shared.api.nodemetric_spec import WireTail
from shared.api.predictionprior import BUILT_IN, LARGEST, LEAST, ObservedTail, Prior, Tail
from shared.errors import InvalidInput

MONTH = 28.0
NOW = 1_769_860_800.0

tails = st.builds(Tail, st.floats(-100, 100), st.floats(0, 100))
nodes = st.builds(ObservedTail, tails, st.floats(0.01, MONTH))


@dataclass(frozen=True)
class Weighed:
    """Values of a part of the tail by weight, among them the built-in one; without the node that is looked at."""

    values: list[tuple[float, float]]

    def at(self, weight: float) -> float:
        """The value at which the weight is reached."""
        reached = 0.0
        for value, each in sorted(self.values):
            reached += each
            if reached >= weight - 1e-9:
                return value
        return max(value for value, _ in self.values)


def test_many_nodes_that_agree_move_it_and_liars_among_them_do_not() -> None:
    honest = [ObservedTail(Tail(0.2, 0.1), MONTH)] * 140
    assert predictionprior.pooled(honest) == (0.2, 0.1)
    liars = [ObservedTail(Tail(100.0, 100.0), MONTH)] * 60
    assert predictionprior.pooled(honest + liars) == (0.2, 0.1)


def test_a_few_nodes_leave_the_built_in_prior() -> None:
    assert predictionprior.pooled([]) == BUILT_IN
    assert predictionprior.pooled([ObservedTail(Tail(9.0, 9.0), MONTH)] * 19) == BUILT_IN


@given(st.lists(nodes, max_size=60))
def test_it_stays_within_its_bounds(fleet: list[ObservedTail]) -> None:
    found = predictionprior.pooled(fleet)
    assert LEAST.quantile <= found.quantile <= LARGEST.quantile
    assert LEAST.excess <= found.excess <= LARGEST.excess


@given(st.lists(nodes, max_size=60), nodes)
def test_one_node_moves_it_by_no_more_than_to_a_neighbouring_quantile(
    others: list[ObservedTail], one: ObservedTail
) -> None:
    found = predictionprior.pooled([*others, one])
    for part, (low, high) in enumerate(zip(LEAST, LARGEST, strict=True)):
        weighed = [(each.tail[part], min(each.days, 7.0) / 7.0) for each in others] + [(BUILT_IN[part], 20.0)]
        half = sum(weight for _, weight in weighed) / 2
        least, most = (min(max(low, Weighed(weighed).at(half + side)), high) for side in (-0.5, 0.5))
        assert round(least, 3) <= found[part] <= round(most, 3)


@pytest.mark.parametrize(
    ("quantile", "excess", "days"),
    [
        ("1e9", "0.1", "7"),
        ("nan", "0.1", "7"),
        ("inf", "0.1", "7"),
        ("101", "0.1", "7"),
        ("-101", "0.1", "7"),
        ("0.1", "-0.1", "7"),
        ("0.1", "999999", "7"),
        ("0.1", "0.1", "-7"),
        ("0.1", "0.1", "0"),
        ("0.1", "0.1", "28.01"),
        ("0.1", "0.1", "9" * 400),
        ("", "0.1", "7"),
    ],
)
def test_what_no_node_can_have_measured_is_refused(quantile: str, excess: str, days: str) -> None:
    with pytest.raises(ValueError, match="expected up to 100 scales, and more than 0 to 28 days"):
        predictionprior.reported(WireTail(quantile, excess, days))


@given(nodes)
def test_what_a_node_reports_is_what_is_read(node: ObservedTail) -> None:
    wire = predictionprior.report(node)
    found = predictionprior.reported(wire)
    assert found is None or found.tail == pytest.approx(node.tail, abs=1e-4)
    assert (found is None) == (wire is None)


def test_nothing_is_reported_of_what_nobody_would_take() -> None:
    assert predictionprior.report(None) is None
    assert predictionprior.report(ObservedTail(Tail(float("nan"), 0.1), 7.0)) is None
    assert predictionprior.report(ObservedTail(Tail(0.1, 0.1), 0.0)) is None


def sent(**changes: Any) -> dict[str, Any]:
    prior = Prior(12, NOW, {86400: (Tail(0.1, 0.05), Tail(0.0, 0.024))})
    wire: dict[str, Any] = msgspec.to_builtins(predictionprior.to_wire(prior))
    return wire | changes


def test_what_is_sent_down_comes_out_as_it_went_in_without_floats() -> None:
    wire = sent()
    assert wire["horizons"][0]["cpu"] == {"quantile": "0.100", "meanExcess": "0.050"}
    assert predictionprior.of_raw(wire) == Prior(12, NOW, {86400: (Tail(0.1, 0.05), Tail(0.0, 0.024))})
    assert predictionprior.of_raw(None) is None


def horizon(quantile: Any, excess: Any = "0.05", seconds: Any = 86400) -> dict[str, Any]:
    good = {"quantile": "0.1", "meanExcess": "0.05"}
    return {"horizonSeconds": seconds, "cpu": {"quantile": quantile, "meanExcess": excess}, "memory": good}


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ("lots", "predictionPrior"),
        (sent(nodes=0), "nodes"),
        (sent(nodes="many"), "predictionPrior"),
        (sent(pooledTime="yesterday"), "pooledTime"),
        (sent(horizons=[horizon("0.31")]), r"horizons\[0\].cpu.quantile"),
        (sent(horizons=[horizon("-0.1")]), r"horizons\[0\].cpu.quantile"),
        (sent(horizons=[horizon("NaN")]), r"horizons\[0\].cpu.quantile"),
        (sent(horizons=[horizon("0.1", "0.023")]), r"horizons\[0\].cpu.meanExcess"),
        (sent(horizons=[horizon("0.1", "0.151")]), r"horizons\[0\].cpu.meanExcess"),
        (sent(horizons=[horizon("0.1", seconds=0)]), r"horizons\[0\].horizonSeconds"),
        (sent(horizons=[horizon("0.1"), horizon("0.1")]), r"horizons\[1\].horizonSeconds"),
        (sent(horizons=[horizon("0.1")] * 17), "horizons"),
    ],
)
def test_a_prior_that_cannot_be_is_refused_by_its_field(wire: object, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"NodeMetric spec.predictionPrior: {field}: "):
        predictionprior.of_raw(wire)


def test_only_a_change_that_matters_is_one() -> None:
    one = Prior(12, NOW, {86400: (Tail(0.1, 0.05), BUILT_IN)})
    assert not Prior(900, NOW + 1, {86400: (Tail(0.104, 0.046), BUILT_IN), 3600: (BUILT_IN, BUILT_IN)}).differs(one)
    assert Prior(12, NOW, {86400: (Tail(0.106, 0.05), BUILT_IN)}).differs(one)
    assert one.differs(None)
    assert not Prior(12, NOW, {3600: (BUILT_IN, BUILT_IN)}).differs(None)
