"""The estimator's rule once more, pod by pod and as plainly as can be: what the arrays are judged by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.independent_checker import HOSTNAME, CheckedPod, Machine, World


@dataclass
class Plain:
    """What the rule gives: new nodes with pods, and how many pods of each group found a place."""

    new_nodes: int
    existing_used: int
    placed: list[int]


def estimate(world: World, fresh: Callable[[int], Machine], groups: Sequence[Sequence[CheckedPod]], most: int) -> Plain:
    """The estimator's rule pod by pod; `groups` come in their order. `world` is changed."""
    cluster = world.machines
    known = len(cluster)
    granted = 0
    pointer = 0
    permitted = True
    used: set[str] = set()
    placed = []

    def put(pod: CheckedPod, node: Machine) -> None:
        node.pods.append(pod)
        used.add(node.name)

    def anywhere(pod: CheckedPod, acceptable: Callable[[int], bool]) -> bool:
        nonlocal pointer
        for step in range(len(cluster)):
            index = (pointer + step) % len(cluster)
            if acceptable(index) and not world.refusal(pod, cluster[index]):
                put(pod, cluster[index])
                pointer = (index + 1) % len(cluster)
                return True
        return False

    for group in groups:
        waiting = list(group)
        while waiting and len(cluster) > known and anywhere(waiting[0], lambda index: index >= known):
            waiting.pop(0)
        while waiting and permitted:
            pod = waiting[0]
            if len(cluster) > known:
                last = cluster[-1]
                why = world.refusal(pod, last)
                if not why:
                    put(waiting.pop(0), last)
                    continue
                by_host = any(each["topologyKey"] == HOSTNAME for each in pod.constraints)
                if by_host and why == "spread" and anywhere(pod, lambda index: index != len(cluster) - 1):
                    waiting.pop(0)
                    continue
                if last.name not in used:
                    break
            if 0 < most <= granted or most < 0:
                permitted = False
                break
            granted += 1
            cluster.append(fresh(len(cluster) - known))
            if world.refusal(pod, cluster[-1]):
                break
            put(waiting.pop(0), cluster[-1])
        placed.append(len(group) - len(waiting))
    new = sum(node.name in used for node in cluster[known:])
    return Plain(new, len(used) - new, placed)
