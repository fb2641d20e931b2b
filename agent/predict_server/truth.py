"""The promises of the active and the shadow models for this node, and their outcomes.

A record belongs to a model under its parameters: no model is judged by the promises of another.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from agent.predict_server import states
from agent.predict_server.calibration import LONGEST_GAP_SECONDS
from agent.predict_server.daily import Arrays
from agent.predict_server.decay import Floats
from agent.predict_server.ledger import Ledger
from agent.predict_server.models import OpenPromises, Outcome
from agent.predict_server.records import NO_OUTCOMES, Loans, PromiseRecord, Record, Totals, WithdrawalRecord

_LOANS = "loans"
_IN_FORCE = "in force "  # in a checkpoint, followed by the identity of the model that decides what is lent
_RECORD = "record "  # in a checkpoint, followed by the horizon, a space, and the model's identity


class Judged(NamedTuple):
    """What one model hears of its promises: the outcomes, and the open ones that are broken."""

    outcomes: list[Outcome]
    broken: list[OpenPromises]


NOTHING_JUDGED = Judged([], [])


class Truth:
    """The promises of the node series `node`. Not thread-safe. Times are Unix seconds.

    After a longer gap between samples, earlier promises get no outcome.
    """

    def __init__(
        self, node: str, horizons_seconds: Sequence[float], longest_gap_seconds: float = LONGEST_GAP_SECONDS
    ) -> None:
        self._longest_gap_seconds = longest_gap_seconds
        self._ledger = Ledger([node], horizons_seconds, longest_gap_seconds)
        self._horizons = tuple(horizons_seconds)
        self._active = ""
        self._records: dict[str, Record] = {}
        self._loans = Loans()
        self._totals: dict[float, Totals] = {}

    def follow(
        self, active: str, shadows: Iterable[str], horizons_seconds: Sequence[float], *, keep_others: bool = False
    ) -> None:
        """Sets the models to judge from now on: the active one for all horizons, the shadows for the first."""
        if tuple(horizons_seconds) != self._horizons:
            ledger = Ledger(self._ledger.nodes, horizons_seconds, self._longest_gap_seconds)
            ledger.restore(self._ledger.parts())
            self._ledger, self._horizons = ledger, tuple(horizons_seconds)
        self._active = active
        self._totals = {seconds: self._totals.get(seconds, NO_OUTCOMES) for seconds in self._horizons}
        wanted = dict.fromkeys(shadows, self._horizons[:1]) | {active: self._horizons}
        others = {name: record for name, record in self._records.items() if keep_others and name not in wanted}
        self._records = others | {
            name: self._records.get(name, Record(horizons)).of_horizons(horizons) for name, horizons in wanted.items()
        }

    def observe(
        self, usages: Floats, since: Floats, time: float, capacity: Sequence[float] = (np.inf, np.inf)
    ) -> dict[str, Judged]:
        """Records the usage of each pod and the system, shape (pods, 2); `since` is the first observation of each, and
        `capacity` the most that the node can use.

        Returns the outcomes of promises by model, and the promises of a horizon that are open where one is broken.
        """
        found: dict[str, Judged] = {}
        judged = self._ledger.observe(np.zeros(len(usages), np.intp), usages, since, time, capacity)
        for name, record in self._records.items():
            record.advance(time)
            for outcome in judged:
                if (promised := record.settle(outcome)) is not None:
                    of = found.setdefault(name, Judged([], []))
                    of.outcomes.append(replace(outcome, promised=promised[np.newaxis]))
        for seconds in self._horizons:
            made, reached = self._ledger.open(seconds)
            for name, record in self._records.items():
                if (broken := record.broken(seconds, made, reached[:, 0])) is not None:
                    places, promised = broken
                    of = found.setdefault(name, Judged([], []))
                    of.broken.append(
                        OpenPromises(
                            self._ledger.nodes, seconds, made[places], promised[:, np.newaxis], reached[places], time
                        )
                    )
        for outcome in found[self._active].outcomes if self._active in found else ():
            one = Totals.of(outcome.promised.astype(np.float32), outcome.realised.astype(np.float32))
            self._totals[outcome.horizon_seconds] = self._totals[outcome.horizon_seconds].plus(one)
        return found

    def is_due(self, time: float) -> bool:
        """Whether that hour has no promise yet."""
        return not self._ledger.begun(time)

    def promise(self, peaks: Mapping[str, Floats], requested: Floats, time: float) -> None:
        """Records the present promise of every model, shape (horizons, 2), for these requests, shape (2,)."""
        self._ledger.begin(time)
        for name, peak in peaks.items():
            self._records[name].promise(peak, requested, time)

    def lend(self, amounts: Floats, time: float) -> None:
        """Records the lent amount, shape (2,)."""
        self._loans.lend(amounts, time)

    def kept(self, model: str) -> tuple[PromiseRecord, ...]:
        """The promises that this model kept, by horizon."""
        return self._records[model].kept()

    @property
    def totals(self) -> tuple[Totals, ...]:
        """Sums over the outcomes of every active model since the start, by horizon."""
        return tuple(self._totals[seconds] for seconds in self._horizons)

    def withdrawn(self) -> tuple[WithdrawalRecord, ...]:
        return self._loans.withdrawn()

    def set_clock(self, seconds: float) -> None:
        self._ledger.set_clock(seconds)
        self._loans.set_clock(seconds)
        for record in self._records.values():
            record.set_clock(seconds)

    def state(self) -> bytes:
        """All of the state, for a checkpoint."""
        records = {
            f"{_RECORD}{horizon} {name}": arrays
            for name, record in self._records.items()
            for horizon, arrays in record.parts().items()
        }
        return states.encode(
            {**self._ledger.parts(), _LOANS: self._loans.arrays(), **records, f"{_IN_FORCE}{self._active}": {}}
        )

    def restore(self, state: bytes) -> None:
        """Restores an earlier state, if any; `follow` comes next. Raises ValueError."""
        parts = states.decode(state) if state else {}
        records = restored_records(parts)
        try:
            self._loans.restore(parts.get(_LOANS, self._loans.arrays()))
        except (KeyError, IndexError) as error:
            raise ValueError(f"what was lent lacks {error}") from error
        self._ledger.restore(parts)
        self._records = records


def in_force(parts: states.Parts) -> str | None:
    """The identity of the active model in a state."""
    return next((part.removeprefix(_IN_FORCE) for part in parts if part.startswith(_IN_FORCE)), None)


def restored_records(parts: states.Parts) -> dict[str, Record]:
    """The records in a state, by the model's identity. Raises ValueError."""
    by_model: dict[str, dict[str, Arrays]] = {}
    for part, arrays in parts.items():
        if part.startswith(_RECORD):
            horizon, _, name = part.removeprefix(_RECORD).partition(" ")
            by_model.setdefault(name, {})[horizon] = arrays
    try:
        return {name: Record.restored(of_model) for name, of_model in by_model.items()}
    except (KeyError, IndexError) as error:
        raise ValueError(f"a record lacks {error}") from error
