"""Forks daemons from a process that has imported what they import: `python -m tests.support.fork_server FD PARENT_PID`.

FD is a socket on which each order comes with the two files of a daemon's output (see `daemons`). A daemon becomes a
child of the process PARENT_PID, which adopts orphans while it waits for the answer: the daemon's pid, or nothing where
none could be made. From there on it is as good as spawned: its own process with its own environment, signals and exit
status.
"""

import gc
import importlib
import os
import runpy
import socket
import sys

import msgspec

from deploy.local import leash

ORDER_BYTES = 1 << 20
# What imports more than itself when it is run.
IMPORTS = {
    "agent": ("agent.main",),
    "deploy.cli": ("deploy.cli", "deploy.cleanup", "deploy.forget", "deploy.local.up"),
    "deploy.local.apiserver": ("deploy.local.apiserver.__main__",),
    "manager": ("manager.main",),
}


class Order(msgspec.Struct):
    """`python -m TARGET ARGUMENTS`."""

    target: str
    arguments: list[str]
    environment: dict[str, str]


def serve(orders: socket.socket, parent_pid: int) -> Order | None:
    """Returns in each daemon, with what it is to run; and None once there are no more orders."""
    while True:
        received, files, _, _ = socket.recv_fds(orders, ORDER_BYTES, 2)
        if not received:
            return None
        order = msgspec.json.decode(received, type=Order)
        for name in IMPORTS.get(order.target, (order.target,)):
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # what is shared stays shared
        reading, writing = os.pipe()
        waiting, holding = os.pipe()
        between = os.fork()
        if not between:
            if pid := _forked_again():
                os.write(writing, str(pid).encode())
                os._exit(0)
            os.close(holding)
            os.read(waiting, 1)  # returns once the server lets go, too
            _become_daemon(order, files, parent_pid)
            return order
        os.close(writing)  # without another writer, reading ends where there is no daemon
        os.waitpid(between, 0)
        os.close(holding)
        orders.send(os.read(reading, 64))
        for file in (*files, reading, waiting):
            os.close(file)


def _forked_again() -> int:
    """Where the machine has no room for one more process, the one between ends, and nothing is told of a daemon."""
    try:
        return os.fork()
    except OSError:
        os._exit(1)


def _become_daemon(order: Order, files: list[int], parent_pid: int) -> None:
    """Called when the process between has ended and been reaped: a process that ends while this one is being tied to
    its next parent may pull the leash, as the kernel first moves its children and then looks for their leashes.
    """
    os.setsid()  # no signal to the suite's process group is for a daemon
    leash.tie_to(parent_pid)
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(order.environment)


def main() -> None:
    descriptor, parent_pid = map(int, sys.argv[1:])
    order = serve(socket.socket(fileno=descriptor), parent_pid)
    if order is not None:
        for name in (order.target, f"{order.target}.__main__"):  # to be run, it must not have been imported
            sys.modules.pop(name, None)
        sys.argv = [order.target, *order.arguments]
        runpy.run_module(order.target, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
