"""The end of a process or of a loop: an Event that also calls back, so that a thread can wait for something else."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator


class Stop(threading.Event):
    """Set once. A thread that blocks in a read or on a condition names the call that ends its wait."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._calls: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()

    def set(self) -> None:
        """Sets the Event, then makes the calls; they must return at once and not raise."""
        super().set()
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Makes `call` when the Event is set while the block runs, or at once if it is set already."""
        number = next(self._numbers)
        with self._lock:
            is_late = self.is_set()
            if not is_late:
                self._calls[number] = call
        if is_late:
            call()
        try:
            yield
        finally:
            with self._lock:
                self._calls.pop(number, None)
