"""Native requests become Mid or Batch ones, as Koordinator's webhook has it: its koordlet then enforces limits.

Where kubelets are to enforce them, it is done by `limits`.

In every container `cpu` becomes `kubernetes.io/<class>-cpu` (whole milli-cores) and `memory` becomes
`kubernetes.io/<class>-memory` (the same quantity), in requests and in limits; a request that is missing is the limit.
Names below kubernetes.io are not what the API server calls extended resources: a limit may be larger than its request,
or be missing.

The overhead stays native, which Koordinator's webhook translates too: a sandbox's overhead is the RuntimeClass's to
say, and the API server refuses a pod that says another one.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from manager.webhook.jsonpatch import JsonObject
from shared import names, quantity
from shared.api import pods
from shared.api.core import Pod
from shared.names import PriorityClass, QoS, Tier

ResourceNames: TypeAlias = Mapping[str, str]

NATIVE = (names.CPU, names.MEMORY)
NO_CLASSES: Mapping[PriorityClass, str] = {}


def _of(tier: Tier) -> ResourceNames:
    return dict(zip(NATIVE, names.TIER_RESOURCES[tier], strict=True))


# What the native resources are called in a class.
RESOURCE_NAMES: Mapping[PriorityClass, ResourceNames] = {of: _of(tier) for tier, of in names.TIER_CLASSES.items()}


def class_of(
    pod: Pod, *, by_profile: bool = False, priority_classes: Mapping[PriorityClass, str] = NO_CLASSES
) -> PriorityClass:
    """The class the pod names: by label, else by spec.priority, else, while that is not set, by its PriorityClass.

    One that names none of these has that of the tier it asks for, or whose own PriorityClass of `priority_classes` it
    names. A pod that a profile made best-effort, and that has no class yet, is Batch.
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
    """The pod with its native requests and limits as those of its class; without change for any other class.

    What already has the class's name stays as it is, and then a native one beside it is dropped: namespaces with
    default requests add them again after this. A Batch pod without a QoS is labelled BE, which Koordinator wants to
    see on all that ask for Batch. Raises QuantityError.
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
    """The pod with its quality of service, if it is a Batch pod that says none."""
    if priority_class is PriorityClass.BATCH and names.LABEL_QOS_CLASS not in (_metadata(pod).get("labels") or {}):
        return with_metadata(pod, "labels", {names.LABEL_QOS_CLASS: QoS.BE.value})
    return pod


def named(pod: JsonObject, priority_class: PriorityClass) -> JsonObject:
    """The pod with its class as a label, where neither a label nor its priority tells it already."""
    found = msgspec.convert(pod, Pod)
    if names.LABEL_PRIORITY_CLASS in _labels(found) or pods.raw_priority_class(found) is priority_class:
        return pod
    return with_metadata(pod, "labels", {names.LABEL_PRIORITY_CLASS: priority_class.value})


def asks_as_a_whole(pod: JsonObject) -> bool:
    """Whether the pod has native requests or limits of its own, beside its containers', which have no other names."""
    resources = pod["spec"].get("resources") or {}
    return any(name in (resources.get(part) or {}) for part in ("requests", "limits") for name in NATIVE)


def with_extended_resource_spec(pod: JsonObject) -> JsonObject:
    """The pod with Koordinator's annotation of what its containers ask of Mid or Batch.

    Runtime hooks set cgroups from it, as they see no resources. Where limits are native, these are the tier's as well.
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


def with_metadata(pod: JsonObject, part: str, values: Mapping[str, str]) -> JsonObject:
    """The pod with these labels or annotations, over those it has."""
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
    """The quantity as it is under a tier's name. Raises QuantityError."""
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
