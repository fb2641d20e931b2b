"""The requests, quality of service and priority class of a pod."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from shared import names, quantity
from shared.api.core import Container, ContainerStatus, Pod, Quantities, Resizable, ResourceRequirements
from shared.errors import shown
from shared.names import KubeQoS, PriorityClass, QoS
from shared.quantity import QuantityError, Resources

ACTIVE_PHASES = frozenset({"", "Pending", "Running"})

# Koordinator's bands of spec.priority, inclusive.
_BANDS = (
    (9000, 9999, PriorityClass.PROD),
    (7000, 7999, PriorityClass.MID),
    (5000, 5999, PriorityClass.BATCH),
    (3000, 3999, PriorityClass.FREE),
)
_HUGE_PAGES = "hugepages-"
_DECISIVE = frozenset((names.CPU, names.MEMORY))  # of the quality of service
SCHEDULED = "PodScheduled"
RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"
_LABEL_POD_TEMPLATE_HASH = "pod-template-hash"
_MOST_OWNER_BYTES = 512  # of kind and name; the API server allows any length, and real owners have at most 316
_JOB_OF_CRON_JOB = re.compile(r"(.+)-\d{8,10}")  # the controller ends the name with the minute since 1970
_DEFAULT_QOS = {
    KubeQoS.GUARANTEED: QoS.LSR,
    KubeQoS.BURSTABLE: QoS.LS,
    KubeQoS.BEST_EFFORT: QoS.BE,
}


def requests(pod: Pod) -> dict[str, int]:
    """The pod's requests per resource: cpu in milli, everything else in whole units.

    Kubernetes' rule: the sum over containers and sidecars, or the largest init container together with the sidecars
    started before it if that is more. Pod-level requests of cpu, memory and huge pages override that. Overhead is
    added. A container being resized counts as `resizing` says. Raises QuantityError.
    """
    held = resizing(pod)
    asked = at_most_at_once(pod, partial(_resized, held) if held else _asked)
    if pod.spec.resources is not None:
        asked |= _asked_as_a_whole(pod.spec.resources, asked)
    if pod.spec.overhead:
        _add(asked, amounts(pod.spec.overhead))
    return asked


def resizing(pod: Pod) -> dict[str, tuple[Resizable, ...]]:
    """Containers and sidecars whose status differs from their requests, by name: amounts, the largest of which counts.

    kube-scheduler's rule: the amounts requested, in force and allocated. The requested amount does not count where the
    node can never grant it.
    """
    spec, status = pod.spec, pod.status
    found = _differing(spec.containers, status.container_statuses) if status.container_statuses else {}
    if status.init_container_statuses:
        sidecars = [each for each in spec.init_containers or () if _is_sidecar(each)]
        found |= _differing(sidecars, status.init_container_statuses)
    if found and _is_infeasible(pod):
        return {name: given[1:] for name, given in found.items()}
    return found


def limits(pod: Pod) -> dict[str, int]:
    """The pod's limits, in the units and by the rule of `requests`; a container without a limit adds nothing.

    Overhead is added to resources with a limit. Raises QuantityError.
    """
    allowed = at_most_at_once(pod, _limited)
    overhead = amounts(pod.spec.overhead or {}) if allowed else {}
    _add(allowed, {name: value for name, value in overhead.items() if allowed.get(name)})
    return allowed


def amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """A resource list as integers: cpu in milli, everything else in whole units.

    Raises QuantityError, also for negative amounts: as a request they would give the node more than it has.
    """
    found = {
        name: quantity.milli(value) if name == names.CPU else quantity.whole(value)
        for name, value in quantities.items()
    }
    if found and min(found.values()) < 0:
        raise QuantityError(f"{shown(dict(quantities))} has a negative amount")
    return found


def native_request(pod: Pod) -> Resources:
    """cpu and memory of `requests`. Raises QuantityError."""
    asked = requests(pod)
    return Resources(asked.get(names.CPU, 0), asked.get(names.MEMORY, 0))


def native_limit(pod: Pod) -> tuple[float, float]:
    """The most milli-cores and bytes of memory the pod can use; infinite where one of its containers has no limit.

    A pod-level limit overrides those of its containers. Raises QuantityError.
    """
    allowed, whole = at_most_at_once(pod, _natively_limited), _native_limits(pod.spec.resources)
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))

    def most(resource: str) -> float:
        if whole.get(resource):
            return whole[resource]
        limited = all(_natively_limited(container).get(resource) for container in containers)
        return allowed.get(resource, 0) if limited else math.inf

    return most(names.CPU), most(names.MEMORY)


def kube_qos(pod: Pod) -> KubeQoS:
    """Kubernetes' class, computed as the API server does while the status lacks it: from pod-level resources, else from
    all containers.
    """
    if pod.status.qos_class in tuple(KubeQoS):
        return KubeQoS(pod.status.qos_class)
    if pod.spec.resources is not None:
        resources = [pod.spec.resources]
    else:
        resources = [each.resources for each in (*pod.spec.containers, *(pod.spec.init_containers or ()))]
    asked = [(_decisive(each.requests), _decisive(each.limits)) for each in resources]
    if not any(amount > 0 for pair in asked for part in pair for amount in part.values()):
        return KubeQoS.BEST_EFFORT
    guaranteed = all(
        limited.keys() == _DECISIVE and min(limited.values()) > 0 and limited | requested == limited
        for requested, limited in asked
    )
    return KubeQoS.GUARANTEED if guaranteed else KubeQoS.BURSTABLE


def qos(pod: Pod) -> QoS:
    """Koordinator's class: the label if it is a known class, else derived from Kubernetes' class."""
    label = pod.metadata.label(names.LABEL_QOS_CLASS)
    if label and label in tuple(QoS):
        return QoS(label)
    return _DEFAULT_QOS[kube_qos(pod)]


def raw_priority_class(pod: Pod) -> PriorityClass:
    """The class the pod names, by label or else by the band of spec.priority; NONE when it names none.

    A label with an unknown value hides spec.priority, as upstream's does.
    """
    label = pod.metadata.label(names.LABEL_PRIORITY_CLASS)
    if label is not None:
        return PriorityClass(label) if label in tuple(PriorityClass) else PriorityClass.NONE
    return band(pod.spec.priority)


def band(priority: int | None) -> PriorityClass:
    """The class whose range holds this spec.priority."""
    if priority is not None:
        for low, high, priority_class in _BANDS:
            if low <= priority <= high:
                return priority_class
    return PriorityClass.NONE


def asked_class(pod: Pod) -> PriorityClass:
    """The class of the tier that the containers ask for by its resources, Mid's before Batch's; NONE for neither.

    A pod with such requests, but neither label nor priority, still runs on lent capacity: counted as prod, it would
    shrink Mid by its own usage.
    """
    asked: set[str] = set()
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        resources = container.resources
        asked.update(resources.requests or (), resources.limits or ())
    if asked <= _DECISIVE:
        return PriorityClass.NONE  # the usual case
    for tier, of in names.TIER_CLASSES.items():
        if not asked.isdisjoint(names.TIER_RESOURCES[tier]):
            return of
    return PriorityClass.NONE


def priority_class(pod: Pod) -> PriorityClass:
    """The class the pod names, else that of the tier it asks for, else from its quality of service: best-effort pods
    are batch, others prod.
    """
    found = raw_priority_class(pod)
    if found is PriorityClass.NONE:
        found = asked_class(pod)
    if found is PriorityClass.NONE:
        return PriorityClass.BATCH if qos(pod) is QoS.BE else PriorityClass.PROD
    return found


def is_reclaimable(pod: Pod) -> bool:
    """Whether the pod's unused request may be lent to Mid: it is prod, or of no class."""
    return priority_class(pod) in names.LENDING_CLASSES


def must_not_wait(pod: Pod) -> bool:
    """Whether it counts that the pod waits for CPU or memory: it is reclaimable, and not best-effort. Kubernetes serves
    a pod that requests nothing after all others, and the enforcer's quota is on all such pods together.
    """
    return is_reclaimable(pod) and kube_qos(pod) is not KubeQoS.BEST_EFFORT


def is_active(pod: Pod) -> bool:
    """Whether the pod holds its request: it has neither succeeded nor failed."""
    return pod.status.phase in ACTIVE_PHASES


def is_admitted(pod: Pod) -> bool:
    """Whether the kubelet of the pod's node has admitted it: then it reports the containers.

    The start time proves nothing: a kubelet that starts reports it, as Pending, of pods that it refuses seconds later.
    """
    status = pod.status
    return status.phase == "Running" or bool(status.container_statuses or status.init_container_statuses)


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def at_most_at_once(pod: Pod, of: Callable[[Container], Mapping[str, int]]) -> dict[str, int]:
    """The most of each resource that the containers hold at one time, when each holds `of(container)`."""
    running: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(running, of(container))
    if not pod.spec.init_containers:
        return running
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.spec.init_containers:
        needed = dict(sidecars)
        _add(needed, of(container))
        if _is_sidecar(container):
            sidecars = needed
        _raise_to(starting, needed)
    _add(running, sidecars)
    _raise_to(running, starting)
    return running


def _is_sidecar(init_container: Container) -> bool:
    return init_container.restart_policy == "Always"


def _is_infeasible(pod: Pod) -> bool:
    """Whether a resize is pending that the node can never grant."""
    pending = [each for each in pod.status.conditions or () if each.type == RESIZE_PENDING]
    return bool(pending) and pending[0].reason == _INFEASIBLE


def _asked_as_a_whole(resources: ResourceRequirements, of_containers: Mapping[str, int]) -> dict[str, int]:
    """The pod-level requests. A limit replaces a request that neither the pod nor its containers have, and for huge
    pages any request of the containers, as API defaulting does.
    """
    limited = amounts(resources.limits or {})
    standing_in = {n: v for n, v in limited.items() if n not in of_containers or n.startswith(_HUGE_PAGES)}
    whole = standing_in | amounts(resources.requests or {})
    return {name: value for name, value in whole.items() if _is_of_whole_pods(name)}


def _is_of_whole_pods(resource: str) -> bool:
    """Whether a pod-level request may name the resource."""
    return resource in (names.CPU, names.MEMORY) or resource.startswith(_HUGE_PAGES)


def _limited(container: Container) -> dict[str, int]:
    return amounts(container.resources.limits or {})


def _natively_limited(container: Container) -> dict[str, int]:
    return _native_limits(container.resources)


def _native_limits(resources: ResourceRequirements | None) -> dict[str, int]:
    """Only cpu and memory: the values of other resources may be invalid."""
    given = (resources and resources.limits) or {}
    return amounts({name: given[name] for name in (names.CPU, names.MEMORY) if name in given})


def _asked(container: Container) -> dict[str, int]:
    """Requests of one container; a limit stands in for an absent request, as API defaulting does."""
    return amounts(_requested(container))


def _requested(container: Container) -> Quantities:
    requests, limits = container.resources.requests, container.resources.limits
    return limits | requests if limits and requests else requests or limits or {}


def _resized(held: Mapping[str, Iterable[Resizable]], container: Container) -> dict[str, int]:
    """The container's requests; for cpu and memory, the largest of the amounts that `held` has under its name."""
    if container.name not in held:
        return _asked(container)
    asked = {name: value for name, value in _asked(container).items() if name not in (names.CPU, names.MEMORY)}
    for each in held[container.name]:
        known = ((names.CPU, each.cpu), (names.MEMORY, each.memory))
        _raise_to(asked, amounts({name: value for name, value in known if value is not None}))
    return asked


def _differing(
    containers: Iterable[Container], statuses: Iterable[ContainerStatus]
) -> dict[str, tuple[Resizable, ...]]:
    """By name: the requested, effective and allocated amounts, where they differ."""
    reported = {each.name: each for each in statuses}
    found: dict[str, tuple[Resizable, ...]] = {}
    for container in containers:
        status = reported.get(container.name)
        if status is None or status.resources is None:
            continue
        in_force = status.resources.requests
        allocated = status.allocated_resources or in_force
        if not _resizable(container.resources.requests or {}) == in_force == allocated:
            found[container.name] = _resizable(_requested(container)), in_force, allocated
    return found


def _resizable(quantities: Quantities) -> Resizable:
    return Resizable(quantities.get(names.CPU), quantities.get(names.MEMORY))


def _decisive(given: Quantities | None) -> dict[str, int]:
    """The part of a resource list that decides the quality of service."""
    return amounts({name: value for name, value in (given or {}).items() if name in _DECISIVE})


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)


def workload(pod: Pod) -> str:
    """The owner that outlives a rollout and a run, as "namespace/Kind/name", empty without one or with too long a name.

    It is the Deployment behind a ReplicaSet, and the CronJob behind a Job.
    """
    owner = next((one for one in pod.metadata.owner_references or () if one.controller), None)
    if owner is None or owner.kind == "Node":  # a static pod's mirror belongs to the node
        return ""
    kind, name = owner.kind, owner.name
    if len(f"{kind}{name}".encode()) > _MOST_OWNER_BYTES:
        return ""
    suffix = f"-{pod.metadata.label(_LABEL_POD_TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    elif kind == "Job" and (run := _JOB_OF_CRON_JOB.fullmatch(name)):
        kind, name = "CronJob", run[1]
    return f"{pod.metadata.namespace}/{kind}/{name}"
