"""Keeps one cluster: `python -m tests.node.keeper`, with the layout as the first line of its standard input.

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
from tests.node.layout import Layout

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


def _start(layout: Layout, name: str) -> subprocess.Popen[bytes]:
    """The first process of the namespaces, in the cluster's cgroup, and its way in from this machine."""
    me = os.getpid()

    def prepare() -> None:
        tie_to(me, signal.SIGKILL)
        cgroups.enter(name)

    with socket.create_server((LOOPBACK, layout.port)) as entrance, (layout.logs / "init.log").open("ab") as log:
        arguments = [str(layout.directory / "layout.json"), str(entrance.fileno())]
        return subprocess.Popen(
            [*UNSHARE, sys.executable, "-m", "tests.node.init", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(entrance.fileno(),),
            preexec_fn=prepare,
            start_new_session=True,  # a Ctrl-C is for the one that holds the input
        )


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    clear_dead()
    name = identity.own()
    process: subprocess.Popen[bytes] | None = None
    try:
        folder(name).mkdir(mode=0o700)
        print(folder(name), flush=True)
        layout = Layout.from_json(sys.stdin.readline())
        (layout.directory / "layout.json").write_text(layout.to_json())
        cgroups.create(name)
        process = _start(layout, name)
        print("started", flush=True)
        sys.stdin.read()
    finally:
        if process is not None:
            process.kill()  # its child dies with it, and with that one every process of the namespaces
            process.wait()
        with contextlib.suppress(OSError):
            sys.stdout.close()
        _remove(name)


if __name__ == "__main__":
    main()
