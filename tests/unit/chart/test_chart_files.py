"""The chart's files follow the code."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from deploy import chart_files, crds
from deploy.chart_files import FILES, ROOT
from shared.api.meta import Wire


def test_the_committed_files_are_what_the_code_generates_now() -> None:
    generated = chart_files.generated()
    folders = {path.parent for path in generated}
    committed = {
        path.relative_to(ROOT): path.read_text("utf-8") for folder in folders for path in (ROOT / folder).glob("*.yaml")
    }
    assert folders == {FILES / "cloudproviders", FILES / "crds"}
    assert committed == generated, "run: python -m deploy.chart_files"


class Part(Wire, frozen=True):
    some_text: str = ""


class Sample(Wire, frozen=True):
    whole: int | None = None
    either: str | int | None = None
    parts: tuple[Part, ...] | None = None
    by_name: dict[str, Part] | None = None
    raw: dict[str, object] | None = None


def test_a_struct_becomes_a_structural_schema() -> None:
    words = {"Sample": {"whole": {"format": None, "description": "So many."}}, "Part": {"someText": {"maxLength": 9}}}
    part = {"type": "object", "properties": {"someText": {"type": "string", "maxLength": 9}}}
    assert crds.schema_of(Sample, words)["properties"] == {
        "whole": {"type": "integer", "description": "So many."},
        "either": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "parts": {"type": "array", "items": part},
        "byName": {"type": "object", "additionalProperties": part},
        "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }


def structs_within(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """A struct, and those of its fields, however deep."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from structs_within(field.type)
    for argument in getattr(kind, "__args__", ()):
        yield from structs_within(argument)


@pytest.mark.parametrize("resource", crds.RESOURCES)
def test_every_word_is_about_a_field_that_there_is(resource: str) -> None:
    fields = {
        struct.__name__: {field.encode_name for field in msgspec.structs.fields(struct)}
        for kind in crds.RESOURCES[resource].values()
        for struct in structs_within(kind)
    }
    words = yaml.safe_load((crds.WORDS / f"{resource}.yaml").read_text("utf-8"))["structs"]
    assert {(name, key) for name, keys in words.items() for key in keys if key not in fields.get(name, ())} == set()


def test_every_field_of_a_nodemetric_is_described() -> None:
    root = crds.definition("nodemetrics")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    silent = [path for path, schema in properties(root, "") if "description" not in schema]
    assert set(silent) <= {".apiVersion", ".kind", ".metadata"}


def properties(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}", each
        yield from properties(each, f"{path}.{name}")
    if "items" in schema:
        yield from properties(schema["items"], f"{path}[]")
