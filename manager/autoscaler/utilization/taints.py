"""Escalator's marks on nodes: the taint of those that are to go, with the time it was put on, and its relatives."""

import math
import re
from collections.abc import Iterable

import msgspec

from manager.autoscaler.snapshot import templates
from shared.api.core import Taint
from shared.errors import InvalidInput

TO_BE_REMOVED = templates.TAINT_ESCALATOR
FORCE = templates.TAINT_ESCALATOR_FORCE  # put on by others: the node goes as soon as it is empty
ANNOTATION_NO_DELETE = "atlassian.com/no-delete"
DEFAULT_EFFECT = "NoSchedule"

_WHOLE_SECONDS = re.compile(r"[+-]?[0-9]{1,63}")
_MOST_SECONDS = 2**63 - 1


def has(taints: Iterable[Taint], key: str) -> bool:
    """Whether one of this key is there, whatever its value and effect."""
    return any(taint.key == key for taint in taints)


def with_taint(taints: tuple[Taint, ...], *, now: float, effect: str = "") -> tuple[Taint, ...] | None:
    """The taints of a node that is to go; None when it is marked already, and the time of that stays."""
    if has(taints, TO_BE_REMOVED):
        return None
    return (*taints, Taint(TO_BE_REMOVED, str(int(now)), effect or DEFAULT_EFFECT))


def without_taint(taints: tuple[Taint, ...]) -> tuple[Taint, ...] | None:
    """The taints of a node that is to stay after all; None when it has no mark."""
    if not has(taints, TO_BE_REMOVED):
        return None
    return tuple(taint for taint in taints if taint.key != TO_BE_REMOVED)


def with_time(taints: tuple[Taint, ...], *, at: float) -> tuple[Taint, ...]:
    """The same with the mark put on at this time, and never earlier."""
    value = str(math.ceil(at))
    return tuple(
        msgspec.structs.replace(taint, value=value) if taint.key == TO_BE_REMOVED else taint for taint in taints
    )


def tainted_at(taints: Iterable[Taint], *, node: str = "") -> float | None:
    """Unix seconds of the mark, None without one. Raises InvalidInput."""
    for taint in taints:
        if taint.key == TO_BE_REMOVED:
            seconds = int(taint.value) if _WHOLE_SECONDS.fullmatch(taint.value) else None
            if seconds is None or not -_MOST_SECONDS - 1 <= seconds <= _MOST_SECONDS:
                problem = "expected the whole seconds of a Unix time"
                raise InvalidInput(source=f"Node {node}", field=TO_BE_REMOVED, value=taint.value, problem=problem)
            return float(seconds)
    return None
