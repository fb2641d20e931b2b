"""Quantities read as Go reads them."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import quantity
from shared.quantity import QuantityError, Resources

SUFFIX_VALUE = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12, "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18, "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("0", 0, 0),
        ("1", 1000, 1),
        ("1.5", 1500, 2),
        ("100m", 100, 1),
        ("1n", 1, 1),
        ("1001u", 2, 1),
        ("-1.0001", -1001, -2),
        ("+2", 2000, 2),
        (".5", 500, 1),
        ("5.", 5000, 5),
        ("1e3", 1_000_000, 1000),
        ("1E2", 100_000, 100),
        ("15e-1", 1500, 2),
        ("2k", 2_000_000, 2000),
        ("0.5Ki", 512_000, 512),
        ("64818120Ki", 66_373_754_880_000, 66_373_754_880),
        ("12E", quantity.INT64_MAX, quantity.INT64_MAX),
        ("1E", quantity.INT64_MAX, 10**18),
        (2, 2000, 2),
        (0.1, 100, 1),
        ("16000", 16_000_000, 16_000),
    ],
)
def test_a_quantity_is_exact_and_rounds_away_from_zero(text: str | float, milli: int, whole: int) -> None:
    assert (quantity.milli(text), quantity.whole(text)) == (milli, whole)


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1ki", "1mi", "one", "1.2.3", "0x10", "1e", "--1", "1K", "m", "1i", "NaN", "1_0", "١", "1" * 5000],
)
def test_what_is_not_a_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match="quantity"):
        quantity.milli(text)


@given(
    digits=st.integers(0, 10**12),
    places=st.integers(0, 6),
    suffix=st.sampled_from(sorted(SUFFIX_VALUE)),
    negative=st.booleans(),
)
def test_every_quantity_agrees_with_decimal_arithmetic(digits: int, places: int, suffix: str, negative: bool) -> None:
    number = Decimal(digits).scaleb(-places)
    exact = number * SUFFIX_VALUE[suffix] * (-1 if negative else 1)
    rounding = ROUND_FLOOR if negative else ROUND_CEILING
    for parse, scale in ((quantity.milli, 1000), (quantity.whole, 1)):
        wanted = int((exact * scale).to_integral_value(rounding))
        text = f"{'-' if negative else ''}{number:f}{suffix}"
        assert parse(text) == max(-quantity.INT64_MAX, min(quantity.INT64_MAX, wanted))


@given(st.from_regex(r"[0-9١_ .]{0,18}(m|Ki|Mi|k|K|i|mm|e3|)", fullmatch=True))
def test_what_machines_write_is_read_fast_and_no_differently(text: str) -> None:
    # A sign is never written by machines, so with one the same text takes the long way.
    for parse in (quantity.milli, quantity.whole):
        try:
            wanted = parse(f"+{text}")
        except QuantityError:
            with pytest.raises(QuantityError):
                parse(text)
        else:
            assert parse(text) == wanted


_WRITTEN = st.integers(0, 10**13).flatmap(
    lambda each: st.sampled_from([f"{each}", f"{each}Ki", f"0{each}", f"{each},1"])
)


@given(
    st.lists(st.integers(0, 10**16).map(str))
    | st.lists(st.integers(0, 10**13).map("{}Ki".format))
    | st.lists(_WRITTEN | st.integers(0, 9) | st.sampled_from(["-1", "1.5Gi", "", "Ki", "1Ki,2Ki", 0.5]))
)
def test_many_quantities_at_once_are_what_each_is(written: list[str | int | float]) -> None:
    try:
        wanted = [quantity.whole(each) for each in written]
    except QuantityError:
        with pytest.raises(QuantityError):
            quantity.wholes(written)
    else:
        assert quantity.wholes(written) == wanted


@given(st.integers(-(2**53), 2**53))
def test_milli_cores_survive_the_round_trip(value: int) -> None:
    assert quantity.milli(quantity.format_milli(value)) == value


@given(st.integers(-(2**62), 2**62))
def test_bytes_survive_the_round_trip(value: int) -> None:
    assert quantity.whole(quantity.format_bytes(value)) == value


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (2**30, "1Gi"), (1536 * 2**20, "1536Mi"), (1000, "1000")])
def test_bytes_print_in_canonical_binary_form(value: int, text: str) -> None:
    assert quantity.format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (50_000, "50k"), (1_200, "1200"), (3 * 10**9, "3G"), (-2_000, "-2k")]
)
def test_whole_units_print_in_canonical_decimal_form(value: int, text: str) -> None:
    assert quantity.format_decimal(value) == text
    assert quantity.whole(text) == value


def test_percentages_truncate_as_gos_conversion_does() -> None:
    assert Resources(100_000, 29).percent(cpu=10, memory=50) == Resources(10_000, 14)
    assert Resources(100, 100).percent(cpu=29, memory=57) == Resources(28, 56)
