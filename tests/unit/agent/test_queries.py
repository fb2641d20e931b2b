"""Instants, windows and ranges of a query: as a person or a program writes them, or refused by name."""

import pytest

from agent.http import queries
from agent.metric_cache.cache import StorageTier
from shared.errors import InvalidInput

NOON = 1769860800.0
NOW = NOON + 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("1769860800", NOON),
        ("1769860800.5", NOON + 0.5),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("2026-01-31T13:00:00 01:00", NOON),  # a plus sign that was not escaped
        ("2026-01-31T12:00:00.250Z", NOON + 0.25),
    ],
)
def test_an_instant_is_rfc_3339_or_unix_seconds(text: str, seconds: float) -> None:
    assert queries.instant("start", text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "-1", "nan", "inf", "1e300", "1_0", "+1", ".5", "5.", " 10 ", "9" * 400, "\u0661\u0660", "\0"),
        *("2026-01-31", "2026-01-31T12:00:00", "2026-13-01T00:00:00Z"),
        *("2026-W47-7T04:00:00Z", "20261122T040000Z", "2026-01-31 12:00:00Z"),
    ],
)
def test_what_is_no_instant_is_refused_by_name_and_value(text: str) -> None:
    with pytest.raises(InvalidInput, match="query: start: ") as refusal:
        queries.instant("start", text)
    assert refusal.value.value == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("0001-01-01T00:00:00Z", 0), ("9999-12-31T23:59:59-14:00", queries.LATEST)]
)
def test_an_instant_beyond_what_can_be_stored_is_the_nearest_that_can(text: str, seconds: float) -> None:
    assert queries.instant("start", text) == seconds


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("30s", 30), ("1.9s", 1), ("5m", 300), ("168h", 604800)])
def test_a_window_is_a_duration_or_seconds(text: str, seconds: int) -> None:
    assert queries.window(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "-5m", "500ms", "169h", "nan", "1e1", " 10 ", "1_0", "+10", "7d", "9" * 400, "\u0661\u0660"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="query: window: "):
        queries.window(text)


def test_a_range_ends_now_and_is_as_long_as_suits_its_tier_unless_told_otherwise() -> None:
    assert queries.span(None, None, NOW, StorageTier.SECONDS) == (NOW - 300, NOW)
    assert queries.span(None, None, NOW, StorageTier.MEANS) == (NOW - 86400, NOW)
    assert queries.span(None, str(NOON), NOW, StorageTier.SECONDS) == (NOON - 300, NOON)
    assert queries.span(str(NOON), None, NOW, StorageTier.SECONDS) == (NOON, NOW)
    assert queries.span("10", "10", NOW, StorageTier.SECONDS) == (10, 10)
    with pytest.raises(queries.NothingSelected, match="query: start: '11': lies after the end"):
        queries.span("11", "10", NOW, StorageTier.SECONDS)
