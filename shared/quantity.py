"""Kubernetes quantities as exact integers: cpu in milli-cores, memory in bytes.

Parsing follows Go's `resource.Quantity`: suffixes n u m k M G T P E and Ki Mi Gi Ti Pi Ei, decimal exponents, and
rounding up (away from zero) to the unit asked for. Arithmetic never touches a float.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self, TypeAlias, cast

import msgspec

from shared.errors import shown

# Amounts by resource: cpu in thousandths of a core, everything else in whole units.
Amounts: TypeAlias = Mapping[str, int]

MILLI_PER_CORE = 1000
INT64_MAX = 2**63 - 1

_PATTERN = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_DECIMAL_EXPONENT = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_DECIMAL_SUFFIXES = ("E", "P", "T", "G", "M", "k")
_BINARY_SUFFIXES = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_PLAIN_LENGTH = 15  # texts written by machines are read without the pattern, unless they may exceed int64
_MAX_LENGTH = 64  # int64 has 19 digits; no meaningful quantity is longer than this
_ALL_BYTES = re.compile(r"(?:(?:[1-9]\d{0,14}|0),)+", re.ASCII)
_ALL_KIB = re.compile(r"(?:(?:[1-9]\d{0,11}Ki|0),)+", re.ASCII)
_INTEGERS = msgspec.json.Decoder(list[int])
_BINARY_EXPONENT = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


@lru_cache(maxsize=8192)  # pods use few cpus, so the same numbers recur
def milli(quantity: str | float) -> int:
    """The quantity in thousandths, rounded up: "1.5" -> 1500, "100m" -> 100, "1n" -> 1.

    Raises QuantityError. Values beyond int64 saturate, as they do in Go.
    """
    if not isinstance(quantity, str):
        return _scaled(repr(quantity), 3)
    if len(quantity) <= _PLAIN_LENGTH and quantity.isascii():
        if quantity[-1:] == "m":
            if (digits := quantity[:-1]).isdecimal():
                return int(digits)
        elif quantity.isdecimal():
            return int(quantity) * MILLI_PER_CORE
    return _scaled(quantity, 3)


def whole(quantity: str | float) -> int:
    """The quantity in whole units, rounded up: "1Ki" -> 1024, "1500m" -> 2. Raises QuantityError."""
    if not isinstance(quantity, str):
        return _scaled(repr(quantity), 0)
    if len(quantity) <= _PLAIN_LENGTH and quantity.isascii():
        if quantity[-2:] == "Ki":
            if (digits := quantity[:-2]).isdecimal():
                return int(digits) << 10
        elif quantity.isdecimal():
            return int(quantity)
    return _scaled(quantity, 0)


def wholes(quantities: Sequence[str | int | float]) -> list[int]:
    """`whole` of each quantity. Raises QuantityError.

    Usages of memory come in long lists of one form, all in bytes or all in Ki, which are parsed in one pass.
    """
    try:
        text = ",".join(cast("Sequence[str]", quantities)) + ","
    except TypeError:  # the list contains numbers
        return list(map(whole, quantities))
    shift = 10 if _ALL_KIB.fullmatch(text) else 0
    if not shift and not _ALL_BYTES.fullmatch(text):
        return list(map(whole, quantities))
    found = _INTEGERS.decode(f"[{text[:-1].replace('Ki', '')}]")
    if len(found) != len(quantities):  # a quantity contains a comma
        return list(map(whole, quantities))
    return [each << shift for each in found] if shift else found


@lru_cache(maxsize=4096)
def _scaled(text: str, decimal_places: int) -> int:
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(f"{shown(text)} is not a quantity (expected for example '2', '500m', '1.5Gi', '1e3')")
    fraction = match["fraction"] or ""
    digits = int(match["whole"] + fraction)
    suffix = match["suffix"] or ""
    exponent = int(match["exponent"] or _DECIMAL_EXPONENT.get(suffix, 0)) - len(fraction) + decimal_places
    digits <<= _BINARY_EXPONENT.get(suffix, 0)
    magnitude = digits * _power(exponent) if exponent >= 0 else -(-digits // _power(-exponent))
    return max(-INT64_MAX, min(INT64_MAX, -magnitude if match["sign"] == "-" else magnitude))


def _power(exponent: int) -> int:
    """10**exponent of a non-negative exponent, which stays an int."""
    return int(10**exponent)


def format_milli(value: int) -> str:
    """Milli-cores as Kubernetes prints them: 2500 -> "2500m", 3000 -> "3"."""
    cores, rest = divmod(value, MILLI_PER_CORE)
    return str(cores) if rest == 0 else f"{value}m"


def format_amounts(amounts: Amounts) -> dict[str, str | int | float]:
    """A resource list as Kubernetes prints it."""
    return {name: format_milli(amount) if name == "cpu" else str(amount) for name, amount in amounts.items()}


def format_decimal(value: int) -> str:
    """Whole units in Kubernetes' canonical decimal form: 50000 -> "50k", 1200 -> "1200"."""
    if value and value % 1000 == 0:
        for suffix in _DECIMAL_SUFFIXES:
            if value % 10 ** _DECIMAL_EXPONENT[suffix] == 0:
                return f"{value // 10 ** _DECIMAL_EXPONENT[suffix]}{suffix}"
    return str(value)


def format_bytes(value: int) -> str:
    """Bytes in Kubernetes' canonical binary form: the largest suffix that keeps the number whole."""
    if value and value % 1024 == 0:
        for suffix in _BINARY_SUFFIXES:
            if value % (1 << _BINARY_EXPONENT[suffix]) == 0:
                return f"{value >> _BINARY_EXPONENT[suffix]}{suffix}"
    return str(value)


class Resources(NamedTuple):
    """An amount of cpu and memory, the two resources this product computes with."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    @classmethod
    def parse(cls, quantities: Mapping[str, str | int | float]) -> Self:
        """The amounts of a Kubernetes resource list; a missing key is 0. Raises QuantityError."""
        return cls(milli(quantities.get("cpu", "0")), whole(quantities.get("memory", "0")))

    @classmethod
    def parse_amount(cls, quantities: Mapping[str, str | int | float]) -> Self:
        """Parses like `parse`, but refuses negative amounts and amounts beyond int64. Raises QuantityError."""
        amount = cls.parse(quantities)
        if min(amount) < 0:
            raise QuantityError("must not be negative")
        if max(amount) >= INT64_MAX:
            raise QuantityError("must be less than 2^63")
        return amount

    def quantities(self) -> dict[str, str]:
        """The amounts as a Kubernetes resource list."""
        return {
            "cpu": format_milli(self.cpu_milli),
            "memory": format_bytes(self.memory_bytes),
        }

    def plus(self, other: "Resources") -> "Resources":
        return Resources(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def minus(self, other: "Resources") -> "Resources":
        """The difference, which may be negative; see `floored`."""
        return Resources(self.cpu_milli - other.cpu_milli, self.memory_bytes - other.memory_bytes)

    def least(self, other: "Resources") -> "Resources":
        return Resources(
            min(self.cpu_milli, other.cpu_milli),
            min(self.memory_bytes, other.memory_bytes),
        )

    def most(self, other: "Resources") -> "Resources":
        return Resources(
            max(self.cpu_milli, other.cpu_milli),
            max(self.memory_bytes, other.memory_bytes),
        )

    def floored(self) -> "Resources":
        """Replaces negative amounts by 0."""
        return self if self.cpu_milli >= 0 and self.memory_bytes >= 0 else self.most(Resources())

    def percent(self, *, cpu: int, memory: int) -> "Resources":
        """Each amount times its percentage, truncated as Go's int64(float64) does."""
        return Resources(int(self.cpu_milli * (cpu / 100)), int(self.memory_bytes * (memory / 100)))


def total(amounts: "list[Resources]") -> Resources:
    """The sum of all amounts."""
    return Resources(sum(a.cpu_milli for a in amounts), sum(a.memory_bytes for a in amounts))
