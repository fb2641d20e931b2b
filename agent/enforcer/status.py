"""The enforcer's status, in a file that the agent shows."""

from pathlib import Path
from typing import NamedTuple

import msgspec

FILE = "status.json"
MOST_BYTES = 1 << 16
MOST_TEXT = 512
STALE_SECONDS = 60.0  # it is told every ten seconds


class EnforcerStatus(msgspec.Struct, kw_only=True):
    """Counts are since the start. `at` is the time of CLOCK_MONOTONIC of the last round.

    `best_effort_usec` is the quota of best-effort pods together, negative for none; `restored` counts how often
    it was written again after another process had replaced it. `layout` is how the kubelet names cgroups and where they
    are, empty until found; `problem` is the last failure.
    """

    at: float
    layout: str = ""
    pods: int = 0
    written: int = 0
    restored: int = 0
    gone: int = 0
    failed: int = 0
    refused_orders: int = 0
    best_effort_usec: int = -1
    problem: str = ""


class EnforcerState(NamedTuple):
    """Whether pods are bounded, the reason in one word, and a sentence."""

    ready: bool
    reason: str
    message: str


def state(status: EnforcerStatus | None, now: float) -> EnforcerState:
    """By the last status, at a time of CLOCK_MONOTONIC."""
    if status is None or now - status.at > STALE_SECONDS:
        return EnforcerState(False, "Silent", "pods are not bounded: the enforcer does not report")
    if not status.layout:
        return EnforcerState(False, "NoKubepods", "pods are not bounded: the enforcer finds no cgroup of a kubelet")
    return EnforcerState(True, "Bounding", f"pods are bounded through {status.layout}")


_DECODER = msgspec.json.Decoder(EnforcerStatus)


def write(directory: Path, status: EnforcerStatus) -> None:
    """Replaces the previous status. Raises OSError."""
    temporary = directory / f".{FILE}"
    temporary.write_bytes(msgspec.json.encode(status))
    temporary.replace(directory / FILE)


def read(directory: Path) -> EnforcerStatus | None:
    """The last status; None without one, or for an invalid one."""
    try:
        with (directory / FILE).open("rb") as file:
            return _DECODER.decode(file.read(MOST_BYTES))
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None
