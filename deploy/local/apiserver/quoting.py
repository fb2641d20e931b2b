"""Objects and patches as the API's messages quote them."""

from __future__ import annotations

from deploy.local.apiserver import structs
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import Json, JsonObject, encode


def go_text(value: Json) -> str:
    """A value as Go prints it: map[a:1 b:[x y]]."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)


def patched(kind: Kind, obj: JsonObject, patch: Json) -> str:
    """An object that a merge patch made, as JSON: sorted where the patch went, and as its Go types are elsewhere."""
    touched = patch if isinstance(patch, dict) else {}
    return encode(_in_order(obj, "" if kind.custom else kind.struct, touched)).decode()


def _in_order(value: Json, go: str, touched: Json) -> Json:
    go = structs.resolved(go.lstrip("*"))
    if isinstance(value, list):
        return [_in_order(item, structs.element(go), None) for item in value]
    if not isinstance(value, dict):
        return value
    members = structs.members(go) if structs.is_struct(go) else {}
    keys = sorted(value)
    if members and not isinstance(touched, dict):
        keys = [key for key in members if key in value]
    below = touched if isinstance(touched, dict) else {}
    types = {key: members[key].type if key in members else structs.element(go) for key in keys}
    return {key: _in_order(value[key], types[key], below.get(key)) for key in keys}
