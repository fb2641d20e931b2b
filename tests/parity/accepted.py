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


ACCEPTED: Sequence[Accepted] = ()


def acceptance(area: str, behaviour: str, difference: Difference) -> Accepted | None:
    return next((entry for entry in ACCEPTED if entry.covers(area, behaviour, difference)), None)


def unaccepted(area: str, behaviour: str, found: Sequence[Difference]) -> Iterator[Difference]:
    return (item for item in found if acceptance(area, behaviour, item) is None)
