"""What agents promise: a restart forgives no debt, no more promises break than the target and the debt allow, and debts
and runs of broken promises have an upper bound.

Both are read from what an agent reports of its promises, by node, horizon and resource.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.predict_server.calibration import WINDOW_HOURS
from agent.predict_server.debts import LEAST_RUN, MOST_CREDIT, STEP
from tests.simulation.virtual import Process

DEBT = "A debt of broken promises outlives a restart (docs/explanation/prediction.md)."
TARGET = "Of T promises for H hours at a target a, at most a T + 4.1 H + 1 break, from whichever of them on (debts.py)."
OWED = "At most H / STEP + H + 1 promises for H hours are owed: none made at a debt of 1 breaks (debts.py)."
RUN = "At most max(H + 12, 2 H + 4) promises for H hours break in a row (agent/predict_server/debts.py)."

ROUNDED_PROMISES = 0.5  # by a report

Report = Callable[[str, str], None]


@dataclass(frozen=True)
class Written:
    """A report: when, by which process, and when that had written its last checkpoint by then."""

    at: float
    process: Process
    saved_at: float


@dataclass(frozen=True)
class Promised:
    """What one report says of the promises for one horizon and resource. `target` is a share, `owed` counts the broken
    promises that are not paid for.
    """

    write: Written
    target: float
    outcomes: int
    broken: int
    owed: float


@dataclass
class PromiseChecks:
    """`report` takes a rule and how it is broken; `hour_seconds` is the length of an hour of the prediction."""

    report: Report
    hour_seconds: int
    _known: dict[tuple[str, float, str], list[Promised]] = field(default_factory=dict)
    _least: dict[tuple[str, float, str], float] = field(default_factory=dict)  # broken promises beyond the target
    _runs: dict[tuple[str, float, str], int] = field(default_factory=dict)  # of broken promises, in one process

    def check(self, node: str, status: Any, write: Written) -> None:
        """Takes a NodeMetric's status as the agent has just written it."""
        for hours, resource, found in self._promised(status, write):
            known = self._known.setdefault((node, hours, resource), [])
            if known and known[-1].write.process is not write.process:
                self._check_restart(f"{node} {resource} for {hours:g} h", known, found)
            self._check_share(node, hours, resource, found)
            self._check_owed(f"{node} {resource} for {hours:g} h", hours, found)
            self._check_run(node, hours, resource, found)
            known.append(found)

    def _check_share(self, node: str, hours: float, resource: str, found: Promised) -> None:
        key, beyond = (node, hours, resource), found.broken - found.target * found.outcomes
        is_whole = found.write.at < WINDOW_HOURS * self.hour_seconds  # later, the first outcomes are not reported
        least = self._least[key] = min(self._least.get(key, 0.0), beyond) if is_whole else 0.0
        most = (1 + MOST_CREDIT) * hours / STEP + hours + 1
        if beyond - least > most:
            what = f"{beyond - least:.1f} promises of {resource} for {hours:g} h beyond the target"
            self.report(
                TARGET, f"{node} has broken {what}, {most:.1f} at most; {found.broken} of {found.outcomes} in all"
            )

    def _check_owed(self, what: str, hours: float, found: Promised) -> None:
        """Unlike the share, this counts broken promises whose outcome a gap in the samples has taken."""
        most = hours / STEP + hours + 1 + ROUNDED_PROMISES
        if found.owed > most:
            self.report(OWED, f"{what} owes {found.owed:.1f} promises, {most:.1f} at most")

    def _check_run(self, node: str, hours: float, resource: str, found: Promised) -> None:
        """Counts those between two reports of which all are broken."""
        key, last = (node, hours, resource), next(iter(self._known[node, hours, resource][-1:]), None)
        if last is None or last.write.process is not found.write.process:
            self._runs[key] = 0
        elif found.outcomes != last.outcomes:
            new = found.outcomes - last.outcomes
            self._runs[key] = self._runs[key] + new if found.broken - last.broken == new else 0
        if self._runs[key] > max(hours + LEAST_RUN, 2 * hours + 4):
            self.report(RUN, f"{self._runs[key]} promises of {node} in a row break, of {resource} for {hours:g} h")

    def _check_restart(self, what: str, known: list[Promised], found: Promised) -> None:
        kept = next((each for each in reversed(known) if each.write.at <= known[-1].write.saved_at), None)
        if kept is None:
            return
        paid = found.target * max(0, found.outcomes - kept.outcomes)
        if found.owed < kept.owed - paid - ROUNDED_PROMISES:
            self.report(DEBT, f"{what} owes {found.owed:.1f} promises after a restart, and owed {kept.owed:.1f}")

    def _promised(self, status: Any, write: Written) -> Iterator[tuple[float, str, Promised]]:
        for promise in (status.get("prediction") or {}).get("promises") or ():
            hours = promise["horizonSeconds"] / self.hour_seconds
            target, outcomes = float(promise["targetViolationPercent"]) / 100, promise.get("outcomes", 0)
            for resource in ("cpu", "memory"):
                percent = float(promise.get(f"{resource}ViolationPercent") or 0.0)
                owed = float((promise.get(f"{resource}Debt") or {}).get("brokenPromises", 0.0))
                broken = round(percent * outcomes / 100)
                yield hours, resource, Promised(write, target, outcomes, broken, owed)
