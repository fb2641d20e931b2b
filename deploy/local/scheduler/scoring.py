"""Picks the best of the fitting nodes: by default, the one with the largest unrequested share of cpu and memory."""

from collections.abc import Mapping, Sequence

from deploy.local.scheduler.filtering import SchedulableNode
from shared import names

MAX_SCORE = 100
NOTHING: Mapping[str, int] = {}

# kube-scheduler's assumption for a container without requests, so that such pods are spread as well.
DEFAULT_REQUEST = {names.CPU: 100, names.MEMORY: 200 * 1024 * 1024}


def best(
    asked: Mapping[str, int], states: Sequence[SchedulableNode], extra: Mapping[str, int] = NOTHING
) -> SchedulableNode:
    """The node with the highest score, `extra` by name added; among equals, the one with fewer pods, then by name."""

    def order(state: SchedulableNode) -> tuple[int, int, str]:
        return -least_requested(asked, state) - extra.get(state.name, 0), state.pod_count, state.name

    return min(states, key=order)


def least_requested(asked: Mapping[str, int], state: SchedulableNode) -> int:
    """kube-scheduler's LeastAllocated, 0..100: the mean of the free shares after the pod is placed."""
    shares = [
        _free_share(state.allocatable.get(resource, 0), state.free(resource) - (asked.get(resource) or default))
        for resource, default in DEFAULT_REQUEST.items()
    ]
    return sum(shares) // len(shares)


def _free_share(allocatable: int, free: int) -> int:
    return max(0, free) * MAX_SCORE // allocatable if allocatable > 0 else 0
