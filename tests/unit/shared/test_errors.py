"""What an error quotes of a value from outside."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import MAX_SHOWN_VALUE, InvalidInput, cut, shown

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda each: st.lists(each) | st.lists(each).map(tuple) | st.dictionaries(st.text() | st.integers(), each),
    max_leaves=40,
)


@given(VALUES)
def test_a_value_is_quoted_as_python_writes_it_up_to_a_length(value: Any) -> None:
    quoted = shown(value)
    assert len(quoted) <= MAX_SHOWN_VALUE + len("...")
    if len(repr(value)) <= MAX_SHOWN_VALUE:
        assert quoted == repr(value)


def doubled(times: int) -> list[Any]:
    """A list that would take 2 ** times letters."""
    value: list[Any] = ["x"]
    for _ in range(times):
        value = [value, value]
    return value


def test_a_value_that_expands_without_bound_is_quoted_at_once() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert shown(endless) == "[" * MAX_SHOWN_VALUE + "..."
    assert shown({"a": doubled(60)}).startswith("{'a': [[[")
    refused = InvalidInput(source="file", field="a", value=doubled(60), problem="expected a text")
    assert len(str(refused)) < 2 * MAX_SHOWN_VALUE


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        (10**5000, "an integer of 16610 bits"),
        ([10**5000], "[an integer of 16610 bits]"),
        ("x" * 10_000_000, "'" + "x" * (MAX_SHOWN_VALUE - 1) + "..."),
    ],
    ids=["integer", "list", "text"],
)
def test_a_long_value_is_quoted_in_part(value: object, quoted: str) -> None:
    assert shown(value) == quoted


def test_a_text_is_cut_only_where_it_is_too_long() -> None:
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "abc...")
