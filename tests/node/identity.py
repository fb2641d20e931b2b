"""What a cluster is called: by the process that keeps it, so that what a dead one left is known as such."""

import os
from pathlib import Path

from tests.node import cgroups


def own() -> str:
    """This process's."""
    return f"{cgroups.PREFIX}{os.getpid()}-{_started(os.getpid())}"


def is_alive(name: str) -> bool:
    """Whether the process that keeps it runs."""
    pid, _, started = name.removeprefix(cgroups.PREFIX).partition("-")
    return pid.isdigit() and _started(int(pid)) == started


def _started(pid: int) -> str:
    """In clock ticks since boot (proc(5), field 22 of stat); empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
