"""The enforcer's status, in a file that the agent shows."""

from pathlib import Path

import msgspec

FILE = "status.json"
MOST_BYTES = 1 << 16
MOST_TEXT = 512


class EnforcerStatus(msgspec.Struct, kw_only=True):
    """Counts are since the start. `at` is the time of CLOCK_MONOTONIC of the last round.

    `best_effort_usec` is the quota of best-effort pods together, negative for none; `layout` is how the kubelet names
    cgroups, empty until found; `problem` is the last failure.
    """

    at: float
    layout: str = ""
    pods: int = 0
    written: int = 0
    gone: int = 0
    failed: int = 0
    refused_orders: int = 0
    best_effort_usec: int = -1
    problem: str = ""


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
