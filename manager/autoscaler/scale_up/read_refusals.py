"""Refusals that the scheduler's messages on pods prove at first sight, for a plan that has watched nothing.

How old a message is cannot be read from it, so that room may have come since. But a refusal that no room explains
stands until its cause goes, and then the scheduler looks again.
"""

from collections.abc import Collection, Iterable

from manager.autoscaler.scale_up import scheduler_messages
from manager.autoscaler.scale_up.decisions import PodDemand
from manager.autoscaler.scale_up.disagreements import FIRST_NODE_SECONDS, Disagreement, SchedulerAnswer, SchedulerMemory
from shared.api.core import Pod

# Plug-ins whose rules the predicates have, too: if they refuse now what fits, the cluster has changed since.
_EXPLAINED = frozenset(
    {
        "PodTopologySpread",
        "InterPodAffinity",
        "NodePorts",
        "TaintToleration",
        "NodeAffinity",
        "NodeUnschedulable",
        "NodeResourcesFit",
    }
)


def read_refusals(
    demands: Iterable[PodDemand], pods: Iterable[Pod], nodes: int, now: float, known: Collection[str]
) -> tuple[Disagreement, ...]:
    """Pods, other than the `known` ones, that fit on more ready nodes than the scheduler can have refused for reasons
    that the predicates have. `nodes` is the number of all nodes.
    """
    answers = SchedulerMemory().with_answers(pods, now).answers
    found = []
    for demand in demands:
        mine = [answers[key] for key in demand.pods if key in answers and key not in known]
        latest = max(mine, key=lambda each: each.seen_at, default=None)
        fits = len(set(demand.on_ready))
        if latest is not None and fits and _unexplained(latest, nodes) > nodes - fits:
            found.append(Disagreement(demand.pods, latest.message, latest.seen_at, now + FIRST_NODE_SECONDS, fits, ()))
    return tuple(found)


def _unexplained(answer: SchedulerAnswer, nodes: int) -> int:
    """The number of nodes that are refused for other reasons; 0 if the answer does not count all nodes."""
    if answer.nodes is None or answer.nodes < nodes or scheduler_messages.is_passing(answer.message):
        return 0
    return sum(count for count, plugin in scheduler_messages.reasons(answer.message) if plugin not in _EXPLAINED)
