"""What agents would predict of their nodes, by the model they run by default, from what the pods of a replay use."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from agent.metric_cache import series
from agent.predict_server import plugins
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Histories
from agent.predict_server.models import Parameters, Predictor, Situation
from agent.predict_server.table import ModelTable
from agent.settings import AgentSettings
from manager.node_peaks import NodePeaks
from shared.quantity import MILLI_PER_CORE, Resources

SETTINGS = AgentSettings()
WARM_SAMPLES = SETTINGS.warm_up_samples  # fewer say nothing


class RunningPod(NamedTuple):
    name: str
    node: str
    request: Resources
    usage: Resources


class NodeModels:
    """The models of all nodes and of their pods, and a predictor for each node, as there is one agent on each.

    `peaks` is what follows for every node that has been seen for long enough. No outcome is told to the predictors: a
    day that is replayed is over before the first promise for 24 hours can be judged.
    """

    def __init__(self) -> None:
        self.peaks: dict[str, NodePeaks] = {}
        self._table = ModelTable(
            cpu_half_life_seconds=SETTINGS.cpu_half_life_seconds,
            memory_half_life_seconds=SETTINGS.memory_half_life_seconds,
        )
        self._predictors: dict[str, Predictor] = {}

    def train(self, nodes: Collection[str], pods: Sequence[RunningPod], now: float) -> None:
        """One sample of each node and pod there is; the others are forgotten."""
        by_node: dict[str, list[RunningPod]] = {node: [] for node in nodes}
        for pod in pods:
            by_node[pod.node].append(pod)
        keys = [key for node, there in by_node.items() for key in (_node_key(node), *(pod.name for pod in there))]
        samples = np.concatenate([np.zeros((0, 2)), *map(_samples, by_node.values())])
        self._table.forget(self._table.rows.keys() - set(keys))
        self._table.train(keys, samples, now)
        make = plugins.load(SETTINGS.predictor)
        self._predictors = {node: self._predictors.get(node) or make(Parameters()) for node in nodes}
        self.peaks = {}
        for node, there in by_node.items():
            key, predictor = _node_key(node), self._predictors[node]
            predictor.update([key, *(pod.name for pod in there)], _samples(there), now)
            if self._table.samples_of(key) >= WARM_SAMPLES:
                (peaks,) = predictor.peak(self._situation(node, there, now)).values()
                cores, memory = peaks[0, 0].tolist()
                self.peaks[node] = NodePeaks(Resources(round(cores * MILLI_PER_CORE), round(memory)), Resources(), now)

    def _situation(self, node: str, pods: Sequence[RunningPod], now: float) -> Situation:
        histories = Histories(self._table, [pod.name for pod in pods])
        nothing = Histories(self._table, [])
        whole = Histories(self._table, [_node_key(node)])
        return Situation(
            time=now,
            whole=whole,
            classes=whole,
            system=Histories(self._table, [series.SYSTEM]),  # never seen
            pods=histories,
            pod_nodes=np.zeros(len(pods), np.intp),
            requests=_amounts([pod.request for pod in pods]),
            limits=np.full((len(pods), 2), np.inf),
            ages_seconds=now - histories.first_observed,
            cold=histories.samples < WARM_SAMPLES,
            workloads=nothing,
            inherited=np.zeros(0, np.intp),
        )


def _samples(pods: Sequence[RunningPod]) -> Floats:
    """What a node uses, then each of its pods; shape (1 + pods, 2)."""
    usages = _amounts([pod.usage for pod in pods])
    return np.concatenate([usages.sum(axis=0, keepdims=True), usages])


def _node_key(node: str) -> str:
    return f"node {node}"


def _amounts(amounts: Sequence[Resources]) -> Floats:
    """Cores and bytes; shape (amounts, 2)."""
    return np.array(amounts, np.float64).reshape(-1, 2) / [MILLI_PER_CORE, 1]
