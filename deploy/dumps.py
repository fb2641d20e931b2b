"""Reads the output of `kubectl get ... -o yaml` (or json) into the objects that a command needs.

The file of a large cluster has gigabytes: objects stay text until one is wanted, and only then become typed.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from deploy import dump_stream, progress
from deploy.dump_heads import Head
from deploy.dump_pods import PartedPod, PodReader
from shared import durations, yaml_file
from shared.api.core import ConfigMap, Pod
from shared.api.meta import Wire
from shared.errors import InvalidInput

T = TypeVar("T", bound=msgspec.Struct)
STDIN = Path("-")
POD = "Pod"
DEFAULT_NAMESPACE = "default"

_MOST_NESTED = 1000  # no object of Kubernetes is deeper
_JSON_OBJECT = re.compile(rb"\s*\{\s*[\"}]")
_KIND_AT_ONCE = re.compile(rb'\s*\{\s*"apiVersion": "[^"\\]*",\s*"kind": "([A-Za-z]+)"')  # kubectl's layout


class _Envelope(Wire, frozen=True):
    """A document before its kind is known. API servers do not repeat the kind in the items of a list of one kind."""

    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Kind(Wire, frozen=True):
    kind: str = ""


Wanted = Callable[[str, Head], bool]


@dataclass
class Dump:
    """Objects by kind, in the order of the files; if an object comes twice, the last one counts.

    `now` is the newest time, not in the future, at which one of them was created, changed or reported, in Unix seconds:
    the files describe that moment. `counts` includes unwanted objects. `unused` lists the files that hold only other
    kinds.
    """

    source: str
    now: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    unused: list[str] = field(default_factory=list)
    _objects: dict[type[msgspec.Struct], dict[str, Any]] = field(default_factory=dict)

    def of(self, kind: type[T]) -> list[T]:
        """All objects of a requested kind."""
        return list(self._objects.get(kind, {}).values())

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """The ConfigMap of this name and namespace; a handwritten one without a namespace matches, too."""
        found = {each.metadata.namespace: each for each in self.of(ConfigMap) if each.metadata.name == name}
        return found.get(namespace, found.get(""))

    def add(self, key: str, made: msgspec.Struct) -> None:
        self._objects.setdefault(type(made), {})[key] = made


def read(files: Sequence[Path], kinds: Mapping[str, type[msgspec.Struct]], wanted: Wanted) -> Dump:
    """The `wanted` objects of these kinds, given by their Kubernetes names.

    Other kinds are ignored. Raises InvalidInput naming file, field and value.
    """
    dump = Dump(source=", ".join(map(str, files)))
    pod = kinds.get(POD)
    pods = PodReader(pod) if pod is not None and issubclass(pod, Pod) else None
    for path in files:
        reader = _Reader(dump, kinds, wanted, str(path), pods)
        try:
            taken = _take_items(reader, path)
            if taken is None:
                taken = [reader.take(text, where=f"document {index}") for index, text in enumerate(_documents(path))]
        except RecursionError as error:
            raise InvalidInput(source=str(path), field="(document)", value="", problem="nested too deeply") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # it begins like JSON, but is not
            raise InvalidInput(source=str(path), field="(document)", value="", problem=str(error)) from error
        if not any(taken):
            dump.unused.append(str(path))
    dump.now = min(dump.now, time.time())  # one object dated in the future does not make all others old
    return dump


def _take_items(reader: "_Reader", path: Path) -> list[bool] | None:
    """Reads a list as kubectl prints it, without holding all of its text; None for another file."""
    try:
        if path == STDIN or not path.is_file():
            return None
        with progress.bar(f"Reading {path.name}", path.stat().st_size) as came:
            items = dump_stream.items(path, came)
            if items is None:
                return None
            return [reader.take(item, where=f"document 0 items[{index}]") for index, item in enumerate(items)]
    except OSError as error:
        raise InvalidInput(source="-f", field="file", value=str(path), problem=str(error)) from error


@dataclass(frozen=True)
class _Reader:
    dump: Dump
    kinds: Mapping[str, type[msgspec.Struct]]
    wanted: Wanted
    source: str
    pods: PodReader[Pod] | None
    _instants: dict[str, float] = field(default_factory=dict)

    def take(self, text: bytes | msgspec.Raw, *, where: str, kind: str = "") -> bool:
        """Takes the object, and returns whether any of it is used. It is of this `kind` unless it says otherwise."""
        found = _KIND_AT_ONCE.match(text)
        kind = found[1].decode() if found is not None else self._kind(text, where) or kind
        if kind in self.kinds:
            self._add(text, kind, where)
        elif kind.endswith("List"):
            items = self._decoded(text, _Envelope, where, kind).items or ()
            each = kind.removesuffix("List")
            taken = [
                self.take(item, where=f"{where} items[{index}]", kind=each)
                for index, item in enumerate(progress.track(items, f"Reading {Path(self.source).name}"))
            ]
            return any(taken)
        elif not kind:
            problem = "not a Kubernetes object (no kind)"
            raise InvalidInput(source=self.source, field=where, value=_plain(text), problem=problem)
        return kind in self.kinds

    def _kind(self, text: bytes | msgspec.Raw, where: str) -> str:
        try:
            return _KIND.decode(text).kind
        except msgspec.ValidationError as error:
            value = _plain(text)
            if not isinstance(value, dict):
                problem = "not a Kubernetes object (no kind)"
                raise InvalidInput(source=self.source, field=where, value=value, problem=problem) from error
            if value.get("kind") is None:
                return ""
            raise InvalidInput(
                source=self.source, field=f"{where} kind", value=value["kind"], problem="expected a text"
            ) from error

    def _add(self, text: bytes | msgspec.Raw, kind: str, where: str) -> None:
        parts = self._part(text) if kind == POD else None
        head = self._decoded(text, Head, where, kind) if parts is None else parts.head
        name, dump = head.metadata.name, self.dump
        if not name:
            field_, problem = f"{where} {kind} metadata.name", "an object has a name"
            raise InvalidInput(source=self.source, field=field_, value=name, problem=problem)
        dump.counts[kind] += 1
        named = f"{where} {kind} {name}"
        for moment in head.moments():
            if moment is not None and moment not in self._instants:
                dump.now = max(dump.now, self._instant(moment, text, named))
        if head.metadata.deletion_timestamp is not None:  # it may come later
            self._instant(head.metadata.deletion_timestamp, text, named)
        if self.wanted(kind, head):
            key = f"{head.metadata.namespace or DEFAULT_NAMESPACE}/{name}"
            dump.add(key, self._pod(parts) or self._decoded(text, self.kinds[kind], where, kind))

    def _part(self, text: bytes | msgspec.Raw) -> PartedPod | None:
        """None if the general reader has to report what is wrong, as for `_pod`."""
        if self.pods is None or not isinstance(text, bytes):
            return None
        try:
            return self.pods.part(text)
        except msgspec.DecodeError:
            return None

    def _pod(self, parts: PartedPod | None) -> Pod | None:
        if self.pods is None or parts is None:
            return None
        try:
            return self.pods.pod(parts)
        except msgspec.DecodeError:
            return None

    def _instant(self, moment: str, text: bytes | msgspec.Raw, where: str) -> float:
        found = self._instants.get(moment)
        if found is None:
            try:
                found = self._instants[moment] = durations.instant(moment)
            except ValueError as error:
                field_ = f"{where} {_path_of(moment, _plain(text))}"
                problem = "expected an instant, such as 2026-01-31T12:00:00Z"
                raise InvalidInput(source=self.source, field=field_, value=moment, problem=problem) from error
        return found

    def _decoded(self, text: bytes | msgspec.Raw, kind: type[T], where: str, called: str) -> T:
        """The decoded object; a null field counts as absent, as for an API server."""
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError:
            document = _without_nulls(_plain(text))
        try:
            return msgspec.convert(document, kind)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$.")
            path = path.rstrip("`")
            name = _name(document)
            named = f"{called} {name}" if name else called
            raise InvalidInput(
                source=self.source,
                field=f"{where} {named} {path}".rstrip(),
                value=yaml_file.at(document, f".{path}"),
                problem=problem,
            ) from error


_KIND = msgspec.json.Decoder(_Kind)


def _plain(text: bytes | msgspec.Raw) -> object:
    return msgspec.json.decode(text)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _path_of(sought: str, value: object) -> str:
    """The path of the first occurrence of this text; empty without one."""
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in named:
        step = str(key) if isinstance(value, dict) else f"[{key}]"
        if each == sought:
            return step
        if found := _path_of(sought, each):
            return f"{step}{'' if found.startswith('[') else '.'}{found}"
    return ""


def _name(document: object) -> str:
    """The object's name; empty without one."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _text(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise InvalidInput(source="-f", field="file", value=str(path), problem=str(error)) from error


def _documents(path: Path) -> Iterator[bytes]:
    """Each document as JSON."""
    text = _text(path)
    if _JSON_OBJECT.match(text):
        yield text
        return
    try:
        for document in yaml_file.documents(text, most_nested=_MOST_NESTED):
            if document is not None:
                yield msgspec.json.encode(document)
    except yaml.YAMLError as error:
        raise InvalidInput(source=str(path), field="(document)", value="", problem=str(error)) from error
    except (TypeError, OverflowError, UnicodeError, msgspec.EncodeError) as error:  # YAML values without JSON form
        raise InvalidInput(source=str(path), field="(document)", value="", problem=str(error)) from error
