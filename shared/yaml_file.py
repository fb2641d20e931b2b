"""The only reader of YAML from outside. It bounds time and memory for any text; dates stay text, as in Kubernetes."""

import codecs
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import yaml

from shared.errors import InvalidInput, cut, gone

if TYPE_CHECKING or not yaml.__with_libyaml__:
    from yaml import SafeLoader as _LibraryLoader
else:
    from yaml import CSafeLoader as _LibraryLoader

S = TypeVar("S", bound=msgspec.Struct)

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")

# More than any file or ConfigMap has, and less than takes the stack of a reader to its end: one in Python then fails
# where it is, and one in C brings the process down.
MOST_NESTED = 100
# What aliases may add to a document when each is replaced by what it refers to: a few hundred bytes can expand to
# gigabytes. A node counts as _NODE_BYTES, and its text in addition.
MOST_ALIASED_BYTES = 4 << 20
_NODE_BYTES = 16
MOST_DIGITS = 400  # of one number, as a 64-bit float may have; reading and printing a number takes quadratic time
MOST_PROBLEM = 1000  # characters of an error, which quotes names in the text
# Each use of a prefix repeats it in memory, and no manifest declares one.
_TAG_DIRECTIVE = re.compile("^%TAG", re.MULTILINE)
_TAG = "tag:yaml.org,2002:"


class _Loader(_LibraryLoader):
    most_nested = MOST_NESTED
    _depth = 0

    # libyaml calls these two around each node that it composes, and nothing else of ours.
    def descend_resolver(self, current_node: object, current_index: object) -> None:
        self._depth += 1
        if self._depth > self.most_nested:
            raise yaml.YAMLError(f"nests lists and mappings more than {self.most_nested} deep")

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def construct_document(self, node: yaml.Node) -> Any:
        _refuse_bomb(node)
        return super().construct_document(node)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _bounded(read: Callable[[Any, Any], Any]) -> Callable[[Any, yaml.Node], Any]:
    def construct(loader: Any, node: yaml.Node) -> Any:
        if len(node.value) > MOST_DIGITS:
            raise yaml.YAMLError(f"a number of {len(node.value)} characters, the most is {MOST_DIGITS}")
        return read(loader, node)

    return construct


_Loader.add_constructor(f"{_TAG}int", _bounded(_Loader.construct_yaml_int))
_Loader.add_constructor(f"{_TAG}float", _bounded(_Loader.construct_yaml_float))


def _refuse_bomb(document: yaml.Node) -> None:
    """Raises yaml.YAMLError if aliases expand too far; one that contains itself expands without end."""
    seen: set[int] = set()
    aliased_bytes = 0
    todo = [document]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            aliased_bytes += _NODE_BYTES + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
            if aliased_bytes > MOST_ALIASED_BYTES:
                raise yaml.YAMLError(f"its aliases expand to more than {MOST_ALIASED_BYTES >> 20} MiB")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for pair in node.value:
                todo += pair
        elif isinstance(node, yaml.SequenceNode):
            todo += node.value


def parse(text: str | bytes) -> Any:
    """The only document of the text; None if it is empty. Raises yaml.YAMLError for any error."""
    found = list(itertools.islice(documents(text), 2))
    if len(found) > 1:
        raise yaml.YAMLError("expected a single document")
    return found[0] if found else None


def documents(text: str | bytes, *, most_nested: int = MOST_NESTED) -> Iterator[Any]:
    """Each document of the text, once it is asked for. Raises yaml.YAMLError for any error."""
    try:
        text = _decoded(text) if isinstance(text, bytes) else text
        if _TAG_DIRECTIVE.search(text):
            raise yaml.YAMLError("declares prefixes of tags (%TAG)")
        loader: Any = _Loader(text)
        loader.most_nested = most_nested
        while loader.check_data():
            yield loader.get_data()
    except Exception as error:  # PyYAML's readers of numbers, booleans and nesting raise many kinds of error
        problem = str(error) if isinstance(error, yaml.YAMLError) else f"cannot be read: {error!r}"
        raise yaml.YAMLError(cut(problem, MOST_PROBLEM)) from error


def _decoded(text: bytes) -> str:
    """PowerShell writes UTF-16."""
    return text.decode("utf-16" if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")


def read(path: Path, flag: str) -> Any:
    """The document of a flag's file. Raises InvalidInput."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise InvalidInput(source=flag, field="file", value=str(path), problem=problem) from error


def load(path: Path, kind: type[S]) -> S:
    """Raises InvalidInput naming file, field and value. An empty file is an empty mapping.

    `REMOVED` of a kind has its former keys, each with the sentence that says what replaces it.
    """
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(source=str(path), field="(document)", value=path.name, problem=str(error)) from error
    document = {} if document is None else document
    for field, replacement in getattr(kind, "REMOVED", {}).items():
        if isinstance(document, dict) and field in document:
            raise InvalidInput(source=str(path), field=field, value=document[field], problem=gone(replacement))
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
