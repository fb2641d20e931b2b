"""The chart's schema follows the code."""

import json
import re
from typing import Any

import msgspec
import pytest

from agent.enforcer.settings import EnforcerSettings
from agent.settings import AgentSettings
from deploy import values_schema
from manager.daemon_settings import DaemonSettings
from shared import settings
from tests.support.apiserver import ROOT

COMMITTED = values_schema.FILE.read_text("utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TOPS = ("manager", "agent", "enforcer", "colocationConfig", "crds", "rbac", "cleanup", "access", "image")
NAMED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(TOPS)})(?:\.(?!md\b|py\b)[a-z][A-Za-z]*)+)(?=[=:`)\s,|])")


def _objects(schema: object) -> list[dict[str, Any]]:
    """Every schema inside that names properties."""
    if isinstance(schema, list):
        return [found for item in schema for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    inner = [found for item in schema.values() for found in _objects(item)]
    return [schema, *inner] if isinstance(schema.get("properties"), dict) and "type" in schema else inner


def test_the_committed_schema_is_what_the_code_generates_now() -> None:
    expected = values_schema.rendered(values_schema.completed(json.loads(COMMITTED)))
    assert expected == COMMITTED, "run: python -m deploy.values_schema"
    removed = values_schema.REMOVED_FILE.read_text("utf-8")
    assert removed == values_schema.rendered(values_schema.removed()), "run: python -m deploy.values_schema"


def test_no_object_that_is_ours_takes_a_key_it_does_not_know() -> None:
    objects = _objects(json.loads(COMMITTED))
    assert len(objects) > 20
    assert [found for found in objects if found.get("additionalProperties") is not False] == []


@pytest.mark.parametrize(
    ("definition", "kind", "chosen"),
    [
        ("AgentSettings", AgentSettings, values_schema.AGENT_CHOSEN),
        ("EnforcerSettings", EnforcerSettings, values_schema.ENFORCER_CHOSEN),
        ("ManagerSettings", DaemonSettings, values_schema.MANAGER_CHOSEN),
    ],
)
def test_every_setting_is_a_value_but_those_that_the_chart_decides(
    definition: str, kind: type[msgspec.Struct], chosen: frozenset[str]
) -> None:
    fields = [field.name for field in settings.fields(kind)]
    assert chosen < set(fields)
    removed = {settings.key(name) for name in settings.removed(kind)}
    keys = set(values_schema.generated()[definition]["properties"]) - removed
    assert len(keys) == len(fields) - len(chosen)
    assert keys < settings.shown(kind()).keys()


def test_a_definition_that_the_code_no_longer_has_disappears() -> None:
    document: dict[str, Any] = {"definitions": {"byHand": {}, "NoLongerThere": {}}}
    definitions = values_schema.completed(document)["definitions"]
    assert "byHand" in definitions
    assert "NoLongerThere" not in definitions


def is_value(path: str, document: dict[str, Any]) -> bool:
    """Whether the chart takes it; objects of others may have any key."""
    here = document
    for key in path.split("."):
        while "$ref" in here:
            here = document["definitions"][here["$ref"].rpartition("/")[2]]
        here = here.get("properties", {}).get(key, here.get("additionalProperties", here.get("type") != "object"))
        if isinstance(here, bool):
            return here
    return True


def test_every_value_that_a_page_names_is_one_of_the_chart() -> None:
    document = json.loads(COMMITTED)
    named = {(page.name, path) for page in PAGES for path in NAMED.findall(page.read_text())}
    assert len(named) > 60
    assert sorted(each for each in named if not is_value(each[1], document)) == []
    assert not is_value("manager.settings.noSuchSetting", document)
