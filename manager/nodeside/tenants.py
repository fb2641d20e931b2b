"""Bounds on the Mid and Batch that the pods of one namespace may hold together, from annotations of the Namespace.

API servers have no quotas for names below kubernetes.io, so one tenant could take everything that is lent. The webhook
denies pods beyond the bound, counting all present pods; the scheduler extender rejects pods that came in nevertheless
on every node, counting the bound pods. An invalid bound admits no pod, and is reported.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from manager.nodeside.assumed import AssumedPods
from manager.pods import NOTHING, UNITS, PodRecord, sum_held
from shared import explanation, names
from shared.api.core import Namespace
from shared.api.pods import amounts
from shared.names import Tier
from shared.quantity import QuantityError, Resources

Bound: TypeAlias = int | str  # in milli-cores or bytes; a text says why it is invalid
Bounds: TypeAlias = Mapping[str, Bound]  # by annotation; most namespaces have none


class Holders:
    """Pods that hold resources of a tier, by namespace. Written by one thread, read by all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, PodRecord]] = {}

    def replace(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Applies one change."""
        with self._lock:
            if old is not None and (there := self._pods.get(namespace_of(old))) is not None:
                there.pop(old.key, None)
                if not there:
                    del self._pods[namespace_of(old)]
            if new is not None and new.held_tier is not None:
                self._pods.setdefault(namespace_of(new), {})[new.key] = new

    def pods_of(self, namespace: str) -> Collection[PodRecord]:
        with self._lock:
            return tuple(self._pods.get(namespace, {}).values())


class NamespaceTenants:
    """Checks pods against the bounds of their `namespace` (None: unknown). Safe for any thread."""

    def __init__(
        self,
        namespace: Callable[[str], Namespace | None],
        holders: Callable[[str], Iterable[PodRecord]],
        assumed: AssumedPods,
    ) -> None:
        self._namespace = namespace
        self._holders = holders
        self._assumed = assumed

    def why_denied(self, namespace: str, pod: PodRecord) -> str | None:
        """Why a pod may not enter the namespace; None if it may, or if unknown."""
        bounds = self._bounds(namespace, pod)
        if bounds is None:
            return None
        return _refusal(namespace, bounds, pod, (each for each in self._holders(namespace) if each.key != pod.key))

    def why_refused(self, pod: PodRecord) -> str | None:
        """Why an admitted pod may go to no node: the namespace's bound pods and its assumed ones count."""
        namespace = namespace_of(pod)
        bounds = self._bounds(namespace, pod)
        if bounds is None:
            return None
        others = {each.pod.uid: each.pod for each in self._assumed.others(pod) if namespace_of(each.pod) == namespace}
        others |= {each.uid: each for each in self._holders(namespace) if each.node}
        others.pop(pod.uid, None)
        return _refusal(namespace, bounds, pod, others.values())

    def _bounds(self, namespace: str, pod: PodRecord) -> Bounds | None:
        if pod.held_tier is None:
            return None
        found = self._namespace(namespace)
        return (read_bounds(found) or None) if found is not None else None


def namespace_of(pod: PodRecord) -> str:
    return pod.key.partition("/")[0]


def read_bounds(namespace: Namespace) -> Bounds:
    """The bounds in its annotations."""
    annotations = namespace.metadata.annotations or {}
    found: dict[str, Bound] = {}
    for of_tier in names.ANNOTATION_BOUNDS.values():
        for annotation, resource in zip(of_tier, (names.CPU, names.MEMORY), strict=True):
            if annotation in annotations:
                try:
                    found[annotation] = amounts({resource: annotations[annotation]})[resource]
                except QuantityError as error:
                    found[annotation] = str(error)
    return found


def _refusal(namespace: str, bounds: Bounds, pod: PodRecord, others: Iterable[PodRecord]) -> str | None:
    holds, asks = sum_held(others), sum_held([pod])
    for tier, annotations in names.ANNOTATION_BOUNDS.items():
        if asks[tier] == NOTHING:
            continue
        why = _beyond(tier, annotations, bounds, holds[tier], asks[tier])
        if why is not None:
            return f"namespace {namespace} {why}"
    return None


def _beyond(tier: Tier, annotations: Iterable[str], bounds: Bounds, holds: Resources, asks: Resources) -> str | None:
    for annotation, (resource, unit), there, more in zip(annotations, UNITS, holds, asks, strict=True):
        bound = bounds.get(annotation)
        if isinstance(bound, str):
            return f"takes no pods of {tier.capitalize()}: annotation {annotation}: {bound}"
        if bound is not None and more > 0 and there + more > bound:
            most, holding, asked = (explanation.amount(each, unit) for each in (bound, there, more))
            return (
                f"may request {most} of {tier.capitalize()} {resource} at most (annotation {annotation}): "
                f"its pods request {holding}, this one requests {asked}"
            )
    return None
