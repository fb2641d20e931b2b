"""YAML files of the user's, read into structs that refuse what they do not know."""

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
    """What the text says. Raises yaml.YAMLError, whatever is wrong."""
    try:
        return read(text)
    except yaml.YAMLError:
        raise
    except Exception as error:  # its readers of dates, numbers, truths and nests raise whatever happens to them
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
    """What stands at a path like ".groups[0].name"; as far as it can be followed."""
    found = document
    for name, index in _STEP.findall(where):
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and index and int(index) < len(found):
            found = found[int(index)]
    return found
