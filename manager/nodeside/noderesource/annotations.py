"""Reads a Node's JSON annotations, with types; invalid ones are refused."""

from typing import TypeVar

import msgspec

from shared.api.core import Node
from shared.errors import InvalidInput

T = TypeVar("T")


def read(node: Node, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The value of the annotation, None if absent. Raises InvalidInput."""
    text = node.metadata.annotation(name)
    if text is None:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise refused(node, name, text, str(error)) from error


def refused(node: Node, name: str, value: object, problem: str) -> InvalidInput:
    """The error for an invalid annotation."""
    return InvalidInput(source=f"Node {node.metadata.name} annotation", field=name, value=value, problem=problem)
