"""`python -m tests.apiserver.structs MODULE`: writes structs.json, the Go types of the built-in kinds.

MODULE is a folder whose go.mod requires k8s.io/kubernetes. Its k8s.io/api modules, found by `go list`, are read: what
the API server takes and stores is what encoding/json makes of these types, so field names, JSON tags, pointers and
merge strategies are all there is to know. Nothing else of the sources is kept.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from deploy.local.apiserver.kinds import BUILT_IN, REVIEWS
from deploy.local.apiserver.structs import DATA, OPAQUE

_MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver")
_FILES = ("types.go", "group_version.go")  # of a package, those with types that objects are made of
_FIELD = re.compile(r'(?:(?P<name>\w+)\s+)?(?P<type>[\w.*\[\]]+)\s+`.*?json:"(?P<json>[^"]*)"(?P<tags>[^`]*)`')
_STRUCT = re.compile(r"type (\w+) struct ?\{")
_NAMED = re.compile(r"type (\w+) ([\w.\[\]]+)$")
_IMPORT = re.compile(r'\s+(?:(\w+)\s+)?"(k8s\.io/[^"]+)"$')
_DEMAND = re.compile(r"//\s*\+(?:k8s:)?(optional|required)\b")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver.structs", description=__doc__)
    parser.add_argument("module", type=Path)
    sources = _Sources(parser.parse_args().module)
    types: dict[str, object] = {}
    wanted = [kind.struct for kind in (*BUILT_IN, *REVIEWS)]
    while wanted:
        name = wanted.pop()
        if name not in types and name not in OPAQUE:
            found = sources.type(name)
            types[name] = found
            for text in [found] if isinstance(found, str) else found.values():
                wanted += re.findall(r"\w+/\w+\.\w+", text)
    ordered = {name: types[name] for name in sorted(types)}
    DATA.write_text(json.dumps({"kubernetes": sources.version, "types": ordered}, indent=1) + "\n", encoding="utf-8")


class _Sources:
    """The Go packages below a module's requirements."""

    def __init__(self, module: Path) -> None:
        listed = subprocess.run(
            ["go", "list", "-m", "-f", "{{.Path}} {{.Version}} {{.Dir}}", "k8s.io/kubernetes", *_MODULES],
            cwd=module, check=True, capture_output=True, text=True,
        )  # fmt: skip
        rows = [line.split() for line in listed.stdout.splitlines()]
        self.version = rows[0][1]
        self._folders = {path: Path(folder) for path, _, folder in rows}
        self._parser = cache(self._read)

    def type(self, full: str) -> str | dict[str, str]:
        package, _, name = full.rpartition(".")
        return self._parser(package).type(name)

    def _read(self, package: str) -> _Parser:
        path = _import_path(package)
        module = next(name for name in _MODULES if path.startswith(f"{name}/"))
        folder = self._folders[module] / path.removeprefix(f"{module}/")
        files = [folder / name for name in _FILES]
        text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
        return _Parser(self, package, text)


def _import_path(package: str) -> str:
    """The import path of a package as structs.json names it."""
    if package == "meta/v1":
        return "k8s.io/apimachinery/pkg/apis/meta/v1"
    if package == "apiextensions/v1":
        return "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
    return f"k8s.io/api/{package}"


def _package_of(import_path: str) -> str:
    return "/".join(import_path.split("/")[-2:])


class _Parser:
    """The types of a package, as gofmt leaves them: a declaration to a line."""

    def __init__(self, sources: _Sources, package: str, text: str) -> None:
        self._sources = sources
        self._package = package
        self._lines = text.splitlines()
        found = [match for line in self._lines if (match := _IMPORT.match(line))]
        self._imports = {match[1] or match[2].rpartition("/")[2]: _package_of(match[2]) for match in found}

    def type(self, name: str) -> str | dict[str, str]:
        """A struct's fields, or what another type is a name for."""
        for number, line in enumerate(self._lines):
            if (match := _NAMED.match(line)) and match[1] == name:
                return self._full(match[2])
            if (match := _STRUCT.match(line)) and match[1] == name:
                end = number if line.endswith("}") else self._lines.index("}", number)
                return dict(self._fields(self._lines[number + 1 : end]))
        raise LookupError(f"{self._package}.{name}")

    def _fields(self, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
        demands: list[str] = []
        for line in map(str.strip, lines):
            if not line:
                demands = []
            elif demand := _DEMAND.match(line):
                demands.append(demand[1])
            elif match := _FIELD.match(line):
                yield from self._field(match, demands)
                demands = []

    def _field(self, match: re.Match[str], demands: Sequence[str]) -> Iterator[tuple[str, str]]:
        name, *options = match["json"].split(",")
        full = self._full(match["type"])
        if "inline" in options:
            if full != "meta/v1.TypeMeta":
                inner = self._sources.type(full)
                assert isinstance(inner, dict), full
                yield from inner.items()
            return
        if name == "-":
            return
        written = "omitzero" if "omitzero" in options else "" if "omitempty" in options else "always"
        demand = _demand(demands, always=written == "always")
        words = (full, written, demand, *_merge_words(match["tags"]))
        yield name, " ".join(filter(None, words))

    def _full(self, go: str) -> str:
        """A type with the package of every name in it."""

        def named(match: re.Match[str]) -> str:
            package, _, name = match[0].rpartition(".")
            if package:
                return f"{self._imports[package]}.{name}"
            return name if name[0].islower() else f"{self._package}.{name}"

        return re.sub(r"(?!map\b)[A-Za-z]\w*(\.\w+)?", named, go)


def _demand(demands: Sequence[str], *, always: bool) -> str:
    """`required` or `optional`, where that does not follow from when the field is written."""
    for word, is_news in (("optional", always), ("required", not always)):
        if word in demands:
            return word if is_news else ""
    return ""


def _merge_words(tags: str) -> Iterator[str]:
    """How a field merges in a strategic patch: `merge=`, `union`, `retain` or `replace`."""
    strategies = re.search(r'patchStrategy:"([^"]*)"', tags)
    merge_key = re.search(r'patchMergeKey:"([^"]*)"', tags)
    if merge_key:
        yield f"merge={merge_key[1]}"
    for strategy in strategies[1].split(",") if strategies else ():
        yield {"merge": "" if merge_key else "union", "retainKeys": "retain"}.get(strategy, strategy)


if __name__ == "__main__":
    main()
