"""A node's kernel of its own, from outside: `python -m tests.node.uml LAYOUT [ENTRANCE]` boots it and awaits its end.

All nodes of a cluster share a network namespace, where one end of the cable to each of them is. The control plane runs
there, too, beside the first node. With a listening socket as descriptor ENTRANCE, the API server can be reached by it.
Commands for a node come by a socket in the cluster's folder.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from deploy.local.leash import tie_to
from tests.apiserver.binaries import Unavailable
from tests.node import programs, relay
from tests.node.images import ROOT
from tests.node.layout import API_IP, API_PORT, COMMANDS_PORT, NODE, Layout

MEMORY = "6G"
NICE = 10  # a node counts as nine of the machine's other processes, not as one
GOGC = "400"  # percent: programs that live for minutes spend a tenth of their CPU time on collecting garbage


def _command(layout: Layout) -> list[str]:
    """Its root is this machine's, only for reading; its disk starts as the image is, and changes in a file."""
    assert layout.kernel is not None
    changes = layout.directory / f"{layout.node}.disk"
    environment = [f"PATH={os.environ['PATH']}", "TMPDIR=/run", f"GOGC={GOGC}"]
    inside = [sys.executable, "-m", "tests.node.init", str(layout.file)]
    words = [
        str(layout.kernel),
        f"mem={MEMORY}",
        "ncpus=1",
        "seccomp=auto",
        f"ubd0={changes},{layout.image}",
        "root=host",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "con=null",
        "con0=null,fd:1",
        f"vec0:transport=raw,ifname={_cable(layout)[1]}",
        f"uml_dir={layout.directory}/{layout.node}.uml/",
        "quiet",
        "init=/usr/bin/env",
        *("--", f"--chdir={ROOT}", *environment, *inside),
    ]
    if odd := [word for word in words if set(word) & set(" \t\"'")]:
        raise Unavailable(f"a kernel's command line has no place for blanks and quotation marks: {odd}")
    return words


def _cable(layout: Layout) -> tuple[str, str]:
    """Network devices: this end of the cable to the node, and the one that its kernel takes packets from."""
    return f"cable-{layout.number}", f"plug-{layout.number}"


def _make_network(layout: Layout) -> None:
    """The cable, and with the first node all that is there once."""
    cable, plug = _cable(layout)
    first = ("link set lo up", f"address add {API_IP}/32 dev lo") if layout.node == NODE else ()
    for line in (
        *first,
        f"link add {cable} type veth peer name {plug}",
        f"link set {plug} up",
        f"address add {layout.outer_ip}/24 dev {cable}",
        f"link set {cable} up",
        f"route add {layout.node_ip} via {layout.inner_ip}",
        f"route add {layout.pods} via {layout.inner_ip}",
    ):
        subprocess.run(["ip", *line.split()], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _start(command: list[str], **environment: str) -> subprocess.Popen[bytes]:
    """A process that does not outlive this one, in a session of its own: Linux schedules by these, too.

    It goes before the machine's other processes. A kernel that waits for them does not know it, and its pods seem slow.
    """
    me = os.getpid()

    def prepare() -> None:
        tie_to(me, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.nice(-NICE)
            Path("/proc/self/autogroup").write_text(str(-NICE))

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        start_new_session=True,
        preexec_fn=prepare,
    )


async def main(layout_file: str, *entrances: str) -> None:
    layout = Layout.from_json(Path(layout_file).read_text())
    _make_network(layout)
    for folder in (layout.held, layout.process_ids):
        folder.mkdir(parents=True)
    if layout.node == NODE:
        programs.write_clusters_files(layout)
        _start([sys.executable, "-m", "tests.node.control_plane", layout_file], GOGC=GOGC)
    kernel = _start(_command(layout), HOME=str(layout.directory))
    servers = [await asyncio.start_unix_server(relay.to(layout.inner_ip, COMMANDS_PORT), layout.commands)]
    for entrance in entrances:
        listening = socket.socket(fileno=int(entrance))
        servers.append(await asyncio.start_server(relay.to(API_IP, API_PORT), sock=listening))
    await asyncio.to_thread(kernel.wait)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
