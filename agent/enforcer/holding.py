"""What pods hold, for the enforcer, and how much is left to best-effort pods. Pure."""

from collections.abc import Callable, Iterable, Mapping

from agent.enforcer import orders
from agent.enforcer.orders import ContainerOrder, PodOrder
from agent.metric_cache.series import Usage
from agent.states_informer.pods import NOTHING, NodePod
from shared import names
from shared.api import pods
from shared.api.core import Container, Pod
from shared.api.nodemetric import ResourceThresholds
from shared.names import KubeQoS, Tier
from shared.quantity import MILLI_PER_CORE

_ALWAYS = "Always"  # the restart policy of an init container that is a sidecar


def pod_orders(node_pods: Iterable[NodePod]) -> tuple[PodOrder, ...]:
    """The orders for running pods that hold resources of Mid or Batch."""
    found = (_pod_order(each) for each in node_pods if each.running and each.held != NOTHING)
    return tuple(sorted(found, key=lambda order: order.uid)[: orders.MOST_PODS])


def best_effort_milli(
    capacity_milli: int,
    reserved_milli: int,
    node_pods: Iterable[NodePod],
    usages: Mapping[str, Usage],
    system_cores: float,
    others_cores: float,
    thresholds: ResourceThresholds,
) -> int:
    """What is left to pods without native requests and limits, in milli-cores: Koordinator's rule.

    capacity x threshold - usage of other pods - `others_cores` (host applications that are not best-effort) - the
    larger of the system's usage and its reservation; but never less than the rule's minimum.
    """
    used = sum(
        usages[each.uid].cpu_cores
        for each in node_pods
        if each.uid in usages and pods.kube_qos(each.pod) is not KubeQoS.BEST_EFFORT
    )
    system_milli = max(system_cores * MILLI_PER_CORE, reserved_milli)
    left = (
        capacity_milli * thresholds.cpu_suppress_threshold_percent / 100
        - (used + others_cores) * MILLI_PER_CORE
        - system_milli
    )
    least = capacity_milli * thresholds.cpu_suppress_min_percent / 100
    return int(max(0.0, left, least))


def _pod_order(of: NodePod) -> PodOrder:
    pod = of.pod
    asked = pods.requests(pod)
    tier = next(tier for tier in Tier if any(asked.get(name) for name in names.TIER_RESOURCES[tier]))
    cpu, memory = names.TIER_RESOURCES[tier]
    containers = {each.name: each for each in (*pod.spec.containers, *(pod.spec.init_containers or ()))}
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    return PodOrder(
        uid=pod.metadata.uid,
        key=pod.metadata.key,
        qos=pods.kube_qos(pod),
        tier=tier,
        native=of.request.cpu_milli > 0,
        cpu_milli=_bounded(asked.get(cpu, 0)),
        limit_milli=_most(_together(pod, lambda each: _limit(each, cpu, names.CPU)), orders.MOST_MILLI, 1),
        limit_bytes=_most(_together(pod, lambda each: _limit(each, memory, names.MEMORY)), *_MEMORY),
        containers=tuple(
            ContainerOrder(
                id=status.container_id,
                cpu_milli=_bounded(pods.amounts(containers[status.name].resources.requests or {}).get(cpu, 0)),
                limit_milli=_most(_limit(containers[status.name], cpu, names.CPU), orders.MOST_MILLI, 1),
                limit_bytes=_most(_limit(containers[status.name], memory, names.MEMORY), *_MEMORY),
            )
            for status in statuses
            if status.container_id and status.name in containers
        )[: orders.MOST_CONTAINERS],
    )


_MEMORY = (orders.MOST_MEMORY_BYTES, orders.LEAST_MEMORY_BYTES)


def _limit(container: Container, name: str, native: str) -> int | None:
    """The container's limit of its tier's resource; None without one, or with a native limit, the kubelet's job."""
    limits = container.resources.limits or {}
    return None if native in limits else pods.amounts(limits).get(name) or None


def _together(pod: Pod, limit: Callable[[Container], int | None]) -> int | None:
    """The limit of the whole pod, by the rule of its requests; None if any container, even an ended one, has no limit,
    as in the kubelet.
    """
    sidecars, most = 0, 0
    for container in pod.spec.init_containers or ():
        value = limit(container)
        if value is None:
            return None
        if container.restart_policy == _ALWAYS:
            sidecars += value
        most = max(most, sidecars if container.restart_policy == _ALWAYS else sidecars + value)
    limits = [limit(each) for each in pod.spec.containers]
    known = [each for each in limits if each is not None]
    return max(most, sidecars + sum(known)) if known and len(known) == len(limits) else None


def _bounded(value: int) -> int:
    return min(value, orders.MOST_MILLI)


def _most(value: int | None, most: int, least: int) -> int | None:
    return None if value is None else min(most, max(least, value))
