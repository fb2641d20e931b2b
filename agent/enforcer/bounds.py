"""What became of each bound of each pod, in a file of its own that the agent shows; the log has the same objects.

A file of the process that may write cgroups is nothing to believe blindly, so the reader checks size and shape.
"""

import enum
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

FILE = "bounds.json"
MOST_BYTES = 2 << 20
MOST_BOUNDS = 256  # of a pod; those of its own cgroup stand first
MOST_TEXT = 256


class BoundOutcome(enum.StrEnum):
    """What came of a bound."""

    WRITTEN = "written"
    STANDS = "stands"  # it stood there when it was first looked at
    GONE = "gone"  # the cgroup is not there, or not any more
    REFUSED = "refused"  # by the kernel, or by our own table of what may be written


class CgroupBound(msgspec.Struct, frozen=True, kw_only=True):
    """One file of one cgroup. It follows from `term` and `amount`, in `unit`: "milli", "bytes" or "".

    `cgroup` is below the kubelet's tree. `value` is what is to stand in the file, and `before` what it was written
    over; `at`, of CLOCK_MONOTONIC, is when it came to this outcome. `problem` says why it was refused.
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
    """Of one pod; `omitted` are bounds for which there was no room here."""

    key: str
    tier: str
    bounds: tuple[CgroupBound, ...] = ()
    omitted: int = 0


class BoundsReport(msgspec.Struct, frozen=True, kw_only=True):
    """By uid; `omitted` are pods for which there was no room."""

    pods: dict[str, ReportedBounds] = {}
    omitted: int = 0


_DECODER = msgspec.json.Decoder(BoundsReport)


def followed(before: Iterable[CgroupBound], now: Iterable[CgroupBound]) -> Iterator[CgroupBound]:
    """Those of `now`; one that is as it was keeps when and over what it was written, or since when it is refused."""
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
    """As many as there is room for."""
    bounds = tuple(found)
    return ReportedBounds(key=key, tier=tier, bounds=bounds[:MOST_BOUNDS], omitted=max(0, len(bounds) - MOST_BOUNDS))


def encoded(pods: dict[str, ReportedBounds], most_bytes: int = MOST_BYTES) -> bytes:
    """As many pods as there is room for, those in front first."""
    kept = dict(pods)
    while True:
        body = msgspec.json.encode(BoundsReport(pods=kept, omitted=len(pods) - len(kept)))
        if len(body) <= most_bytes:
            return body
        kept = dict(list(kept.items())[: len(kept) // 2])


def write(directory: Path, body: bytes) -> None:
    """Replaces what was said before. Raises OSError."""
    temporary = directory / f".{FILE}"
    temporary.write_bytes(body)
    temporary.replace(directory / FILE)


def read(directory: Path) -> BoundsReport | None:
    """What was said last; None where nothing was, or nothing that means anything."""
    try:
        with (directory / FILE).open("rb") as file:
            return _DECODER.decode(file.read(MOST_BYTES + 1))
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
