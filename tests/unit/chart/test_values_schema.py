"""The chart's schema follows the code."""

import json
from typing import Any

import msgspec
import pytest

from agent.enforcer.settings import EnforcerSettings
from agent.settings import AgentSettings
from deploy import values_schema
from manager.daemon_settings import DaemonSettings
from shared import settings

COMMITTED = values_schema.FILE.read_text("utf-8")


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
    keys = set(values_schema.generated()[definition]["properties"])
    assert len(keys) == len(fields) - len(chosen)
    assert keys < settings.shown(kind()).keys()


def test_a_definition_that_the_code_no_longer_has_disappears() -> None:
    document: dict[str, Any] = {"definitions": {"byHand": {}, "NoLongerThere": {}}}
    definitions = values_schema.completed(document)["definitions"]
    assert "byHand" in definitions
    assert "NoLongerThere" not in definitions
