"""PodDisruptionBudgets as pure functions: which pods they cover, what they allow, which pods are exempt."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from deploy.local.apiserver.objects import Json, JsonObject, dig
from shared.api.selectors import LabelSelector

Scale = Callable[[JsonObject], int | None]  # returns the replicas of a pod's controller


def covers(budget: JsonObject, labels: Mapping[str, str]) -> bool:
    """Whether a budget is about pods with these labels; one without a selector is about none."""
    selector = msgspec.convert(dig(budget, "spec", "selector"), LabelSelector | None)
    return selector is not None and selector.matches(labels)


def ready(pod: JsonObject) -> bool:
    conditions = dig(pod, "status", "conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def may_go_at_once(pod: JsonObject) -> bool:
    """Whether the eviction disrupts no application: the pod is finished, not yet running, or already terminating."""
    phase = dig(pod, "status", "phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def exempt_as_unhealthy(budget: JsonObject, pod: JsonObject) -> bool:
    """Whether a pod that is not ready may be evicted: if enough pods are healthy, or always if the policy says so."""
    if ready(pod):
        return False
    if dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    current = budget.get("status") or {}
    desired: int = current.get("desiredHealthy", 0)
    return desired > 0 and bool(current.get("currentHealthy", 0) >= desired)


def budget_status(budget: JsonObject, pods: Sequence[JsonObject], scale: Scale) -> JsonObject:
    """The status of a budget over the pods it covers."""
    living = [pod for pod in pods if dig(pod, "status", "phase") not in ("Succeeded", "Failed")]
    expected, desired = _expected(budget["spec"], living, scale)
    healthy = sum(ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in living)
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 0),
    }


def _expected(spec: JsonObject, pods: Sequence[JsonObject], scale: Scale) -> tuple[int, int]:
    """The number of expected pods, and how many of them must be healthy."""
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(minimum, int):
        return len(pods), minimum
    expected = _controlled(pods, scale)
    if maximum is not None:
        return expected, max(0, expected - _share(maximum, expected))
    return expected, _share(minimum if minimum is not None else 0, expected)


def _controlled(pods: Sequence[JsonObject], scale: Scale) -> int:
    """The sum of the replicas of the pods' controllers; pods without a controller do not count."""
    replicas: dict[str, int] = {}
    for pod in pods:
        owner = next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)
        wanted = scale(pod) if owner is not None else None
        if owner is not None and wanted is not None:
            replicas[owner["uid"]] = wanted
    return sum(replicas.values())


def _share(amount: Json, total: int) -> int:
    """An integer, or a percentage of a total, rounded up."""
    if isinstance(amount, str):
        return math.ceil(int(amount.rstrip("%")) * total / 100)
    return int(amount)
