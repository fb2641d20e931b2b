"""Durations and instants read as Go and Kubernetes write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("-2m", -120),
        ("1m0.5s", 60.5),
        ("5m0s", 300),
        ("+5s", 5),
        ("1.s", 1),
        (".5m", 30),
        ("0.5ns", 0),
        ("9223372036854775807ns", 9223372036.854775),
        ("-9223372036854775808ns", -9223372036.854775),
    ],
)
def test_a_go_duration_is_read(text: str, seconds: float) -> None:
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "1d", "5 m", "m5", "1h30", "-", "1e3s", "-+5s", "+-5s", "\u0661s", "1s\n", "3000000h"]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        durations.parse(text)


@pytest.mark.parametrize("text", ["9223372036854775808ns", "-9223372036854775809ns", "2562047h47m16.854775808s"])
def test_a_duration_has_no_more_nanoseconds_than_go_counts(text: str) -> None:
    with pytest.raises(ValueError, match="292 years"):
        durations.parse(text)


@given(st.integers(-(10**9), 10**9))
def test_whole_milliseconds_survive_the_round_trip(milliseconds: int) -> None:
    assert round(durations.parse(durations.render(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.5, "500ms"), (90, "1m30s"), (300, "5m0s"), (3600, "1h0m0s"), (61.5, "1m1.5s")]
)
def test_durations_print_as_go_prints_them(seconds: float, text: str) -> None:
    assert durations.render(seconds) == text


@given(st.integers(0, 4_000_000_000))
def test_instants_survive_the_round_trip(now: int) -> None:
    assert durations.instant(durations.timestamp(now)) == now


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:01.000000Z",
        "2026-01-01T00:00:01.000000000Z",
        "2026-01-01T02:30:01.0+02:30",
        "2025-12-31T23:00:01-01:00",
    ],
)
def test_an_instant_is_read_with_any_fraction_and_zone(text: str) -> None:
    assert durations.instant(text) == 1767225601


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00Z", "2026-01-01T00:00:00.Z"),
        *("2026-01-01 00:00:00Z", "2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00+0100", "2026-01-01T00:00:00+24:00"),
        *("2026-W01-4T00:00:00Z", "20260101T000000Z", "2026-01-01T00:00:00Z\n", "\u0662026-01-01T00:00:00Z"),
        *("2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z"),
    ],
)
def test_an_instant_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        durations.instant(text)
