"""Ports of the loopback address to listen on, for processes that are about to start."""

import itertools
import random
import socket

from shared.errors import HeadroomError

LOOPBACK = "127.0.0.1"
# Between choosing a port and listening there anybody may take it. No outgoing connection is given one of these (Linux
# takes them from 32768 on), nor is a NodePort.
OURS = range(20_000, 30_000)
# One after the other, so that no two callers get the same one before either listens there.
_NEXT = itertools.cycle(random.sample(OURS, len(OURS)))
_TRIES = 100


class NoFreePort(HeadroomError):
    """All that were tried are taken."""


def free(preferred: int = 0) -> int:
    """`preferred` if nobody listens there, else (or for 0) another one. Raises NoFreePort."""
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
