"""The decision log: the last iterations that mattered, and all of them as JSON lines; and what is kept of them for the
next leader in a ConfigMap, brief and bounded.
"""

import logging
import sys
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from manager.autoscaler.cluster_state.actions import Action
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers, node_status
from manager.autoscaler.reporting.answers import Plan
from shared.errors import HeadroomError, InvalidInput
from shared.kube.configmap_store import ConfigMapStore

logger = logging.getLogger(__name__)

STDOUT = "-"
CAPACITY = 100
MOST_BYTES = 16 << 20  # of remembered iterations: one about 30,000 pods takes some

KEY = "decisions"  # in the ConfigMap's data
STORED_BYTES = 256 << 10  # an API object can hold about 1 MiB
INTERVAL_SECONDS = 10.0  # minimum between two writes


class _Noted(NamedTuple):
    line: bytes
    brief: Plan


class DecisionLog:
    """Safe for several threads. An iteration matters if it acts, or ends differently from the one before."""

    def __init__(self, path: str = "", *, capacity: int = CAPACITY, most_bytes: int = MOST_BYTES) -> None:
        """`path` is a file to append lines to, "-" for standard output, or empty for none.

        Raises InvalidInput for an unwritable file.
        """
        self.earlier: tuple[Plan, ...] = ()
        """The iterations of earlier processes, as far as they are known; brief, the newest first."""
        self._path = path
        self._most_bytes = most_bytes
        self._noted: deque[_Noted] = deque(maxlen=capacity)
        self._latest: Iteration | None = None
        self._answer: tuple[Iteration, Plan] | None = None
        self._ended: object = None
        self._lock = threading.Lock()
        if path and path != STDOUT:
            try:
                with Path(path).open("ab"):
                    pass
            except OSError as error:
                raise InvalidInput(
                    source="--decisions-log", field="decisionsLog", value=path, problem=str(error)
                ) from error

    @property
    def latest(self) -> Iteration | None:
        """The last iteration."""
        with self._lock:
            return self._latest

    def plan(self) -> Plan | None:
        """The complete answer about the last iteration, computed on first use."""
        latest, known = self.latest, self._answer
        if latest is None:
            return None
        if known is None or known[0] is not latest:
            known = self._answer = latest, answers.plan(latest)
        return known[1]

    def iterations(self, most: int = CAPACITY, *, brief: bool = False) -> list[Plan]:
        """At most `most` iterations that mattered, the newest first."""
        with self._lock:
            noted = list(self._noted)[-most:] if most > 0 else []
        return [each.brief if brief else msgspec.json.decode(each.line, type=Plan) for each in reversed(noted)]

    def note(self, of: Iteration) -> None:
        """Records a finished iteration. The last scan of each group stays part of it."""
        with self._lock:
            if self._latest is not None:
                of = replace(of, scans=of.latest_scans(self._latest.scans))
            self._latest = of
            ended, before = _end(of), self._ended
            self._ended = ended
        ways_ended = any(each.stage.is_over for each in of.leaving)
        if not (of.incidents or ways_ended or ended != before or any(action.done for action in _acts(of))):
            return
        plan = answers.plan(of)
        self._answer = of, plan
        kept = answers.without_untouched_nodes(plan)
        line = msgspec.json.encode(kept)
        with self._lock:
            self._noted.append(_Noted(line, answers.brief(kept)))
            while len(self._noted) > 1 and sum(len(each.line) for each in self._noted) > self._most_bytes:
                self._noted.popleft()
        self._append(line)

    def _append(self, line: bytes) -> None:
        """If the file cannot be written, only the line is lost."""
        if not self._path:
            return
        try:
            if self._path == STDOUT:
                sys.stdout.write(line.decode() + "\n")
                sys.stdout.flush()
            else:
                with Path(self._path).open("ab") as file:
                    file.write(line + b"\n")
        except OSError as error:
            logger.error("the decision was not written to the log: %s", error, extra={"path": self._path})


def _end(of: Iteration) -> object:
    """How an iteration ended; a next iteration with the same end is not news."""
    decision = of.decision
    if decision is None:
        return of.blocked_reason, _acts(of)
    left = tuple((len(each.pods), each.awaiting) for each in decision.left)
    buffers = () if of.buffers is None else tuple((each.key, each.unplaced) for each in of.buffers.buffers)
    requests = () if of.requests is None else tuple((each.key, each.stage) for each in of.requests.requests)
    going = () if of.scale_down is None else tuple(each.node for each in of.scale_down.removals)
    return _acts(of), decision.outcome, decision.skipped, left, buffers, requests, going, node_status.replacement(of)


def _acts(of: Iteration) -> tuple[Action, ...]:
    """The actions without soft taints, which change nothing yet."""
    return tuple(action for action in of.actions if not action.is_soft_taint)


class StoredIteration(msgspec.Struct, frozen=True):
    """An iteration, and the process that decided it: each process numbers its iterations anew."""

    process: str
    plan: Plan


_DECODER = msgspec.json.Decoder(list[StoredIteration])


class DecisionHistory:
    """The iterations of all processes, the newest first. For the loop's thread, except `earlier`."""

    def __init__(self, kept: ConfigMapStore) -> None:
        self.earlier: tuple[Plan, ...] = ()
        """The iterations of other processes, as far as they were read."""
        self._kept = kept
        self._process = uuid.uuid4().hex[:8]
        self._others: list[StoredIteration] = []
        self._is_read = False
        self._written: Plan | None = None  # the newest stored iteration
        self._next_at = 0.0

    def forget(self) -> None:
        """Drops the memory: another replica leads and writes."""
        self._is_read = False

    def store(self, iterations: Sequence[Plan], now: float) -> None:
        """Stores this process's `iterations`, which are brief and the newest first. `now` never goes back.

        A failed write is repeated with a later iteration.
        """
        try:
            if not self._is_read:
                self._read()
            if iterations and iterations[0] is not self._written and now >= self._next_at:
                self._next_at = now + INTERVAL_SECONDS
                self._kept.write(
                    _encoded([*(StoredIteration(self._process, each) for each in iterations), *self._others])
                )
                self._written = iterations[0]
        except HeadroomError as error:
            self._is_read = False
            logger.warning("the history of decisions was not stored: %s", error)

    def _read(self) -> None:
        text, _ = self._kept.read()
        try:
            found = _DECODER.decode(text or "[]")
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            logger.error("the history of decisions cannot be read and is ignored: %s: %s", self._kept.source, error)
            found = []
        self._others = [each for each in found if each.process != self._process]
        self.earlier = tuple(each.plan for each in self._others)
        self._is_read = True


def _encoded(iterations: Sequence[StoredIteration]) -> str:
    """The text of as many of them as fit."""
    lines: list[bytes] = []
    left = STORED_BYTES
    for each in iterations:
        line = msgspec.json.encode(each)
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    return f"[{b','.join(lines).decode()}]"
