"""What the autoscaler did and why: the last rounds that mattered, and all of them as JSON lines."""

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
MOST_BYTES = 16 << 20  # of rounds that are remembered: one about 30,000 pods takes some


class _Noted(NamedTuple):
    line: bytes
    brief: Plan


class DecisionLog:
    """Safe for several threads. A round matters when it does something, or ends otherwise than the one before it."""

    def __init__(self, path: str = "", *, capacity: int = CAPACITY, most_bytes: int = MOST_BYTES) -> None:
        """`path` is a file that lines are added to, "-" standard output, empty: none.

        Raises InvalidInput for a file that cannot be written.
        """
        self.earlier: tuple[Plan, ...] = ()
        """Rounds of the processes before this one, as far as they are known; brief, the newest first."""
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
        """The last round of all."""
        with self._lock:
            return self._latest

    def plan(self) -> Plan | None:
        """All that the last round has to say, worked out when it is first asked for."""
        latest, known = self.latest, self._answer
        if latest is None:
            return None
        if known is None or known[0] is not latest:
            known = self._answer = latest, answers.plan(latest)
        return known[1]

    def rounds(self, most: int = CAPACITY, *, brief: bool = False) -> list[Plan]:
        """At most so many rounds that mattered, the newest first."""
        with self._lock:
            noted = list(self._noted)[-most:] if most > 0 else []
        return [each.brief if brief else msgspec.json.decode(each.line, type=Plan) for each in reversed(noted)]

    def note(self, of: Iteration) -> None:
        """A round is over. What the last scan of a group said stands with it, too."""
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
        """A file that cannot be written costs its line and nothing else."""
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
    """How a round ended, as far as a next one that ends alike is no news."""
    decision = of.decision
    if decision is None:
        return of.blocked_reason, _acts(of)
    left = tuple((len(each.pods), each.awaiting) for each in decision.left)
    going = () if of.scale_down is None else tuple(each.node for each in of.scale_down.removals)
    return _acts(of), decision.outcome, decision.skipped, left, going


def _acts(of: Iteration) -> tuple[Action, ...]:
    """Without marks that nothing comes of yet."""
    return tuple(action for action in of.actions if not node_status.is_soft_taint(action))
