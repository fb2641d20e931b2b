"""The cluster that is looked at: its objects, its workloads' containers, and what is known of their usage."""

import time
from collections.abc import Callable, Sequence
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
    from_metrics_server,
    from_objects,
    from_prometheus,
    objects,
    workloads,
)
from deploy.savings.from_agents import AgentWeeks
from deploy.savings.from_metrics_server import NodesMoment
from deploy.savings.objects import (
    HorizontalPodAutoscaler,
    NodeMetricsSample,
    PodMetrics,
    SeenPod,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
)
from deploy.savings.usage import DAY_SECONDS, KnownUsage
from deploy.savings.workloads import Listed
from shared import names
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import Resource

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", namespaced=True)
VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", namespaced=True)
VPA_CHECKPOINTS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalercheckpoints", namespaced=True)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", namespaced=True)
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", namespaced=False)

STEP_SECONDS = 300.0
_MOST_NAMED = 3
ObjectT = TypeVar("ObjectT", bound=msgspec.Struct)


@dataclass(frozen=True)
class WhereToLook:
    """Sources, alone or together. Without `files` it is the live cluster of the kubeconfig, where agents are found."""

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
    """`now` in Unix seconds; the `moment` is metrics-server's."""

    seen: Seen
    listed: Listed
    known: KnownUsage
    autoscalers: Sequence[VerticalPodAutoscaler]
    now: float
    notes: Sequence[str]
    moment: NodesMoment | None = None

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
    """Raises InvalidInput and HeadroomError."""
    key = ConfigKey(names.INSTALL_NAMESPACE, names.CONFIG_MAP)
    if where.files:
        seen = plan_sources.from_files(where.files, names.INSTALL_NAMESPACE, key, pod_type=SeenPod, also=objects.ALSO)
        others = _of_dump(seen)
    else:
        seen = plan_sources.from_cluster(
            where.kubeconfig, names.INSTALL_NAMESPACE, key, context=where.context, pod_type=SeenPod
        )
        others = _of_client(seen)
    pods = [pod for pod in seen.objects.pods if isinstance(pod, SeenPod)]
    listed = workloads.list_containers(pods, others.autoscalers)
    notes = [*seen.notes, *(f"Pod {pod} is passed by: {why}" for pod, why in listed.refused.items())]
    node_names = [node.metadata.name for node in seen.objects.nodes]
    end = until or (seen.objects.now if where.files else time.time())
    known, moment = from_metrics_server.read(
        others.pod_metrics, others.node_metrics, listed.owner_of, frozenset(node_names), end
    )
    known = known.with_better(from_objects.checkpoints(others.checkpoints, others.vpas))
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
    return LookedAt(seen, listed, known, others.vpas, end, [*notes, *known.notes], moment)


@dataclass(frozen=True)
class _Others:
    autoscalers: Sequence[HorizontalPodAutoscaler] = ()
    vpas: Sequence[VerticalPodAutoscaler] = ()
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint] = ()
    pod_metrics: Sequence[PodMetrics] = ()
    node_metrics: Sequence[NodeMetricsSample] = ()


def _of_dump(seen: Seen) -> _Others:
    dump = seen.dump
    if dump is None:
        return _Others()
    return _Others(
        dump.of(HorizontalPodAutoscaler),
        dump.of(VerticalPodAutoscaler),
        dump.of(VerticalPodAutoscalerCheckpoint),
        dump.of(PodMetrics),
        dump.of(NodeMetricsSample),
    )


def _of_client(seen: Seen) -> _Others:
    client = seen.client
    if client is None:
        return _Others()
    return _Others(
        _list(client, AUTOSCALERS, HorizontalPodAutoscaler, seen.notes),
        _list(client, VPAS, VerticalPodAutoscaler, seen.notes),
        _list(client, VPA_CHECKPOINTS, VerticalPodAutoscalerCheckpoint, seen.notes),
        *_metrics(client, seen.notes),
    )


def _metrics(client: Client, notes: list[str]) -> tuple[list[PodMetrics], list[NodeMetricsSample]]:
    """Of metrics-server. It is a source among others: one that fails costs what it knows alone."""
    try:
        return _list(client, POD_METRICS, PodMetrics, notes), _list(client, NODE_METRICS, NodeMetricsSample, notes)
    except HeadroomError as error:
        notes.append(f"metrics-server did not answer, so nothing is known from it: {error}")
        return [], []


def _list(client: Client, resource: Resource, kind: type[ObjectT], notes: list[str]) -> list[ObjectT]:
    """None of a kind that the cluster does not know."""
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
