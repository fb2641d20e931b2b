"""Strategic merge patches, as far as pods need them.

Objects are merged, null removes a key, a list with a merge key is merged by it (new items come last), and any other
list is replaced. Directives ("$patch", "$setElementOrder", "$retainKeys") are not supported.
"""

from collections.abc import Mapping
from typing import Any

from manager.nodeside.webhook.jsonpatch import JsonObject

# The lists of a Pod that are merged, with the key that identifies their items.
MERGE_KEYS = {
    "containers": "name",
    "ephemeralContainers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}


def problem(patch: object, field: str = "") -> str | None:
    """Why a patch cannot be applied to any pod, if it cannot."""
    if isinstance(patch, Mapping):
        for key, value in patch.items():
            if key.startswith("$"):
                return f"the directive {key} is not supported"
            if found := problem(value, key):
                return found
    elif isinstance(patch, list):
        key = MERGE_KEYS.get(field)
        for item in patch:
            if key is not None and not (isinstance(item, Mapping) and key in item):
                return f"every item of {field} needs its {key}"
            if found := problem(item):
                return found
    return None


def merged(document: JsonObject, patch: JsonObject) -> dict[str, Any]:
    """The document after a patch that has no `problem`."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _value(key, result.get(key), value)
    return result


def _value(field: str, old: object, new: object) -> object:
    if isinstance(new, Mapping):
        return merged(old if isinstance(old, Mapping) else {}, new)
    if isinstance(new, list) and field in MERGE_KEYS:
        return _list(MERGE_KEYS[field], old if isinstance(old, list) else [], new)
    return new


def _list(key: str, old: list[Any], new: list[Any]) -> list[Any]:
    items = list(old)
    for item in new:
        place = next((index for index, each in enumerate(items) if each.get(key) == item[key]), None)
        if place is None:
            items.append(merged({}, item))
        else:
            items[place] = merged(items[place], item)
    return items
