"""Tables trained with what a test says, and predict servers on a disk of their own."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from agent.metric_cache import series
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Usage
from agent.predict_server.histories import Histories
from agent.predict_server.models import Situation
from agent.predict_server.prediction import NodePrediction
from agent.predict_server.reclaimable import Reclaimable
from agent.predict_server.server import PredictServer
from agent.predict_server.table import ModelTable
from agent.settings import AgentSettings
from agent.states_informer.informer import LocalNode
from agent.states_informer.pods import NodePod, describe
from shared.api.meta import OwnerReference
from shared.clock import Clock, ManualClock
from shared.names import PriorityClass
from shared.quantity import Resources
from tests.unit.agent.pods import NOW

NOTHING = Usage(0.0, 0.0)


def model_table() -> ModelTable:
    return ModelTable(cpu_half_life_seconds=43200, memory_half_life_seconds=86400)


def train(table: ModelTable, usages: Mapping[str, Usage], time: float) -> None:
    table.train(list(usages), np.array(list(usages.values()), float).reshape(-1, 2), time)


def entities(system: Usage = NOTHING, **pods: Usage) -> dict[str, Usage]:
    """One tick of a node all of whose pods are prod."""
    prod = Usage(*map(sum, zip(NOTHING, *pods.values(), strict=True)))
    whole = prod.plus(system)
    classes = {series.of_class(one): prod if one is PriorityClass.PROD else NOTHING for one in PriorityClass}
    return {series.NODE: whole, series.SYSTEM: system, series.PROD_PEAK: whole, **classes, **pods}


def situation(
    table: ModelTable,
    pods: Sequence[str],
    requests: Sequence[Usage],
    *,
    heirs: Mapping[str, str] | None = None,
    cold: Sequence[str] = (),
    limits: Sequence[Usage] | None = None,
) -> Situation:
    heirs = heirs or {}
    unlimited = np.full((len(pods), 2), np.inf)
    lending = [series.of_class(PriorityClass.PROD), series.of_class(PriorityClass.NONE), series.SYSTEM]
    return Situation(
        time=table.time,
        whole=Histories(table, [series.PROD_PEAK]),
        classes=Histories(table, lending),
        system=Histories(table, [series.SYSTEM]),
        pods=Histories(table, pods),
        pod_nodes=np.zeros(len(pods), np.intp),
        requests=np.array(requests, float).reshape(-1, 2),
        limits=unlimited if limits is None else np.array(limits, float).reshape(-1, 2),
        ages_seconds=np.full(len(pods), 7 * 86400.0),
        cold=np.array([pod in cold for pod in pods], np.bool_),
        workloads=Histories(table, list(heirs.values())),
        inherited=np.array([list(pods).index(pod) for pod in heirs], np.intp),
    )


def fleet(table: ModelTable, nodes: Sequence[Sequence[str]], requests: Mapping[str, Usage], **of: Any) -> Situation:
    """Nodes whose pods are named; what is known of node k stands under `k/` and the names of a node's series."""
    pods = [uid for node in nodes for uid in node]
    alone = situation(table, pods, [requests[uid] for uid in pods], **of)
    lending = [series.of_class(PriorityClass.PROD), series.of_class(PriorityClass.NONE), series.SYSTEM]
    numbers = [node[0].partition("/")[0] for node in nodes]
    return dataclasses.replace(
        alone,
        whole=Histories(table, [f"{number}/{series.PROD_PEAK}" for number in numbers]),
        classes=Histories(table, [f"{number}/{name}" for number in numbers for name in lending]),
        system=Histories(table, [f"{number}/{series.SYSTEM}" for number in numbers]),
        pod_nodes=np.repeat(np.arange(len(nodes)), [len(node) for node in nodes]),
    )


def owned(pod: NodePod, kind: str, name: str) -> NodePod:
    """The same pod, made by a controller."""
    owner = OwnerReference(kind=kind, name=name, controller=True)
    metadata = msgspec.structs.replace(pod.pod.metadata, owner_references=(owner,))
    return describe(msgspec.structs.replace(pod.pod, metadata=metadata))


class Life:
    """A predict server on `directory`, with what is saved there, that learns of `node` tick by tick."""

    def __init__(self, directory: Path, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock(NOW)
        self.cache = MetricCache(clock=self.clock)
        self.registry = CollectorRegistry()
        self.server = predict_server(directory, self.cache, self.clock, self.registry, **settings)
        self.node = LocalNode(Resources(64_000, 256 * 2**30))

    def sample(self, usages: Mapping[str, Usage], seconds: float = 1) -> None:
        self.clock.advance(seconds)
        self.cache.append(self.cache.second(), usages)

    def learn(self, usages: Mapping[str, Usage], pods: Sequence[NodePod] = (), seconds: float = 30) -> None:
        self.sample(usages, seconds)
        self.server.train(pods)

    def predict(self, *pods: NodePod) -> NodePrediction:
        return self.server.predict(pods, self.node)


def answer(prediction: NodePrediction) -> Reclaimable:
    """There is one."""
    assert prediction.reclaimable is not None
    return prediction.reclaimable


def reclaimable_milli(prediction: NodePrediction) -> int:
    return answer(prediction).result.cpu_milli


def predict_server(
    directory: Path, cache: MetricCache, clock: Clock, registry: CollectorRegistry | None = None, **settings: Any
) -> PredictServer:
    """A server on `directory`, with what is saved there."""
    given = AgentSettings(node_name="n", state_dir=str(directory), **settings)
    made = PredictServer(given, cache, clock, registry=registry or CollectorRegistry())
    made.restore()
    return made
