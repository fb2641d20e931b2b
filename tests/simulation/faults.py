"""Faults drawn from a seed: what goes wrong, with whom, when, and for how long.

Each fault has a source of chance of its own, so that the others stay as they are when one is left out.
"""

import enum
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tests.simulation.stand_ins import seeded
from tests.simulation.virtual import WORLD

QUIET_SECONDS = 120.0  # at the beginning: the cluster comes up undisturbed
LONGEST_DELAY_SECONDS = 4.0  # of a message: a former leader's write may be on its way for less than a lease is safe


# Of a clock: the leases' margins bear half as much again between a leader and a candidate, less what a write takes.
LARGEST_DRIFT = 0.02
DRIFT_GAP_SECONDS = 300.0
DRIFT_SECONDS = (300.0, 1200.0)


class FaultKind(enum.StrEnum):
    """What goes wrong. The first group concerns a process, the second its messages, the third the API server, the
    fourth the cloud, the last what tenants write.
    """

    KILL = "is killed"
    PAUSE = "is stopped"
    STEP_CLOCK = "has its clock stepped"
    DRIFT_CLOCK = "has its clocks run too fast or too slow"
    FILL_DISK = "has no space left on its disk"

    STOP_AT_WRITE = "is stopped as it sends a write"
    STOP_AT_ANSWER = "is stopped as it gets an answer"
    LOSE_REQUESTS = "loses requests"
    LOSE_ANSWERS = "loses answers"
    DELAY = "has its messages delayed"
    REFUSE = "is refused by the API server"
    CUT_WATCHES = "has its watches cut"
    REPEAT_EVENTS = "gets watch events twice"

    RESTART = "restarts"
    COMPACT = "forgets old versions"

    ANSWER_LATE = "answers late"
    FAIL_BEFORE = "fails without doing what is asked"
    FAIL_AFTER = "does what is asked, and says it failed"
    FORGET = "says it is done, and does nothing"
    STOCK_OUT = "has no machines left"
    NEVER_JOIN = "makes machines that never join"
    LOSE_MACHINE = "loses a machine"

    HOSTILE_POD = "create a pod that asks for everything"
    HOSTILE_REPORT = "write a report that says anything"


_OF_PROCESS = (FaultKind.KILL, FaultKind.PAUSE, FaultKind.STEP_CLOCK)
_OF_MESSAGES = (
    FaultKind.LOSE_REQUESTS,
    FaultKind.LOSE_ANSWERS,
    FaultKind.DELAY,
    FaultKind.REFUSE,
    FaultKind.CUT_WATCHES,
    FaultKind.REPEAT_EVENTS,
)
_OF_CLOUD = (
    FaultKind.ANSWER_LATE,
    FaultKind.FAIL_BEFORE,
    FaultKind.FAIL_AFTER,
    FaultKind.FORGET,
    FaultKind.STOCK_OUT,
    FaultKind.NEVER_JOIN,
    FaultKind.LOSE_MACHINE,
)
MANAGER, AGENT, API_SERVER, CLOUD, USERS = "manager", "agent", "apiserver", "cloud", "users"
_BY_ROLE: Mapping[str, Sequence[FaultKind]] = {
    MANAGER: (*_OF_PROCESS, FaultKind.STOP_AT_WRITE, FaultKind.STOP_AT_ANSWER, *_OF_MESSAGES),
    AGENT: (*_OF_PROCESS, FaultKind.FILL_DISK, *_OF_MESSAGES),
    "scheduler": (FaultKind.KILL, FaultKind.PAUSE, *_OF_MESSAGES),
    "kubelets": (FaultKind.PAUSE, *_OF_MESSAGES),
    API_SERVER: (FaultKind.RESTART, FaultKind.COMPACT),
    CLOUD: _OF_CLOUD,
    USERS: (FaultKind.HOSTILE_POD, FaultKind.HOSTILE_REPORT),
}
_WEIGHTS = {MANAGER: 5, AGENT: 2, "scheduler": 1, "kubelets": 1, API_SERVER: 1, CLOUD: 3, USERS: 1}


@dataclass(frozen=True)
class Fault:
    """From `at`, for `seconds`, what happens to the process called `target`; to each message with that `chance`."""

    number: int
    at: float
    kind: FaultKind
    target: str
    seconds: float
    chance: float
    seed: int

    def __str__(self) -> str:
        share = f", {self.chance:.0%} of the time" if self.kind in _OF_MESSAGES or self.kind in _OF_CLOUD else ""
        return f"fault {self.number}: {self.target} {self.kind} for {self.seconds:.1f} s{share}"


def draw(
    seed: int,
    seconds: float,
    targets: Mapping[str, Sequence[str]],
    kinds: Collection[FaultKind] = tuple(FaultKind),
    gap_seconds: float = 25.0,
) -> tuple[Fault, ...]:
    """The faults of these kinds in one run that ends after `seconds`; `targets` are the names of processes by role, and
    `gap_seconds` is the mean time from one to the next.
    """
    chance = seeded("faults", seed)
    by_role = {role: [kind for kind in found if kind in kinds] for role, found in _BY_ROLE.items()}
    roles = [role for role, found in by_role.items() if found and targets.get(role)]
    found: list[Fault] = []
    at = QUIET_SECONDS
    while (at := at + chance.expovariate(1 / gap_seconds)) < seconds:
        role = chance.choices(roles, [_WEIGHTS[each] for each in roles])[0]
        found.append(
            Fault(
                number=len(found),
                at=at,
                kind=chance.choice(by_role[role]),
                target=chance.choice(targets[role]),
                seconds=chance.choice((2.0, 10.0, 30.0, 60.0)) * chance.uniform(0.5, 1.5),
                chance=chance.choice((0.05, 0.3, 1.0)),
                seed=seed,
            )
        )
    return tuple(found)


def draw_drifts(
    seed: int, seconds: float, targets: Mapping[str, Sequence[str]], first_number: int
) -> tuple[Fault, ...]:
    """Clocks of managers and agents that drift: from a source of chance of their own, so that other faults stay."""
    chance = seeded("drifts", seed)
    found: list[Fault] = []
    at = QUIET_SECONDS
    while (at := at + chance.expovariate(1 / DRIFT_GAP_SECONDS)) < seconds:
        found.append(
            Fault(
                number=first_number + len(found),
                at=at,
                kind=FaultKind.DRIFT_CLOCK,
                target=chance.choice([*targets[MANAGER], *targets[AGENT]]),
                seconds=chance.uniform(*DRIFT_SECONDS),
                chance=1.0,
                seed=seed,
            )
        )
    return tuple(found)


def branched(faults: Sequence[Fault], others: Sequence[Fault], at: float) -> tuple[Fault, ...]:
    """`faults` up to that time and `others` after it: the same run until then, and another one from then on."""
    first = 1 + max((each.number for each in faults), default=-1)
    later = (each for each in others if each.at > at)
    numbered = (replace(each, number=number) for number, each in enumerate(later, first))
    return (*(each for each in faults if each.at <= at), *numbered)


class FaultWatcher(Protocol):
    """Is called when a fault begins, and when it ends."""

    def __call__(self, fault: Fault, /, *, begins: bool) -> None: ...


@dataclass
class Faults:
    """The faults in force now."""

    active: dict[int, Fault] = field(default_factory=dict)
    watchers: list["FaultWatcher"] = field(default_factory=list)
    _chances: dict[int, random.Random] = field(default_factory=dict)

    def begin(self, fault: Fault) -> None:
        self.active[fault.number] = fault
        self._chances[fault.number] = seeded("fault", fault.seed, fault.number)
        for watcher in self.watchers:
            watcher(fault, begins=True)

    def end(self, fault: Fault) -> None:
        self.active.pop(fault.number, None)
        for watcher in self.watchers:
            watcher(fault, begins=False)

    def chance_of(self, fault: Fault) -> random.Random:
        return self._chances[fault.number]

    def rate_of(self, fault: Fault) -> float:
        """How many seconds pass in one by a clock that drifts."""
        return 1 + self.chance_of(fault).uniform(-LARGEST_DRIFT, LARGEST_DRIFT)

    def hits(self, kind: FaultKind, target: str) -> Fault | None:
        """The fault of this kind that strikes now, if one does."""
        for fault in self.active.values():
            if fault.kind is kind and fault.target == target and self._chances[fault.number].random() < fault.chance:
                return fault
        return None

    def schedule(self, faults: Collection[Fault], strike: "Strike") -> None:
        """Lets each fault happen in its time."""

        def run() -> None:
            for fault in faults:
                WORLD.park(max(0.0, fault.at - WORLD.now))
                WORLD.spawn(_striking(self, fault, strike), f"fault {fault.number}")

        WORLD.spawn(run, "faults", WORLD.outside)


class Strike:
    """What a fault does beside being in force: the cluster's part."""

    def begin(self, fault: Fault) -> None: ...

    def end(self, fault: Fault) -> None: ...


def _striking(faults: Faults, fault: Fault, strike: Strike) -> Callable[[], None]:
    def run() -> None:
        faults.begin(fault)
        strike.begin(fault)
        WORLD.park(fault.seconds)
        faults.end(fault)
        strike.end(fault)

    return run
