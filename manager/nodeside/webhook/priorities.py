"""The priority of Mid and Batch pods that name none.

API servers give such a pod priority 0, or that of the cluster's default PriorityClass, before webhooks run. Prod pods
without a PriorityClass get the same, so preemption and eviction could not order the two.
"""

from collections.abc import Callable, Mapping

from manager.nodeside.webhook.jsonpatch import JsonObject
from manager.nodeside.webhook.profiles import PriorityClassObject
from shared.names import PriorityClass


def prioritized(
    pod: JsonObject,
    of: PriorityClass,
    wanted: Mapping[PriorityClass, str],
    known: Callable[[str], PriorityClassObject | None],
) -> tuple[JsonObject, str]:
    """The pod with the PriorityClass that is `wanted` for its class, unless it names one; and a warning, or "".

    All fields that the API server takes from the PriorityClass must agree: it refuses a pod that differs.
    """
    spec, name = pod["spec"], wanted.get(of, "")
    if not name or not _is_default(spec, known):
        return pod, ""
    found = known(name)
    if found is None:
        return pod, f"there is no PriorityClass {name}, so the pod keeps its priority"
    chosen = {"priorityClassName": name, "priority": found.value, "preemptionPolicy": found.preemption_policy}
    return {**pod, "spec": {**spec, **chosen}}, ""


def _is_default(spec: JsonObject, known: Callable[[str], PriorityClassObject | None]) -> bool:
    """Whether the pod's priority is a default one."""
    if name := spec.get("priorityClassName"):
        found = known(name)
        return found is not None and found.global_default
    return not spec.get("priority")
