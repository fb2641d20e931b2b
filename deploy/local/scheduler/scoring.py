"""Which of the fitting nodes is best: of itself, the one with the largest share of cpu and memory left unrequested."""

from collections.abc import Mapping, Sequence

from deploy.local.scheduler.filtering import NodeState
from shared import names

MAX_SCORE = 100
NOTHING: Mapping[str, int] = {}

# What kube-scheduler reckons for a container that asks for nothing, so that such pods spread as well.
DEFAULT_REQUEST = {names.CPU: 100, names.MEMORY: 200 * 1024 * 1024}


def best(asked: Mapping[str, int], states: Sequence[NodeState], extra: Mapping[str, int] = NOTHING) -> NodeState:
    """The node with the highest score, to which `extra` adds by name what others have to say.

    Among equals it is the one with fewer pods, then the first by name.
    """

    def order(state: NodeState) -> tuple[int, int, str]:
        return -least_requested(asked, state) - extra.get(state.name, 0), state.pod_count, state.name

    return min(states, key=order)


def least_requested(asked: Mapping[str, int], state: NodeState) -> int:
    """kube-scheduler's LeastAllocated, 0..100: the mean of the shares left free once the pod is there."""
    shares = [
        _free_share(state.allocatable.get(resource, 0), state.free(resource) - (asked.get(resource) or default))
        for resource, default in DEFAULT_REQUEST.items()
    ]
    return sum(shares) // len(shares)


def _free_share(allocatable: int, free: int) -> int:
    return max(0, free) * MAX_SCORE // allocatable if allocatable > 0 else 0
