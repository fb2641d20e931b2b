"""What `kubectl get ... -o yaml` (or json) printed, read into the objects that a command looks at."""

import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from shared import durations, yaml_file
from shared.api.core import ConfigMap
from shared.errors import InvalidInput

T = TypeVar("T", bound=msgspec.Struct)
STDIN = Path("-")
DEFAULT_NAMESPACE = "default"

_MOST_NESTED = 1000  # no object of Kubernetes is, and a YAML parser in C does not say when its stack is at its end
_BRACKETS, _DASHES = re.compile(r"[][{}]"), re.compile(rf"(- ){{{_MOST_NESTED}}}")
_WHEN = ("time", "Time", "Timestamp", "At")  # what fields end in that say when something was
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_Base: type = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
# YAML without timestamps: an instant stays the text it is in Kubernetes.
_Strings: type = type(
    "_Strings",
    (_Base,),
    {
        "yaml_implicit_resolvers": {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
    },
)


@dataclass
class Dump:
    """Objects by kind, in the order of the files; of one that comes twice, as it came last. `now` is the newest instant
    at which one of them was made, changed or reported, in Unix seconds, and not in the future: a file is as true as the
    moment it was written.
    `unused` files have other kinds alone.
    """

    source: str
    now: float = 0.0
    unused: list[str] = field(default_factory=list)
    _objects: dict[type[msgspec.Struct], dict[str, Any]] = field(default_factory=dict)

    def of(self, kind: type[T]) -> list[T]:
        """All objects of a kind that was asked for."""
        return list(self._objects.get(kind, {}).values())

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """The one of that name there; one that says no namespace was written by hand, and is meant."""
        found = {each.metadata.namespace: each for each in self.of(ConfigMap) if each.metadata.name == name}
        return found.get(namespace, found.get(""))

    def add(self, key: str, made: msgspec.Struct) -> None:
        self._objects.setdefault(type(made), {})[key] = made


def read(files: Sequence[Path], kinds: Mapping[str, type[msgspec.Struct]], config_maps: Collection[str] = ()) -> Dump:
    """The objects of these kinds, by their names in Kubernetes; of ConfigMaps only those of the given names.

    Other kinds are passed over. Raises InvalidInput naming file, field and value.
    """
    dump = Dump(source=", ".join(map(str, files)))
    for path in files:
        text = _text(path)
        reader = _Reader(dump, kinds, config_maps, source=str(path))
        documents = enumerate(_documents(path, text))
        try:
            taken = [reader.take(document, where=f"document {index}") for index, document in documents]
        except RecursionError as error:
            raise InvalidInput(source=str(path), field="(document)", value="", problem="nested too deeply") from error
        if not any(taken):
            dump.unused.append(str(path))
    dump.now = min(dump.now, time.time())  # one object that is dated ahead does not make all others old
    return dump


@dataclass(frozen=True)
class _Reader:
    dump: Dump
    kinds: Mapping[str, type[msgspec.Struct]]
    config_maps: Collection[str]
    source: str

    def take(self, document: object, *, where: str) -> bool:
        """Whether there was something of use in it."""
        if not isinstance(document, dict) or "kind" not in document:
            raise InvalidInput(
                source=self.source, field=where, value=document, problem="not a Kubernetes object (no kind)"
            )
        kind = document["kind"]
        if not isinstance(kind, str):
            raise InvalidInput(source=self.source, field=f"{where} kind", value=kind, problem="expected a text")
        if kind in self.kinds:
            if kind != "ConfigMap" or _name(document) in self.config_maps:
                made = self._converted(document, self.kinds[kind], where=where)
                self.dump.add(self._key(document, where=f"{where} {kind}"), made)
                self.dump.now = max(
                    [self.dump.now, *self._instants(document, where=f"{where} {kind} {_name(document)}")]
                )
        elif kind.endswith("List"):
            items = document.get("items") or ()
            if not isinstance(items, list | tuple):
                raise InvalidInput(source=self.source, field=f"{where} items", value=items, problem="expected a list")
            taken = [self.take(item, where=f"{where} items[{index}]") for index, item in enumerate(items)]
            return any(taken)
        return kind in self.kinds

    def _key(self, document: Mapping[str, Any], *, where: str) -> str:
        """What tells the object from others of its kind."""
        name = _name(document)
        if not name:
            raise InvalidInput(
                source=self.source, field=f"{where} metadata.name", value=name, problem="an object has a name"
            )
        return f"{document['metadata'].get('namespace') or DEFAULT_NAMESPACE}/{name}"

    def _instants(self, document: Mapping[str, Any], *, where: str) -> Iterator[float]:
        for path, value in _moments(document):
            try:
                yield durations.instant(value)
            except (TypeError, ValueError) as error:
                problem = "expected an instant, such as 2026-01-31T12:00:00Z"
                raise InvalidInput(source=self.source, field=f"{where} {path}", value=value, problem=problem) from error

    def _converted(self, document: dict[str, Any], kind: type[T], *, where: str) -> T:
        try:
            return msgspec.json.decode(msgspec.json.encode(document), type=kind)
        except (TypeError, OverflowError, RecursionError) as error:  # what YAML has and JSON does not
            raise InvalidInput(source=self.source, field=where, value=document, problem=str(error)) from error
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$.")
            path = path.rstrip("`")
            name = _name(document)
            named = f"{kind.__name__} {name}" if name else kind.__name__
            raise InvalidInput(
                source=self.source,
                field=f"{where} {named} {path}".rstrip(),
                value=yaml_file.at(document, f".{path}"),
                problem=problem,
            ) from error


def _name(document: Mapping[str, Any]) -> str:
    """What it is called; empty where it is not."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _moments(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What says, by path, when the object was made, changed or reported. What is meant for later is in its other parts,
    and so is what people have written.
    """
    metadata = document["metadata"]
    yield from _whens({key: metadata.get(key) for key in ("creationTimestamp", "managedFields")}, "metadata")
    yield from _whens(document.get("status"), "status")


def _whens(value: object, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _whens(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, dict | list | tuple):
                yield from _whens(each, f"{path}.{key}")
            elif str(key).endswith(_WHEN) and each is not None:
                yield f"{path}.{key}", each


def _text(path: Path) -> str:
    try:
        return sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(source="-f", field="file", value=str(path), problem=str(error)) from error


def _may_be_deep(text: str) -> bool:
    """At a glance: texts in it may have brackets of their own."""
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > _MOST_NESTED:
            return True
    return _DASHES.search(text) is not None


def _depth(text: str) -> int:
    depth = deepest = 0
    for event in yaml.parse(text, _Base):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        deepest = max(deepest, depth)
    return deepest


def _documents(path: Path, text: str) -> Iterator[object]:
    if text.lstrip()[:1] == "{":
        try:
            yield msgspec.json.decode(text)  # many times faster, where it is JSON and nothing else
        except msgspec.DecodeError:
            pass
        else:
            return
    try:
        if _may_be_deep(text) and _depth(text) > _MOST_NESTED:
            raise RecursionError
        for document in yaml.load_all(text, _Strings):
            if document is not None:
                yield document
    except yaml.YAMLError as error:
        raise InvalidInput(source=str(path), field="(document)", value="", problem=str(error)) from error
