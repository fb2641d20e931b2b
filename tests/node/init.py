"""The first process of a cluster's namespaces: makes them a machine, and sees that its programs run.

`python -m tests.node.init LAYOUT [ENTRANCE]`, with a listening socket as descriptor ENTRANCE on the first node.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.node import machine, programs, seed
from tests.node.images import ROOT
from tests.node.layout import Layout
from tests.node.programs import Program

LOOK_SECONDS = 0.05
RESTART_SECONDS = 1.0


class Programs:
    """Starts every program, and starts it again when it ends, unless it is held."""

    def __init__(self, layout: Layout, wanted: list[Program], descriptors: Sequence[int]) -> None:
        self._layout = layout
        self._descriptors = descriptors
        self._due = {program.name: 0.0 for program in wanted}
        self._wanted = {program.name: program for program in wanted}
        self._running: dict[int, str] = {}

    def look(self) -> None:
        """One turn: buries the dead, strangers' children included, and starts what is due."""
        while pid := _ended():
            if name := self._running.pop(pid, None):
                self._due[name] = time.monotonic() + RESTART_SECONDS
        for name, due in list(self._due.items()):
            if time.monotonic() >= due and not (self._layout.held / name).exists():
                del self._due[name]
                self._start(self._wanted[name])

    def _start(self, program: Program) -> None:
        with (self._layout.logs / f"{program.name}.log").open("ab") as log:
            process = subprocess.Popen(
                program.command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._descriptors,
                start_new_session=True,
            )
        process.returncode = 0  # `look` waits for it, among all others
        self._running[process.pid] = program.name
        (self._layout.process_ids / program.name).write_text(str(process.pid))


def _ended() -> int:
    """The number of a child that has ended, 0 when there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return 0


def main(layout_file: str, *entrances: str) -> None:
    layout = Layout.from_json(Path(layout_file).read_text())
    programs.write_files(layout)
    seed.plant(layout.seed, layout.own / "containerd")
    machine.furnish(layout)
    relays = [Program("relay", (sys.executable, "-m", "tests.node.relay", entrance)) for entrance in entrances]
    meter = Program("meter", (sys.executable, "-m", "tests.node.meter"))
    running = Programs(layout, [meter, *relays, *programs.programs(layout)], tuple(map(int, entrances)))
    while True:
        running.look()
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
