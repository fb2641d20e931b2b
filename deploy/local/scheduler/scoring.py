"""Which of the fitting nodes is best: the one with the largest share of cpu and memory left unrequested."""

from collections.abc import Mapping, Sequence

from deploy.local.scheduler.filtering import NodeState
from shared import names

MAX_SCORE = 100

# What kube-scheduler reckons for a container that asks for nothing, so that such pods spread as well.
DEFAULT_REQUEST = {names.CPU: 100, names.MEMORY: 200 * 1024 * 1024}


def best(asked: Mapping[str, int], states: Sequence[NodeState]) -> NodeState:
    """The node with the highest score; among equals the one with fewer pods, then the first by name."""
    return min(states, key=lambda state: (-least_requested(asked, state), state.pod_count, state.name))


def least_requested(asked: Mapping[str, int], state: NodeState) -> int:
    """kube-scheduler's LeastAllocated, 0..100: the mean of the shares left free once the pod is there."""
    shares = [
        _free_share(state.allocatable.get(resource, 0), state.free(resource) - (asked.get(resource) or default))
        for resource, default in DEFAULT_REQUEST.items()
    ]
    return sum(shares) // len(shares)


def _free_share(allocatable: int, free: int) -> int:
    return max(0, free) * MAX_SCORE // allocatable if allocatable > 0 else 0
