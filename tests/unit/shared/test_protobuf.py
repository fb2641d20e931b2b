"""The wire format, as another library writes and reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import protobuf
from shared.protobuf import Malformed, as_bytes, as_double, as_int, as_text, encoded, fields
from tests.support.grpc_messages import CLASSES


@given(st.text(), st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False))
def test_what_the_library_writes_is_read(text: str, number: int, real: float) -> None:
    group = dict(fields(CLASSES["NodeGroup"](id=text, minSize=number).SerializeToString()))
    assert as_text(group.get(1, b"")) == text
    assert as_int(group.get(2, 0)) == number
    price = dict(fields(CLASSES["Price"](price=real).SerializeToString()))
    assert (as_double(price[1]) if price else 0.0) == real


@given(st.text(), st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False))
def test_what_is_written_the_library_reads(text: str, number: int, real: float) -> None:
    group = CLASSES["NodeGroup"].FromString(encoded(1, text) + encoded(2, number))
    assert (group.id, group.minSize) == (text, number)
    assert CLASSES["Price"].FromString(encoded(1, real)).price == real
    assert CLASSES["NodeInfo"].FromString(encoded(2, text.encode())).nodeBytes == text.encode()
    assert CLASSES["Options"].FromString(encoded(6, True)).zeroOrMaxNodeScaling is True


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = list(fields(data))
    except Malformed:
        return
    assert all(isinstance(raw, int | bytes) for _, raw in found)


@pytest.mark.parametrize("text", ["08", "0a05ab", "0b", "0d0000", "08ffffffffffffffffffff01", "ff"])
def test_what_is_cut_off_or_unknown_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        list(fields(bytes.fromhex(text)))


def test_a_value_of_another_type_is_refused() -> None:
    for read, raw in ((as_bytes, 1), (as_text, b"\xff"), (as_int, b""), (as_double, b"1234")):
        with pytest.raises(Malformed):
            read(raw)
    assert issubclass(protobuf.Malformed, ValueError)
