"""The cluster's processes: starts them in order, restarts those that die, ends them in reverse order."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
FIRST_RESTART_SECONDS = 0.2
MAX_RESTART_SECONDS = 5.0
CALM_SECONDS = 30.0  # after this long alive, a child's next restart is quick again
STOP_SECONDS = 8.0


@dataclass(frozen=True)
class Program:
    """One child with its own log file. `target`: a Python module, or the path of an executable."""

    name: str
    target: str
    arguments: tuple[str, ...]


def restart_delay_seconds(deaths: int) -> float:
    """The wait before the restart after `deaths` consecutive deaths (from 1)."""
    return float(min(MAX_RESTART_SECONDS, FIRST_RESTART_SECONDS * 2 ** min(deaths - 1, 16)))


@dataclass
class _Child:
    program: Program
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    started_at: float = 0.0
    start_at: float = field(default_factory=time.monotonic)


class Supervisor:
    """Supervises programs from its own thread, which also starts them (see `leash`)."""

    def __init__(
        self, log_dir: Path, environment: Mapping[str, str], *, on_death: Callable[[Program, int, float], None]
    ) -> None:
        self._log_dir = log_dir
        self._environment = dict(environment)
        self._on_death = on_death
        self._children: list[_Child] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor")
        log_dir.mkdir(0o700, parents=True, exist_ok=True)
        self._thread.start()

    def add(self, program: Program) -> None:
        """Starts `program` soon, after the programs added earlier."""
        with self._lock:
            self._children.append(_Child(program))

    def close(self) -> None:
        """Ends all children in reverse order, each by force after `STOP_SECONDS`."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with self._lock:
                children = list(self._children)
            for child in children:
                self._look_after(child)
        for child in reversed(self._children):
            _end(child)

    def _look_after(self, child: _Child) -> None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.start_at:
                self._start(child, now)
            return
        code = child.process.poll()
        if code is None:
            return
        child.process = None
        child.deaths = 1 if now - child.started_at >= CALM_SECONDS else child.deaths + 1
        delay = restart_delay_seconds(child.deaths)
        child.start_at = now + delay
        self._on_death(child.program, code, delay)

    def _start(self, child: _Child, now: float) -> None:
        program = child.program
        command = [sys.executable, "-m", "deploy.local.leash", str(os.getpid()), program.target, *program.arguments]
        with (self._log_dir / f"{program.name}.log").open("ab") as log:
            child.process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C on the terminal goes to the parent only, which ends its children in order.
                start_new_session=True,
            )
        child.started_at = now


def _end(child: _Child) -> None:
    if child.process is None:
        return
    child.process.send_signal(signal.SIGTERM)
    try:
        child.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        logger.warning("%s did not stop in time and is killed", child.program.name)
        child.process.kill()
        child.process.wait()
