"""Sets of fields in the FieldsV1 form, and what of an object they name.

A set is a tree of "f:<field>", "k:<list keys>" and "v:<set value>"; a node is a member itself when it is empty
or holds ".". The empty set is None.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.local.apiserver.merging import ListRule, ListRules, Path
from deploy.local.apiserver.objects import Json, JsonObject, decode, encode

Fields = dict[str, "Fields"]

_KEY_DEFAULTS = {"protocol": "TCP"}
_OWNED_METADATA = ("generateName", "labels", "annotations", "finalizers", "ownerReferences")


def ownable(obj: JsonObject) -> JsonObject:
    """The part of an object that managers own: neither its identity nor what the server sets."""
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key in _OWNED_METADATA}
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"metadata": meta, **rest} if meta else rest


def item_key(item: Json, rule: ListRule) -> str | None:
    """The element name of a list item, None when the item lacks its keys."""
    if rule.is_set:
        return "v:" + encode(item).decode()
    if not isinstance(item, dict):
        return None
    keys = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(rule.map_keys)}
    if all(value is None for value in keys.values()):
        return None
    return "k:" + encode({key: value for key, value in keys.items() if value is not None}).decode()


def items_by_key(value: Json, path: Path, rules: ListRules) -> dict[str, Json] | None:
    """A mergeable container's children by element name; None for what is owned as a whole."""
    if isinstance(value, dict):
        return None if _is_atomic(path, rules) else {f"f:{key}": item for key, item in value.items()}
    rule = rules(path) if isinstance(value, list) and path else None
    if rule is None or not (rule.map_keys or rule.is_set):
        return None
    found = {item_key(item, rule): item for item in value}
    return None if None in found else {key: item for key, item in found.items() if key is not None}


def _is_atomic(path: Path, rules: ListRules) -> bool:
    """Whether an object has one owner as a whole."""
    rule = rules(path) if path else None
    return rule is not None and rule.atomic


def child_path(path: Path, element: str) -> Path:
    return (*path, element[2:]) if element.startswith("f:") else path


def fields_of(value: Json, rules: ListRules, path: Path = ()) -> Fields:
    """Every field a value sets."""
    children = items_by_key(value, path, rules)
    if not children:
        return {}
    return {element: _item_fields(element, item, rules, path) for element, item in children.items()}


def compare(old: Json, new: Json, rules: ListRules, path: Path = ()) -> tuple[Fields | None, Fields | None]:
    """What `new` gained (fields that `old` lacks or holds with another value) and what it lost."""
    if not isinstance(old, dict) or not isinstance(new, dict) or _is_atomic(path, rules):
        return _compare_items(old, new, rules, path)
    gained: Fields = {}
    lost: Fields = {}
    for key, item in new.items():
        if key not in old:
            gained[f"f:{key}"] = whole(item, rules, (*path, key))
        elif (before := old[key]) is not item and before != item:
            if isinstance(item, str) and isinstance(before, str):
                gained[f"f:{key}"] = {}
                continue
            more, less = compare(before, item, rules, (*path, key))
            if more is not None:
                gained[f"f:{key}"] = more
            if less is not None:
                lost[f"f:{key}"] = less
    for key in old:
        if key not in new:
            lost[f"f:{key}"] = whole(old[key], rules, (*path, key))
    return gained or None, lost or None


def _compare_items(old: Json, new: Json, rules: ListRules, path: Path) -> tuple[Fields | None, Fields | None]:
    """`compare` for lists, and for values owned as a whole."""
    if old == new:
        return None, None
    before, after = items_by_key(old, path, rules), items_by_key(new, path, rules)
    if before is None or after is None or type(old) is not type(new):
        return {key: below for key, below in whole(new, rules, path).items() if key != "."}, None
    gained = {key: _whole_item(key, item, rules, path) for key, item in after.items() if key not in before}
    lost = {key: _whole_item(key, item, rules, path) for key, item in before.items() if key not in after}
    for key in after.keys() & before.keys():
        if _is_leaf(key, rules, path):
            if before[key] != after[key]:
                gained[key] = {}
            continue
        more, less = compare(before[key], after[key], rules, child_path(path, key))
        if more is not None:
            gained[key] = more
        if less is not None:
            lost[key] = less
    return gained or None, lost or None


def whole(value: Json, rules: ListRules, path: Path = ()) -> Fields:
    """Every field of a value that was not there, or is gone: containers are members beside what they contain."""
    children = items_by_key(value, path, rules)
    if not children:
        return {}
    return {".": {}, **{element: _whole_item(element, item, rules, path) for element, item in children.items()}}


def _whole_item(element: str, item: Json, rules: ListRules, path: Path) -> Fields:
    return {} if _is_leaf(element, rules, path) else whole(item, rules, child_path(path, element))


def _is_leaf(element: str, rules: ListRules, path: Path) -> bool:
    """Whether a list's item has one owner as a whole."""
    if element.startswith("f:"):
        return False
    rule = rules(path)
    return element.startswith("v:") or (rule is not None and rule.atomic_items)


def _item_fields(element: str, item: Json, rules: ListRules, path: Path) -> Fields:
    if _is_leaf(element, rules, path):
        return {}
    below = fields_of(item, rules, child_path(path, element))
    return {".": {}, **below} if element.startswith("k:") and below else below


def _open(node: Fields) -> Fields:
    return node or {".": {}}


def _close(node: Fields) -> Fields:
    return {} if len(node) == 1 and "." in node else node


def union(a: Fields | None, b: Fields | None) -> Fields | None:
    if a is None or b is None:
        return a if b is None else b
    return _union(a, b)


def _union(a: Fields, b: Fields) -> Fields:
    if a == b:
        return a
    merged = dict(_open(a))
    for key, node in _open(b).items():
        merged[key] = _union(merged[key], node) if key in merged and key != "." else node
    return _close(merged)


def intersection(a: Fields | None, b: Fields | None) -> Fields | None:
    if a is None or b is None:
        return None
    a, b = _open(a), _open(b)
    result: Fields = {}
    for key in a:
        if key == "." and key in b:
            result[key] = {}
        elif key in b and (below := intersection(a[key], b[key])) is not None:
            result[key] = below
    return _close(result) if result else None


def difference(a: Fields | None, b: Fields | None) -> Fields | None:
    if a is None or b is None:
        return a
    a, b = _open(a), _open(b)
    result: Fields = {}
    for key, node in a.items():
        if key not in b:
            result[key] = node
        elif key != "." and (below := difference(node, b[key])) is not None:
            result[key] = below
    return _close(result) if result else None


def paths(fields: Fields | None, prefix: str = "") -> Iterator[str]:
    """Members as the API shows them: `.spec.containers[name="a"].image`."""
    if fields is None:
        return
    for key, node in _open(fields).items():
        if key == ".":
            yield prefix
        else:
            yield from paths(node, prefix + _shown(key))


def _shown(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    return "[" + ",".join(f"{key}={encode(value).decode()}" for key, value in decode(text).items()) + "]"


def remove(value: Json, fields: Fields, kept: Fields | None, rules: ListRules, path: Path = ()) -> Json:
    """The value without the named fields; containers they leave empty go too (None).

    What is in a container that is named itself goes with it, unless it is among the `kept` fields.
    """
    children = items_by_key(value, path, rules)
    if children is None:
        return None
    for element, node in fields.items():
        if element not in children:
            continue
        named, kept_below = not node or "." in node, (kept or {}).get(element)
        if named and kept_below is None:
            children[element] = None
            continue
        below = remove(children[element], node, kept_below, rules, child_path(path, element))
        children[element] = below if not named or _has_more_than_keys(below, element) else None
    remaining = {key: item for key, item in children.items() if item is not None}
    if not remaining:
        return None
    return {key[2:]: item for key, item in remaining.items()} if isinstance(value, dict) else list(remaining.values())


def _has_more_than_keys(item: Json, element: str) -> bool:
    """Whether a list item still says anything beside its own keys."""
    return isinstance(item, dict) and not set(item) <= set(decode(element[2:]) if element[0] == "k" else ())
