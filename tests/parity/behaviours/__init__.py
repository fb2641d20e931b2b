"""The behaviours, in areas: each a sentence and the calls that show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.parity.calls import Calls, Step

Script = Callable[[Calls], object]


@dataclass(frozen=True)
class Area:
    """A named group of behaviours; `kubectl`: they run kubectl."""

    name: str
    title: str
    kubectl: bool = False
    behaviours: dict[str, Script] = field(default_factory=dict)

    def behaviour(self, sentence: str) -> Callable[[Script], Script]:
        """Registers a function as the behaviour that the sentence states."""

        def register(script: Script) -> Script:
            if sentence in self.behaviours:
                raise ValueError(f"{self.name}: {sentence!r} is there twice")
            self.behaviours[sentence] = script
            return script

        return register

    def table(self, rows: dict[str, Step | list[Step]]) -> None:
        """Registers behaviours that only make calls, one after the other."""
        for sentence, steps in rows.items():
            self.behaviour(sentence)(_following(steps if isinstance(steps, list) else [steps]))


def _following(steps: list[Step]) -> Script:
    def follow(calls: Calls) -> None:
        for step in steps:
            calls.make(step)

    return follow
