"""What agents would predict of their nodes, by the agent's own models, from what the pods of a replay use."""

from collections.abc import Mapping

import numpy as np

from agent.predict_server.histories import Histories
from agent.predict_server.models import NSigmaV1, Parameters, Situation
from agent.predict_server.table import ModelTable
from manager.node_peaks import NodePeaks
from shared.quantity import MILLI_PER_CORE, Resources

SIGMAS = 2.0
HALF_LIFE_SECONDS = 3600.0
WARM_SAMPLES = 3  # fewer say nothing


class NodeModels:
    """One model a node: mean + SIGMAS * stdev of what all of its pods use together.

    `peaks` is what follows for every node that has been seen for long enough.
    """

    def __init__(self) -> None:
        self.peaks: dict[str, NodePeaks] = {}
        self._table = ModelTable(cpu_half_life_seconds=HALF_LIFE_SECONDS, memory_half_life_seconds=HALF_LIFE_SECONDS)
        self._model = NSigmaV1(Parameters(sigma=np.array([SIGMAS, SIGMAS])))

    def train(self, usage: Mapping[str, Resources], now: float) -> None:
        """One sample of each node there is; the others are forgotten."""
        self._table.forget(self._table.rows.keys() - usage.keys())
        samples = np.array(list(usage.values()), np.float64).reshape(-1, 2) / [MILLI_PER_CORE, 1]
        self._table.train(list(usage), samples, now)
        warm = [node for node in self._table.rows if self._table.samples_of(node) >= WARM_SAMPLES]
        self.peaks = {node: NodePeaks(self._peak(node, now), Resources(), now) for node in warm}

    def _peak(self, node: str, now: float) -> Resources:
        nothing = Histories(self._table, [])
        situation = Situation(
            time=now,
            whole=Histories(self._table, [node]),
            classes=nothing,
            system=nothing,
            pods=nothing,
            pod_nodes=np.zeros(0, np.intp),
            requests=np.zeros((0, 2)),
            limits=np.zeros((0, 2)),
            ages_seconds=np.zeros(0),
            cold=np.zeros(0, np.bool_),
            workloads=nothing,
            inherited=np.zeros(0, np.intp),
        )
        ((cores, memory),) = self._model.peak(situation).values()
        return Resources(round(float(cores) * MILLI_PER_CORE), round(float(memory)))
