"""One node of a real cluster, with an agent whose measurements the test decides."""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from agent.main import Agent
from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor.source import Sample, Usage
from shared.api.core import Pod
from shared.api.nodemetric import NodeMetric, NodeMetricStatus
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists
from shared.kube.resources import NODEMETRICS, NODES, PODS, Resource
from tests.support.local_http import LOCAL_HTTP

GIB = 2**30
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)


class Steady:
    """Every pod, in its one container, uses half a core and 1 GiB, the system a quarter of a core and 2 GiB."""

    description = "steady"

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        used = {pod.metadata.uid: Usage(0.5, GIB) for pod in pods}
        whole = Usage(0.25 + 0.5 * len(used), 2 * GIB + len(used) * GIB)
        stalled = {SeriesKey(Kind.POD, uid, Metric.PSI_CPU_SOME): 0.25 for uid in used}
        return Sample(whole, used, {f"{uid}/c": usage for uid, usage in used.items()}, stalled)


class Node:
    """One node of the cluster, and what an agent of it does."""

    def __init__(self, client: Client, state_dir: Path, start: Callable[..., Agent]) -> None:
        self.name = f"node-{uuid.uuid4().hex[:8]}"
        self.client = client
        self.state_dir = state_dir
        self._start = start
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        amounts = {"cpu": "4", "memory": "16Gi"}
        client.patch(NODES, self.name, {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")

    def agent(self, **changes: Any) -> Agent:
        return self._start(self, **changes)

    def add_node_metric(self, **predict_policy: object) -> None:
        body = {
            "apiVersion": NODEMETRICS.api_version,
            "kind": "NodeMetric",
            "metadata": {"name": self.name},
            "spec": {
                "metricCollectPolicy": {"reportIntervalSeconds": 1, "aggregateDurationSeconds": 5},
                "predictPolicy": predict_policy,
            },
        }
        self.client.create(NODEMETRICS, body)

    def set_policy(self, **predict_policy: object) -> None:
        self.client.patch(NODEMETRICS, self.name, {"spec": {"predictPolicy": predict_policy}})

    def add_pod(self, name: str, cpu: str = "2", **metadata: object) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "4Gi"}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.name}-{name}", "namespace": "default", **metadata},
            "spec": {"nodeName": self.name, "priorityClassName": "koord-prod", "containers": [container]},
        }
        prod = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": 9000}
        with contextlib.suppress(AlreadyExists):
            self.client.create(PRIORITY_CLASSES, prod | {"metadata": {"name": "koord-prod"}})
        self.client.create(PODS, body, "default")

    @property
    def status(self) -> NodeMetricStatus:
        return self.client.get(NODEMETRICS, self.name, into=NodeMetric).status

    def reclaimable_cpu_milli(self) -> int | None:
        metric = self.status.prod_reclaimable_metric
        return metric.resource.amount.cpu_milli if metric and metric.resource else None

    def condition(self, kind: str) -> str:
        prediction = self.status.prediction
        found = (prediction.conditions if prediction else None) or ()
        return next((f"{one.status}/{one.reason}" for one in found if one.type == kind), "")


def get(agent: Agent, path: str) -> httpx.Response:
    host, port = agent.address
    return LOCAL_HTTP.get(f"http://{host}:{port}/{path}")
