"""Pods that hold Mid or Batch during cleanup: they keep the held amounts, or are evicted first.

A restarted kubelet ends running pods that do not fit into the amounts of its Node. So a Node keeps what its pods hold,
unless they have been evicted.
"""

import enum
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from manager.pods import PodRecord, record, sum_held
from shared.api.core import Pod
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound, TooManyRequests
from shared.kube.resources import PODS
from shared.names import Tier
from shared.quantity import Resources

DRAIN_SECONDS = 180.0
ROUND_SECONDS = 2.0


class PodCleanup(enum.StrEnum):
    """What happens to pods that hold Mid or Batch."""

    KEEP = "keep"  # they run on, and their Nodes keep what they hold
    DRAIN = "drain"  # they are evicted first, subject to disruption budgets


class Undrained(HeadroomError):
    """Pods are still there when the time for evictions has passed."""


def holding(client: Client, tiers: Collection[Tier]) -> list[PodRecord]:
    """The pods on Nodes that hold resources of these tiers. Raises Undrained if a pod cannot be read."""

    def kept(pod: Pod) -> PodRecord | None:
        known = record(pod)
        holds = known.active and known.node and any(sum_held([known])[tier] != Resources() for tier in tiers)
        return known if holds else None

    listing = client.list(PODS, into=Pod, keep=kept)
    for refused in listing.refused:
        raise Undrained(f"pod {refused.key} cannot be read: {refused.reason}")
    return [each for each in listing.items if each is not None]


def by_node(pods: Collection[PodRecord]) -> Mapping[str, Collection[PodRecord]]:
    """The pods, by node."""
    there: dict[str, list[PodRecord]] = {}
    for pod in pods:
        there.setdefault(pod.node, []).append(pod)
    return there


def drain(
    client: Client, tiers: Collection[Tier], say: Callable[[str], None], *, seconds: float = DRAIN_SECONDS
) -> None:
    """Evicts all pods that hold resources of these tiers, and waits until they are gone. Raises Undrained."""
    asked: set[str] = set()
    until = time.monotonic() + seconds
    while there := holding(client, tiers):
        for pod in there:
            if pod.uid not in asked and _is_going(client, pod):
                asked.add(pod.uid)
                say(f"evicted pod {pod.key} from node {pod.node}")
        if time.monotonic() > until:
            named = ", ".join(pod.key for pod in there[:5])
            raise Undrained(f"{len(there)} pods still request Mid or Batch after {seconds:g} s: {named}, ...")
        client.clock.wait(threading.Event(), ROUND_SECONDS)


def _is_going(client: Client, pod: PodRecord) -> bool:
    """Whether the pod terminates after its eviction; a disruption budget may still refuse it."""
    namespace, _, name = pod.key.partition("/")
    try:
        with suppress(NotFound, Conflict):
            client.evict(namespace, name, uid=pod.uid)
    except TooManyRequests:
        return False
    return True
