"""What a run has reached, in words: steps of the deletion machine, reasons of decisions, faults by what they disturb.

`reached.txt` lists what twenty seeds reach together; what only some runs reach is listed behind a question mark.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.simulation.faults import Fault, Faults
from tests.simulation.virtual import WORLD, Process

FILE = Path(__file__).parent / "reached.txt"
PROPERTY = "reached"  # of a test's report: what its simulation has reached
RARE = "? "
LINE = "reached: "  # begins the line of a run's output that has it, as JSON


class Reached:
    """Notes what this process reaches; `install` puts it before the product's functions."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}  # when it was reached first, by name
        self._phases: dict[Process, set[str]] = {}  # of deletions

    def install(self, faults: Faults) -> None:
        from manager.autoscaler.actuation import deletion_machine
        from manager.autoscaler.reporting.decision_log import DecisionLog
        from manager.nodeside.node_writes import NodeWrites

        step, note, written = deletion_machine.step, DecisionLog.note, NodeWrites._written

        def watched_step(state: Any, event: Any, options: Any) -> Any:
            after, instructions = step(state, event, options)
            self._note(_transitions(state, event, after))
            self._phases[WORLD.process] = {_phase(each) for each in after.deletions.values()}
            return after, instructions

        def watched_note(log: DecisionLog, of: Any) -> None:
            self._note(_decided(of))
            note(log, of)

        def watched_write(writes: NodeWrites, node: Any, write: Any, decision: Any) -> None:
            self._note([f"node: written, {write.reason.value}"])
            written(writes, node, write, decision)

        def fault_begins(fault: Fault, *, begins: bool) -> None:
            if begins:
                alive = (found for process, found in self._phases.items() if process.alive)
                phases = set().union(*alive) or {"no deletion"}
                self._note(f"fault: {fault.kind.name} during {phase}" for phase in phases)

        _set(deletion_machine, "step", watched_step)
        _set(DecisionLog, "note", watched_note)
        _set(NodeWrites, "_written", watched_write)
        faults.watchers.append(fault_begins)

    def line(self) -> str:
        return LINE + json.dumps(dict(sorted(self._times.items())))

    def _note(self, names: Iterable[str]) -> None:
        for name in names:
            self._times.setdefault(name, round(WORLD.now, 3))


def _set(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def _phase(deletion: Any) -> str:
    if deletion.error:
        return "failed"
    if deletion.unconfirmed is not None:
        return "unconfirmed"
    if deletion.ready_at is not None:
        return "ready"
    if deletion.tainted_at is not None and deletion.drain is None:
        return "tainted"
    return str(deletion.stage.value)


def _transitions(before: Any, event: Any, after: Any) -> Iterator[str]:
    what = re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()
    ended = {each.node: each.stage.value for each in after.ended if each not in before.ended}
    for name in {**before.deletions, **after.deletions}:
        old, new = before.deletions.get(name), after.deletions.get(name)
        if old is not new:
            was = "none" if old is None else _phase(old)
            now = ended.get(name, "dropped") if new is None else _phase(new)
            if was != now:
                yield f"deletion: {was} to {now} by {what}"
    if before.abandoned != after.abandoned:
        yield f"deletion: abandoned taints after {what}"


def _decided(of: Any) -> Iterator[str]:
    if of.blocked_reason:
        yield "iteration: blocked"
    for decision in of.decisions:
        yield f"scale-up: {decision.outcome}"
    for action in of.actions:
        how = "error" if action.error else "done" if action.done else "not done"
        yield f"action: {action.kind.value}, {how}"
    for incident in of.incidents:
        yield f"incident: {incident.kind.value}"
    for verdict in of.scale_down.statuses.values() if of.scale_down is not None else ():
        yield f"scale-down: {verdict.standing.value}{f', {verdict.reason.value}' if verdict.reason else ''}"


def split(output: str) -> tuple[str, dict[str, float]]:
    """What a run has printed for people, and what it has reached, with the times in seconds."""
    lines = output.splitlines(keepends=True)
    found = [json.loads(line.removeprefix(LINE)) for line in lines if line.startswith(LINE)]
    return "".join(line for line in lines if not line.startswith(LINE)), found[-1] if found else {}


def rare() -> set[str]:
    """What only some runs reach."""
    return {line.removeprefix(RARE) for line in FILE.read_text().splitlines() if line.startswith(RARE)}


def report(found: Iterable[Collection[str]]) -> Iterator[str]:
    """Lines that say what no run has reached, and what is missing in the list."""
    together, some = frozenset[str]().union(*found), rare()
    must = {line for line in FILE.read_text().splitlines() if not line.startswith(("#", RARE))}
    yield from (f"no seed reached, though twenty do: {each}" for each in sorted(must - together))
    yield from (f"no seed reached: {each}" for each in sorted(some - together))
    yield from (f"reached, and not in {FILE.name}: {each}" for each in sorted(together - must - some))
