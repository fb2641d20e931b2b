"""The parameters of the API, and their meaning. Pure; InvalidInput names an invalid one."""

import enum
import math
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import WEEK_SECONDS, StorageTier
from agent.metric_cache.series import Kind, Metric
from shared import durations, errors
from shared.errors import HeadroomError, InvalidInput

SOURCE = "query"
LATEST = 253402300799.0  # the last second that RFC 3339 can express
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
DEFAULT_RANGE_SECONDS = {StorageTier.SECONDS: 300, StorageTier.MEANS: 86400, StorageTier.MAXIMA: 86400}

# Durations and plain seconds that lie between the bounds whatever their digits; others are read as well.
_WINDOW = "^([1-9][0-9]{0,4}|[1-5][0-9]{5}|[1-9][0-9]{0,4}s|[1-9][0-9]{0,3}m|[1-9][0-9]?h|1[0-5][0-9]h|16[0-8]h)$"

Query = TypeVar("Query", bound=msgspec.Struct)

Label: TypeAlias = Annotated[str | None, Meta(description="only series with this label, for kinds that have it")]
_Moment: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"anyOf": [{"format": "date-time"}, {"pattern": "^[0-9]{1,11}$"}]})
]
Instant: TypeAlias = Annotated[_Moment | None, Meta(description="RFC 3339 or Unix seconds, included")]


class RefusedQuery(HeadroomError):
    """Names all parameters that are missing or have no meaning."""


class NothingSelected(HeadroomError):
    """Each parameter has a meaning, and no series can match all of them."""


class NoQuery(msgspec.Struct, frozen=True):
    """Nothing can be chosen."""


class PodQuery(msgspec.Struct, frozen=True):
    """Selects a pod of this node."""

    uid: str


class HistogramsQuery(msgspec.Struct, frozen=True):
    """Selects a model."""

    key: str


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects series."""

    kind: Annotated[Kind, Meta(description="what the series is about")]
    metric: Annotated[Metric, Meta(description="what is measured; the answer says its unit")]
    entity: Annotated[
        str | None,
        Meta(description="one series: a pod's uid, uid/container, namespace/Kind/name of a workload, a priority class, "
             "a NUMA node's number; empty for node and system"),
    ] = None  # fmt: skip
    namespace: Label = None
    pod: Label = None
    container: Label = None
    workload: Label = None
    priority: Label = None


class SeriesQuery(Selection, frozen=True, kw_only=True):
    """Selects samples of series."""

    start: Instant = None
    end: Instant = None
    tier: Annotated[StorageTier, Meta(description="what to read: single seconds, or five minutes' mean or maximum")] = (
        StorageTier.SECONDS
    )


class AggregateQuery(Selection, frozen=True, kw_only=True):
    """Selects a number for each series."""

    window: Annotated[
        str,
        Meta(
            description="a duration that ends now, from 1s to 168h: 30s, 5m, or seconds",
            extra_json_schema={"pattern": _WINDOW, "maxLength": 6},
        ),
    ] = "5m"
    agg: Annotated[Aggregation, Meta(description="how many values become one")] = Aggregation.AVG


def read(kind: type[Query], path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> Query:
    """The query of a request, from the parameters in its path and those after it.

    Raises InvalidInput for an unknown or repeated parameter, RefusedQuery for what is missing or has no meaning.
    """
    types = typing.get_type_hints(kind)
    known = sorted(types.keys() - path.keys())
    given = dict(path)
    for name, value in query:
        if name not in known:
            raise refused(name, value, f"no such parameter; there are {', '.join(known) or 'none'}")
        if name in given:
            raise refused(name, value, "given twice")
        given[name] = value
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    problems = [f"{name}: must be given" for name in required if name not in given]
    for name, value in given.items():
        problem = _choice_problem(types[name], value)
        if problem:
            problems.append(f"{name}: {errors.shown(value)}: {problem}")
    if problems:
        raise RefusedQuery(f"{SOURCE}: {'; '.join(problems)}")
    return msgspec.convert(given, kind)


def _choice_problem(kind: object, value: str) -> str:
    """The problem, empty for a valid value of an enumeration; other types have no choices."""
    if not (isinstance(kind, type) and issubclass(kind, enum.StrEnum)):
        return ""
    choices = list(kind)
    if value in choices:
        return ""
    return f"Input should be {', '.join(map(repr, map(str, choices[:-1])))} or {str(choices[-1])!r}"


def refused(field: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=SOURCE, field=field, value=value, problem=problem)


def unmatched(field: str, value: object, problem: str) -> NothingSelected:
    return NothingSelected(str(refused(field, value, problem)))


def instant(field: str, text: str) -> float:
    """Unix seconds of an RFC 3339 instant or of a number of Unix seconds; what is earlier than 1970 is 1970."""
    if not _NUMBER.fullmatch(text):
        return min(max(0.0, _rfc3339(field, text)), LATEST)
    seconds = float(text)
    if seconds > LATEST:
        raise refused(field, text, "must not lie after 9999")
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
    """A period in Unix seconds, both ends included."""

    start: int
    end: int


def span(start: str | None, end: str | None, now: float, tier: StorageTier) -> Span:
    """The period from `start` to `end`; the default `end` is now, and the default `start` a while before the end."""
    last = now if end is None else instant("end", end)
    first = last - DEFAULT_RANGE_SECONDS[tier] if start is None else instant("start", start)
    if first > last:
        raise unmatched("start", start, "lies after the end")
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
            raise unmatched(name, value, f"kind {kind} {said}")
    return given
