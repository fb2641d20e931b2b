"""The canonical text of a quantity, as the API returns it for built-in kinds: "0.5" becomes "500m", "2048Mi" "2Gi"."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import lru_cache

PATTERN = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}


@lru_cache(maxsize=8192)
def canonical(text: str | int | float) -> str:
    """The canonical form in the quantity's own notation. Raises ValueError for an invalid quantity."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError("quantities must match the regular expression '" + PATTERN + "'")
    suffix = match[3] or ""
    number, binary, exponent_form = Decimal(match[1] + match[2]), suffix in _BINARY[1:], suffix[:1] in ("e", "E")
    if binary:
        value = number * 1024 ** _BINARY.index(suffix)
    else:
        power = int(suffix[1:]) if exponent_form and len(suffix) > 1 else _DECIMAL[suffix]
        value = number.scaleb(power)
    nano = math.ceil(abs(value).scaleb(9)) * (-1 if value < 0 else 1)
    if binary and abs(value) >= 1024 and nano % 10**9 == 0:
        return _binary_text(nano // 10**9)
    return _decimal_text(nano, exponent_form and len(suffix) > 1)


def _binary_text(value: int) -> str:
    step = 0
    while value and value % 1024 == 0 and step < len(_BINARY) - 1:
        value, step = value // 1024, step + 1
    return f"{value}{_BINARY[step]}"


def _decimal_text(nano: int, exponent_form: bool) -> str:
    exponent = -9
    while nano and nano % 1000 == 0 and exponent < 18:
        nano, exponent = nano // 1000, exponent + 3
    if not nano:
        return "0"
    if exponent_form:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"
