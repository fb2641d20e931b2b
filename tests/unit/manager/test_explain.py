"""What is unknown, unreadable or stale is not on offer, and the reason says so."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import batch, explain, report
from manager.nodeside.noderesource.explain import Decision, Known
from manager.pods import PodLedger, record
from shared.api import colocation
from shared.api.colocation import DEFAULTS, MidFormula, NodeStrategy
from shared.api.core import Node, Pod
from shared.api.nodemetric import NodeMetric, NodeMetricInfo, ResourceMap
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, enabled, metric, node, pod

RECLAIMABLE: dict[str, str | int | float] = {"cpu": "2", "memory": "4Gi"}
LENDER = pod("a", cpu="3", memory="5Gi")


def decide(
    found: Node,
    reported: NodeMetric | None,
    strategy: NodeStrategy | None,
    pods: Iterable[Pod] = (),
    tiers: Iterable[Tier] = explain.ALL_TIERS,
) -> Decision:
    ledger = PodLedger()
    for each in pods:
        ledger.replace(None, record(each))
    name = found.metadata.name
    known = Known.from_pods(found, ledger.requested(name), ledger.pods_on(name))
    return explain.decide(found, None if reported is None else report.read(reported), known, strategy, NOW, tiers=tiers)


def test_a_fresh_node_metric_puts_its_reclaimable_on_offer_until_it_expires() -> None:
    decision = decide(node(), metric(reclaimable=RECLAIMABLE), enabled(), [LENDER])
    assert decision.offers[Tier.MID].resources == Resources(2000, 4 * GIB)
    assert decision.expires_at == NOW + 15 * 60


@given(st.floats(-4000, 4000), st.integers(1, 60))
def test_a_node_metric_older_than_the_limit_or_further_ahead_than_clocks_differ_offers_nothing(
    age: float, minutes: int
) -> None:
    stale = explain.why_stale(NOW - age, degrade_seconds=minutes * 60, now=NOW)
    assert (stale is None) == (-explain.CLOCK_SKEW_SECONDS <= NOW - (NOW - age) <= minutes * 60)


@pytest.mark.parametrize(
    ("age_seconds", "offered"), [(0, True), (900, True), (901, False), (None, False), (-60, True), (-61, False)]
)
def test_the_limit_itself_is_still_fresh(age_seconds: float | None, offered: bool) -> None:
    reported = metric(age_seconds=age_seconds, reclaimable=RECLAIMABLE)
    decision = decide(node(), reported, enabled())
    assert (decision.offers[Tier.MID].resources is not None) is offered
    assert decision.offers[Tier.MID].is_degraded is not offered
    assert decision.offers[Tier.MID].reason.startswith(explain.DEGRADED_REASONS[Tier.MID]) is not offered


@pytest.mark.parametrize(("node_age", "offered"), [(3600, True), (300, True), (240, True), (239, False), (10, False)])
def test_the_report_of_a_machine_that_had_the_name_before_says_nothing(node_age: float, offered: bool) -> None:
    reported = metric(age_seconds=300, reclaimable=RECLAIMABLE)
    decision = decide(node(created_at=NOW - node_age), reported, enabled())
    assert (decision.offers[Tier.MID].resources is not None) is offered
    assert ("before the Node was created" in decision.offers[Tier.MID].reason) is not offered


def test_a_node_whose_creation_means_nothing_is_not_trusted() -> None:
    strange = node()
    strange = msgspec.structs.replace(
        strange, metadata=msgspec.structs.replace(strange.metadata, creation_timestamp="yesterday")
    )
    decision = decide(strange, metric(reclaimable=RECLAIMABLE), enabled())
    assert (decision.offers[Tier.MID].resources, decision.offers[Tier.MID].is_degraded) == (None, True)
    assert "metadata.creationTimestamp: 'yesterday'" in decision.offers[Tier.MID].reason


def test_without_a_node_metric_nothing_is_on_offer() -> None:
    decision = decide(node(), None, enabled())
    assert decision.offers[Tier.MID].resources is None
    assert "no NodeMetric" in decision.offers[Tier.MID].reason


def test_a_node_metric_without_reclaimable_offers_zero_and_is_not_stale() -> None:
    decision = decide(node(), metric(), enabled())
    assert (decision.offers[Tier.MID].resources, decision.offers[Tier.MID].is_degraded) == (Resources(), False)


def test_disabled_colocation_withdraws_without_alarm() -> None:
    strategy = NodeStrategy(DEFAULTS, enabled=False)
    decision = decide(node(), metric(reclaimable=RECLAIMABLE), strategy)
    assert decision.hold is False
    for offer in decision.offers.values():
        assert (offer.resources, offer.is_degraded) == (None, False)
        assert offer.reason == explain.DISABLED_REASON


@pytest.mark.parametrize(("age_seconds", "hold"), [(0, True), (901, False)])
def test_without_any_configuration_the_node_is_left_alone_until_its_metric_is_stale(
    age_seconds: float, hold: bool
) -> None:
    reported = metric(age_seconds=age_seconds, reclaimable=RECLAIMABLE)
    decision = decide(node(), reported, None)
    assert (decision.offers[Tier.MID].resources, decision.hold) == (None, hold)


@pytest.mark.parametrize("cpu", ["lots", "9" * 5000, float("nan")], ids=["a word", "5000 digits", "NaN"])
def test_a_quantity_that_means_nothing_withdraws_the_offer_and_is_named(cpu: str | float) -> None:
    reported = metric(reclaimable={"cpu": cpu, "memory": "1Gi"})
    decision = decide(node(), reported, enabled())
    assert (decision.offers[Tier.MID].resources, decision.offers[Tier.MID].is_degraded) == (None, True)
    assert "NodeMetric n1: status.prodReclaimableMetric.resource" in decision.offers[Tier.MID].reason
    assert str(cpu)[:20] in decision.offers[Tier.MID].reason
    assert len(decision.offers[Tier.MID].reason) < 1000


def test_only_pods_that_hold_requests_take_room() -> None:
    running = [pod("a", cpu="3"), pod("b", cpu="2", priority=7500), pod("c", cpu="1", phase="Succeeded")]
    decision = decide(node(), metric(), enabled(mid_formula=MidFormula.SEED_MIXED), running)
    assert decision.offers[Tier.MID].explanation.cpu.result == 10_000 - 3000


def test_a_pod_whose_requests_mean_nothing_counts_as_none() -> None:
    strategy = enabled(mid_formula=MidFormula.SEED_MIXED)
    decision = decide(node(), metric(), strategy, [pod("a", cpu="many"), pod("b", cpu="1")])
    assert decision.offers[Tier.MID].explanation.cpu.result == 9000


def test_batch_is_offered_beside_mid_with_reasons_of_its_own() -> None:
    reported = metric(reclaimable=RECLAIMABLE, usage={"cpu": "1", "memory": "1Gi"})
    offers = decide(node(), reported, enabled(), [LENDER]).offers
    assert offers[Tier.MID].resources == Resources(2000, 4 * GIB)
    assert offers[Tier.BATCH].margin == Resources(4000, 35 * GIB)
    assert offers[Tier.BATCH].explanation.cpu.result == 10_000 - 4000 - 3000  # margin, and what the pod requests
    assert offers[Tier.BATCH].reason.startswith("batchAllocatable[CPU(Milli-Core)]:3000 = ")


@pytest.mark.parametrize("tier", Tier)
def test_each_tier_is_degraded_in_koordinators_words(tier: Tier) -> None:
    offer = decide(node(), metric(age_seconds=901), enabled()).offers[tier]
    assert (offer.resources, offer.is_degraded) == (None, True)
    assert f"degradedBy{tier.title()}Resource" in offer.reason


@pytest.mark.parametrize("tier", Tier)
def test_a_tier_that_is_not_managed_is_not_decided_about(tier: Tier) -> None:
    assert set(decide(node(), metric(reclaimable=RECLAIMABLE), enabled(), tiers=[tier]).offers) == {tier}
    assert set(decide(node(), None, enabled(), tiers=[tier]).offers) == {tier}


def test_a_formula_that_fails_costs_its_own_tier_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("no such number")

    monkeypatch.setattr(batch, "calculate", broken)
    offers = decide(node(), metric(reclaimable=RECLAIMABLE), enabled(), [LENDER]).offers
    assert offers[Tier.MID].resources == Resources(2000, 4 * GIB)
    assert (offers[Tier.BATCH].resources, offers[Tier.BATCH].is_degraded) == (None, True)
    assert "ArithmeticError: no such number" in offers[Tier.BATCH].reason


def test_batch_is_not_on_offer_while_nobody_says_what_the_system_uses() -> None:
    reported = metric(reclaimable=RECLAIMABLE)
    for unknown in (None, NodeMetricInfo(), NodeMetricInfo(system_usage=ResourceMap({}))):
        status = msgspec.structs.replace(reported.status, node_metric=unknown)
        offers = decide(node(), msgspec.structs.replace(reported, status=status), enabled(), [LENDER]).offers
        assert (offers[Tier.BATCH].resources, offers[Tier.BATCH].is_degraded) == (None, True)
        assert offers[Tier.BATCH].explanation.cpu.bound == explain.UNKNOWN
        assert "status.nodeMetric.systemUsage" in offers[Tier.BATCH].reason
        assert offers[Tier.MID].resources == Resources(2000, 4 * GIB)


@given(
    strategy=st.fixed_dictionaries(
        {"cpu_calculate_policy": st.sampled_from(["usage", "maxUsageRequest"])},
        optional={
            "memory_calculate_policy": st.sampled_from(["usage", "request", "maxUsageRequest"]),
            "cpu_reclaim_threshold_percent": st.integers(-10, 300),
            "memory_reclaim_threshold_percent": st.integers(-10, 300),
            "batch_cpu_threshold_percent": st.integers(0, 300),
        },
    ),
    cpu=st.integers(-2, 64),
    memory=st.integers(-2, 1 << 40),
    asked=st.integers(-(10**6), 10**6),
)
def test_batch_of_a_policy_that_is_taken_never_exceeds_capacity(
    strategy: dict[str, Any], cpu: int, memory: int, asked: int
) -> None:
    policy = enabled(**strategy)
    if any(colocation.violations(policy.strategy, source="cm")):
        return
    there = node(cpu=str(cpu), memory=str(memory))
    offered = (
        decide(there, metric(), policy, [pod("a", cpu=f"{asked}m", memory=str(asked))]).offers[Tier.BATCH].resources
    )
    if min(cpu, memory) < 0:
        assert offered is None
    else:
        assert offered is not None
        assert min(offered) >= 0
        assert min(Resources(cpu * 1000, memory).minus(offered)) >= 0
