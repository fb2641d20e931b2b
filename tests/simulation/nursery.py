"""Simulations in processes that are forked from one that has imported everything: an import costs as much CPU as ten
simulated minutes.

`python -m tests.simulation.nursery SECONDS` is that process: each line of its input has the flags of a simulation, and
is answered by a line of JSON. A simulation that hangs is killed SECONDS after its start.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a simulation ended, and what it printed. `status` is 0 for no broken rule, 1 for some, negative if killed."""

    status: int
    output: str


class Nursery:
    """One such process, which carries out one simulation at a time, of at most `patience_seconds`."""

    def __init__(self, patience_seconds: int) -> None:
        command = [sys.executable, "-m", __name__, str(patience_seconds)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def simulate(self, flags: Sequence[str]) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(flags)) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        with self._process:  # the end of its input ends it
            pass


def _carry_out(flags: Sequence[str], patience_seconds: int) -> Outcome:
    from tests.simulation import run

    with run.home() as home, tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            signal.alarm(patience_seconds)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            status = 2
            try:
                status = run.main(flags, Path(home))
            except Exception:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        output.seek(0)
        return Outcome(os.waitstatus_to_exitcode(ended), output.read().decode())


def main(patience_seconds: int) -> None:
    from tests.simulation import run

    run.prepare()
    for line in sys.stdin:
        outcome = _carry_out(json.loads(line), patience_seconds)
        print(json.dumps({"status": outcome.status, "output": outcome.output}), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # a search that was killed reads no answers
        main(int(sys.argv[1]))
    os._exit(0)  # as in `__main__`
