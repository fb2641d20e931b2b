"""Protocol buffers as bytes on the wire: fields by number, with raw values. The readers interpret the messages."""

import struct
from collections.abc import Iterator

Raw = int | bytes  # a varint, or a value with a length or a fixed size

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UINT64 = (1 << 64) - 1
_MAX_SHIFT = 63


class Malformed(ValueError):
    """The bytes do not have the wire format, or the expected type."""


def fields(data: bytes) -> Iterator[tuple[int, Raw]]:
    """Field numbers with their raw values, in order. Raises Malformed."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, at = _read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Malformed(f"wire type {wire}")
        if at + size > len(data):
            raise Malformed("it ends too early")
        yield tag >> 3, data[at : at + size]
        at += size


def as_bytes(raw: Raw) -> bytes:
    """Raises Malformed."""
    if isinstance(raw, int):
        raise Malformed("a number where bytes belong")
    return raw


def as_text(raw: Raw) -> str:
    """Raises Malformed."""
    try:
        return as_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise Malformed(str(error)) from error


def as_int(raw: Raw) -> int:
    """A signed number (int32, int64). Raises Malformed."""
    if isinstance(raw, bytes):
        raise Malformed("bytes where a number belongs")
    return raw if raw < 1 << 63 else raw - (1 << 64)


def as_double(raw: Raw) -> float:
    """Raises Malformed."""
    data = as_bytes(raw)
    if len(data) != 8:
        raise Malformed("not a double")
    return float(struct.unpack("<d", data)[0])


def encoded(number: int, value: bool | int | float | str | bytes) -> bytes:
    """One field; a float as a double, text and messages as bytes."""
    match value:
        case bool() | int():
            return _varint(number << 3 | _VARINT) + _varint(int(value) & _UINT64)
        case float():
            return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)
        case str():
            return encoded(number, value.encode())
        case bytes():
            return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("it ends too early")
        if shift > _MAX_SHIFT:
            raise Malformed("a number of more than 64 bits")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & _UINT64, at
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
