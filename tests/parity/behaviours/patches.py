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


def _finalizers(body: Json) -> list[Step]:
    made = given("$cm", {"metadata": {"name": "a", "finalizers": ["x.io/1", "x.io/2"]}})
    clear = patch("$cm/a", {"metadata": {"finalizers": None}})
    return [made, patch("$cm/a", {"metadata": body}, STRATEGIC), clear]


patches.table({
    "a merge patch sets, and removes by null": _config({"data": {"a": None, "c": "3"}}),
    "a merge patch of nothing changes nothing": _config({}),
    "a merge patch replaces lists":
        _pod({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]}},
            MERGE),
    "a merge patch removes everything by null": _config({"data": None, "metadata": {"labels": None}}),
    "a merge patch that is no object is refused": _config([]),
    "a merge patch that is no JSON is refused": _config("{"),
    "a merge patch of an unknown field is pruned": _config({"nothing": 1}),
    "a merge patch with an invalid result is refused": _config({"metadata": {"labels": {"a b": "c"}}}),
    "a strategic patch sets, and removes by null": _config({"data": {"a": None, "c": "3"}}, STRATEGIC),
    "a strategic patch that is no object is refused": _config([], STRATEGIC),
    "a strategic patch that is no JSON is refused": _config("{", STRATEGIC),
    "a strategic patch of an unknown field is pruned": _config({"nothing": 1}, STRATEGIC),
    "a strategic patch replaces an object by directive": _config({"data": {"$$patch": "replace", "c": "3"}}, STRATEGIC),
    "a strategic patch removes an object by directive": _config({"data": {"$$patch": "delete"}}, STRATEGIC),
    "a strategic patch keeps only the retained keys": _config({"data": {"$$retainKeys": ["c"], "c": "3"}}, STRATEGIC),
    "a strategic patch merges containers by name":
        _pod({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}),
    "a strategic patch replaces tolerations":
        _pod({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]}}),
    "a strategic patch removes finalizers by directive":
        _finalizers({"$$deleteFromPrimitiveList/finalizers": ["x.io/1"]}),
    "a JSON patch adds": _json({"op": "add", "path": "/data/c", "value": "3"}),
    "a JSON patch escapes its paths": _json({"op": "add", "path": "/metadata/annotations", "value": {}},
                                            {"op": "add", "path": "/metadata/annotations/x.io~1y", "value": "3"}),
    "a JSON patch removes": _json({"op": "remove", "path": "/data/a"}),
    "a JSON patch replaces": _json({"op": "replace", "path": "/data/a", "value": "9"}),
    "a JSON patch moves": _json({"op": "move", "from": "/data/a", "path": "/data/c"}),
    "a JSON patch copies": _json({"op": "copy", "from": "/data/a", "path": "/data/c"}),
    "a JSON patch tests": _json({"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}),
    "a JSON patch whose test fails is refused": _json({"op": "test", "path": "/data/a", "value": "9"}),
    "a JSON patch that tests what is missing for null is taken":
        _json({"op": "test", "path": "/data/c", "value": None}),
    "a JSON patch of a missing member is refused": _json({"op": "remove", "path": "/data/c"}),
    "a JSON patch that replaces a missing member is refused": _json({"op": "replace", "path": "/data/c", "value": "9"}),
    "a JSON patch below a missing member is refused": _json({"op": "add", "path": "/metadata/labels/a", "value": "9"}),
    "a JSON patch out of bounds is refused":
        [_POD, patch("$pods/a", [{"op": "add", "path": "/spec/tolerations/9", "value": {}}], JSON_PATCH)],
    "a JSON patch appends to a list": [_POD, patch(
        "$pods/a", [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "m", "operator": "Exists"}}],
            JSON_PATCH
    )],
    "a JSON patch of an unknown operation is refused": _json({"op": "nothing", "path": "/data/a"}),
    "a JSON patch without path is refused": _json({"op": "remove"}),
    "a JSON patch that is no list is refused": _config({}, JSON_PATCH),
    "a JSON patch that is no JSON is refused": _config("[", JSON_PATCH),
    "a JSON patch of nothing changes nothing": _json(),
    "a JSON patch of the whole document is refused": _json({"op": "remove", "path": ""}),
    "a custom object takes a merge patch":
        [given("$nm", NODE_METRIC), patch("$nm/$me", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}})],
    "a custom object takes a JSON patch": [given("$nm", NODE_METRIC), patch(
        "$nm/$me", [{"op": "add", "path": "/spec", "value": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}}],
            JSON_PATCH
    )],
    "a custom object refuses a JSON patch whose test fails": [given("$nm", NODE_METRIC), patch(
        "$nm/$me", [{"op": "test", "path": "/metadata/name", "value": "b"}], JSON_PATCH
    )],
    "a custom object refuses a merge patch of a wrong type": [given("$nm", NODE_METRIC), patch("$nm/$me", {"spec": 7})],
    "a dry run of a patch changes nothing": [_CONFIG, patch("$cm/a?dryRun=All", {"data": {"a": "9"}}), get("$cm/a")],
})  # fmt: skip
