"""YAML from outside: a parser that no text crashes, and files read into structs that refuse unknown fields."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from shared.errors import InvalidInput

S = TypeVar("S", bound=msgspec.Struct)

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")

# More than any file or ConfigMap has, and less than takes the stack of a reader to its end: one in Python then fails
# where it is, and one in C brings the process down.
MOST_NESTED = 100

_FastLoader: type = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def parse(text: str, read: Callable[[str], Any] = yaml.safe_load) -> Any:
    """Parses the text. Raises yaml.YAMLError for any error."""
    if is_nested(text, MOST_NESTED):
        raise yaml.YAMLError(f"nests lists and mappings more than {MOST_NESTED} deep")
    try:
        return read(text)
    except yaml.YAMLError:
        raise
    except Exception as error:  # PyYAML's readers of dates, numbers, booleans and nesting raise many kinds of error
        raise yaml.YAMLError(f"cannot be read: {error!r}") from error


def is_nested(text: str | bytes, most: int) -> bool:
    """Whether lists and mappings stand in more than `most` others.

    The events of the parser take no stack, however deep a text is.
    """
    depth = 0
    try:
        for event in yaml.parse(text, _FastLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > most:
                return True
    except yaml.YAMLError:
        pass  # the reader of the text meets the same error, and says it
    return False


def read(path: Path, flag: str) -> Any:
    """The document of a flag's file. Raises InvalidInput."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise InvalidInput(source=flag, field="file", value=str(path), problem=problem) from error


def load(path: Path, kind: type[S]) -> S:
    """Raises InvalidInput naming file, field and value. An empty file is an empty mapping."""
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(source=str(path), field="(document)", value=path.name, problem=str(error)) from error
    document = {} if document is None else document
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`")
        raise InvalidInput(
            source=str(path), field=where.removeprefix(".") or "(document)", value=at(document, where), problem=problem
        ) from error


def at(document: object, where: str) -> object:
    """The value at a path like ".groups[0].name"; the last one that exists."""
    found = document
    for name, index in _STEP.findall(where):
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and index and int(index) < len(found):
            found = found[int(index)]
    return found
