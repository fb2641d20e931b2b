"""The status of CapacityQuotas: whether each is valid, and the usage of the nodes that it selects.

It has Cluster Autoscaler's form: the condition VALID, `used` of present nodes, and the observed generation.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from manager.autoscaler.capacity_quotas import CapacityLimits, problem_key
from manager.autoscaler.limits import MEMORY
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import durations, quantity
from shared.api.capacityquota import VALID, CapacityQuota
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import CAPACITYQUOTAS

logger = logging.getLogger(__name__)

WRITE_SECONDS = 60.0  # between two writes of one quota's status
MOST_AT_ONCE = 10  # quotas written in one iteration, which waits for them
TIMEOUT_SECONDS = 5.0


class QuotaStatus:
    """Writes changes, on the leader alone; a later iteration repeats a failed write."""

    def __init__(self, client: Client, may_write: Callable[[], bool], clock: Clock) -> None:
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._may_write = may_write
        self._clock = clock
        self._due: dict[str, float] = {}  # monotonic time of the next write at the earliest

    def write(
        self,
        quotas: Sequence[CapacityQuota],
        limits: Mapping[str, CapacityLimits],
        refused: Mapping[str, InvalidInput],
        nodes: Iterable[NodeInfo],
        usage: QuotaUsage,
    ) -> None:
        """`limits` are the valid ones, by the quota's name, and `refused` the errors; see `capacity_quotas`."""
        self._due = {each.metadata.name: self._due.get(each.metadata.name, 0.0) for each in quotas}
        there = [node for node in nodes if node.state is not NodeState.UPCOMING] if quotas else []
        now, written = self._clock.monotonic(), 0
        for quota in quotas:
            name = quota.metadata.name
            if now < self._due[name] or written == MOST_AT_ONCE:
                continue
            held = limits.get(name)
            used = None if held is None else held.usage_of(there, usage)
            wanted = patch(quota, refused.get(problem_key(name)), used, self._clock.now())
            if wanted is None:
                continue
            if not self._may_write():
                return
            written, self._due[name] = written + 1, now + WRITE_SECONDS
            try:
                self._client.patch(CAPACITYQUOTAS, name, wanted, subresource="status")
            except (Conflict, NotFound) as error:  # it has changed or was deleted; the next iteration handles that
                logger.debug("the status was not written: %s", error, extra={"quota": name})
            except HeadroomError as error:
                logger.warning("the status was not written: %s", error, extra={"quota": name})
                return


def patch(
    quota: CapacityQuota, problem: InvalidInput | None, used: Mapping[str, int] | None, now: float
) -> dict[str, object] | None:
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
    conditions = status.conditions or ()
    old = next((each for each in conditions if each.get("type") == VALID), {})
    turned = old.get("lastTransitionTime") if old.get("status") == ours["status"] else None
    ours["lastTransitionTime"] = turned or durations.timestamp(now)
    wanted: dict[str, object] = {}
    if ours != old:
        wanted["conditions"] = [*(each for each in conditions if each.get("type") != VALID), ours]
    if status.observed_generation != meta.generation:
        wanted["observedGeneration"] = meta.generation
    if used is not None:
        resources = {name: quantity.format_bytes(each) if name == MEMORY else str(each) for name, each in used.items()}
        known = (status.used.resources if status.used is not None else None) or {}
        if status.used is None or resources != {name: str(each) for name, each in known.items()}:
            gone = dict.fromkeys(known.keys() - resources.keys())
            wanted["used"] = {"resources": {**resources, **gone}}
    return {"metadata": {"resourceVersion": meta.resource_version}, "status": wanted} if wanted else None
