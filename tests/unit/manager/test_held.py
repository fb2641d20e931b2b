"""A Node never says less of a tier than its pods hold, whatever was decided: its kubelet would end them."""

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.apiserver import patching
from manager.nodeside.noderesource import explain, holdings, writing
from manager.nodeside.noderesource.damping import Damping
from manager.nodeside.noderesource.explain import HELD, Decision, Known, Offer
from manager.nodeside.noderesource.holdings import Holding
from manager.nodeside.noderesource.report import read
from manager.nodeside.noderesource.writing import NodeWriteRule, Write, WriteReason, WriteRule
from manager.nodeside.scheduling import bound
from manager.pods import NodeRequests, record, sum_held
from shared import names
from shared.api.core import Node
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, enabled, explanation, metric, node, pod
from tests.unit.manager.shortfalls import mid_pod

NOTHING = Resources()
HOLDING = Holding(Resources(700, GIB), Resources(700, GIB))
KNOWN = Known(NodeRequests(Resources(5000, 50 * GIB), Resources(5000, 50 * GIB)), held={Tier.MID: HOLDING})
AMOUNTS = st.builds(Resources, st.integers(0, 5000), st.integers(0, 5 * GIB))


def offer(resources: Resources | None, floor: Resources = NOTHING) -> Offer:
    return Offer(resources, explanation("cap", *(resources or NOTHING)), say=lambda: "said", floor=floor)


def both(cpu: int, memory: int, cpu_name: str = names.MID_CPU, memory_name: str = names.MID_MEMORY) -> dict[str, Any]:
    return {cpu_name: str(cpu), memory_name: str(memory)}


def test_what_pods_hold_is_what_they_request_until_they_have_ended() -> None:
    pods = [mid_pod("a", 100, GIB), mid_pod("b", 30, GIB, phase="Pending"), mid_pod("c", 7, GIB, phase="Failed")]
    leaving = mid_pod("d", 5, GIB, deletion_timestamp="2026-01-01T00:00:00Z")
    assert sum_held([*pods, leaving]) == {Tier.MID: Resources(135, 3 * GIB), Tier.BATCH: NOTHING}


def test_a_pod_that_requests_of_both_tiers_holds_of_both() -> None:
    requests = {names.MID_CPU: "100", names.BATCH_CPU: "30", names.BATCH_MEMORY: "7"}
    mid, batch = Resources(100, 0), Resources(30, 7)
    one = record(pod(requests=requests))
    assert (one.held_tier, one.held, one.held_beside) == (Tier.MID, mid, batch)
    other = record(pod(requests=requests, labels={names.LABEL_PRIORITY_CLASS: "koord-batch"}))
    assert (other.held_tier, other.held, other.held_beside) == (Tier.BATCH, batch, mid)
    assert sum_held([one, other]) == {Tier.MID: Resources(200, 0), Tier.BATCH: Resources(60, 14)}


@pytest.mark.parametrize(
    ("resources", "floor", "shown", "bounds"),
    [
        (Resources(500, GIB), NOTHING, Resources(500, GIB), ("cap", "cap")),
        (Resources(500, GIB), Resources(400, GIB), Resources(500, GIB), ("cap", "cap")),
        (Resources(500, GIB), Resources(700, 0), Resources(700, GIB), (HELD, "cap")),
        (NOTHING, Resources(700, GIB), Resources(700, GIB), (HELD, HELD)),
        (None, Resources(700, 0), Resources(700, 0), (HELD, "cap")),
        (None, NOTHING, None, ("cap", "cap")),
    ],
)
def test_the_node_shows_what_there_is_or_what_is_held_if_that_is_more(
    resources: Resources | None, floor: Resources, shown: Resources | None, bounds: tuple[str, str]
) -> None:
    found = offer(resources, floor)
    assert (found.shown, found.resources) == (shown, resources)
    assert (found.told.cpu.bound, found.told.memory.bound) == bounds
    assert (found.told.cpu.result, found.told.memory.result) == (shown or NOTHING)
    assert ("nothing more is lent" in found.reason) is (shown != resources)
    assert [term.value for term in found.told.cpu.terms if term.name == HELD] == (
        [floor.cpu_milli] if shown != resources else []
    )


@pytest.mark.parametrize(
    ("report", "strategy"),
    [
        (metric(reclaimable={"cpu": "300m", "memory": "10Gi"}, usage={"cpu": "1", "memory": "1Gi"}), enabled()),
        (metric(age_seconds=100_000), enabled()),
        (metric(), dataclasses.replace(enabled(), enabled=False)),
        (None, enabled()),
    ],
)
def test_no_reason_for_lending_less_goes_below_what_is_held(report: Any, strategy: Any) -> None:
    found = None if report is None else read(report)
    decision = explain.decide(node(), found, KNOWN, strategy, NOW)
    mid, batch = decision.offers[Tier.MID], decision.offers[Tier.BATCH]
    assert mid.shown is not None
    assert mid.shown.cpu_milli == 700
    assert mid.told.cpu.bound == HELD
    assert batch.shown == batch.resources
    without = explain.decide(node(), found, msgspec.structs.replace(KNOWN, held={}), strategy, NOW)
    assert mid.resources == without.offers[Tier.MID].resources
    assert mid.is_degraded == without.offers[Tier.MID].is_degraded


def test_a_decision_that_failed_leaves_what_is_held() -> None:
    failed = explain.with_floors(explain.failed(ValueError("x"), tuple(Tier), NOW), KNOWN.held)
    assert failed.offers[Tier.MID].shown == Resources(700, GIB)
    assert failed.offers[Tier.MID].is_degraded
    assert failed.offers[Tier.BATCH].shown is None


def test_no_pod_is_told_to_go_where_more_is_held_than_there_is() -> None:
    asked, holding = {Tier.MID: Resources(1, 0)}, {Tier.MID: HOLDING, Tier.BATCH: Holding()}
    short = Decision({Tier.MID: offer(Resources(600, GIB), Resources(700, GIB))}, NOW)
    missing = bound.shortfall(asked, holding, short, NOW)
    assert missing is not None
    assert missing.detailed == "Mid cpu has shrunk: offers 600m, pods request 700m, this pod requests 1m"
    assert bound.shortfall(asked, {Tier.MID: Holding()}, short, NOW) is None


@given(
    st.none() | AMOUNTS,
    st.none() | AMOUNTS,
    AMOUNTS,
    st.none() | AMOUNTS,
    st.sampled_from(WriteRule),
    st.booleans(),
)
def test_after_every_look_the_node_says_no_less_than_is_held(
    before: Resources | None,
    decided: Resources | None,
    floor: Resources,
    lately: Resources | None,
    kind: WriteRule,
    wrote: bool,
) -> None:
    there = node(mid=None if before is None else both(*before))
    rule = NodeWriteRule(kind, 0.1, 300, 1000.0, 999.0 if wrote else None)
    damping = {} if lately is None else {Tier.MID: Damping(lately, 0.0, lately, lately)}
    outcome = writing.plan(there, {Tier.MID: offer(decided, floor)}, rule, damping=damping)
    after = there
    if isinstance(outcome, Write):
        merged = patching.merge(msgspec.to_builtins(there), msgspec.to_builtins(outcome.patch))
        after = msgspec.convert(merged, Node)
    shown = holdings.on_offer(after, Tier.MID)
    assert min((shown or NOTHING).minus(floor)) >= 0
    if decided is None and floor == NOTHING:
        assert shown is None


@pytest.mark.parametrize("kind", list(WriteRule))
def test_a_bind_that_raced_with_a_shrink_raises_what_is_shown_at_once(kind: WriteRule) -> None:
    rule = NodeWriteRule(kind, 0.1, 300, 1000.0, 999.0)
    there = node(mid=both(690, GIB))
    outcome = writing.plan(there, {Tier.MID: offer(Resources(100, GIB), Resources(700, GIB))}, rule)
    assert isinstance(outcome, Write)
    assert (outcome.reason, outcome.shrinks) == (WriteReason.HELD, False)
    assert outcome.why == "kubernetes.io/mid-cpu 690 -> 700: pods request more than is on offer"
    assert outcome.changes[Tier.MID].new == Resources(700, GIB)
