"""Pods that the scheduler extender has accepted, and whose binding has not been observed yet.

A scheduler reserves a node for such a pod at once and binds the pod later; the manager observes the binding. In the
meantime only the scheduler knows the node, so the pod counts on every node that the extender has accepted for it.
"""

import threading
from collections.abc import Collection
from typing import NamedTuple

from manager.pods import PodRecord
from shared.clock import Clock

ASSUMED_SECONDS = 5.0  # a scheduler that has not bound the pod by then asks about it again
MOST_ASSUMED = 256  # beyond it, the oldest ones no longer count


class AssumedPod(NamedTuple):
    """A pod, the nodes that were accepted for it, and until when it counts (monotonic seconds)."""

    pod: PodRecord
    nodes: frozenset[str]
    until: float


class AssumedPods:
    """By UID, in the order of their acceptance. Safe for any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pods: dict[str, AssumedPod] = {}

    def assume(self, pod: PodRecord, nodes: Collection[str]) -> None:
        """The pod counts on these nodes from now on, and on no others; without nodes it does not count."""
        with self._lock:
            self._pods.pop(pod.uid, None)
            if nodes:
                self._pods[pod.uid] = AssumedPod(pod, frozenset(nodes), self._clock.monotonic() + ASSUMED_SECONDS)
            if len(self._pods) > MOST_ASSUMED:
                del self._pods[next(iter(self._pods))]

    def observe(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A change of a pod in the cluster: one that is bound or deleted no longer counts here."""
        if old is not None and new is None:
            self._drop(old.uid)
        elif new is not None and new.node:
            self._drop(new.uid)

    def others(self, pod: PodRecord) -> list[AssumedPod]:
        """All but the pod itself."""
        now = self._clock.monotonic()
        with self._lock:
            self._pods = {uid: each for uid, each in self._pods.items() if each.until > now}
            return [each for uid, each in self._pods.items() if uid != pod.uid]

    def count(self) -> int:
        return len(self._pods)

    def _drop(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)
