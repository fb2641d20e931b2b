"""Parts of a fleet on the workers of a Dask cluster that is there already."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agent.backtest.study import Played, RecordedFleet
from shared.errors import HeadroomError

CONNECT_SECONDS = 10


class DaskCluster:
    """A connected client of `dask.distributed`; `threads` are those of all workers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.threads = max(1, sum(client.nthreads().values()))

    def each(self, play: Callable[[RecordedFleet], Played], parts: Sequence[RecordedFleet]) -> Iterable[Played]:
        """What each part brings, in their order. What is under way is cancelled where nobody waits for it any more."""
        futures = self._client.map(play, parts, pure=False)
        try:
            for future in futures:
                yield future.result()
        finally:
            self._client.cancel(futures)


@contextmanager
def connected(scheduler: str) -> Iterator[DaskCluster]:
    """The cluster of the scheduler at HOST:PORT. Raises HeadroomError where there is none."""
    from distributed import Client  # of the extra `dask`

    try:
        client = Client(f"tcp://{scheduler}", timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise HeadroomError(f"no Dask scheduler at {scheduler}: {error}") from error
    with client:
        yield DaskCluster(client)
