"""What a cluster is called: by the process that keeps it, so that what a dead one left is known as such."""

import os
import re
from pathlib import Path

from tests.node import cgroups

_ENDED = ("Z", "X")  # nobody has asked yet how it ended
_NAME = re.compile(rf"{cgroups.PREFIX}(\d+)-(\d+)(?:\.node-\d+)?")


def own() -> str:
    """This process's."""
    return f"{cgroups.PREFIX}{os.getpid()}-{_started(os.getpid())}"


def of_node(name: str, number: int) -> str:
    """What the cgroups of a cluster's node are called: the first one's as the cluster."""
    return name if number == 1 else f"{name}.node-{number}"


def is_dead(name: str) -> bool:
    """Whether it is the name of a cluster, and the process that kept it has ended."""
    found = _NAME.fullmatch(name)
    return found is not None and _started(int(found[1])) != found[2]


def _started(pid: int) -> str:
    """In clock ticks since boot (proc(5), field 22 of stat); empty when there is no such process, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in _ENDED else fields[19]
