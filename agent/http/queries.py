"""The meaning of a query's parameters. Pure; InvalidInput names an invalid one."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from agent.metric_cache.cache import WEEK_SECONDS, StorageTier
from agent.metric_cache.series import Kind
from shared import durations
from shared.errors import InvalidInput

SOURCE = "query"
LATEST = 253402300799.0  # the last second that RFC 3339 can express
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
DEFAULT_RANGE_SECONDS = {StorageTier.SECONDS: 300, StorageTier.MEANS: 86400, StorageTier.MAXIMA: 86400}


def refused(field: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=SOURCE, field=field, value=value, problem=problem)


def instant(field: str, text: str) -> float:
    """Unix seconds of an RFC 3339 instant or of a number of Unix seconds."""
    seconds = float(text) if _NUMBER.fullmatch(text) else _rfc3339(field, text)
    if not 0 <= seconds <= LATEST:
        raise refused(field, text, "must lie between 1970 and 9999")
    return seconds


def _rfc3339(field: str, text: str) -> float:
    # A "+" that is not encoded as %2B arrives as a space.
    zoned = text[:-6] + "+" + text[-5:] if text[-6:-5] == " " else text
    try:
        return durations.instant(zoned)
    except (ValueError, OverflowError) as error:
        problem = f"expected RFC 3339, for example 2026-01-31T12:00:00Z, or Unix seconds ({error})"
        raise refused(field, text, problem) from error


class Span(NamedTuple):
    """In Unix seconds, both included."""

    start: int
    end: int


def span(start: str | None, end: str | None, now: float, tier: StorageTier) -> Span:
    """From `start` to `end`; the default `end` is now, and the default `start` a while before the end."""
    last = now if end is None else instant("end", end)
    first = last - DEFAULT_RANGE_SECONDS[tier] if start is None else instant("start", start)
    if first > last:
        raise refused("start", start, "lies after the end")
    return Span(math.floor(first), math.floor(last))


def window(text: str) -> int:
    """Seconds of a Go duration, or of a plain number."""
    seconds = float(text) if _NUMBER.fullmatch(text) else _duration(text)
    if not 1 <= seconds <= WEEK_SECONDS:
        raise refused("window", text, f"must be from 1s to {durations.render(WEEK_SECONDS)}")
    return math.floor(seconds)


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise refused("window", text, str(error)) from error


# The labels that can select series, beside their entity.
LABELS: Mapping[Kind, frozenset[str]] = {
    Kind.POD: frozenset({"namespace", "pod", "priority", "workload"}),
    Kind.CONTAINER: frozenset({"namespace", "pod", "priority", "workload", "container"}),
    Kind.WORKLOAD: frozenset({"namespace", "workload"}),
    Kind.CLASS: frozenset({"priority"}),
}


LABEL_NAMES = tuple(sorted(frozenset().union(*LABELS.values())))


def labels(kind: Kind, given: Mapping[str, str]) -> Mapping[str, str]:
    """`given`; the kind must have each of its labels."""
    known = LABELS.get(kind, frozenset())
    for name, value in given.items():
        if name not in known:
            said = f"has {', '.join(sorted(known))}" if known else "has no labels"
            raise refused(name, value, f"kind {kind} {said}")
    return given
