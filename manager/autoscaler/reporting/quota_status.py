"""The status of CapacityQuotas: whether each is valid, and the usage of the nodes that it selects.

It has Cluster Autoscaler's form: the condition VALID, `used` of present nodes, and the observed generation.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from manager.autoscaler.estimator.limits import MEMORY
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import DuePatch, Patch
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits, problem_key
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import quantity
from shared.api.capacityquota import VALID, CapacityQuota
from shared.errors import InvalidInput

WRITE_SECONDS = 60.0  # between two writes of one quota's status


def patches(
    quotas: Sequence[CapacityQuota],
    limits: Mapping[str, CapacityLimits],
    refused: Mapping[str, InvalidInput],
    nodes: Iterable[NodeInfo],
    usage: QuotaUsage,
) -> Iterator[DuePatch]:
    """`limits` are the valid ones, by the quota's name, and `refused` the errors; see `capacity_quotas`."""
    there = [node for node in nodes if node.state is not NodeState.UPCOMING] if quotas else []

    def patch_at(quota: CapacityQuota, now: float) -> Patch:
        held = limits.get(quota.metadata.name)
        used = None if held is None else held.usage_of(there, usage)
        return patch(quota, refused.get(problem_key(quota.metadata.name)), used, now)

    for quota in quotas:
        yield quota.metadata, functools.partial(patch_at, quota)


def patch(quota: CapacityQuota, problem: InvalidInput | None, used: Mapping[str, int] | None, now: float) -> Patch:
    """The merge patch for a quota with this `problem`; None if its status is up to date.

    Without valid limits, `used` is left out.
    """
    meta, status = quota.metadata, quota.status
    said = object_status.validity(VALID, problem, ("Valid", "the quota holds", "Invalid"), has_last=used is not None)
    wanted: dict[str, object] = {}
    if status.observed_generation != meta.generation:
        wanted["observedGeneration"] = meta.generation
    if used is not None:
        resources = {name: quantity.format_bytes(each) if name == MEMORY else str(each) for name, each in used.items()}
        known = (status.used.resources if status.used is not None else None) or {}
        if status.used is None or resources != {name: str(each) for name, each in known.items()}:
            gone = dict.fromkeys(known.keys() - resources.keys())
            wanted["used"] = {"resources": {**resources, **gone}}
    return object_status.patch(meta, status.conditions, [said], wanted, now)
