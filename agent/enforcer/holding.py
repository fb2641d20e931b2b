"""What pods hold, for the enforcer, and how much is left to best-effort pods. Pure."""

from collections.abc import Iterable, Mapping

from agent.enforcer import orders
from agent.enforcer.orders import ContainerOrder, PodOrder
from agent.enforcer.prod_first import BestEffortCpu
from agent.metric_cache.series import Usage
from agent.states_informer.pods import NOTHING, NodePod
from shared import names
from shared.api import pods
from shared.api.core import Container
from shared.api.nodemetric_spec import ResourceThresholds
from shared.names import KubeQoS, Tier
from shared.quantity import MILLI_PER_CORE


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
    thresholds: ResourceThresholds,
) -> int:
    """What is left to pods without native requests and limits, in milli-cores: Koordinator's rule.

    capacity x threshold - usage of other pods - the larger of the system's usage and its reservation; but never less
    than the rule's minimum.
    """
    used = sum(
        usages[each.uid].cpu_cores
        for each in node_pods
        if each.uid in usages and pods.kube_qos(each.pod) is not KubeQoS.BEST_EFFORT
    )
    system_milli = max(system_cores * MILLI_PER_CORE, reserved_milli)
    left = capacity_milli * thresholds.cpu_suppress_threshold_percent / 100 - used * MILLI_PER_CORE - system_milli
    least = capacity_milli * thresholds.cpu_suppress_min_percent / 100
    return int(max(0.0, left, least))


def best_effort_cpu(
    capacity_milli: int,
    node_pods: Iterable[NodePod],
    pod_orders: Iterable[PodOrder],
    usages: Mapping[str, Usage],
    thresholds: ResourceThresholds,
) -> BestEffortCpu | None:
    """The use of best-effort pods, by whether they hold Mid or Batch; None if none of them does."""
    tiers = {each.uid: each for each in pod_orders if each.qos is KubeQoS.BEST_EFFORT}
    if not tiers:
        return None
    used, others = 0.0, 0.0
    for each in node_pods:
        if each.uid in tiers and each.uid in usages:
            used += usages[each.uid].cpu_cores
        elif each.uid in usages and pods.kube_qos(each.pod) is KubeQoS.BEST_EFFORT:
            others += usages[each.uid].cpu_cores
    of_mid = sum(each.cpu_milli for each in tiers.values() if each.tier is Tier.MID)
    held = max(of_mid, capacity_milli * thresholds.cpu_suppress_min_percent // 100)
    return BestEffortCpu(int(used * MILLI_PER_CORE), held, int(others * MILLI_PER_CORE), capacity_milli)


def _pod_order(of: NodePod) -> PodOrder:
    pod = of.pod
    asked = pods.requests(pod)
    tier = next(tier for tier in Tier if any(asked.get(name) for name in names.TIER_RESOURCES[tier]))
    cpu, memory = names.TIER_RESOURCES[tier]
    containers = {each.name: each for each in (*pod.spec.containers, *(pod.spec.init_containers or ()))}
    limits = {name: _limits(each, tier) for name, each in containers.items()}
    # Of the whole pod, by the rule of its requests; not where any container, even an ended one, has no limit, as in the
    # kubelet.
    together = pods.at_most_at_once(pod, lambda each: limits[each.name])
    whole = {name: most for name, most in together.items() if all(name in each for each in limits.values())}
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    return PodOrder(
        uid=pod.metadata.uid,
        key=pod.metadata.key,
        qos=pods.kube_qos(pod),
        tier=tier,
        native=of.request.cpu_milli > 0,
        cpu_milli=min(asked.get(cpu, 0), orders.MOST_MILLI),
        limit_milli=_within(whole.get(cpu), 1, orders.MOST_MILLI),
        limit_bytes=_within(whole.get(memory), *_MEMORY),
        containers=tuple(
            ContainerOrder(
                id=status.container_id,
                cpu_milli=min(
                    pods.amounts(containers[status.name].resources.requests or {}).get(cpu, 0), orders.MOST_MILLI
                ),
                limit_milli=_within(limits[status.name].get(cpu), 1, orders.MOST_MILLI),
                limit_bytes=_within(limits[status.name].get(memory), *_MEMORY),
            )
            for status in statuses
            if status.container_id and status.name in containers
        )[: orders.MOST_CONTAINERS],
    )


_MEMORY = (orders.LEAST_MEMORY_BYTES, orders.MOST_MEMORY_BYTES)


def _limits(container: Container, tier: Tier) -> dict[str, int]:
    """The container's limits of the tier's resources, but for those it has natively, which are the kubelet's job."""
    given = container.resources.limits or {}
    found = pods.amounts(given)
    natives = zip(names.TIER_RESOURCES[tier], (names.CPU, names.MEMORY), strict=True)
    return {name: found[name] for name, native in natives if native not in given and found.get(name)}


def _within(value: int | None, least: int, most: int) -> int | None:
    return None if value is None else min(most, max(least, value))
