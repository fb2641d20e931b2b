"""The decision log: the last iterations that mattered, and all of them as JSON lines."""

import logging
import sys
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from manager.autoscaler.iteration import Action, Iteration
from manager.autoscaler.reporting import answers, node_status
from manager.autoscaler.reporting.schemas import Plan
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

STDOUT = "-"
CAPACITY = 100
MOST_BYTES = 16 << 20  # of remembered iterations: one about 30,000 pods takes some


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

    def rounds(self, most: int = CAPACITY, *, brief: bool = False) -> list[Plan]:
        """At most `most` iterations that mattered, the newest first."""
        with self._lock:
            noted = list(self._noted)[-most:] if most > 0 else []
        return [each.brief if brief else msgspec.json.decode(each.line, type=Plan) for each in reversed(noted)]

    def note(self, of: Iteration) -> None:
        """Records a finished iteration. The last scan of each group stays part of it."""
        with self._lock:
            if self._latest is not None:
                of = replace(of, scans=node_status.latest_scans(of, self._latest.scans))
            self._latest = of
            ended, before = _end(of), self._ended
            self._ended = ended
        ways_ended = any(each.stage.is_over for each in of.leaving)
        if not (of.incidents or ways_ended or ended != before or any(action.done for action in _acts(of))):
            return
        plan = answers.plan(of)
        self._answer = of, plan
        line = msgspec.json.encode(answers.without_untouched_nodes(plan))
        with self._lock:
            self._noted.append(_Noted(line, answers.brief(plan)))
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
            logger.error("a decision was not written: %s", error, extra={"path": self._path})


def _end(of: Iteration) -> object:
    """How an iteration ended; a next iteration with the same end is not news."""
    decision = of.decision
    if decision is None:
        return of.blocked_reason, _acts(of)
    left = tuple((len(each.pods), each.awaiting) for each in decision.left)
    going = () if of.scale_down is None else tuple(each.node for each in of.scale_down.removals)
    return _acts(of), decision.outcome, decision.skipped, left, going, node_status.replacement(of)


def _acts(of: Iteration) -> tuple[Action, ...]:
    """The actions without soft taints, which change nothing yet."""
    return tuple(action for action in of.actions if not node_status.is_soft_taint(action))
