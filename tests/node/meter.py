"""Keeps /proc/stat of the cluster's machine: the CPU time of its own processes, as a virtual machine would count it.

Without it, everything else that runs on the real machine would be the node's system usage. `python -m tests.node.meter`
"""

import os
import time
from pathlib import Path

from tests.node.mounts import SCRATCH

FILE = SCRATCH / "proc-stat"
TICKS = os.sysconf("SC_CLK_TCK")
INTERVAL_SECONDS = 0.05
_WIDTH = 14  # numbers never get longer, so that each version of the file replaces the last one whole, in one write


def begin(real: Path, cpuacct: Path) -> None:
    """Makes the file; `real`, the kernel's own, gives what is not about CPU time."""
    others = [line for line in real.read_text().splitlines() if not line.startswith("cpu")]
    FILE.write_text(_head(cpuacct) + "\n".join([*others, ""]))


def _head(cpuacct: Path) -> str:
    """The lines of all CPUs and of each, with the usage in nanoseconds of the cluster's cgroup."""
    each = [int(value) for value in (cpuacct / "cpuacct.usage_percpu").read_text().split()]
    each = each[: os.cpu_count()]
    elapsed = time.monotonic()
    lines = [_line("cpu", sum(each), elapsed * len(each))]
    lines += [_line(f"cpu{number}", usage, elapsed) for number, usage in enumerate(each)]
    return "".join(lines)


def _line(name: str, usage_ns: int, capacity_seconds: float) -> str:
    busy = usage_ns * TICKS // 10**9
    idle = max(0, int(capacity_seconds * TICKS) - busy)
    fields = [busy, 0, 0, idle, *([0] * 6)]
    return name + "".join(f" {value:{_WIDTH}}" for value in fields) + "\n"


def main() -> None:
    cpuacct = Path("/sys/fs/cgroup/cpuacct")
    descriptor = os.open(FILE, os.O_WRONLY)
    while True:
        os.pwrite(descriptor, _head(cpuacct).encode(), 0)
        time.sleep(INTERVAL_SECONDS)


if __name__ == "__main__":
    main()
