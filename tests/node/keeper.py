"""Keeps one cluster: `python -m tests.node.keeper`, with a layout on each line of its standard input, one for a node.

When that input ends, for whatever reason, so does the cluster, and what it made outside its namespaces goes: cgroups
and folder. A keeper that is killed itself takes the cluster with it, and the next one to start clears up after it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.local.leash import tie_to
from deploy.local.ports import LOOPBACK
from tests.node import cgroups, identity
from tests.node.images import ROOT
from tests.node.layout import NODE, Layout

UNSHARE = (
    *("unshare", "--mount", "--net", "--cgroup", "--pid", "--uts", "--ipc"),
    *("--propagation", "private", "--fork", "--kill-child"),
)


def folder(name: str) -> Path:
    """The folder of the cluster that is called so."""
    return Path(tempfile.gettempdir()) / name


def clear_dead() -> None:
    """Removes what clusters have left whose keeper was killed."""
    folders = {path.name for path in Path(tempfile.gettempdir()).glob(f"{cgroups.PREFIX}*")}
    for name in cgroups.left_behind() | folders:
        if identity.is_dead(name):
            _remove(name)


def _remove(name: str) -> None:
    cgroups.remove(name)
    shutil.rmtree(folder(name), ignore_errors=True)


def _start(layout: Layout, name: str, network: int | None) -> subprocess.Popen[bytes]:
    """What a node's first process is the child of, and the way in from this machine to the API server.

    A node with a kernel of its own shares the network namespace of the process `network`.
    """
    me = os.getpid()
    layout.file.write_text(layout.to_json())
    namespaces = layout.kernel is None
    if namespaces:
        cgroups.create(name)

    def prepare() -> None:
        tie_to(me, signal.SIGKILL)
        if namespaces:
            cgroups.enter(name)

    with contextlib.ExitStack() as opened:
        log = opened.enter_context((layout.logs / "init.log").open("ab"))
        entrances: list[int] = []
        if layout.node == NODE:
            entrances = [opened.enter_context(socket.create_server((LOOPBACK, layout.port))).fileno()]
        own_network = ("unshare", "--net") if network is None else ("nsenter", f"--target={network}", "--net")
        around, module = (UNSHARE, "tests.node.init") if namespaces else (own_network, "tests.node.uml")
        return subprocess.Popen(
            [*around, sys.executable, "-m", module, str(layout.file), *map(str, entrances)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=entrances,
            preexec_fn=prepare,
            start_new_session=True,  # a Ctrl-C is for the one that holds the input
        )


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    clear_dead()
    name = identity.own()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        folder(name).mkdir(mode=0o700)
        print(folder(name), flush=True)
        for line in sys.stdin:
            layout = Layout.from_json(line)
            own = identity.of_node(name, layout.number)
            first = next(iter(processes.values()), None)
            processes[own] = _start(layout, own, first.pid if first else None)
            print("started", flush=True)
    finally:
        for process in processes.values():
            process.kill()  # its child dies with it, and with that one every process of the namespaces
            process.wait()
        with contextlib.suppress(OSError):
            sys.stdout.close()
        for own in (name, *processes):
            _remove(own)


if __name__ == "__main__":
    main()
