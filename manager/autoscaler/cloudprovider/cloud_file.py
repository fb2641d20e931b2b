"""What the files that `--cloud-config` names have in common, whichever provider reads them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from shared import durations
from shared.api.core import Taint
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

T = TypeVar("T")
Mistake = tuple[str, object, str]  # field, value, problem

MAX_TIMEOUT_SECONDS = 600.0  # of one call
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class ReloadedFile(Generic[T]):
    """The configuration in force: the last valid version of the file.

    Raises InvalidInput at the start; a file that becomes invalid later changes nothing, and is told once.
    """

    def __init__(self, path: Path, load: Callable[[Path], T]) -> None:
        self._path = path
        self._load = load
        self._problem = ""
        self.cloud = load(path)

    def reread(self) -> T:
        problem = ""
        try:
            self.cloud = self._load(self._path)
        except InvalidInput as error:
            problem = str(error)
        if problem and problem != self._problem:
            logger.error("the last good configuration stays: %s", problem)
        self._problem = problem
        return self.cloud


def refuse_first(mistakes: Iterator[Mistake], source: Path) -> None:
    """Raises InvalidInput that names file, field and value, if there is a mistake."""
    for field, value, problem in mistakes:
        raise InvalidInput(source=str(source), field=field, value=value, problem=problem)


def named_twice(names: Sequence[str], field: str) -> Iterator[Mistake]:
    for position, name in enumerate(names):
        if name in names[:position]:
            yield f"{field}[{position}].name", name, "twice"


def taint_mistakes(taints: Sequence[Taint], field: str) -> Iterator[Mistake]:
    for position, taint in enumerate(taints):
        if not taint.key:
            yield f"{field}[{position}].key", taint.key, "a taint has a key"
        if taint.effect not in TAINT_EFFECTS:
            yield f"{field}[{position}].effect", taint.effect, f"one of {', '.join(TAINT_EFFECTS)}"


def timeout_seconds(given: str | float) -> float:
    """Seconds that one call may take, of a duration or a number of them. Raises ValueError."""
    seconds = durations.parse(given) if isinstance(given, str) else given
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"not within {MAX_TIMEOUT_SECONDS:g} s, or none")
    return seconds
