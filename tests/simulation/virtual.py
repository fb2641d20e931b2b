"""Virtual time: tasks on greenlets, of which exactly one runs, and which hand over only where they would block.

A task that waits parks itself. The world then resumes the ready tasks in an order that the seed draws, and lets time
pass to the next timer once none is ready. A killed process is a set of tasks that never resume; a paused one resumes
late, as after SIGSTOP.
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import greenlet

EPOCH = 1_700_000_000.0  # Unix seconds at the beginning of each simulation


@dataclass(eq=False)
class Process:
    """A simulated process. `wall_offset` is how far its wall clock is ahead of its monotonic one, in seconds, and
    `rate` how many seconds pass by its clocks in one.
    """

    name: str
    alive: bool = True
    paused_until: float = 0.0
    wall_offset: float = 0.0
    own: dict[str, Any] = field(default_factory=dict)  # what the simulation keeps about it
    rate: float = 1.0
    _rate_since: float = 0.0
    _before: float = 0.0  # by its monotonic clock, when it began to run at this rate

    def monotonic(self, now: float) -> float:
        """Its monotonic clock at that time of the world."""
        return self._before + (now - self._rate_since) * self.rate

    def run_at(self, rate: float, now: float) -> None:
        """Its clocks run at this rate from now on."""
        self._before, self._rate_since, self.rate = self.monotonic(now), now, rate

    def correct_wall(self, now: float) -> None:
        """Its wall clock is set right."""
        self.wall_offset = now - self.monotonic(now)


@dataclass(eq=False)
class Task:
    """One flow of control. `ticket` numbers its waits: a timer of an earlier wait is void."""

    name: str
    process: Process
    flow: Any
    ticket: int = 0
    is_woken: bool = False
    is_ready: bool = False
    thread: object = None


class World:
    """The clock and the tasks of one simulation. There is one per operating-system process."""

    def __init__(self) -> None:
        self.now = 0.0
        self.chance = random.Random(0)
        self.current: Task | None = None
        self.outside = Process("outside")
        self._visited: Process | None = None
        self._hub = greenlet.getcurrent()
        self._timers: list[tuple[float, int, Task | Callable[[], object], int]] = []
        self._ready: deque[Task] = deque()
        self._number = itertools.count()
        self._frozen: list[Task] = []  # of killed processes: collecting them would run their `finally` blocks

    @property
    def process(self) -> Process:
        """The process of the running task, or the one that is looked into."""
        return self._visited or (self.outside if self.current is None else self.current.process)

    @contextmanager
    def inside(self, process: Process) -> Iterator[None]:
        """What is called here has the clocks of the process, and may not wait."""
        self._visited = process
        try:
            yield
        finally:
            self._visited = None

    def wall(self) -> float:
        """Unix seconds, by the clock of the running task's process."""
        return EPOCH + self.monotonic() + self.process.wall_offset

    def monotonic(self) -> float:
        """Seconds by the monotonic clock of the running task's process."""
        return self.process.monotonic(self.now)

    def spawn(self, body: Callable[[], object], name: str, process: Process | None = None) -> Task:
        """A task that runs `body`, in the running task's process unless another one is named."""
        task = Task(name, process or self.process, greenlet.greenlet(body, self._hub))
        self._enqueue(task)
        return task

    def later(self, seconds: float, step: Callable[[], object]) -> None:
        """Calls `step`, which may not wait, outside all processes."""
        heapq.heappush(self._timers, (self.now + seconds, next(self._number), step, 0))

    def park(self, seconds: float | None = None) -> bool:
        """Waits to be woken, at most `seconds` by the process's clock; False if the time is up."""
        task = self.current
        assert task is not None, "only a task may wait"
        task.is_woken = False
        task.ticket += 1
        if seconds is not None:
            due = self.now + max(0.0, seconds) / task.process.rate
            # A rest that rounding loses would be waited for without end.
            self._set_timer(due if due > self.now or seconds <= 0 else math.nextafter(self.now, math.inf), task)
        self._hub.switch()
        return task.is_woken

    def wake(self, task: Task) -> None:
        """Ends the task's wait, once."""
        if not task.is_woken and not task.is_ready:
            task.is_woken = True
            task.ticket += 1
            self._enqueue(task)

    def kill(self, process: Process) -> None:
        """No task of it runs again; the running one ends here."""
        process.alive = False
        if self.process is process:
            self.park()

    def run(self, until: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Runs tasks, and lets time pass up to `until`."""
        timers, ready = self._timers, self._ready
        while True:
            while ready:
                self._resume(self._draw())
            if ended():
                return
            if not timers or timers[0][0] > until:
                self.now = max(self.now, until)
                return
            self.now = now = max(self.now, timers[0][0])
            while timers and timers[0][0] <= now:
                _, _, waiting, ticket = heapq.heappop(timers)
                if not isinstance(waiting, Task):
                    waiting()
                elif waiting.ticket == ticket and waiting.process.alive:
                    waiting.ticket += 1
                    self._enqueue(waiting)

    def _draw(self) -> Task:
        if len(self._ready) > 1:
            self._ready.rotate(-self.chance.randrange(len(self._ready)))
        return self._ready.popleft()

    def _resume(self, task: Task) -> None:
        task.is_ready = False
        if not task.process.alive:
            self._frozen.append(task)
        elif task.process.paused_until > self.now:
            task.is_ready = True  # wakes of a stopped process count when it goes on
            task.ticket += 1
            self._set_timer(task.process.paused_until, task)
        else:
            self.current = task
            task.flow.switch()
            self.current = None

    def _enqueue(self, task: Task) -> None:
        task.is_ready = True
        self._ready.append(task)

    def _set_timer(self, due: float, task: Task) -> None:
        heapq.heappush(self._timers, (due, next(self._number), task, task.ticket))


WORLD = World()
