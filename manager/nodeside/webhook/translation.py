"""Turns native requests into Mid or Batch ones, as Koordinator's webhook does: its koordlet then enforces limits.

If kubelets enforce them, `limits` does the translation.

In every container `cpu` becomes `kubernetes.io/<class>-cpu` (whole milli-cores) and `memory` becomes
`kubernetes.io/<class>-memory` (the same quantity), in requests and in limits; a missing request is the limit. For the
API server, names below kubernetes.io are not extended resources: a limit may be larger than its request, or be missing.

The overhead stays native, although Koordinator's webhook translates it, too: the RuntimeClass defines a sandbox's
overhead, and the API server refuses a pod with another one.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from manager.nodeside.webhook.jsonpatch import JsonObject
from shared import names, quantity
from shared.api import pods
from shared.api.core import Pod
from shared.names import PriorityClass, QoS, Tier

ResourceNames: TypeAlias = Mapping[str, str]

NATIVE = (names.CPU, names.MEMORY)
NO_CLASSES: Mapping[PriorityClass, str] = {}


def _resource_names(tier: Tier) -> ResourceNames:
    return dict(zip(NATIVE, names.TIER_RESOURCES[tier], strict=True))


# The names of the native resources in a class.
RESOURCE_NAMES: Mapping[PriorityClass, ResourceNames] = {
    of: _resource_names(tier) for tier, of in names.TIER_CLASSES.items()
}


def class_of(
    pod: Pod, *, by_profile: bool = False, priority_classes: Mapping[PriorityClass, str] = NO_CLASSES
) -> PriorityClass:
    """The class that the pod names: by label, else by spec.priority, else, while that is not set, by its PriorityClass.

    A pod that names none of these has the class of the tier it requests, or the class whose PriorityClass in
    `priority_classes` it names. A pod that a profile made best-effort, and that has no class yet, is Batch.
    """
    named = pods.raw_priority_class(pod)
    class_name, is_labelled = pod.spec.priority_class_name, names.LABEL_PRIORITY_CLASS in _labels(pod)
    if named is PriorityClass.NONE and pod.spec.priority is None and not is_labelled:
        named = PriorityClass(class_name) if class_name in tuple(PriorityClass) else named
    if named is PriorityClass.NONE:
        named = pods.asked_class(pod)
    if named is PriorityClass.NONE and class_name and not is_labelled:
        named = next((of for of, own in priority_classes.items() if own == class_name), named)
    if named is PriorityClass.NONE and by_profile and _labels(pod).get(names.LABEL_QOS_CLASS) == QoS.BE:
        return PriorityClass.BATCH
    return named


def translated(pod: JsonObject, priority_class: PriorityClass) -> JsonObject:
    """The pod with its native requests and limits as those of its class; unchanged for any other class.

    An amount that already has the class's name stays, and then a native one beside it is dropped: namespaces with
    default requests add them again after this. A Batch pod without a QoS gets the label BE, which Koordinator expects
    on all pods that request Batch. Raises QuantityError.
    """
    resource_names = RESOURCE_NAMES.get(priority_class)
    if resource_names is None:
        return pod
    spec = dict(pod["spec"])
    for part in ("initContainers", "containers"):
        if spec.get(part):
            spec[part] = [_container(container, resource_names) for container in spec[part]]
    return labelled({**pod, "spec": spec}, priority_class)


def labelled(pod: JsonObject, priority_class: PriorityClass) -> JsonObject:
    """The pod with its quality of service, if it is a Batch pod without one."""
    if priority_class is PriorityClass.BATCH and names.LABEL_QOS_CLASS not in (_metadata(pod).get("labels") or {}):
        return with_metadata(pod, "labels", {names.LABEL_QOS_CLASS: QoS.BE.value})
    return pod


def named(pod: JsonObject, priority_class: PriorityClass) -> JsonObject:
    """The pod with its class as a label, unless a label or its priority already names it."""
    found = msgspec.convert(pod, Pod)
    if names.LABEL_PRIORITY_CLASS in _labels(found) or pods.raw_priority_class(found) is priority_class:
        return pod
    return with_metadata(pod, "labels", {names.LABEL_PRIORITY_CLASS: priority_class.value})


def asks_as_a_whole(pod: JsonObject) -> bool:
    """Whether the pod has native pod-level requests or limits, which cannot be translated."""
    resources = pod["spec"].get("resources") or {}
    return any(name in (resources.get(part) or {}) for part in ("requests", "limits") for name in NATIVE)


def with_extended_resource_spec(pod: JsonObject) -> JsonObject:
    """The pod with Koordinator's annotation of its containers' Mid or Batch amounts.

    Runtime hooks set cgroups from it, because they cannot see resources. If limits are native, they are in it as the
    tier's.
    """
    asked: dict[str, dict[str, dict[str, Any]]] = {}
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for of in RESOURCE_NAMES.values():
            native_limits = {
                name: native_amount(native, limits[native])
                for native, name in of.items()
                if name in requests and native in limits
            }
            own = {name: limits[name] for name in of.values() if name in limits}
            parts = {
                "limits": native_limits | own,
                "requests": {name: requests[name] for name in of.values() if name in requests},
            }
            for part, amounts in parts.items():
                if amounts:
                    asked.setdefault(container.get("name", ""), {}).setdefault(part, {}).update(amounts)
    present = (_metadata(pod).get("annotations") or {}).get(names.ANNOTATION_EXTENDED_RESOURCE_SPEC)
    if not asked or _is_json(present, {"containers": asked}):
        return pod
    text = msgspec.json.encode({"containers": asked}, order="sorted").decode()
    return with_metadata(pod, "annotations", {names.ANNOTATION_EXTENDED_RESOURCE_SPEC: text})


def with_spec(pod: JsonObject, **values: Any) -> JsonObject:
    """The pod with these fields of its spec."""
    return {**pod, "spec": {**pod["spec"], **values}}


def with_metadata(pod: JsonObject, part: str, values: Mapping[str, str]) -> JsonObject:
    """The pod with these labels or annotations, which override its own."""
    metadata = _metadata(pod)
    return {**pod, "metadata": {**metadata, part: {**(metadata.get(part) or {}), **values}}}


def _container(container: JsonObject, resource_names: ResourceNames) -> JsonObject:
    resources = container.get("resources") or {}
    given = {part: resources.get(part) or {} for part in ("requests", "limits")}
    limits = _renamed(given["limits"], resource_names)
    lacking = {name: limits[name] for name in resource_names.values() if name in limits}
    wanted = {"requests": lacking | _renamed(given["requests"], resource_names), "limits": limits}
    changed = {part: amounts for part, amounts in wanted.items() if amounts != given[part]}
    return {**container, "resources": {**resources, **changed}} if changed else container


def _renamed(amounts: JsonObject, resource_names: ResourceNames) -> dict[str, Any]:
    renamed = {name: amount for name, amount in amounts.items() if name not in resource_names}
    for native, name in resource_names.items():
        if native in amounts:
            renamed.setdefault(name, native_amount(native, amounts[native]))
    return renamed


def native_amount(native: str, amount: str | float) -> str | float:
    """The quantity in the form of the tier's resource. Raises QuantityError."""
    if native == names.CPU:
        return quantity.format_decimal(quantity.milli(amount))
    quantity.whole(amount)
    return amount


def _metadata(pod: JsonObject) -> JsonObject:
    return pod.get("metadata") or {}


def _labels(pod: Pod) -> Mapping[str, str]:
    return pod.metadata.labels or {}


def _is_json(text: object, value: object) -> bool:
    try:
        return isinstance(text, str) and bool(msgspec.json.decode(text) == value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
