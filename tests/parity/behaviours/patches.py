"""Merge, strategic and JSON patches."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, config_map, pod
from tests.parity.calls import JSON_PATCH, MERGE, STRATEGIC, Json, Step, get, given, patch

patches = Area("patches", "Merge, strategic and JSON patches")

_CONFIG = given("$cm", config_map(data={"a": "1", "b": "2"}))
_POD = given("$pods", pod(tolerations=[{"key": "k", "operator": "Exists"}]))


def _config(body: Json, media_type: str = MERGE) -> list[Step]:
    return [_CONFIG, patch("$cm/a", body, media_type)]


def _json(*operations: dict[str, Json]) -> list[Step]:
    return _config(list(operations), JSON_PATCH)


def _pod(body: Json, media_type: str = STRATEGIC) -> list[Step]:
    return [_POD, patch("$pods/a", body, media_type)]


patches.table({
    "a merge patch replaces lists":
        _pod({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]}},
            MERGE),
    "a merge patch of an unknown field is pruned": _config({"nothing": 1}),
    "a merge patch with an invalid result is refused": _config({"metadata": {"labels": {"a b": "c"}}}),
    "a strategic patch of an unknown field is pruned": _config({"nothing": 1}, STRATEGIC),
    "a strategic patch merges containers by name":
        _pod({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}),
    "a strategic patch replaces tolerations":
        _pod({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]}}),
    "a JSON patch adds": _json({"op": "add", "path": "/data/c", "value": "3"}),
    "a JSON patch replaces": _json({"op": "replace", "path": "/data/a", "value": "9"}),
    "a JSON patch tests": _json({"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}),
    "a JSON patch whose test fails is refused": _json({"op": "test", "path": "/data/a", "value": "9"}),
    "a JSON patch appends to a list": [_POD, patch(
        "$pods/a", [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "m", "operator": "Exists"}}],
            JSON_PATCH
    )],
    "a custom object takes a merge patch":
        [given("$nm", NODE_METRIC), patch("$nm/$me", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}})],
    "a custom object takes a JSON patch": [given("$nm", NODE_METRIC), patch(
        "$nm/$me", [{"op": "add", "path": "/spec", "value": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}}],
            JSON_PATCH
    )],
    "a custom object refuses a JSON patch whose test fails": [given("$nm", NODE_METRIC), patch(
        "$nm/$me", [{"op": "test", "path": "/metadata/name", "value": "b"}], JSON_PATCH
    )],
    "a dry run of a patch changes nothing": [_CONFIG, patch("$cm/a?dryRun=All", {"data": {"a": "9"}}), get("$cm/a")],
})  # fmt: skip
