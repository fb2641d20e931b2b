"""How long ago something was, in the words of kubectl's Age columns."""

import pytest

from deploy.local.apiserver.tables import age

MADE = "2020-01-01T00:00:00Z"
MADE_SECONDS = 1577836800
MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * HOUR - 1, "119m"),
        (2 * HOUR, "2h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * YEAR - 1, "729d"),
        (8 * YEAR + 5 * DAY, "8y"),
    ],
)
def test_an_age_is_in_the_largest_unit_of_which_it_has_two(seconds: int, said: str) -> None:
    assert age(MADE, now=MADE_SECONDS + seconds) == said


def test_a_clock_that_is_behind_has_no_negative_age() -> None:
    assert age(MADE, now=MADE_SECONDS - 5) == "0s"


@pytest.mark.parametrize("text", [None, "", "yesterday", 5])
def test_what_is_no_time_has_no_age(text: object) -> None:
    assert age(text, now=MADE_SECONDS) == "<unknown>"
