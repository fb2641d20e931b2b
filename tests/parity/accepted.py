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
_QUOTED = (
    "The message quotes the whole patched object: the same one, whose JSON has its keys in another order and holds "
    "managedFields. What is wrong with it follows in the same words."
)
_YAML = "The message ends in the words of the YAML parser. kubectl reads YAML itself, and sends JSON."

ACCEPTED: Sequence[Accepted] = (
    Accepted(
        "errors",
        ("a call without credentials is refused",),
        "0",
        "Who comes without credentials is a user named anonymous, whom RBAC refuses; RBAC is outside parity. "
        "A wrong token is answered alike, and every client here has one.",
    ),
    Accepted("errors", ("malformed YAML is refused",), r"0\.body\.message", _YAML),
    Accepted("apply", ("an apply of no YAML is refused",), r"0\.body\.message", _YAML),
    Accepted(
        "errors",
        ("a pod's node cannot be set by an update",),
        _MESSAGE,
        "Behind the same sentence the API prints a difference of two Go structs, in a layout that its library declares "
        "unstable.",
    ),
    Accepted("conflicts", ("a patch of the kind is refused",), _MESSAGE, _QUOTED),
    Accepted(
        "patches",
        ("a merge patch of a wrong type is refused", "a strict merge patch of an unknown field is refused"),
        _MESSAGE,
        _QUOTED,
    ),
    Accepted("subresources", ("a node's status with a quantity that is none is refused",), _MESSAGE, _QUOTED),
    Accepted("customs", ("an unknown field of a strict patch is refused",), _MESSAGE, _QUOTED),
)


def acceptance(area: str, behaviour: str, difference: Difference) -> Accepted | None:
    return next((entry for entry in ACCEPTED if entry.covers(area, behaviour, difference)), None)


def unaccepted(area: str, behaviour: str, found: Sequence[Difference]) -> Iterator[Difference]:
    return (item for item in found if acceptance(area, behaviour, item) is None)
