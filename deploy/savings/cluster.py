"""The examined cluster: its objects, its workloads' containers, and the known usage."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from deploy import plan_sources
from deploy.backtest.prometheus import Period, Prometheus
from deploy.backtest.server import Access, PrometheusServer
from deploy.nodeside import ConfigKey
from deploy.plan_sources import Seen
from deploy.savings import (
    agent_pods,
    from_agents,
    from_objects,
    from_prometheus,
    objects,
    workloads,
)
from deploy.savings.from_agents import AgentWeeks
from deploy.savings.objects import (
    HorizontalPodAutoscaler,
    SeenPod,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
)
from deploy.savings.usage import DAY_SECONDS, KnownUsage
from deploy.savings.workloads import Listed
from shared import names
from shared.kube.client import Client
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import Resource

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", namespaced=True)
VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", namespaced=True)
VPA_CHECKPOINTS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalercheckpoints", namespaced=True)
_RESOURCES: Mapping[type[msgspec.Struct], Resource] = {
    HorizontalPodAutoscaler: AUTOSCALERS,
    VerticalPodAutoscaler: VPAS,
    VerticalPodAutoscalerCheckpoint: VPA_CHECKPOINTS,
}

STEP_SECONDS = 300.0
_MOST_NAMED = 3
ObjectT = TypeVar("ObjectT", bound=msgspec.Struct)


@dataclass(frozen=True)
class WhereToLook:
    """Sources, alone or combined. Without `files` it is the kubeconfig's live cluster, where agents are found."""

    files: Sequence[Path] = ()
    kubeconfig: str = ""
    context: str = ""
    prometheus: str = ""
    agents: Sequence[str] = ()
    history_days: float = 8.0
    access: Access = field(default_factory=Access)
    agents_namespace: str = ""  # "": none


@dataclass(frozen=True)
class LookedAt:
    """The examined cluster at `now`, in Unix seconds."""

    seen: Seen
    listed: Listed
    known: KnownUsage
    now: float
    notes: Sequence[str]

    @property
    def cluster(self) -> str:
        return self.seen.cluster or self.seen.source


def look(
    where: WhereToLook,
    *,
    with_history: bool = False,
    until: float | None = None,
    came: Callable[[str], None] = lambda what: None,
) -> LookedAt:
    """Reads the cluster. Raises InvalidInput and HeadroomError."""
    key = ConfigKey(names.INSTALL_NAMESPACE, names.CONFIG_MAP)
    if where.files:
        seen = plan_sources.from_files(where.files, names.INSTALL_NAMESPACE, key, pod_type=SeenPod, also=objects.ALSO)
    else:
        seen = plan_sources.from_cluster(
            where.kubeconfig, names.INSTALL_NAMESPACE, key, context=where.context, pod_type=SeenPod
        )
    pods = [pod for pod in seen.objects.pods if isinstance(pod, SeenPod)]
    listed = workloads.list_containers(pods, _read(seen, HorizontalPodAutoscaler))
    vpas, checkpoints = _read(seen, VerticalPodAutoscaler), _read(seen, VerticalPodAutoscalerCheckpoint)
    notes = [*seen.notes, *(f"Pod {pod} is passed by: {why}" for pod, why in listed.refused.items())]
    node_names = [node.metadata.name for node in seen.objects.nodes]
    end = until or (seen.objects.now if where.files else time.time())
    known = from_objects.checkpoints(checkpoints, vpas)
    with ExitStack() as stack:
        if where.prometheus:
            server = stack.enter_context(Prometheus(where.prometheus, where.access, "--prometheus"))
            period = Period(end - where.history_days * DAY_SECONDS, end, STEP_SECONDS)
            found = from_prometheus.usage(server, period, listed.owner_of, with_history=with_history, came=came)
            known = known.with_better(found)
        weeks: Sequence[AgentWeeks] = ()
        if where.agents:
            servers = [stack.enter_context(PrometheusServer(url, where.access, "--agent")) for url in where.agents]
            weeks = [from_agents.read(server) for server in servers]
        elif seen.client is not None and where.agents_namespace:
            weeks, silent = agent_pods.read(seen.client, pods, where.agents_namespace, where.access, came)
            notes += silent
        if weeks:
            known = known.with_better(from_agents.usage(weeks, listed, node_names))
    return LookedAt(seen, listed, known, end, [*notes, *known.notes])


def _read(seen: Seen, kind: type[ObjectT]) -> list[ObjectT]:
    """The objects of this kind in files, or in the live cluster."""
    if seen.client is not None:
        return _list(seen.client, _RESOURCES[kind], kind, seen.notes)
    return [] if seen.dump is None else seen.dump.of(kind)


def _list(client: Client, resource: Resource, kind: type[ObjectT], notes: list[str]) -> list[ObjectT]:
    """The objects; None for a kind that the cluster does not know."""
    with suppress(NotFound):
        try:
            found = client.list(resource, into=kind)
        except Forbidden:
            notes.append(f"{resource} may not be listed, so none count")
            return []
        notes += (f"{resource} {each.key} is passed by: {each.reason}" for each in found.refused[:_MOST_NAMED])
        if len(found.refused) > _MOST_NAMED:
            notes.append(f"{len(found.refused) - _MOST_NAMED} more of {resource} are passed by")
        return found.items
    return []
