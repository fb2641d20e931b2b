"""The Node is written when it matters, in one conditional patch that only holds what changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.noderesource import writing
from shared import names
from shared.api.colocation import DEFAULTS
from shared.api.core import Quantities
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, node

MID: Quantities = {names.MID_CPU: "1k", names.MID_MEMORY: "1Gi"}
OFFER = Resources(1000, GIB)


@pytest.mark.parametrize(
    ("mid", "offer", "since", "reason", "shrinks"),
    [
        (None, OFFER, 0, "difference", False),
        (MID, None, 0, "difference", True),
        (MID, Resources(2000, GIB), 0, "difference", False),
        (MID, Resources(2000, GIB // 2), 0, "difference", True),
        (MID, Resources(1050, GIB), 0, None, False),
        (MID, Resources(1050, GIB), 300, None, False),
        (MID, Resources(1050, GIB), 301, "age", False),
        (MID, Resources(950, GIB), None, "first", True),
        (MID, OFFER, None, None, False),
        (MID, OFFER, 10_000, None, False),
        (None, None, None, None, False),
        ({names.MID_CPU: "0", names.MID_MEMORY: "0"}, OFFER, 0, "difference", False),
        ({names.MID_CPU: "garbage", names.MID_MEMORY: "1Gi"}, OFFER, 0, "difference", False),
        ({names.MID_CPU: "garbage"}, None, 0, None, False),
    ],
)
def test_the_write_rule(
    mid: Quantities | None, offer: Resources | None, since: float | None, reason: str | None, shrinks: bool
) -> None:
    write = writing.plan(node(mid=mid), offer, strategy=DEFAULTS, since_last_seconds=since)
    assert (write.reason if write else None) == reason
    assert (write.shrinks if write else False) is shrinks


def test_one_patch_sets_capacity_and_allocatable_on_the_version_it_was_decided_on() -> None:
    write = writing.plan(node(), OFFER, strategy=DEFAULTS, since_last_seconds=None)
    assert write is not None
    listed = {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)}
    assert write.patch == {
        "metadata": {"resourceVersion": "7"},
        "status": {"capacity": listed, "allocatable": listed},
    }


def test_taking_mid_away_removes_the_keys() -> None:
    write = writing.plan(node(mid=MID), None, strategy=DEFAULTS, since_last_seconds=0)
    assert write is not None
    gone = dict.fromkeys(writing.MID_RESOURCES)
    assert write.patch["status"] == {"capacity": gone, "allocatable": gone}


def test_a_capacity_that_lost_its_keys_is_mended() -> None:
    write = writing.plan(node(mid=MID, capacity_mid={}), OFFER, strategy=DEFAULTS, since_last_seconds=301)
    assert write is not None
    assert write.patch["status"] == {"capacity": {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)}}


AMOUNTS = st.builds(Resources, st.integers(0, 10**7), st.integers(0, 1 << 50))


@given(st.none() | AMOUNTS, st.none() | AMOUNTS, st.none() | st.floats(0, 1000))
def test_a_written_offer_is_never_written_again(
    before: Resources | None, offer: Resources | None, since: float | None
) -> None:
    there = node(mid=dict(writing.listed(before)))
    if writing.plan(there, offer, strategy=DEFAULTS, since_last_seconds=since) is not None:
        after = node(mid=dict(writing.listed(offer)))
        assert writing.on_offer(after) == offer
        assert writing.plan(after, offer, strategy=DEFAULTS, since_last_seconds=since) is None
