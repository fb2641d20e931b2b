import threading
from collections.abc import Callable, Iterator

import pytest

from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.retry import Jitter, Retry
from shared.stop import Stop
from tests.unit.kube.scripted import ScriptedServer

QUICK = Jitter(base_seconds=0.005, cap_seconds=0.02)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def client(server: ScriptedServer) -> Client:
    return Client(Connection(server.url), "test", retry=Retry(deadline_seconds=5, jitter=QUICK))


@pytest.fixture
def start() -> Iterator[Callable[[Callable[[Stop], None]], Stop]]:
    """Runs a loop body in a thread; the returned event stops it, and the end of the test does."""
    running: list[tuple[threading.Thread, Stop]] = []

    def start(body: Callable[[Stop], None]) -> Stop:
        stop = Stop()
        thread = threading.Thread(target=body, args=(stop,), daemon=True)
        running.append((thread, stop))
        thread.start()
        return stop

    yield start
    for _, stop in running:
        stop.set()
    for thread, _ in running:
        thread.join(60)
        assert not thread.is_alive(), "the loop did not stop"
