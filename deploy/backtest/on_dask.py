"""Runs parts of a fleet on the workers of an existing Dask cluster."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agent.backtest.study import Played, RecordedFleet
from shared.errors import HeadroomError

CONNECT_SECONDS = 10


class DaskCluster:
    """A connected client of `dask.distributed`; `threads` counts those of all workers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.threads = max(1, sum(client.nthreads().values()))

    def each(self, play: Callable[[RecordedFleet], Played], parts: Sequence[RecordedFleet]) -> Iterable[Played]:
        """The result of each part, in order. If the caller stops reading, the remaining parts are cancelled."""
        futures = self._client.map(play, parts, pure=False)
        try:
            for future in futures:
                yield future.result()
        finally:
            self._client.cancel(futures)


@contextmanager
def connected(scheduler: str) -> Iterator[DaskCluster]:
    """The cluster of the scheduler at HOST:PORT. Raises HeadroomError if it cannot be reached."""
    from distributed import Client  # in the extra `dask`

    try:
        client = Client(f"tcp://{scheduler}", timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise HeadroomError(f"no Dask scheduler at {scheduler}: {error}") from error
    with client:
        yield DaskCluster(client)
