"""What a pod asks for and where it stands: requests, quality of service, priority class."""

from collections.abc import Callable, Mapping

import msgspec

from shared import names, quantity
from shared.api.core import Container, Pod
from shared.api.meta import Wire, prepared
from shared.errors import InvalidInput
from shared.names import KubeQoS, PriorityClass, QoS
from shared.quantity import Resources

ACTIVE_PHASES = frozenset({"", "Pending", "Running"})

# Koordinator's bands of spec.priority, inclusive.
_BANDS = (
    (9000, 9999, PriorityClass.PROD),
    (7000, 7999, PriorityClass.MID),
    (5000, 5999, PriorityClass.BATCH),
    (3000, 3999, PriorityClass.FREE),
)
_HUGE_PAGES = "hugepages-"
_DEFAULT_QOS = {
    KubeQoS.GUARANTEED: QoS.LSR,
    KubeQoS.BURSTABLE: QoS.LS,
    KubeQoS.BEST_EFFORT: QoS.BE,
}


class _NumaNodeResource(Wire, frozen=True):
    node: int = 0


@prepared
class _ResourceStatus(Wire, frozen=True):
    """What Koordinator's scheduler notes on a pod it has bound to zones of its node."""

    numa_node_resources: tuple[_NumaNodeResource, ...] | None = None


def requests(pod: Pod) -> dict[str, int]:
    """What the pod asks of a node, per resource: cpu in milli, everything else in whole units.

    Kubernetes' rule: the sum over containers and sidecars, or the largest init container together with the sidecars
    started before it if that is more; what is requested of cpu, memory and huge pages for the pod as a whole goes
    before that; plus overhead. Raises QuantityError.
    """
    asked = _at_most_at_once(pod, _asked)
    if pod.spec.resources is not None:
        whole = amounts(pod.spec.resources.requests or {})
        asked |= {name: value for name, value in whole.items() if _is_of_whole_pods(name)}
    _add(asked, amounts(pod.spec.overhead or {}))
    return asked


def limits(pod: Pod) -> dict[str, int]:
    """What the pod may use, in the units and by the rule of `requests`; of a container without a limit, nothing counts.

    Overhead is added to what is limited. Raises QuantityError.
    """
    allowed = _at_most_at_once(pod, _limited)
    overhead = amounts(pod.spec.overhead or {}) if allowed else {}
    _add(allowed, {name: value for name, value in overhead.items() if allowed.get(name)})
    return allowed


def amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """A resource list as integers: cpu in milli, everything else in whole units. Raises QuantityError."""
    return {
        name: quantity.milli(value) if name == names.CPU else quantity.whole(value)
        for name, value in quantities.items()
    }


def native_request(pod: Pod) -> Resources:
    """cpu and memory of `requests`. Raises QuantityError."""
    asked = requests(pod)
    return Resources(asked.get(names.CPU, 0), asked.get(names.MEMORY, 0))


def kube_qos(pod: Pod) -> KubeQoS:
    """Kubernetes' class, computed as the API server does when status does not say it yet."""
    if pod.status.qos_class in tuple(KubeQoS):
        return KubeQoS(pod.status.qos_class)
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    asked = [(c.resources.requests or {}, c.resources.limits or {}) for c in containers]
    if not any(_positive(values) for pair in asked for values in pair):
        return KubeQoS.BEST_EFFORT
    guaranteed = all(
        _positive(limits) >= {names.CPU, names.MEMORY} and amounts(limits) == amounts(limits | dict(requested))
        for requested, limits in asked
    )
    return KubeQoS.GUARANTEED if guaranteed else KubeQoS.BURSTABLE


def qos(pod: Pod) -> QoS:
    """Koordinator's class: the label where it is a known one, else by Kubernetes' class."""
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


def priority_class(pod: Pod) -> PriorityClass:
    """The pod's class, NONE resolved by its quality of service: best-effort pods are batch, others prod."""
    named = raw_priority_class(pod)
    if named is not PriorityClass.NONE:
        return named
    return PriorityClass.BATCH if qos(pod) is QoS.BE else PriorityClass.PROD


def numa_nodes(pod: Pod) -> tuple[int, ...]:
    """The NUMA nodes the pod is bound to, ascending; none when it may run on all. Raises InvalidInput."""
    text = pod.metadata.annotation(names.ANNOTATION_RESOURCE_STATUS)
    if not text:
        return ()
    try:
        status = msgspec.json.decode(text, type=_ResourceStatus)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        source, field = f"Pod {pod.metadata.key}", names.ANNOTATION_RESOURCE_STATUS
        raise InvalidInput(source=source, field=field, value=text, problem=str(error)) from error
    return tuple(sorted({one.node for one in status.numa_node_resources or ()}))


def is_reclaimable(pod: Pod) -> bool:
    """Whether the pod's unused request may be lent to Mid: it is prod, or of no class."""
    return priority_class(pod) in names.LENDING_CLASSES


def is_active(pod: Pod) -> bool:
    """Whether the pod holds its request: it is neither finished nor failed."""
    return pod.status.phase in ACTIVE_PHASES


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _at_most_at_once(pod: Pod, of: Callable[[Container], Mapping[str, int]]) -> dict[str, int]:
    """The most of each resource that its containers have at one time, when each has what `of` says."""
    running: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(running, of(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        needed = dict(sidecars)
        _add(needed, of(container))
        if container.restart_policy == "Always":
            sidecars = needed
        _raise_to(starting, needed)
    _add(running, sidecars)
    _raise_to(running, starting)
    return running


def _is_of_whole_pods(resource: str) -> bool:
    """Whether it may be requested for a pod as a whole."""
    return resource in (names.CPU, names.MEMORY) or resource.startswith(_HUGE_PAGES)


def _limited(container: Container) -> dict[str, int]:
    return amounts(container.resources.limits or {})


def _asked(container: Container) -> dict[str, int]:
    """Requests of one container; a limit stands in for an absent request, as API defaulting does."""
    return amounts((container.resources.limits or {}) | (container.resources.requests or {}))


def _positive(quantities: Mapping[str, str | int | float]) -> set[str]:
    return {name for name in (names.CPU, names.MEMORY) if quantity.milli(quantities.get(name, 0)) > 0}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)
