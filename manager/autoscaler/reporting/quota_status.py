"""The status of CapacityQuotas: whether each is valid, and the usage of the nodes that it selects.

It has Cluster Autoscaler's form: the condition VALID, `used` of present nodes, and the observed generation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from manager.autoscaler.capacity_quotas import CapacityLimits, problem_key
from manager.autoscaler.limits import MEMORY
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import ObjectStatusWriter, Patch
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import quantity
from shared.api.capacityquota import VALID, CapacityQuota
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.resources import CAPACITYQUOTAS

WRITE_SECONDS = 60.0  # between two writes of one quota's status


class QuotaStatus:
    """Writes changes, on the leader alone; a later iteration repeats a failed write."""

    def __init__(self, client: Client, may_write: Callable[[], bool], clock: Clock) -> None:
        self._writer = ObjectStatusWriter(client, CAPACITYQUOTAS, may_write, clock)

    def write(
        self,
        quotas: Sequence[CapacityQuota],
        limits: Mapping[str, CapacityLimits],
        refused: Mapping[str, InvalidInput],
        nodes: Iterable[NodeInfo],
        usage: QuotaUsage,
    ) -> None:
        """`limits` are the valid ones, by the quota's name, and `refused` the errors; see `capacity_quotas`."""
        there = [node for node in nodes if node.state is not NodeState.UPCOMING] if quotas else []

        def patch_of(quota: CapacityQuota) -> Callable[[float], Patch]:
            name = quota.metadata.name

            def patch_at(now: float) -> Patch:
                held = limits.get(name)
                used = None if held is None else held.usage_of(there, usage)
                return patch(quota, refused.get(problem_key(name)), used, now)

            return patch_at

        self._writer.write(((each.metadata, patch_of(each)) for each in quotas), WRITE_SECONDS)


def patch(quota: CapacityQuota, problem: InvalidInput | None, used: Mapping[str, int] | None, now: float) -> Patch:
    """The merge patch for a quota with this `problem`; None if its status is up to date.

    Without valid limits, `used` is left out.
    """
    meta, status = quota.metadata, quota.status
    holds = problem is None
    message = "the quota holds" if holds else str(problem)
    if not holds and used is not None:
        message += "; the last valid version holds"
    ours: dict[str, object] = {
        "type": VALID,
        "status": "True" if holds else "False",
        "reason": "Valid" if holds else "Invalid",
        "message": message,
        "observedGeneration": meta.generation,
    }
    wanted: dict[str, object] = {}
    conditions = object_status.with_conditions(status.conditions, [ours], now)
    if conditions is not None:
        wanted["conditions"] = list(conditions)
    if status.observed_generation != meta.generation:
        wanted["observedGeneration"] = meta.generation
    if used is not None:
        resources = {name: quantity.format_bytes(each) if name == MEMORY else str(each) for name, each in used.items()}
        known = (status.used.resources if status.used is not None else None) or {}
        if status.used is None or resources != {name: str(each) for name, each in known.items()}:
            gone = dict.fromkeys(known.keys() - resources.keys())
            wanted["used"] = {"resources": {**resources, **gone}}
    return {"metadata": {"resourceVersion": meta.resource_version}, "status": wanted} if wanted else None
