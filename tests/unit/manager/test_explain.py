"""What is unknown, unreadable or stale is not on offer, and the reason says so."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.noderesource import explain
from manager.noderesource.situation import Requested
from shared.api.colocation import DEFAULTS, MidFormula, NodeStrategy
from shared.errors import InvalidInput
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, enabled, metric, node, pod

RECLAIMABLE: dict[str, str | int | float] = {"cpu": "2", "memory": "4Gi"}


def test_a_fresh_node_metric_puts_its_reclaimable_on_offer_until_it_expires() -> None:
    decision = explain.decide(node(), metric(reclaimable=RECLAIMABLE), Requested(), enabled(), NOW)
    assert decision.offer == Resources(2000, 4 * GIB)
    assert decision.expires_at == NOW + 15 * 60


@given(st.floats(-4000, 4000), st.integers(1, 60))
def test_a_node_metric_beyond_the_limit_in_either_direction_offers_nothing(age: float, minutes: int) -> None:
    stale = explain.why_stale(NOW - age, degrade_seconds=minutes * 60, now=NOW)
    assert (stale is None) == (abs(NOW - (NOW - age)) <= minutes * 60)


@pytest.mark.parametrize(
    ("age_seconds", "offered"), [(0, True), (900, True), (901, False), (None, False), (-900, True), (-901, False)]
)
def test_the_limit_itself_is_still_fresh(age_seconds: float | None, offered: bool) -> None:
    reported = metric(age_seconds=age_seconds, reclaimable=RECLAIMABLE)
    decision = explain.decide(node(), reported, Requested(), enabled(), NOW)
    assert (decision.offer is not None) is offered
    assert decision.is_degraded is not offered
    assert decision.explanation.reason.startswith(explain.DEGRADED_REASON) is not offered


@pytest.mark.parametrize(("node_age", "offered"), [(3600, True), (300, True), (240, True), (239, False), (10, False)])
def test_the_report_of_a_machine_that_had_the_name_before_says_nothing(node_age: float, offered: bool) -> None:
    reported = metric(age_seconds=300, reclaimable=RECLAIMABLE)
    decision = explain.decide(node(created_at=NOW - node_age), reported, Requested(), enabled(), NOW)
    assert (decision.offer is not None) is offered
    assert ("before the Node was created" in decision.explanation.reason) is not offered


def test_a_node_whose_creation_means_nothing_is_not_trusted() -> None:
    strange = node()
    strange = msgspec.structs.replace(
        strange, metadata=msgspec.structs.replace(strange.metadata, creation_timestamp="yesterday")
    )
    decision = explain.decide(strange, metric(reclaimable=RECLAIMABLE), Requested(), enabled(), NOW)
    assert (decision.offer, decision.is_degraded) == (None, True)
    assert "metadata.creationTimestamp: 'yesterday'" in decision.explanation.reason


def test_without_a_node_metric_nothing_is_on_offer() -> None:
    decision = explain.decide(node(), None, Requested(), enabled(), NOW)
    assert decision.offer is None
    assert "no NodeMetric" in decision.explanation.reason


def test_a_node_metric_without_reclaimable_offers_zero_and_is_not_stale() -> None:
    decision = explain.decide(node(), metric(), Requested(), enabled(), NOW)
    assert (decision.offer, decision.is_degraded) == (Resources(), False)


def test_disabled_colocation_withdraws_without_alarm() -> None:
    strategy = NodeStrategy(DEFAULTS, enabled=False)
    decision = explain.decide(node(), metric(reclaimable=RECLAIMABLE), Requested(), strategy, NOW)
    assert (decision.offer, decision.hold, decision.is_degraded) == (None, False, False)
    assert decision.explanation.reason == explain.DISABLED_REASON


@pytest.mark.parametrize(("age_seconds", "hold"), [(0, True), (901, False)])
def test_without_any_configuration_the_node_is_left_alone_until_its_metric_is_stale(
    age_seconds: float, hold: bool
) -> None:
    reported = metric(age_seconds=age_seconds, reclaimable=RECLAIMABLE)
    decision = explain.decide(node(), reported, Requested(), None, NOW)
    assert (decision.offer, decision.hold) == (None, hold)


@pytest.mark.parametrize("cpu", ["lots", "9" * 5000, float("nan")], ids=["a word", "5000 digits", "NaN"])
def test_a_quantity_that_means_nothing_withdraws_the_offer_and_is_named(cpu: str | float) -> None:
    reported = metric(reclaimable={"cpu": cpu, "memory": "1Gi"})
    decision = explain.decide(node(), reported, Requested(), enabled(), NOW)
    assert (decision.offer, decision.is_degraded) == (None, True)
    assert "NodeMetric n1: status.prodReclaimableMetric.resource" in decision.explanation.reason
    assert str(cpu)[:20] in decision.explanation.reason
    assert len(decision.explanation.reason) < 1000


def test_explaining_from_objects_counts_the_pods_that_hold_requests() -> None:
    running = [pod("a", cpu="3"), pod("b", cpu="2", priority=7500), pod("c", cpu="1", phase="Succeeded")]
    explained = explain.explain(node(), metric(), running, enabled(mid_formula=MidFormula.SEED_MIXED), NOW)
    assert explained.cpu.result == 10_000 - 3000


def test_explaining_refuses_a_pod_whose_requests_mean_nothing() -> None:
    with pytest.raises(InvalidInput, match="default/p1"):
        explain.explain(node(), metric(), [pod(cpu="many")], enabled(), NOW)
