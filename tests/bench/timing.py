"""What work takes of this process, and what a command takes of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HEADROOM = (sys.executable, "-m", "deploy.cli")


def cpu_seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """CPU seconds of one round, the best of several: what else the machine does only ever adds."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@dataclass(frozen=True, order=True)
class ProcessCost:
    """Of one process, its start included."""

    cpu_seconds: float
    most_mib: int


def process_cost(*command: str, output: Path = Path(os.devnull)) -> ProcessCost:
    """The better of two: what else the machine does only ever adds. The command's `output` goes to this file."""
    found = []
    for _ in range(2):
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        found.append(ProcessCost(used.ru_utime + used.ru_stime, used.ru_maxrss >> 10))
    return min(found)
