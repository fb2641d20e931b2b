"""Finds models by name, and isolates their errors.

A policy names one model, or several as `max(a,b)`: then the largest of their peaks counts. Plug-ins cannot take the
names of built-in models. A model that raises or returns an invalid result leaves the peak unknown; the caller then uses
a result that lends nothing.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np

from agent.predict_server import reclaimable
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Candidates
from agent.predict_server.models import (
    Debt,
    OpenPromises,
    Outcome,
    Parameters,
    Predictor,
    Situation,
    Uses,
)
from agent.predict_server.reclaimable import Inputs, Reclaimable
from shared.api.nodemetric import SurpriseCause
from shared.api.predictionprior import ObservedTail, Tail
from shared.errors import InvalidInput
from shared.plugins import PluginGroup, reraise_interrupt, told

logger = logging.getLogger(__name__)

GROUP = PluginGroup("headroom.predictors", "predictor")
MOST_STATE_BYTES = 1 << 20

_MAX = re.compile(r"max\((.*)\)", re.DOTALL)
_BEYOND_ANY_NODE = np.array([2.0**30, 2.0**60])


def members(expression: str, *, source: str) -> tuple[str, ...]:
    """The models in an expression: "a" or "max(a,b)". Raises InvalidInput for an unknown one."""
    text = expression.strip()
    combined = _MAX.fullmatch(text)
    names = tuple(name.strip() for name in combined[1].split(",")) if combined else (text,)
    for name in names:
        if not GROUP.has(name):
            problem = f"no predictor {name!r} (known: {', '.join(GROUP.names())}, and max(a,b) of them)"
            raise InvalidInput(source=source, field="predictor", value=expression, problem=problem)
    return tuple(dict.fromkeys(names))


def built_in() -> tuple[str, ...]:
    """The names of the predictors that come with Headroom."""
    return GROUP.built_in()


def load(name: str, *, source: str = "--model") -> Callable[[Parameters], Predictor]:
    """The factory of the predictor of that name. Raises InvalidInput."""
    return cast(Callable[[Parameters], Predictor], GROUP.load(name, source=source, field="predictor"))


def uses(names: Iterable[str]) -> frozenset[Uses]:
    """The policy's parameters that some of these models use."""
    return frozenset().union(*(getattr(load(name), "uses", ()) for name in names))


def default_margin_percent(names: Iterable[str]) -> float | None:
    """The largest safety margin that these models take by themselves; None without one."""
    margins = (getattr(load(name), "default_margin_percent", None) for name in names)
    return max((margin for margin in margins if margin is not None), default=None)


class Model:
    """The models of a policy, isolated from each other and from us.

    `problem` holds an error until the same call succeeds; the error is logged once, and `on_failure` gets the model's
    name.
    """

    def __init__(
        self, expression: str, parameters: Parameters, *, source: str, on_failure: Callable[[str], None]
    ) -> None:
        """Raises InvalidInput for an unknown name, and for a model that cannot be created."""
        names = members(expression, source=source)
        self.name = names[0] if len(names) == 1 else f"max({','.join(names)})"
        self._problems: dict[tuple[str, str], str] = {}
        self._on_failure = on_failure
        self._logged: set[tuple[str, str]] = set()
        self._members = {name: self._made(name, parameters, source) for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    @property
    def uses(self) -> frozenset[Uses]:
        """The policy's parameters that the models use."""
        return uses(self._members)

    @property
    def problem(self) -> str:
        return "; ".join(self._problems.values())

    def update(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        usages.setflags(write=False)
        for name, member in self._members.items():
            with self._kept_apart(name, "update"):
                member.update(keys, usages, time)

    def observe(self, outcomes: Sequence[Outcome], broken: Sequence[OpenPromises] = ()) -> None:
        """Passes on the outcomes of promises, and before them the open ones of which one is broken."""
        for promises in broken:
            for amounts in (promises.predicted_at, promises.promised, promises.reached):
                amounts.setflags(write=False)
        for outcome in outcomes:
            outcome.promised.setflags(write=False)
            outcome.realised.setflags(write=False)
        for name, member in self._members.items():
            if broken:
                with self._kept_apart(name, "watch"):
                    member.watch(broken)
            if outcomes:
                with self._kept_apart(name, "observe"):
                    member.observe(outcomes)

    def debts(self, node: str) -> dict[float, tuple[Debt, Debt]]:
        """What broken promises cost a node series, by horizon in seconds, from a model that learns from them."""
        found: dict[float, tuple[Debt, Debt]] = {}
        for name, member in self._members.items():
            with self._kept_apart(name, "debts"):
                for seconds, (cpu, memory) in member.debts(node).items():
                    found.setdefault(float(seconds), (_owed(cpu), _owed(memory)))
        return found

    def tails(self, node: str) -> dict[float, tuple[ObservedTail, ObservedTail]]:
        """The tails of a node series' outcomes, by horizon in seconds, from a model that learns them."""
        found: dict[float, tuple[ObservedTail, ObservedTail]] = {}
        for name, member in self._members.items():
            with self._kept_apart(name, "tails"):
                for seconds, (cpu, memory) in member.tails(node).items():
                    found.setdefault(float(seconds), (_observed(cpu), _observed(memory)))
        return found

    def set_clock(self, seconds: float) -> None:
        for name, member in self._members.items():
            with self._kept_apart(name, "set_clock"):
                member.set_clock(seconds)

    def peak(self, situation: Situation) -> Candidates | None:
        """All models' candidates, each of shape (horizons, nodes, 2); None if one of them failed."""
        shape = (len(situation.horizons_seconds), situation.nodes, 2)
        found: dict[str, Floats] = {}
        answered = 0
        for name, member in self._members.items():
            with self._kept_apart(name, "peak"):
                for candidate, amount in _checked(member.peak(situation), shape).items():
                    found[candidate] = np.maximum(found.get(candidate, 0.0), amount)
                answered += 1
        return found if answered == len(self._members) else None

    def reclaimable(self, situation: Situation, inputs: Inputs) -> Reclaimable:
        """The reclaimable amount, by the rule of a single model that has its own, or else by the common rule."""
        if len(self._members) == 1:
            ((name, member),) = self._members.items()
            with self._kept_apart(name, "reclaimable"):
                if answer := member.reclaimable(situation, inputs):
                    return answer
        return reclaimable.compute(inputs)

    def states(self) -> dict[str, bytes]:
        """The state of each model for the checkpoint; empty without state or after a failure."""
        states: dict[str, bytes] = {}
        for name, member in self._members.items():
            with self._kept_apart(name, "state"):
                state = bytes(member.state())
                if len(state) > MOST_STATE_BYTES:
                    raise ValueError(f"{len(state)} bytes are more than {MOST_STATE_BYTES}")
                if state:
                    states[name] = state
        return states

    def restore(self, states: Mapping[str, bytes]) -> None:
        for name, member in self._members.items():
            if name in states:
                with self._kept_apart(name, "restore"):
                    member.restore(states[name])

    @staticmethod
    def _made(name: str, parameters: Parameters, source: str) -> Predictor:
        factory = load(name, source=source)
        try:
            made = factory(parameters)
        except BaseException as error:
            reraise_interrupt(error)
            raise _unusable(name, source, f"cannot make the predictor: {told(error)}") from error
        if not callable(getattr(made, "peak", None)):
            raise _unusable(name, source, f"makes a {type(made).__name__}, which has no peak()")
        if not isinstance(getattr(factory, "uses", frozenset()), frozenset):
            raise _unusable(name, source, "declares in `uses` something other than a frozenset")
        if not isinstance(getattr(factory, "default_margin_percent", None), int | float | None):
            raise _unusable(name, source, "declares a default_margin_percent that is no number")
        return made

    @contextmanager
    def _kept_apart(self, name: str, doing: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # also a model's attempt to exit: a plug-in must not end the process
            reraise_interrupt(error)
            self._problems[name, doing] = f"predictor {name}: {doing}: {told(error)}"
            self._on_failure(name)
            if (name, doing) not in self._logged:
                self._logged.add((name, doing))
                logger.error("%s; from here on counted only", self._problems[name, doing], exc_info=error)
        else:
            self._problems.pop((name, doing), None)


def _unusable(name: str, source: str, problem: str) -> InvalidInput:
    return InvalidInput(source=source, field="predictor", value=name, problem=f"{GROUP.describe(name)} {problem}")


def _owed(answer: Debt) -> Debt:
    """The values as plain numbers. Raises ValueError and TypeError for other values."""
    surprises, promises, withheld, seconds, last, cause = answer
    plain = Debt(int(surprises), float(promises), float(withheld), float(seconds), float(last), SurpriseCause(cause))
    if not all(math.isfinite(amount) and amount >= 0 for amount in plain[:-1]):
        raise ValueError(f"{answer} is no debt")
    return plain


def _observed(answer: ObservedTail) -> ObservedTail:
    """The values as plain numbers. Raises ValueError and TypeError for other values."""
    (quantile, excess), days = answer
    return ObservedTail(Tail(float(quantile), float(excess)), float(days))


def _checked(answer: object, shape: tuple[int, int, int]) -> dict[str, Floats]:
    """The peaks by name, each of `shape` (horizons, nodes, 2). Raises ValueError for an invalid result."""
    if not isinstance(answer, Mapping) or not answer:
        raise ValueError(f"expected peaks by name, not {type(answer).__name__}")
    checked: dict[str, Floats] = {}
    for name, value in answer.items():
        amount = np.asarray(value, np.float64)
        if not isinstance(name, str) or amount.shape not in (shape, shape[1:], *([(2,)] if shape[1] == 1 else [])):
            raise ValueError(f"{name!r} is not a name with cpu and memory of every node")
        if not ((amount >= 0) & (amount < _BEYOND_ANY_NODE)).all():
            raise ValueError(f"{name} is {amount.tolist()}, which no node can use")
        checked[name] = np.broadcast_to(amount, shape)
    return checked
