"""Differences that stay, each with the reason why no user can meet it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.parity.compare import Difference


@dataclass(frozen=True)
class Accepted:
    """Differences of some behaviours of an area, at the paths that a pattern describes."""

    area: str
    behaviours: tuple[str, ...]
    path: str
    reason: str

    def covers(self, area: str, behaviour: str, difference: Difference) -> bool:
        if self.area != area or behaviour not in self.behaviours:
            return False
        return re.fullmatch(self.path, difference.path) is not None


_MESSAGE = r"0\.body\.(message|details\.causes\.0\.message)"
_YAML = "The message ends in the words of the YAML parser. kubectl reads YAML itself, and sends JSON."

ACCEPTED: Sequence[Accepted] = (
    Accepted("errors", ("malformed YAML is refused",), r"0\.body\.message", _YAML),
    Accepted("apply", ("an apply of no YAML is refused",), r"0\.body\.message", _YAML),
    Accepted(
        "errors",
        ("a pod's node cannot be set by an update",),
        _MESSAGE,
        "Behind the same sentence the API prints a difference of two Go structs, in a layout that its library declares "
        "unstable.",
    ),
    Accepted(
        "registrations",
        ("match conditions are taken",),
        "0",
        "There is no CEL here. A registration with match conditions is refused, for a webhook that were called without "
        "them would see, and could refuse, what it must not.",
    ),
    Accepted(
        "kubectl",
        ("explain explains a built-in kind",),
        r"0\.body",
        "The schemas of built-in kinds have every field, its type and what is required, but no descriptions: those are "
        "Kubernetes' own documentation.",
    ),
)


def acceptance(area: str, behaviour: str, difference: Difference) -> Accepted | None:
    return next((entry for entry in ACCEPTED if entry.covers(area, behaviour, difference)), None)


def unaccepted(area: str, behaviour: str, found: Sequence[Difference]) -> Iterator[Difference]:
    return (item for item in found if acceptance(area, behaviour, item) is None)
