"""What kind of pods a node holds, by their requests and workloads: how well promises are kept depends on it. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum

MOSTLY = 0.5  # of the node's requests, from which on one workload decides its kind
FEW_PODS = 8.0


class NodeKind(StrEnum):
    """`REPLICAS`: pods of one workload hold most requests, and peak together. `FEW_LARGE`: so few pods, or so uneven
    ones, that each matters. `MANY_SMALL`: any other node, whose pods are mostly independent.
    """

    REPLICAS = "replicas"
    FEW_LARGE = "few large pods"
    MANY_SMALL = "many small pods"


def node_kind(pods: Iterable[tuple[float, object]]) -> NodeKind | None:
    """The kind by the request, in any unit, and the workload of each pod, empty or None without one; None for a node
    without requests.

    The number of pods is counted as (sum of requests)^2 / sum of squares, so that a small pod beside large ones hardly
    counts.
    """
    requests: list[float] = []
    by_workload: defaultdict[object, list[float]] = defaultdict(list)
    for request, workload in pods:
        if request > 0:
            requests.append(request)
            if workload not in ("", None):
                by_workload[workload].append(request)
    whole = sum(requests)
    if not whole:
        return None
    if any(len(each) > 1 and sum(each) >= MOSTLY * whole for each in by_workload.values()):
        return NodeKind.REPLICAS
    return NodeKind.FEW_LARGE if whole**2 < FEW_PODS * sum(each**2 for each in requests) else NodeKind.MANY_SMALL
