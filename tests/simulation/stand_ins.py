"""Stand-ins for what would wait or be left to chance: `threading`, `queue`, `time`, random numbers, asyncio's loop.

`install` puts them in place. They wait in the world, so a lock or an event hands over exactly where a real one would.
"""

import asyncio
import itertools
import logging
import os
import queue
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from tests.simulation.virtual import WORLD, Task

process_cpu_seconds = time.process_time
_Random = random.Random
_identities = itertools.count(1000)


class Lock:
    """`threading.Lock`."""

    __slots__ = ("__weakref__", "_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._held:
            self._held = True
            return True
        if not blocking or timeout == 0:
            return False
        task = WORLD.current
        assert task is not None, "the simulation itself would block"
        self._waiting.append(task)
        if WORLD.park(None if timeout < 0 else timeout):
            return True  # handed over
        if task in self._waiting:
            self._waiting.remove(task)
            return False
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        while self._waiting:
            task = self._waiting.popleft()
            if task.process.alive and not task.is_ready:
                WORLD.wake(task)
                return
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._held, self._waiting = False, deque()


class RLock:
    """`threading.RLock`."""

    def __init__(self) -> None:
        self._lock, self._depth = Lock(), 0
        self._owner: object = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = WORLD.current or WORLD
        if self._owner is me:
            self._depth += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _release_save(self) -> int:
        depth, self._owner, self._depth = self._depth, None, 0
        self._lock.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self._lock.acquire()
        self._owner, self._depth = WORLD.current or WORLD, depth

    def _is_owned(self) -> bool:
        return self._owner is (WORLD.current or WORLD)

    def _at_fork_reinit(self) -> None:
        RLock.__init__(self)


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            WORLD.wake(task)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        task = WORLD.current
        assert task is not None, "the simulation itself would block"
        self._waiting.append(task)
        if not WORLD.park(timeout) and task in self._waiting:
            self._waiting.remove(task)
        return self._is_set

    def _at_fork_reinit(self) -> None:
        return


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock or RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: deque[Task] = deque()

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        task = WORLD.current
        assert task is not None, "the simulation itself would block"
        self._waiting.append(task)
        is_reentrant = isinstance(self._lock, RLock)
        saved: Any = self._lock._release_save() if is_reentrant else self._lock.release()
        try:
            notified = WORLD.park(timeout)
            if not notified and task in self._waiting:
                self._waiting.remove(task)
            return notified
        finally:
            if is_reentrant:
                self._lock._acquire_restore(saved)
            else:
                self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else WORLD.monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - WORLD.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        while n and self._waiting:
            task = self._waiting.popleft()
            if task.process.alive:
                WORLD.wake(task)
                n -= 1

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Thread:
    """`threading.Thread`: a task of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.ident = self.native_id = next(_identities)
        self.name = name or f"Thread-{self.ident}"
        self.daemon = daemon
        self._ended = Event()
        self._task: Task | None = None

    def start(self) -> None:
        self._task = WORLD.spawn(self._boot, self.name)
        self._task.thread = self

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._ended.is_set()

    def _boot(self) -> None:
        try:
            self.run()
        except Exception:
            logging.getLogger(__name__).exception("a thread ended by an error: %s", self.name)
        finally:
            self._ended.set()


class MainThread:
    """The thread of whatever runs outside all tasks."""

    name, ident, native_id, daemon = "MainThread", 1, 1, False

    def is_alive(self) -> bool:
        return True


_MAIN = MainThread()


def _current_thread() -> Any:
    task = WORLD.current
    return _MAIN if task is None or task.thread is None else task.thread


class Random(_Random):
    """`random.Random`, seeded by the world where its maker gives no seed."""

    def __new__(cls, seed: Any = None) -> "Random":
        made: Any = _Random
        return cast("Random", made.__new__(cls, 0))

    def __init__(self, seed: Any = None) -> None:
        super().__init__(WORLD.chance.getrandbits(64) if seed is None else seed)


class _NoSelector:
    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None:
        return


class Loop(asyncio.BaseEventLoop):
    """asyncio without sockets: one task of the world runs it, in `serve`."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._called = Event()

    def time(self) -> float:
        return WORLD.now

    def poke(self) -> None:
        """Something was scheduled from outside the loop."""
        self._called.set()

    def run_soon(self, work: Callable[[], object]) -> None:
        """Runs `work` as if inside the loop, now; the loop must not be running."""
        asyncio.events._set_running_loop(self)
        try:
            work()
        finally:
            asyncio.events._set_running_loop(None)

    def serve(self) -> None:
        loop: Any = self
        while True:
            self._called.clear()
            asyncio.events._set_running_loop(self)
            try:
                loop._run_once()
                while loop._ready:
                    loop._run_once()
            finally:
                asyncio.events._set_running_loop(None)
            due = loop._scheduled[0]._when - WORLD.now if loop._scheduled else None
            self._called.wait(due)

    def _process_events(self, events: object) -> None:
        return

    def _write_to_self(self) -> None:
        self._called.set()


def seeded(*parts: object) -> _Random:
    """A source of chance of its own, the same for equal parts."""
    return _Random(":".join(map(str, parts)))


_entropy = _Random(0)


def seed(number: int) -> None:
    """Draws everything from this seed from now on."""
    WORLD.chance = seeded("order", number)
    _entropy.seed(f"entropy:{number}")
    random.seed(number)


def install() -> None:
    """Replaces the modules' functions; before the first import of the product, and once."""
    _set(random, Random=Random, _urandom=_entropy.randbytes)
    _set(os, urandom=_entropy.randbytes)
    _set(secrets, token_bytes=lambda size=32: _entropy.randbytes(size))

    monotonic = WORLD.monotonic
    _set(
        time,
        time=WORLD.wall,
        monotonic=monotonic,
        perf_counter=monotonic,
        process_time=monotonic,
        thread_time=monotonic,
        sleep=WORLD.park,
        time_ns=lambda: int(WORLD.wall() * 1e9),
        monotonic_ns=lambda: int(WORLD.monotonic() * 1e9),
        perf_counter_ns=lambda: int(WORLD.monotonic() * 1e9),
    )
    _set(
        threading,
        Lock=Lock,
        _allocate_lock=Lock,
        RLock=RLock,
        Event=Event,
        Condition=Condition,
        Thread=Thread,
        current_thread=_current_thread,
        get_ident=lambda: _current_thread().ident,
        _time=monotonic,
    )
    vars(threading)["_active"][MainThread.ident] = threading.main_thread()  # what a fork looks for
    _set(queue, time=monotonic, SimpleQueue=vars(queue)["_PySimpleQueue"])


def _set(module: object, **values: object) -> None:
    for name, value in values.items():
        setattr(module, name, value)
