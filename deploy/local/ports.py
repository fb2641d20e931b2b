"""Loopback ports for processes that are about to start."""

import itertools
import random
import socket

from shared.errors import HeadroomError

LOOPBACK = "127.0.0.1"
# Another process may take the port between the choice and the listen. The range avoids the ports of outgoing
# connections (from 32768 on Linux) and the NodePorts.
OURS = range(20_000, 30_000)
# Hands out ports in turn, so that two callers do not get the same one before either listens.
_NEXT = itertools.cycle(random.sample(OURS, len(OURS)))
_TRIES = 100


class NoFreePort(HeadroomError):
    """All tried ports are taken."""


def free(preferred: int = 0) -> int:
    """`preferred` if the port is free, else (or for 0) another one. Raises NoFreePort."""
    if preferred and _is_free(preferred):
        return preferred
    for port in itertools.islice(_NEXT, _TRIES):
        if _is_free(port):
            return port
    raise NoFreePort(f"no free port on {LOOPBACK}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
