"""A decision with its reasons: the terms, their values, and which of them limits the result.

One object serves the log line, the Event, the API's answer, the command line and the page: an `Explanation` for
amounts of cpu and memory, a `ScaleExplanation` for what is done to a node group or a node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field, make_dataclass
from typing import Any

import msgspec

from shared import durations, quantity


class Shown(msgspec.Struct, frozen=True):
    """A part of a decision that answers of the API contain."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: Any) -> Any:
        """The schema of the OpenAPI document, which knows dataclasses; msgspec encodes the answers."""
        fields = [(each.name, each.type, field(default=None)) for each in msgspec.structs.fields(cls)]
        return handler.generate_schema(make_dataclass(cls.__name__, fields))


class Term(Shown, frozen=True, omit_defaults=True, gc=False):
    """One quantity that went into a decision.

    `unit` is "milli", "bytes" or "percent", and "basisPoints" (hundredths of a percent) where whole percents do not
    say it; of a scale decision also "nodes", "pods", "groups", "seconds", "thousandths" (of a rank), or
    "millionthsPerHour" (of the prices' currency). `source` says where the
    value was read; `time` is the RFC 3339 instant it was true, where the source has one.
    """

    name: str
    value: int
    unit: str
    source: str
    time: str | None = None


class ResourceExplanation(Shown, frozen=True):
    """The derivation of one resource's result; `bound` names the term (or rule) that decides it."""

    terms: tuple[Term, ...]
    bound: str
    result: int


class Explanation(msgspec.Struct, frozen=True):
    """Both resources, and the reason in one line."""

    cpu: ResourceExplanation
    memory: ResourceExplanation
    reason: str = ""


class ScaleExplanation(msgspec.Struct, frozen=True, gc=False):
    """Why a node group changes by `result` nodes, or why a node goes (-1) or stays (0): in one line, and in terms.

    `bound` names the term or rule that decides; it is empty where nothing keeps a node.
    """

    reason: str = ""
    terms: tuple[Term, ...] = ()
    bound: str = ""
    result: int = 0

    def joined(self, other: "ScaleExplanation") -> "ScaleExplanation":
        """That of two changes of one group; the later bound holds."""
        return ScaleExplanation(
            f"{self.reason}, {other.reason}", self.terms + other.terms, other.bound, self.result + other.result
        )

    def __str__(self) -> str:
        return self.reason


def amount(value: int, unit: str) -> str:
    """A term's value in readable form: "1500m", "2.0 GiB", "60 %", "3 nodes"."""
    if unit == "milli":
        return quantity.format_milli(value)
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.0f} MiB"
    if unit in ("nodes", "pods", "groups"):
        return f"{value} {unit if abs(value) != 1 else unit[:-1]}"
    if unit == "seconds":
        return durations.render(value)
    if unit == "thousandths":
        return f"{value / 1000:g}"
    if unit == "millionthsPerHour":
        return f"{value / 1_000_000:g}/h"
    return f"{value / 100:g} %" if unit == "basisPoints" else f"{value} %"


def first_names(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def sentence(terms: Iterable[Term]) -> str:
    """The terms on one line: "reclaimable 1500m, cap 2000m"."""
    return ", ".join(f"{term.name} {amount(term.value, term.unit)}" for term in terms)
