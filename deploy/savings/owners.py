"""What the pods of each namespace and of each workload request, and what right-sizing frees of that. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from deploy.savings.priced import PricedNodes, cents
from deploy.savings.rows import OwnerSavingsRow
from deploy.savings.stages import SavingsStages, sum_requests
from shared.api.core import Pod
from shared.quantity import Resources

Owner: TypeAlias = tuple[str, str, str]


class _Requested(NamedTuple):
    """By all `replicas`: today, and with the recommended requests."""

    replicas: int
    today: Resources
    then: Resources

    def plus(self, other: "_Requested") -> "_Requested":
        return _Requested(0, self.today.plus(other.today), self.then.plus(other.then))


def workloads(staged: SavingsStages, owner_of: Mapping[str, Owner]) -> dict[Owner, _Requested]:
    """The requests of every pod on a node, by what recreates it. Together they are what the stages count."""
    today = _by_owner(staged.pods_today, owner_of)
    then = today if staged.pods_then is staged.pods_today else _by_owner(staged.pods_then, owner_of)
    return {
        owner: _Requested(len(pods), sum_requests(pods), sum_requests(then[owner])) for owner, pods in today.items()
    }


def rows(requested: Mapping[Owner, _Requested], nodes: PricedNodes) -> list[OwnerSavingsRow]:
    """Those of which right-sizing frees most come first."""
    found = []
    for owner, (replicas, today, then) in requested.items():
        freed = today.minus(then)
        worth = cents(nodes.worth(*freed))
        found.append(OwnerSavingsRow(*owner, replicas, *today, cents(nodes.worth(*today)), *freed, worth))
    return sorted(found, key=lambda row: (-(row.freed or 0.0), -(row.cost or 0.0), row.namespace, row.workload))


def namespaces(requested: Mapping[Owner, _Requested]) -> dict[Owner, _Requested]:
    """The sums of their workloads."""
    found: dict[Owner, _Requested] = {}
    for (namespace, _, _), each in requested.items():
        key = (namespace, "", "")
        found[key] = found.get(key, _Requested(0, Resources(), Resources())).plus(each)
    return found


def _by_owner(pods: Iterable[Pod], owner_of: Mapping[str, Owner]) -> Mapping[Owner, Sequence[Pod]]:
    found: defaultdict[Owner, list[Pod]] = defaultdict(list)
    for pod in pods:
        owner = owner_of[pod.metadata.key]
        if owner[1] == "Node":  # the mirrors of a static pod are named after their nodes
            owner = *owner[:2], owner[2].removesuffix(f"-{pod.spec.node_name}")
        found[owner].append(pod)
    return found
