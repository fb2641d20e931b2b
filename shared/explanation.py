"""A decision with its reasons: the terms, their values, and which of them limits the result.

One object serves the log line, the Event, the API's answer, the command line and the page. It derives an amount of cpu
and memory; the autoscaler's decisions, about nodes and groups, are explained by the rows of
`manager.autoscaler.reporting`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from shared import quantity


class Term(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One quantity that went into a decision.

    `unit` is "milli", "bytes" or "percent", and "basisPoints" (hundredths of a percent) where whole percents do not
    say it; `source` says where the value was read; `time` is the RFC 3339 instant it was true, where the source has
    one.
    """

    name: str
    value: int
    unit: str
    source: str
    time: str | None = None


class ResourceExplanation(msgspec.Struct, frozen=True):
    """The derivation of one resource's result; `bound` names the term (or rule) that decides it."""

    terms: tuple[Term, ...]
    bound: str
    result: int


class Explanation(msgspec.Struct, frozen=True):
    """Both resources, and the reason in one line."""

    cpu: ResourceExplanation
    memory: ResourceExplanation
    reason: str = ""


def amount(value: int, unit: str) -> str:
    """A term's value in readable form: "1500m", "2.0 GiB", "60 %"."""
    if unit == "milli":
        return quantity.format_milli(value)
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.0f} MiB"
    return f"{value / 100:g} %" if unit == "basisPoints" else f"{value} %"


def first_names(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def sentence(terms: Iterable[Term]) -> str:
    """The terms on one line: "reclaimable 1500m, cap 2000m"."""
    return ", ".join(f"{term.name} {amount(term.value, term.unit)}" for term in terms)
