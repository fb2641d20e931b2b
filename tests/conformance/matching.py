"""When an adapter's answer agrees with a row's `expected`.

Some rows carry questions inside `expected` (the bucket of which value, equal to which other samples). An adapter, which
sees the input alone, answers those with a function: an `Asked` is called with each question, a `Holds` with the claim.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

RELATIVE_TOLERANCE = 1e-9
MEMORY_TOLERANCE_BYTES = 1  # pow() differs between C libraries in its last bit, which decides one byte
_LARGE = 1 << 20
_ROUNDED_DECIMALS = range(6, 10)  # fewer may be exact, and a number that was never rounded has more
_MISSING = "(missing)"


class Unanswered(Exception):
    """The row belongs to another table whose group has the same name, and nothing here answers it."""


class KnownDifference(Exception):
    """The product differs from what the row records, on purpose; the reason is the message."""


@dataclass(frozen=True)
class Asked:
    """A function of one number, compared with what the row says of it.

    The row writes {"number": answer}, or [[number, answer]], or [{question: number, answer: answer}].
    """

    function: Callable[[float], object]
    question: str = ""
    answer: str = ""


@dataclass(frozen=True)
class Holds:
    """Whether what the row claims is true."""

    claim: Callable[[object], bool]


def differences(expected: object, got: object, path: str = "", tolerance: float = 0.0) -> Iterator[str]:
    """Each place where `got` lacks or contradicts `expected`; keys that only `got` has are its own affair."""
    if isinstance(got, Holds):
        if not got.claim(expected):
            yield f"{path or '.'}: {expected!r} does not hold"
    elif isinstance(got, Asked):
        for question, answer in _questions(expected, got):
            yield from differences(answer, got.function(question), f"{path}({question:g})", tolerance)
    elif isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            yield f"{path or '.'}: expected {expected!r}, got {got!r}"
            return
        for key, value in expected.items():
            yield from differences(value, got.get(key, _MISSING), f"{path}.{key}", tolerance)
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(got, Sequence) or isinstance(got, str):
            yield f"{path or '.'}: expected {expected!r}, got {got!r}"
            return
        for index, (want, have) in enumerate(zip_longest(expected, got, fillvalue=_MISSING)):
            yield from differences(want, have, f"{path}[{index}]", tolerance)
    elif not _agree(expected, got, path, tolerance):
        yield f"{path or '.'}: expected {expected!r}, got {got!r}"


def _questions(expected: object, asked: Asked) -> Iterator[tuple[float, object]]:
    if isinstance(expected, Mapping):
        for key, answer in expected.items():
            yield float(key), answer
    elif isinstance(expected, Sequence):
        for row in expected:
            question, answer = (row[asked.question], row[asked.answer]) if isinstance(row, Mapping) else row
            yield float(question), answer


def _agree(expected: object, got: object, path: str, tolerance: float) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int) and isinstance(got, int):
        slack = MEMORY_TOLERANCE_BYTES if "memory" in path.lower() and abs(expected) >= _LARGE else 0
        return abs(expected - got) <= max(slack, tolerance)
    if isinstance(expected, int | float) and isinstance(got, int | float):
        coarse = max(tolerance, _rounding(expected))
        return math.isclose(expected, got, rel_tol=RELATIVE_TOLERANCE, abs_tol=coarse)
    return expected == got


def _rounding(expected: float) -> float:
    """Half a unit of the last place, for a number that was plainly written down rounded: 0.061388889."""
    _, _, decimals = repr(expected).partition(".")
    return 0.5 * 10 ** -len(decimals) if decimals.isdigit() and len(decimals) in _ROUNDED_DECIMALS else 0.0
