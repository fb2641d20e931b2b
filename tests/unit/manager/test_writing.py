"""The Node is written when it matters, in one conditional patch that only holds what changes."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import damping, holdings, writing
from manager.nodeside.noderesource.damping import Damping
from manager.nodeside.noderesource.explain import Offer
from manager.nodeside.noderesource.writing import (
    SAFETY_TOLERANCE,
    NodeWriteRule,
    Wait,
    Waiting,
    Write,
    WriteReason,
    WriteRule,
)
from shared import names
from shared.api.core import Node, Quantities
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, explanation, node

MID: Quantities = {names.MID_CPU: "1k", names.MID_MEMORY: "1Gi"}
OFFER = Resources(1000, GIB)
INTERVAL_SECONDS = 300
THRESHOLD = 0.1
NOTHING = Resources()


def offered(resources: Resources | None, held_back: Resources = NOTHING) -> Offer:
    return Offer(resources, explanation(), held_back)


def rule(since: float | None = 0, *, kind: WriteRule = WriteRule.DAMPED) -> NodeWriteRule:
    return NodeWriteRule(kind, THRESHOLD, INTERVAL_SECONDS, 10_000, None if since is None else 10_000 - since)


def planned(
    there: Node,
    offer: Resources | None,
    since: float | None = 0,
    *,
    held_back: Resources = NOTHING,
    kind: WriteRule = WriteRule.DAMPED,
    known: Damping | None = None,
) -> Write | Wait | None:
    dampings = {} if known is None else {Tier.MID: known}
    return writing.plan(there, {Tier.MID: offered(offer, held_back)}, rule(since, kind=kind), damping=dampings)


def write_of(outcome: Write | Wait | None) -> Write:
    assert isinstance(outcome, Write)
    return outcome


ALWAYS: list[tuple[Quantities | None, Resources | None, float | None, WriteReason | None, bool]] = [
    (None, OFFER, 0, WriteReason.DIFFERENCE, False),
    (MID, None, 0, WriteReason.DIFFERENCE, True),
    (MID, Resources(2000, GIB), 0, WriteReason.DIFFERENCE, False),
    (MID, Resources(2000, GIB // 2), 0, WriteReason.DIFFERENCE, True),
    (MID, Resources(1050, GIB), 0, None, False),
    (MID, Resources(1050, GIB), 300, None, False),
    (MID, Resources(1050, GIB), 301, WriteReason.AGE, False),
    (MID, Resources(950, GIB), None, WriteReason.FIRST, True),
    (MID, OFFER, None, None, False),
    (MID, OFFER, 10_000, None, False),
    (None, None, None, None, False),
    ({names.MID_CPU: "0", names.MID_MEMORY: "0"}, OFFER, 0, WriteReason.DIFFERENCE, False),
    ({names.MID_CPU: "garbage", names.MID_MEMORY: "1Gi"}, OFFER, 0, WriteReason.DIFFERENCE, False),
]


@pytest.mark.parametrize(("mid", "offer", "since", "reason", "shrinks"), ALWAYS)
def test_koordinators_write_rule(
    mid: Quantities | None, offer: Resources | None, since: float | None, reason: WriteReason | None, shrinks: bool
) -> None:
    outcome = planned(node(mid=mid), offer, since, kind=WriteRule.UPSTREAM)
    assert (outcome.reason if isinstance(outcome, Write) else None) == reason
    assert (outcome.shrinks if isinstance(outcome, Write) else False) is shrinks


@pytest.mark.parametrize(
    ("mid", "offer", "since", "reason", "shrinks"),
    [
        *(case for case in ALWAYS if case[3] is not WriteReason.FIRST),
        (MID, Resources(950, GIB), 0, WriteReason.SAFETY, True),
        (MID, Resources(950, GIB), None, WriteReason.SAFETY, True),
        (MID, Resources(995, GIB), 0, None, False),
        (MID, Resources(995, GIB), 301, WriteReason.AGE, True),
        (MID, Resources(1050, GIB), None, WriteReason.FIRST, False),
        ({names.MID_CPU: "garbage"}, None, 0, WriteReason.DIFFERENCE, False),
    ],
)
def test_the_damped_write_rule(
    mid: Quantities | None, offer: Resources | None, since: float | None, reason: WriteReason | None, shrinks: bool
) -> None:
    outcome = planned(node(mid=mid), offer, since)
    assert (outcome.reason if isinstance(outcome, Write) else None) == reason
    assert (outcome.shrinks if isinstance(outcome, Write) else False) is shrinks


def test_a_small_shrink_waits_for_as_long_as_the_buffer_holds_that_much_back() -> None:
    there = node(mid={names.MID_CPU: "1000", names.MID_MEMORY: "1000"})
    enough = planned(there, Resources(950, 1000), held_back=Resources(50, 0))
    assert isinstance(enough, Wait)
    assert enough.reason is Waiting.THRESHOLD
    too_little = write_of(planned(there, Resources(950, 1000), held_back=Resources(39, 0)))
    assert too_little.reason is WriteReason.SAFETY
    assert too_little.why == "kubernetes.io/mid-cpu 1000 -> 950: less than what is on offer"


def test_a_safety_margin_bears_a_small_shrink_as_a_buffer_does() -> None:
    there = node(mid={names.BATCH_CPU: "1000", names.BATCH_MEMORY: "1000"})
    for margin, kind in ((50, Wait), (39, Write)):
        offer = Offer(Resources(950, 1000), explanation(), margin=Resources(margin, 0))
        assert isinstance(writing.plan(there, {Tier.BATCH: offer}, rule()), kind)


def test_what_waits_says_why_and_until_when() -> None:
    small = planned(node(mid=MID), Resources(1050, GIB), since=100)
    assert isinstance(small, Wait)
    assert (small.reason, small.until) == (Waiting.THRESHOLD, 10_200)
    assert small.why == "kubernetes.io/mid-cpu 1000 -> 1050: within 10 % of what is written"
    fell = Damping(Resources(2000, GIB), started=9_900, low=Resources(1000, GIB))
    damped = planned(node(mid=MID), Resources(2000, GIB), known=fell)
    assert isinstance(damped, Wait)
    assert (damped.reason, damped.until) == (Waiting.DAMPED, 10_500)
    assert "fell to 1000 lately" in damped.why


def test_growth_goes_as_far_as_the_decision_lately_fell_to() -> None:
    fell = Damping(Resources(2000, 2 * GIB), started=9_900, low=Resources(1500, GIB // 2))
    write = write_of(planned(node(mid=MID), Resources(2000, 2 * GIB), known=fell))
    assert write.changes[Tier.MID].new == Resources(1500, GIB)


def test_one_patch_sets_capacity_and_allocatable_on_the_version_it_was_decided_on() -> None:
    listed = {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)}
    assert write_of(planned(node(), OFFER, None)).patch == {
        "metadata": {"resourceVersion": "7"},
        "status": {"capacity": listed, "allocatable": listed},
    }


def test_one_patch_sets_all_tiers_and_leaves_those_that_are_not_managed() -> None:
    batch: Quantities = {names.BATCH_CPU: "500", names.BATCH_MEMORY: "1Ki"}
    there = node(mid={**MID, **batch})
    both = {Tier.MID: offered(Resources(2000, GIB)), Tier.BATCH: offered(None)}
    write = write_of(writing.plan(there, both, rule()))
    patched = {names.MID_CPU: "2000", names.BATCH_CPU: None, names.BATCH_MEMORY: None}
    assert write.patch["status"] == {"capacity": patched, "allocatable": patched}
    alone = write_of(writing.plan(there, {Tier.MID: offered(None)}, rule()))
    gone = dict.fromkeys(names.TIER_RESOURCES[Tier.MID])
    assert alone.patch["status"] == {"capacity": gone, "allocatable": gone}
    assert write.changes[Tier.BATCH].old == Resources(500, 1024)
    assert (write.shrinks, write.changes[Tier.MID].shrinks) == (True, False)


def test_a_tier_that_moves_a_little_beside_one_that_moves_much_is_no_news() -> None:
    there = node(mid={**MID, names.BATCH_CPU: "500", names.BATCH_MEMORY: "0"})
    both = {Tier.MID: offered(Resources(1010, GIB)), Tier.BATCH: offered(Resources(600, 0))}
    write = write_of(writing.plan(there, both, rule()))
    assert {tier: change.is_large for tier, change in write.changes.items()} == {Tier.MID: False, Tier.BATCH: True}


def test_a_capacity_that_lost_its_keys_is_mended() -> None:
    write = write_of(planned(node(mid=MID, capacity_mid={}), OFFER, 301))
    assert write.patch["status"] == {"capacity": {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)}}


ORIGIN = names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE


@pytest.mark.parametrize("kind", WriteRule)
@pytest.mark.parametrize(
    ("offer", "since", "reason"),
    [
        (OFFER, 0, None),
        (OFFER, INTERVAL_SECONDS, None),
        (OFFER, INTERVAL_SECONDS + 1, WriteReason.AGE),
        (OFFER, None, WriteReason.FIRST),
        (None, 0, WriteReason.DIFFERENCE),
    ],
)
def test_an_annotation_that_no_node_may_keep_goes_with_the_next_write_and_is_no_reason_for_one(
    kind: WriteRule, offer: Resources | None, since: float | None, reason: WriteReason | None
) -> None:
    outcome, without = (
        writing.plan(
            node(mid=MID, annotations=there), {Tier.MID: offered(offer)}, rule(since, kind=kind), obsolete=[ORIGIN]
        )
        for there in ({ORIGIN: "{}", "x": "y"}, {"x": "y"})
    )
    assert (outcome.reason if isinstance(outcome, Write) else None) == reason
    if isinstance(outcome, Write):
        assert outcome.patch["metadata"] == {"resourceVersion": "7", "annotations": {ORIGIN: None}}
    assert isinstance(without, Write) is (offer is None)


AMOUNTS = st.builds(Resources, st.integers(0, 10**7), st.integers(0, 1 << 50))


@given(st.none() | AMOUNTS, st.none() | AMOUNTS, st.none() | st.floats(0, 1000), st.sampled_from(WriteRule))
def test_a_written_offer_is_never_written_again(
    before: Resources | None, offer: Resources | None, since: float | None, kind: WriteRule
) -> None:
    there = node(mid=dict(writing.listed(Tier.MID, before)))
    if isinstance(planned(there, offer, since, kind=kind), Write):
        after = node(mid=dict(writing.listed(Tier.MID, offer)))
        assert holdings.on_offer(after, Tier.MID) == offer
        assert planned(after, offer, since, kind=kind) is None


Decided = tuple[float, Resources, int]  # seconds since the one before, what there is, permille that is held back


def lived_through(decisions: Iterable[Decided]) -> list[tuple[Resources, Resources, Resources, Write | None]]:
    """After each decision: what is on offer, what was decided, what there is, and what was written."""
    told: list[tuple[Resources, Resources, Resources, Write | None]] = []
    on_offer: Mapping[str, str] = {}
    now, last_write, known = 0.0, None, None
    for seconds, there_is, permille in decisions:
        now += seconds
        decided = Resources(*(each * (1000 - permille) // 1000 for each in there_is))
        known = damping.remember(known, decided, now, INTERVAL_SECONDS)
        outcome = writing.plan(
            node(mid=dict(on_offer)),
            {Tier.MID: offered(decided, there_is.minus(decided))},
            NodeWriteRule(WriteRule.DAMPED, THRESHOLD, INTERVAL_SECONDS, now, last_write),
            damping={Tier.MID: known},
        )
        if isinstance(outcome, Write):
            last_write, on_offer = now, writing.listed(Tier.MID, outcome.changes[Tier.MID].new)
        found = holdings.on_offer(node(mid=dict(on_offer)), Tier.MID)
        assert found is not None
        told.append((found, decided, there_is, outcome if isinstance(outcome, Write) else None))
    return told


SMALL = st.builds(Resources, st.integers(0, 2000), st.integers(0, 2000))
LIVES = st.lists(st.tuples(st.floats(0, 700), SMALL, st.sampled_from([0, 5, 50, 200])), min_size=1, max_size=40)


@given(LIVES)
def test_once_the_writer_has_had_its_chance_no_more_is_on_offer_than_there_is(life: list[Decided]) -> None:
    for found, decided, there_is, _ in lived_through(life):
        for on_offer, wanted, there in zip(found, decided, there_is, strict=True):
            assert on_offer <= there + on_offer * SAFETY_TOLERANCE
            assert on_offer <= wanted + on_offer * THRESHOLD


@given(SMALL, SMALL, st.floats(1, 150), st.integers(2, 60))
def test_a_decision_that_flaps_settles_at_its_low_side(
    one: Resources, other: Resources, seconds: float, many: int
) -> None:
    told = lived_through((seconds, other if index % 2 else one, 0) for index in range(many))
    # The first, one growth and one shrink of each resource, and what differs little once an interval.
    assert sum(write is not None for *_, write in told) <= 5 + many * seconds / INTERVAL_SECONDS
    if many * seconds > 2 * INTERVAL_SECONDS:
        for on_offer, low in zip(told[-1][0], one.least(other), strict=True):
            assert low * (1 - SAFETY_TOLERANCE) <= on_offer <= low / (1 - SAFETY_TOLERANCE)


@given(SMALL, SMALL)
def test_growth_that_lasts_is_offered_after_two_intervals_at_most(low: Resources, high: Resources) -> None:
    high = high.most(low)
    life = [(0.0, high, 0), (60.0, low, 0), *((60.0, high, 0) for _ in range(16))]
    found = lived_through(life)[-1][0]
    for on_offer, wanted in zip(found, high, strict=True):
        assert on_offer == wanted
