"""The first process of a node's namespaces or of its kernel: makes a machine, and sees that its programs run.

`python -m tests.node.init LAYOUT [ENTRANCE]`, with a listening socket as descriptor ENTRANCE on a first node in
namespaces.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from deploy.local.leash import tie_to
from tests.node import guest, machine, programs
from tests.node.images import ROOT
from tests.node.layout import NODE, Kind, Layout
from tests.node.programs import Program

FIRST = 1  # the number of a kernel's or a namespace's first process
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

    def run(self) -> NoReturn:
        """Until this process ends."""
        while True:
            self._look()
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """One turn: buries the dead, strangers' children included, and starts what is due."""
        while pid := _ended():
            if name := self._running.pop(pid, None):
                self._due[name] = time.monotonic() + RESTART_SECONDS
        for name, due in list(self._due.items()):
            if time.monotonic() >= due and not (self._layout.held / name).exists():
                del self._due[name]
                self._start(self._wanted[name])

    def _start(self, program: Program) -> None:
        me = os.getpid()
        with (self._layout.logs / f"{program.name}.log").open("ab") as log:
            process = subprocess.Popen(
                program.command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._descriptors,
                start_new_session=True,
                preexec_fn=lambda: tie_to(me, signal.SIGKILL),
            )
        process.returncode = 0  # `_look` waits for it, among all others
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
    if layout.kernel is None or os.getpid() == FIRST:
        _begin(layout)
    if layout.kind is Kind.SYSTEMD and os.getpid() == FIRST:
        guest.hand_over(layout, sys.executable, "-m", "tests.node.init", layout_file)
    wanted = programs.of_node(layout)
    if layout.kernel is None:
        if layout.node == NODE:
            wanted = [*programs.control_plane(layout), *wanted]
        descriptors = tuple(map(int, entrances))
        relays = [Program("relay", (sys.executable, "-m", "tests.node.relay", entrance)) for entrance in entrances]
        ways = [Program("meter", (sys.executable, "-m", "tests.node.meter")), *relays]
    else:  # which adds words of its own at the end of the command line
        descriptors = ()
        ways = [Program("commands", (sys.executable, "-m", "tests.node.commands", layout.inner_ip))]
    Programs(layout, [*ways, *wanted], descriptors).run()


def _begin(layout: Layout) -> None:
    if layout.kernel is not None:
        guest.begin(layout)
    elif layout.node == NODE:
        programs.write_clusters_files(layout)
    layout.own.mkdir(exist_ok=True)
    programs.write_nodes_files(layout)
    machine.furnish(layout)


if __name__ == "__main__":
    main(*sys.argv[1:])
