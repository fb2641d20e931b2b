"""The priority expander: the priorities of the ConfigMap `cluster-autoscaler-priority-expander`.

Its key `priorities` maps numbers to lists of regular expressions that are searched for in group ids. The highest number
wins. A missing or invalid value leaves every option in.

Patterns are Go's regular expressions, which are RE2's: these always take time proportional to the pattern and to the
text, and no more memory than their limit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import re2
import yaml

from manager.autoscaler.expander.option import Option
from shared import yaml_file
from shared.errors import InvalidInput, cut

MOST_BYTES = 256 << 10  # of one pattern, with RE2's cache of texts
MOST_PROBLEM = 300  # characters of RE2's error, which quotes the pattern
MOST_INSTRUCTIONS = 20_000  # of all patterns together, as RE2 compiles them; a plain name has one per letter

_ONE_BYTE = r"\C"  # the only RE2 expression that Go's regexp refuses
_TOKEN = re.compile(r"\\Q.*?(?:\\E|$)|\\.", re.DOTALL)


class Pattern:
    """A pattern that matches anywhere in a text."""

    def __init__(self, text: str) -> None:
        """Raises ValueError that says what is wrong with the pattern."""
        if _ONE_BYTE in _TOKEN.findall(text):
            raise ValueError(f"invalid escape sequence: {_ONE_BYTE}")
        try:
            self._compiled = re2.compile(text, _options())
        except re2.error as error:
            raise ValueError(cut(error.args[0].decode(errors="replace"), MOST_PROBLEM)) from error
        self.instructions: int = self._compiled.programsize

    def is_in(self, text: str) -> bool:
        return self._compiled.search(text.encode(errors="replace")) is not None


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.log_errors = False
    return options


CONFIG_MAP = "cluster-autoscaler-priority-expander"
KEY = "priorities"
SOURCE = f"ConfigMap {CONFIG_MAP}"

LOWEST_PRIORITY = -1  # lower priorities match nothing


@dataclass(frozen=True)
class Priorities:
    """Patterns by priority; empty when nothing is configured."""

    patterns: Mapping[int, tuple[Pattern, ...]] = field(default_factory=dict)

    def priority(self, group: str) -> int | None:
        """The group's highest priority; None when no pattern matches it."""
        found = (
            priority
            for priority, patterns in self.patterns.items()
            if priority >= LOWEST_PRIORITY and any(pattern.is_in(group) for pattern in patterns)
        )
        return max(found, default=None)


@dataclass(frozen=True)
class PriorityReading:
    """What one `text` of the ConfigMap says: the last valid priorities if it cannot be read, and the `problem` then."""

    text: str | None
    priorities: Priorities = field(default_factory=Priorities)
    problem: InvalidInput | None = None


@dataclass(frozen=True)
class Choice:
    """The remaining options, and the groups that were dropped because no pattern matches them."""

    options: list[Option]
    unmatched: tuple[str, ...] = ()


def parse(text: str | None, *, source: str) -> Priorities:
    """The value of the ConfigMap's key, None if absent. Raises InvalidInput."""

    def refused(value: object, problem: str) -> InvalidInput:
        return InvalidInput(source=source, field=KEY, value=value, problem=problem)

    if text is None:
        raise refused(None, "there is none")
    try:
        document = yaml_file.parse(text)
    except yaml.YAMLError as error:
        raise refused(text, str(error)) from error
    if not isinstance(document, dict) or not document:
        raise refused(document, "expected a map of priorities to lists of regular expressions")
    patterns: dict[int, tuple[Pattern, ...]] = {}
    instructions = 0
    for priority, listed in document.items():
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise refused(priority, "a priority is an integer")
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise refused(listed, f"of priority {priority}: expected a list of regular expressions")
        found = []
        for each in listed:
            try:
                found.append(Pattern(each))
            except ValueError as error:
                raise refused(each, f"of priority {priority}: {error}") from error
            instructions += found[-1].instructions
            if instructions > MOST_INSTRUCTIONS:
                raise refused(each, f"of priority {priority}: with it, the patterns are too large together")
        patterns[priority] = tuple(found)
    return Priorities(patterns)


def read(text: str | None, before: PriorityReading | None) -> PriorityReading:
    """The reading of the ConfigMap's key; the one of `before` if the text is the same."""
    if before is not None and before.text == text:
        return before
    try:
        return PriorityReading(text, parse(text, source=SOURCE))
    except InvalidInput as refused:
        kept = before.priorities if before is not None and (text or "").strip() else Priorities()
        return PriorityReading(text, kept, refused)


def choose(options: Sequence[Option], priorities: Priorities) -> Choice:
    """The options of the highest priority; all of them if nothing is configured, or nothing matches."""
    if not priorities.patterns:
        return Choice(list(options))
    found = {option.group: priorities.priority(option.group) for option in options}
    unmatched = tuple(group for group, priority in found.items() if priority is None)
    highest = max((priority for priority in found.values() if priority is not None), default=None)
    if highest is None:
        return Choice(list(options), unmatched)
    return Choice([option for option in options if found[option.group] == highest], unmatched)
