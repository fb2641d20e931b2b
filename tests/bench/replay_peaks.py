"""What agents would predict of their nodes, by the agent's own n-sigma-v2, from what the pods of a replay use."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from agent.metric_cache import series
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Histories
from agent.predict_server.models import NSigmaV2, Parameters, Situation
from agent.predict_server.table import ModelTable
from manager.node_peaks import NodePeaks
from shared.quantity import MILLI_PER_CORE, Resources

SIGMAS = 2.0
HALF_LIFE_SECONDS = 3600.0
WARM_SAMPLES = 3  # fewer say nothing


class RunningPod(NamedTuple):
    name: str
    node: str
    request: Resources
    usage: Resources


class NodeModels:
    """The models of all nodes and of their pods, which one predictor answers for at once.

    `peaks` is what follows for every node that has been seen for long enough.
    """

    def __init__(self) -> None:
        self.peaks: dict[str, NodePeaks] = {}
        self._table = ModelTable(cpu_half_life_seconds=HALF_LIFE_SECONDS, memory_half_life_seconds=HALF_LIFE_SECONDS)
        self._model = NSigmaV2(Parameters(sigma=np.array([SIGMAS, SIGMAS])))

    def train(self, nodes: Collection[str], pods: Sequence[RunningPod], now: float) -> None:
        """One sample of each node and pod there is; the others are forgotten."""
        keys = [*(_node_key(node) for node in nodes), *(pod.name for pod in pods)]
        self._table.forget(self._table.rows.keys() - set(keys))
        places = {node: place for place, node in enumerate(nodes)}
        pod_nodes = np.array([places[pod.node] for pod in pods], np.intp)
        usages = _amounts([pod.usage for pod in pods])
        totals = np.stack([np.bincount(pod_nodes, column, len(places)) for column in usages.T], axis=1)
        samples = np.concatenate([totals, usages])
        self._table.train(keys, samples, now)
        self._model.update(keys, samples, now)
        warm = [node for node in nodes if self._table.samples_of(_node_key(node)) >= WARM_SAMPLES]
        self.peaks = {}
        if not warm:
            return
        found = self._model.peak(self._situation(warm, [pod for pod in pods if pod.node in set(warm)], now))
        peaks = np.max([np.broadcast_to(peak, (len(warm), 2)) for peak in found.values()], axis=0)
        for node, (cores, memory) in zip(warm, peaks.tolist(), strict=True):
            self.peaks[node] = NodePeaks(Resources(round(cores * MILLI_PER_CORE), round(memory)), Resources(), now)

    def _situation(self, nodes: Sequence[str], pods: Sequence[RunningPod], now: float) -> Situation:
        places = {node: place for place, node in enumerate(nodes)}
        keys = [pod.name for pod in pods]
        histories = Histories(self._table, keys)
        nothing = Histories(self._table, [])
        whole = Histories(self._table, [_node_key(node) for node in nodes])
        return Situation(
            time=now,
            whole=whole,
            classes=whole,
            system=Histories(self._table, [series.SYSTEM] * len(nodes)),  # never seen
            pods=histories,
            pod_nodes=np.array([places[pod.node] for pod in pods], np.intp),
            requests=_amounts([pod.request for pod in pods]),
            limits=np.full((len(pods), 2), np.inf),
            ages_seconds=now - histories.first_observed,
            cold=histories.samples < WARM_SAMPLES,
            workloads=nothing,
            inherited=np.zeros(0, np.intp),
        )


def _node_key(node: str) -> str:
    return f"node {node}"


def _amounts(amounts: Sequence[Resources]) -> Floats:
    """Cores and bytes; shape (amounts, 2)."""
    return np.array(amounts, np.float64).reshape(-1, 2) / [MILLI_PER_CORE, 1]
