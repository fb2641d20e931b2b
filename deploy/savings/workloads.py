"""The containers of a cluster's workloads, as they are now. Pure.

Containers are read from pods, not from templates: containers that a webhook injects count, and so do sidecars among the
init containers. Pods of one workload that differ, as in a rollout, count as the newest of them.
"""

import enum
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deploy.savings.objects import HorizontalPodAutoscaler, SeenContainer, SeenPod, SeenStatus
from deploy.savings.usage import ContainerKey
from shared.api import pods as api_pods
from shared.api.core import Quantities
from shared.names import CPU, MEMORY
from shared.quantity import QuantityError, Resources

_OOM = "OOMKilled"
_JAVA_VARIABLES = frozenset(("JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "CATALINA_OPTS", "JVM_OPTS"))
_JAVA_ARGUMENT = re.compile(r"-Xm[xs]|-XX:|(^|[/\s])java(\s|$)")
_JAVA_IMAGE = re.compile(r"(^|[/:_.-])(openjdk|temurin|corretto|jdk|jre|tomcat|zulu|liberica|java)(\d|[:_.-]|$)")


class ContainerRole(enum.StrEnum):
    MAIN = "container"
    SIDECAR = "sidecar"  # an init container that keeps running
    INIT = "init"  # one that ends before the others start


@dataclass(frozen=True)
class ScalingRule:
    """The percentages of requests at which a HorizontalPodAutoscaler adds replicas; None if it watches others."""

    name: str
    least: int
    most: int
    cpu_percent: int | None
    memory_percent: int | None


@dataclass(frozen=True)
class WorkloadContainer:
    """`replicas` is the number that hold their requests now, `requested` what they request together: while a workload
    is changed, replicas differ. The other amounts are those of the newest replica: thousandths of a core and bytes,
    None where nothing is set.

    `killed` are the memory limits or requests (bytes) under which the kernel killed it, `is_java`: it holds what its
    heap was given. `containers` run in each pod.
    """

    key: ContainerKey
    role: ContainerRole
    replicas: int
    cpu_request: int | None
    memory_request: int | None
    cpu_limit: int | None
    memory_limit: int | None
    requested: Resources
    containers: int = 1
    killed: tuple[int, ...] = ()
    is_java: bool = False
    scaling: ScalingRule | None = None


@dataclass(frozen=True)
class Listed:
    """All containers, and the reason for each unreadable pod, by name. `owner_of` maps each pod's key to its owner."""

    containers: tuple[WorkloadContainer, ...]
    refused: Mapping[str, str]
    owner_of: Mapping[str, tuple[str, str, str]]


def list_containers(pods: Iterable[SeenPod], autoscalers: Iterable[HorizontalPodAutoscaler] = ()) -> Listed:
    rules = {
        f"{each.metadata.namespace}/{each.spec.scale_target_ref.kind}/{each.spec.scale_target_ref.name}": ScalingRule(
            each.metadata.name,
            1 if each.spec.min_replicas is None else each.spec.min_replicas,
            each.spec.max_replicas,
            each.utilization_percent(CPU),
            each.utilization_percent(MEMORY),
        )
        for each in autoscalers
    }
    by_owner: defaultdict[tuple[str, str, str], list[SeenPod]] = defaultdict(list)
    owner_of = {}
    for pod in pods:
        owner = owner_of[pod.metadata.key] = _owner(pod)
        if owner[1] != "Node":  # the mirror of a static pod
            by_owner[owner].append(pod)
    found: list[WorkloadContainer] = []
    refused: dict[str, str] = {}
    for owner, members in by_owner.items():
        try:
            found += _containers(owner, members, rules.get("/".join(owner)))
        except QuantityError as error:
            refused[members[0].metadata.key] = str(error)
    return Listed(tuple(found), refused, owner_of)


def _owner(pod: SeenPod) -> tuple[str, str, str]:
    namespace = pod.metadata.namespace
    if found := api_pods.workload(pod):
        namespace, kind, name = found.split("/", 2)
        return namespace, kind, name
    is_mirror = any(one.kind == "Node" for one in pod.metadata.owner_references or ())
    return namespace, "Node" if is_mirror else "Pod", pod.metadata.name


def _containers(
    owner: tuple[str, str, str], members: list[SeenPod], rule: ScalingRule | None
) -> Iterable[WorkloadContainer]:
    newest = max(members, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    active = [pod for pod in members if api_pods.is_active(pod)]
    spec = newest.spec
    kills = Counter(_killed(members))
    roles = [(ContainerRole.MAIN, each) for each in spec.containers]
    roles += [
        (ContainerRole.SIDECAR if each.restart_policy == "Always" else ContainerRole.INIT, each)
        for each in spec.init_containers or ()
    ]
    running = sum(role is not ContainerRole.INIT for role, _ in roles)
    for role, each in roles:
        requests, limits = (_settings(amounts) for amounts in (each.resources.requests, each.resources.limits))
        cpu, memory = (requests[place] if requests[place] is not None else limits[place] for place in (0, 1))
        under = limits[1] or memory or 0
        yield WorkloadContainer(
            ContainerKey(*owner, each.name),
            role,
            len(active),
            cpu,
            memory,
            *limits,
            requested=_requested(each.name, active),
            containers=running,
            killed=(under,) * kills[each.name],
            is_java=_is_java(each),
            scaling=rule,
        )


def _requested(name: str, pods: Iterable[SeenPod]) -> Resources:
    """What all containers of that name request; equal pods of a dump share them. Raises QuantityError."""
    of_name = [
        each for pod in pods for each in (*pod.spec.containers, *(pod.spec.init_containers or ())) if each.name == name
    ]
    counts, distinct = Counter(map(id, of_name)), {id(each): each for each in of_name}
    cpu = memory = 0
    for key, each in distinct.items():
        requests, limits = (_settings(amounts) for amounts in (each.resources.requests, each.resources.limits))
        one = [(limit if request is None else request) or 0 for request, limit in zip(requests, limits, strict=True)]
        cpu, memory = cpu + one[0] * counts[key], memory + one[1] * counts[key]
    return Resources(cpu, memory)


def _killed(members: Iterable[SeenPod]) -> Iterator[str]:
    """The containers that the kernel has killed for lack of memory, once for each pod."""
    for pod in members:
        for reports in (pod.status.container_statuses, pod.status.init_container_statuses):
            yield from (each.name for each in reports or () if _was_killed(each))


def _was_killed(state: SeenStatus) -> bool:
    phases = (state.state, state.last_state)
    return any(
        phase is not None and phase.terminated is not None and phase.terminated.reason == _OOM for phase in phases
    )


def _settings(amounts: Quantities | None) -> tuple[int | None, int | None]:
    given = {name: amounts[name] for name in (CPU, MEMORY) if name in amounts} if amounts else {}
    found = api_pods.amounts(given) if given else {}
    return found.get(CPU), found.get(MEMORY)


def _is_java(container: SeenContainer) -> bool:
    """Judged by its image, its command line, or the variables that a JVM reads."""
    if any(each.name in _JAVA_VARIABLES for each in container.env or ()):
        return True
    words = (*(container.command or ()), *(container.args or ()))
    return (
        any(map(_JAVA_ARGUMENT.search, words))
        or _JAVA_IMAGE.search(container.image.rpartition("@")[0] or container.image) is not None
    )
