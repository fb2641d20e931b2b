"""What a model of the peak is: the one small protocol of the plug-ins, and what a model may look at.

A model is found by its name among the entry points of the group `headroom.predictors` (see `plugins`). The entry point
loads a callable that takes `Parameters` and returns a `Predictor`; deriving from the protocol supplies all but `peak`.
Amounts are arrays whose last axis has two places: cpu in cores, memory in bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from agent.metric_cache.series import Usage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.table import ModelTable

Candidates: TypeAlias = Mapping[str, Floats]  # each of shape (2,), by a name people can read


class History(NamedTuple):
    """What is known of one entity: decayed mean and population stdev, and how much they rest on.

    `first_observed` is in Unix seconds; `samples` counts training steps.
    """

    mean: Usage
    stdev: Usage
    samples: int
    first_observed: float


@dataclass(frozen=True)
class Parameters:
    """What the policy sets for models. Pairs are for cpu and memory; percentiles are 0 to 1.

    `safety_margin_percent` is None unless set: then each model has its own.
    """

    sigma: Floats = field(default_factory=lambda: np.array([5.0, 5.0]))
    percentiles: Floats = field(default_factory=lambda: np.array([0.95, 0.98]))
    safety_margin_percent: float | None = None
    borg_ratio: float = 1.1

    def __post_init__(self) -> None:
        for shared in (self.sigma, self.percentiles):
            shared.setflags(write=False)  # all models have the same ones

    def with_margin(self, default_percent: float) -> float:
        """The factor of the safety margin, for a model that has that one unless told otherwise."""
        percent = default_percent if self.safety_margin_percent is None else self.safety_margin_percent
        return (100 + percent) / 100


class Histories:
    """Decayed statistics of some entities, a row for each of `keys` in every answer, read from the bank when asked."""

    def __init__(self, table: ModelTable, keys: Sequence[str]) -> None:
        """Raises KeyError for an entity without a model."""
        self.keys = tuple(keys)
        self._table = table
        self._rows: Rows = np.array([table.rows[key] for key in keys], np.intp)

    @property
    def means(self) -> Floats:
        return np.stack([bank.moments.means[self._rows] for bank in self._table.banks], axis=1)

    @property
    def stdevs(self) -> Floats:
        return np.stack([bank.moments.stdevs(self._rows) for bank in self._table.banks], axis=1)

    def percentiles(self, ps: Floats) -> Floats:
        """The upper edge of the bucket of each resource's own p (0 to 1); `ps` has shape (2,)."""
        banks = zip(self._table.banks, ps, strict=True)
        return np.concatenate([bank.histograms.percentiles(self._rows, np.array([p])) for bank, p in banks], axis=1)

    @property
    def samples(self) -> Floats:
        """How many training steps each rests on; shape (rows,)."""
        return self._table.samples[self._rows].astype(np.float64)

    @property
    def first_observed(self) -> Floats:
        """Unix seconds; shape (rows,)."""
        return self._table.first_observed[self._rows]


@dataclass(frozen=True)
class Situation:
    """Those whose common peak is asked for, seen in three ways: all together, by class, and pod by pod.

    What runs beside the pods, the system, is a pod of its own. Only pods whose history can be judged are in `pods`;
    what the others have requested is added to every model's answer. A young pod of a long known workload has the
    workload's history beside its own: `inherited` says which pods of `pods` those are, in the order of `workloads`.
    """

    time: float  # Unix seconds
    whole: Histories  # one row: their usage summed tick by tick
    classes: Histories  # the usage of each priority class, and last the system's
    system: Histories  # one row
    pods: Histories
    requests: Floats  # shape (pods, 2)
    workloads: Histories
    inherited: Rows

    def __post_init__(self) -> None:
        for shared in (self.requests, self.inherited):
            shared.setflags(write=False)  # all models have the same ones, and the safe answer

    def by_pod(self, judged: Callable[[Histories], Floats]) -> Floats:
        """`judged` for every pod, shape (pods, 2).

        An heir is taken for what its workload is, but not beyond its request, as it would count without a history.
        """
        amounts = judged(self.pods)
        if len(self.inherited):
            own, request = amounts[self.inherited], self.requests[self.inherited]
            amounts[self.inherited] = np.maximum(own, np.minimum(request, judged(self.workloads)))
        return amounts

    def over_pods(self, judged: Callable[[Histories], Floats]) -> Floats:
        """The sum of `judged` over every pod and the system, shape (2,)."""
        total: Floats = self.by_pod(judged).sum(axis=0) + judged(self.system)[0]
        return total


class Predictor(Protocol):
    """A model of the peak. Whoever keeps nothing of its own has only `peak` to say.

    What a model raises, or answers beside the point, is noted, and a safe answer is used in its place.
    """

    def update(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        """A training step of the bank at `time` (Unix seconds): one sample for each key, shape (keys, 2)."""
        return

    def peak(self, situation: Situation) -> Candidates:
        """What usage may rise to, judged in as many ways as the model has: the largest, per resource, is the peak."""
        ...

    def state(self) -> bytes:
        """What is to outlive the process, for the checkpoint; at most 1 MiB."""
        return b""

    def restore(self, state: bytes) -> None:
        """Takes up a `state` of before; called ahead of all updates."""
        return


class NSigmaV1(Predictor):
    """mean + N * stdev of the usage of all pods together (seed koordinator-node-prediction, N-sigma Prediction)."""

    name = "n-sigma-v1"

    def __init__(self, parameters: Parameters) -> None:
        self._sigma = parameters.sigma
        self._factor = parameters.with_margin(0)

    def _judged(self, histories: Histories) -> Floats:
        return (histories.means + self._sigma * histories.stdevs) * self._factor

    def peak(self, situation: Situation) -> Candidates:
        return {"n-sigma-v1": self._judged(situation.whole)[0]}


class NSigmaV2(NSigmaV1):
    """The larger of v1 and the sum over pods, the system among them, of each one's mean + N * stdev (same place)."""

    name = "n-sigma-v2"

    def peak(self, situation: Situation) -> Candidates:
        return {**super().peak(situation), "pods-n-sigma": situation.over_pods(self._judged)}


class BorgDefault(Predictor):
    """The sum of requests by a fixed ratio (seed, Alternatives); knows no usage, so neither the system's."""

    name = "borg-default"

    def __init__(self, parameters: Parameters) -> None:
        self._factor = parameters.with_margin(0) / parameters.borg_ratio

    def peak(self, situation: Situation) -> Candidates:
        return {"borg-default": situation.requests.sum(axis=0) * self._factor}


class ResourceCentral(Predictor):
    """The sum of a percentile of each pod's usage, the system among them (seed, Alternatives)."""

    name = "resource-central"

    def __init__(self, parameters: Parameters) -> None:
        self._percentiles = parameters.percentiles
        self._factor = parameters.with_margin(0)

    def peak(self, situation: Situation) -> Candidates:
        return {"resource-central": situation.over_pods(self._judged) * self._factor}

    def _judged(self, histories: Histories) -> Floats:
        return histories.percentiles(self._percentiles)
