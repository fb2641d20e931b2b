"""Patches as pure functions: JSON merge patch (RFC 7386), JSON patch (RFC 6902), strategic merge patch."""

from collections.abc import Sequence

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import Json, JsonObject, copy, encode
from deploy.local.apiserver.schemas import FieldPath, ListRule, ListRules

_COPIED_BYTES = 3 << 20  # the total of all operations of one patch
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"


def merge(target: Json, patch: Json) -> Json:
    """RFC 7386: objects merge, null removes, any other value replaces. Does not change `target`."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if isinstance(value, dict):
            result[key] = merge(result.get(key), value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


class PatchFailed(Exception):
    """A JSON patch that does not apply to this object."""


def json_patch(target: JsonObject, operations: Json) -> JsonObject:
    """RFC 6902. Raises StatusError: 400 for an invalid patch, 422 if it does not apply."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise status.bad_request("error decoding patch: a JSON patch is a list of operations")
    try:
        return apply_operations(target, operations)
    except PatchFailed as error:
        raise status.StatusError(422, "Invalid", f"the JSON patch does not apply: {error}", details={}) from error


def apply_operations(target: JsonObject, operations: Sequence[JsonObject]) -> JsonObject:
    """The object after the operations; does not change `target`. Raises PatchFailed."""
    root = {"": copy(target)}  # so that the object has a parent like any other place
    copied = 0
    for operation in operations:
        if operation.get("op") == "copy":
            copied += len(encode(root))
            if copied > _COPIED_BYTES:  # each copy may double the document
                raise status.too_large(_COPIED_BYTES)
        try:
            _operate(root, operation)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise PatchFailed(f"{operation.get('op')} does not apply at {operation.get('path')!r}") from error
    document = root.get("")
    if not isinstance(document, dict):
        raise PatchFailed("what the patch leaves is no object")
    return document


def _operate(root: JsonObject, operation: JsonObject) -> None:
    """Applies one operation in place. As in the API, a missing field can be replaced, and equals null in a test."""
    op = operation.get("op")
    if op in ("move", "copy"):
        source, at = _place(root, operation["from"])
        value = source.pop(at) if op == "move" else copy(source[at])
        _add(*_place(root, operation["path"]), value)
        return
    parent, key = _place(root, operation["path"])
    if op == "add":
        _add(parent, key, copy(operation["value"]))
    elif op == "replace":
        parent[key] = copy(operation["value"])
    elif op == "remove":
        del parent[key]
    elif op != "test":
        raise PatchFailed(f"there is no operation {op!r}")
    elif (parent.get(key) if isinstance(parent, dict) else parent[key]) != operation.get("value"):
        raise PatchFailed(f"the test of {operation['path']} failed")


def _place(root: JsonObject, pointer: str) -> tuple[Json, Json]:
    """The object or list that a JSON pointer leads into, and the key or index there."""
    found: Json = root
    *way, last = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/"))
    for step in way:
        found = found[_key(found, step)]
    return found, _key(found, last)


def _key(parent: Json, step: str) -> str | int:
    """A step as a key of an object or as an index of a list, whose end is `-`. Raises ValueError."""
    if not isinstance(parent, list):
        return step
    if step != "-" and not step.isdigit():
        raise ValueError(f"{step!r} is no index")
    return len(parent) if step == "-" else int(step)


def _add(parent: Json, key: Json, value: Json) -> None:
    if not isinstance(parent, list):
        parent[key] = value
    elif key <= len(parent):
        parent.insert(key, value)
    else:
        raise IndexError(key)


def strategic(target: JsonObject, patch: JsonObject, rules: ListRules, path: FieldPath = ()) -> JsonObject:
    """Strategic merge: like `merge`, but lists with a merge key merge item by item, and directives apply.

    New items come last, whatever order the patch asks for. Raises StatusError (400) for a malformed patch.
    """
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive not in (None, "merge"):
        raise status.bad_request(f"unknown patch type: {directive}")
    retained = patch.get(_RETAIN)
    result = {key: value for key, value in target.items() if retained is None or key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            field = key.removeprefix(_DELETE_PRIMITIVES)
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif not key.startswith("$"):
            _merge_field(result, key, value, rules, (*path, key))
    return result


def _merge_field(result: JsonObject, key: str, value: Json, rules: ListRules, path: FieldPath) -> None:
    current = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        rule = rules(path)
        base = current if isinstance(current, dict) and not (rule is not None and rule.replace) else {}
        result[key] = strategic(base, value, rules, path)
    elif isinstance(value, list):
        existing = current if isinstance(current, list) else []
        result[key] = _merge_list(existing, value, rules(path), rules, path)
    else:
        result[key] = value


def _merge_list(
    current: list[Json], patch: list[Json], rule: ListRule | None, rules: ListRules, path: FieldPath
) -> list[Json]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    if rule is not None and rule.union:
        return current + [item for item in patch if item not in current]
    if rule is None or not rule.merge_key:
        return patch
    merge_key, result = rule.merge_key, list(current)
    for item in patch:
        if not isinstance(item, dict) or merge_key not in item:
            raise status.bad_request(f"an item of {'.'.join(path)} does not contain its merge key: {merge_key}")
        at = next((i for i, old in enumerate(result) if old.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(merge_key) != item[merge_key]]
        elif at is None:
            result.append(strategic({}, item, rules, path))
        else:
            result[at] = strategic(result[at], item, rules, path)
    return result
