"""What broken promises cost a node: a debt that grows with each of them, and is paid off by all the others. Pure.

Each promise has an outcome once, for a target a (a share) and a horizon of H hours:

    broken:          debt += STEP / H
    horizon passed:  debt -= a STEP / H, at least to -min(0.03, 0.3 a)
    withheld:        debt ** POWER of the room between the expected peak and the most that can be used

So a first surprise, which breaks up to H promises at once, withholds next to nothing, a second one soon after an
eighth, a third one all of it; 1 / a outcomes pay for each broken promise. What is paid beyond the debt is a credit that
is small beside the target and counts as it is: a node without surprises promises hardly less than its margin says. From
a debt of 1 on, the promise is the most that can be used: nothing breaks it.

A second surprise breaks the open promises that were made since the first, and so prolongs a run of broken ones. Once
max(12, H / 2) outcomes in a row are broken, one promise is the most that can be used, which ends the run: if the node
had a debt before it, or if more than H promises of the run are broken. So a run is at most H + max(12, H / 2) promises
long, 36 for a day, if a debt from before is not paid off meanwhile, and else at most 2 H + 4 for targets up to 5 %.
After a node's only surprise no promise is made to end the run, because that would withdraw the whole offer.

Theorem. Of T promises with an outcome, at most a T + 1.03 H / STEP + H + 1 are broken, whatever the usage. Proof: let t
be the last time with a debt below 1. Up to t the debt rose by STEP / H for each broken promise and fell by at most
a STEP / H for each outcome, from -0.03 at least, so it was at most a t + 1.03 H / STEP promises that were broken. After
t only those break that were made until then and are open, H + 1 at most.
"""

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.calibration import HOUR_SECONDS, WINDOW_HOURS
from agent.predict_server.daily import Arrays, restore
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

STEP = 1 / 3
POWER = 5.0
MOST_CREDIT = 0.03
CREDIT_OF_TARGET = 0.3  # times the target, as a share
LEAST_RUN = 12
VIOLATION_TOLERANCE = 1e-9  # relative: sums of the same samples in another order are no violation

Flags = NDArray[np.bool_]


class Debts:
    """The debts of nodes for promises of one horizon and resource, made once an hour; arrays have the shape (nodes,)
    or (nodes, hours). Times are Unix seconds.
    """

    def __init__(self, horizon_hours: int, nodes: int = 1, step: float = STEP, power: float = POWER) -> None:
        self.horizon_hours, self._step, self._power = horizon_hours, step / horizon_hours, power
        self.debt: Floats = np.zeros(nodes)  # below 0 it is a credit
        # Which of the open promises are known to be broken, by the hour in which they were made
        self.made: Floats = np.full(horizon_hours + 1, np.nan)
        self.broken: Flags = np.zeros((nodes, horizon_hours + 1), np.bool_)
        self.surprised: Flags = np.zeros((nodes, WINDOW_HOURS), np.bool_)  # by the hour in which a promise broke
        self.last: Floats = np.zeros(nodes)  # the time of the last surprise, 0 without one
        self.causes: Rows = np.zeros(nodes, np.int64)  # and why, by a number of the caller's
        self.hour = -1
        self.run: Floats = np.zeros(nodes)  # promises in a row, up to the last outcome, that broke
        self.ended: Floats = np.full(nodes, -np.inf)  # the hour of the last promise that was to end a run

    def watch(self, made: Floats, broken: Flags, time: float, causes: Rows) -> None:
        """Takes which promises are broken by now, shape (promises, nodes), by the times at which they were made. Each
        counts once. `causes` are what is likely to be the reason.
        """
        self._advance(time)
        new = broken & ~np.stack([self._known(one) for one in made.tolist()])
        self.debt += self._step * np.count_nonzero(new, axis=0)
        for place in np.flatnonzero(new.any(axis=1)).tolist():
            self.broken[:, self._place(float(made[place]))] |= new[place]
        nodes = new.any(axis=0)
        self.surprised[nodes, self.hour % WINDOW_HOURS] = True
        self.last[nodes], self.causes[nodes] = time, causes[nodes]

    def settle(self, target_percent: float, broken: Flags) -> None:
        """The horizon of a promise has passed: pays off a part of the debt. `watch` it first."""
        target = target_percent / 100
        self.run = np.where(broken, self.run + 1, 0.0)
        self.debt = np.maximum(-min(MOST_CREDIT, CREDIT_OF_TARGET * target), self.debt - target * self._step)

    def withheld(self) -> Floats:
        """The share of the room that is not lent, or below 0 that is lent on credit."""
        return np.where(self.debt > 0, np.maximum(self.debt, 0.0) ** self._power, self.debt)

    def ends_run(self, time: float) -> Flags:
        """Where this hour's promise ends a run of broken ones; none does while the last that did is still open."""
        hour, horizon = time // HOUR_SECONDS, self.horizon_hours
        is_open = self.made > time - horizon * HOUR_SECONDS
        broken = self.run + np.count_nonzero(self.broken[:, is_open], axis=1)
        is_long = self.run >= max(LEAST_RUN, horizon / 2)
        due = is_long & (self.debt > self._step * np.minimum(broken, horizon)) & (hour - self.ended > horizon)
        self.ended = np.where(due, hour, self.ended)
        return np.asarray(self.ended == hour)

    def surprises_of(self, node: int) -> int:
        """In the last four weeks: hours in which a promise broke, and none in a horizon's time before."""
        oldest_first = np.roll(self.surprised[node], -(self.hour + 1) % WINDOW_HOURS)
        hours = np.flatnonzero(oldest_first)
        return int(np.count_nonzero(np.diff(hours, prepend=-WINDOW_HOURS) > self.horizon_hours))

    def promises_of(self, node: int) -> float:
        """The broken promises that are not made up for."""
        return max(0.0, float(self.debt[node])) / self._step

    def set_clock(self, seconds: float) -> None:
        """The clock was set forward by that much, or back if below 0: shifts all times to the new clock."""
        hours = round(seconds / HOUR_SECONDS)
        known = [(made, self.broken[:, place].copy()) for place, made in enumerate(self.made.tolist())]
        self.made[:] = np.nan
        for made, broken in sorted((made + seconds, broken) for made, broken in known if not np.isnan(made)):
            self._known(made)
            self.broken[:, self._place(made)] = broken
        self.surprised = np.roll(self.surprised, hours, axis=1)
        self.hour = max(0, self.hour + hours) if self.hour >= 0 else self.hour
        self.last = np.where(self.last > 0, self.last + seconds, 0.0)
        self.ended = self.ended + hours

    def _place(self, made: float) -> int:
        return int(made // HOUR_SECONDS) % len(self.made)

    def _known(self, made: float) -> Flags:
        """On which nodes the promise made then is known to be broken."""
        place = self._place(made)
        if self.made[place] != made:
            self.made[place], self.broken[:, place] = made, False
        known: Flags = self.broken[:, place]
        return known

    def _advance(self, time: float) -> None:
        """Clears the places of hours that began since the last call."""
        hour = int(time // HOUR_SECONDS)
        if 0 <= self.hour < hour:
            begun = np.arange(self.hour + 1, min(hour, self.hour + WINDOW_HOURS) + 1)
            self.surprised[:, begun % WINDOW_HOURS] = False
        self.hour = max(self.hour, hour)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of the state, for a checkpoint."""
        return {
            "debt": self.debt,
            "made": self.made,
            "broken": self.broken,
            "surprised": self.surprised,
            "last": self.last,
            "causes": self.causes,
            "run": self.run,
            "ended": self.ended,
            "hour": np.array([self.hour]),
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> "Debts":
        """Restores the result of `arrays`. Raises KeyError, IndexError and ValueError."""
        nodes, places = np.shape(arrays["broken"])
        debts = cls(places - 1, nodes)
        if "share" in arrays:
            arrays = {**arrays, "debt": _of_shares(np.asarray(arrays["share"], np.float64))}
        arrays = {"run": debts.run, "ended": debts.ended, **arrays}  # a state without them knows of no run
        own = debts.arrays()
        restore(own, arrays)
        debts.hour = int(own["hour"][0])
        if not (np.isfinite(debts.debt) & (debts.debt >= -MOST_CREDIT)).all():
            raise ValueError("a debt must be a number, and no more than the largest credit below 0")
        if not np.isfinite(debts.run).all() or not (debts.ended < np.inf).all():
            raise ValueError("a run of broken promises must be a number, as must the hour that was to end one")
        return debts


def _of_shares(shares: Floats) -> Floats:
    """Of a state in which a debt was the withheld share itself, a twentieth for a surprise: no more is withheld."""
    owed = np.maximum(shares, 0.0)
    return np.where(shares > 0, np.minimum(owed * STEP / 0.05, owed ** (1 / POWER)), shares)


def violated(promised: Floats, reached: Floats) -> Flags:
    """Where more was used than promised."""
    return np.asarray(reached > promised * (1 + VIOLATION_TOLERANCE))
