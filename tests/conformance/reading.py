"""A row's input that knows which of its keys an adapter has read: what was never looked at cannot have been judged."""

from collections.abc import Iterator
from typing import Any

# What rows say to people: what their own shorthand means, in which units they are, how samples were made.
_SAID = frozenset({"note", "comment", "source", "legend", "units", "samplesDesc"})
# What the rule of a group has no use for, though rows of it tell the whole situation.
_NO_PART_OF = {
    "acceptable_range": {"ready", "unregistered"},  # the range is of the target; these are compared with it later
    "seed_rank": {"preferred"},  # the machine by which `unfitness` was found
    "seed_nap_limits": {"autoprovisioned"},  # one name or the other, the cluster's limits hold for all groups
    "mid_degrade": {"prodReclaimablePresent"},  # Koordinator's own test has it beside the age, which decides
}


class ReadDict(dict[str, Any]):
    """A mapping that notes the keys that are asked for. One whose keys are asked for by C code alone, as when it is
    decoded as a whole, counts as read as a whole.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__({key: watched(value) for key, value in given.items()})
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._read.update(super().keys())
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        self._read.update(super().keys())
        return super().keys()

    def values(self) -> Any:
        self._read.update(super().keys())
        return super().values()

    def items(self) -> Any:
        self._read.update(super().keys())
        return super().items()

    def unread(self, path: str = "") -> Iterator[str]:
        """The paths of keys nobody asked for, here and in what was asked for."""
        for key, value in super().items():
            if self._read and key not in self._read and key not in _SAID:
                yield f"{path}.{key}"
            else:
                yield from unread(value, f"{path}.{key}")


def watched(value: object) -> object:
    """The same, with every mapping in it noting its reads."""
    if isinstance(value, dict):
        return ReadDict(value)
    return [watched(each) for each in value] if isinstance(value, list) else value


def ignored(group: str, value: object) -> list[str]:
    """The paths of the keys in a row's input that were never asked for, and should have been."""
    known = _NO_PART_OF.get(group, set())
    return [path for path in unread(value) if path.rpartition(".")[2] not in known]


def unread(value: object, path: str = "") -> Iterator[str]:
    """The paths of the keys in it that were never asked for."""
    if isinstance(value, ReadDict):
        yield from value.unread(path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from unread(each, f"{path}[{index}]")
