"""The user's YAML files, read into structs that refuse unknown fields."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from shared.errors import InvalidInput

S = TypeVar("S", bound=msgspec.Struct)

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def parse(text: str, read: Callable[[str], Any] = yaml.safe_load) -> Any:
    """Parses the text. Raises yaml.YAMLError for any error."""
    try:
        return read(text)
    except yaml.YAMLError:
        raise
    except Exception as error:  # PyYAML's readers of dates, numbers, booleans and nesting raise many kinds of error
        raise yaml.YAMLError(f"cannot be read: {error!r}") from error


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
