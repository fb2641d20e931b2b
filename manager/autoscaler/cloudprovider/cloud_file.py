"""What the files that `--cloud-config` names have in common, whichever provider reads them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from shared.api.core import Taint
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

T = TypeVar("T")
Mistake = tuple[str, object, str]  # field, value, problem

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class ReloadedFile(Generic[T]):
    """The configuration in force: the last valid version of the file.

    Raises InvalidInput at the start; a file that becomes invalid later changes nothing, and is told once.
    """

    def __init__(self, path: Path, load: Callable[[Path], T]) -> None:
        self._path = path
        self._load = load
        self._problem = ""
        self._content = _content(path)
        self.cloud = load(path)

    def reread(self) -> T:
        """Parses the file only if its content has changed."""
        before, self._content = self._content, _content(self._path)
        if self._content is not None and self._content == before:
            return self.cloud
        problem = ""
        try:
            self.cloud = self._load(self._path)
        except InvalidInput as error:
            problem = str(error)
        if problem and problem != self._problem:
            logger.error("the configuration was rejected, the last valid one stays in effect: %s", problem)
        self._problem = problem
        return self.cloud


def _content(path: Path) -> bytes | None:
    """None if it cannot be read, upon which the file's own reader says why."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def refuse_first(mistakes: Iterator[Mistake], source: Path) -> None:
    """Raises InvalidInput that names file, field and value, if there is a mistake."""
    for field, value, problem in mistakes:
        raise InvalidInput(source=str(source), field=field, value=value, problem=problem)


def named_twice(names: Sequence[str], field: str) -> Iterator[Mistake]:
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            yield f"{field}[{position}].name", name, "twice"
        seen.add(name)


def taint_mistakes(taints: Sequence[Taint], field: str) -> Iterator[Mistake]:
    for position, taint in enumerate(taints):
        if not taint.key:
            yield f"{field}[{position}].key", taint.key, "a taint needs a key"
        if taint.effect not in TAINT_EFFECTS:
            yield f"{field}[{position}].effect", taint.effect, f"one of {', '.join(TAINT_EFFECTS)}"
