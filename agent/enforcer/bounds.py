"""The outcome of each bound of each pod, in a file that the agent shows; the log has the same objects.

The reader does not trust a file from a process that may write cgroups, so it checks size and shape.
"""

import enum
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

FILE = "bounds.json"
MOST_BYTES = 2 << 20
MOST_BOUNDS = 256  # of a pod; those of its own cgroup come first
MOST_TEXT = 256


class BoundOutcome(enum.StrEnum):
    """The outcome of writing a bound."""

    WRITTEN = "written"
    STANDS = "stands"  # the first look found the value there already
    GONE = "gone"  # the cgroup does not exist, or no longer
    REFUSED = "refused"  # by the kernel, or by our own table of permitted values


class CgroupBound(msgspec.Struct, frozen=True, kw_only=True):
    """One file of one cgroup. It follows from `term` and `amount`, in `unit`: "milli", "bytes" or "".

    `cgroup` is below the kubelet's tree. `value` is the wanted content of the file, and `before` the content it
    replaced; `at`, of CLOCK_MONOTONIC, is the time of this outcome. `problem` is the reason of a refusal.
    """

    cgroup: str
    file: str
    term: str
    amount: int | None
    unit: str
    value: str
    outcome: BoundOutcome
    at: float
    before: str = ""
    problem: str = ""


class ReportedBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one pod; `omitted` counts those that did not fit."""

    key: str
    tier: str
    bounds: tuple[CgroupBound, ...] = ()
    omitted: int = 0


class BoundsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds by uid; `omitted` counts the pods that did not fit."""

    pods: dict[str, ReportedBounds] = {}
    omitted: int = 0


_DECODER = msgspec.json.Decoder(BoundsReport)


def followed(before: Iterable[CgroupBound], now: Iterable[CgroupBound]) -> Iterator[CgroupBound]:
    """The bounds of `now`; an unchanged one keeps its time and its `before`, or the time since which it is refused."""
    known = {(each.cgroup, each.file): each for each in before}
    for each in now:
        old = known.get((each.cgroup, each.file))
        yield old if old is not None and _is_the_same(old, each) else each


def _is_the_same(old: CgroupBound, new: CgroupBound) -> bool:
    if (old.term, old.amount) != (new.term, new.amount):
        return False
    if new.outcome is BoundOutcome.STANDS:
        return old.outcome in (BoundOutcome.STANDS, BoundOutcome.WRITTEN) and old.value == new.value
    return new.outcome is not BoundOutcome.WRITTEN and (old.outcome, old.problem) == (new.outcome, new.problem)


def of_pod(key: str, tier: str, found: Iterable[CgroupBound]) -> ReportedBounds:
    """The pod's bounds, as many as fit."""
    bounds = tuple(found)
    return ReportedBounds(key=key, tier=tier, bounds=bounds[:MOST_BOUNDS], omitted=max(0, len(bounds) - MOST_BOUNDS))


def encoded(pods: dict[str, ReportedBounds], most_bytes: int = MOST_BYTES) -> bytes:
    """The encoded pods, as many as fit, the first ones first."""
    kept = dict(pods)
    while True:
        body = msgspec.json.encode(BoundsReport(pods=kept, omitted=len(pods) - len(kept)))
        if len(body) <= most_bytes:
            return body
        kept = dict(list(kept.items())[: len(kept) // 2])


def write(directory: Path, body: bytes) -> None:
    """Replaces the previous report. Raises OSError."""
    temporary = directory / f".{FILE}"
    temporary.write_bytes(body)
    temporary.replace(directory / FILE)


def read(directory: Path) -> BoundsReport | None:
    """The last report; None without one, or for an invalid one."""
    try:
        with (directory / FILE).open("rb") as file:
            return _DECODER.decode(file.read(MOST_BYTES + 1))
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
