"""The protocol of predictors, which plug-ins implement, and the input of a predictor.

The agent finds a predictor by its name among the entry points of the group `headroom.predictors` (see `plugins`). The
entry point loads a callable that takes `Parameters` and returns a `Predictor`; deriving from the protocol supplies all
but `peak`. Amounts are arrays whose last axis has two places: cpu in cores, memory in bytes.

One predictor answers for any number of nodes at once: an agent asks about its own node, a backtest about a whole fleet.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.histories import Candidates, Histories
from agent.predict_server.reclaimable import Inputs, Reclaimable
from shared.api.nodemetric import SurpriseCause
from shared.api.predictionprior import ObservedTail, Prior

HOUR_SECONDS, DAY_SECONDS = 3600.0, 86400.0
HORIZONS_SECONDS = (DAY_SECONDS, HOUR_SECONDS)  # the first one decides what is lent
DAYS_OF_MAXIMA = 7  # a pod without a limit is expected to stay within its maximum of these


@dataclass(frozen=True)
class Parameters:
    """The policy's parameters for models. Pairs are for cpu and memory; percentiles are 0 to 1.

    `safety_margin_percent` None means each model's own default. `sigma_cap_pods` caps pods in N-sigma at what they can
    use, see `Situation.by_pod`; the seed has no such cap.
    """

    sigma: Floats = field(default_factory=lambda: np.array([5.0, 5.0]))
    sigma_cap_pods: bool = False
    percentiles: Floats = field(default_factory=lambda: np.array([0.95, 0.98]))
    safety_margin_percent: float | None = None
    borg_ratio: float = 1.1
    target_violation_percent: float = 1.0
    prior: Prior | None = None  # the fleet's; None means the built-in prior

    def __post_init__(self) -> None:
        for shared in (self.sigma, self.percentiles):
            shared.setflags(write=False)  # all models share these

    def with_margin(self, default_percent: float) -> float:
        """The factor of the safety margin, with the model's default unless the policy sets one."""
        percent = default_percent if self.safety_margin_percent is None else self.safety_margin_percent
        return (100 + percent) / 100


@dataclass(frozen=True)
class Situation:
    """The pods that hold a request on some nodes, and the system beside them, whose common peak is predicted.

    There are three views: all together (`whole`), by priority class, and by pod, with the system as a pod of its own.
    `cold` marks pods whose own and whose workload's history is too short to judge: predictors must still include them.
    A young pod of a workload with a longer history has the workload's history beside its own: `inherited` are the
    places in `pods` of these pods, in the order of `workloads`.
    """

    time: float  # Unix seconds
    whole: Histories  # a row for each node: their usage summed tick by tick
    classes: (
        # The same number of rows for each node, node by node: the usage of each priority class, and the system's
        Histories
    )
    system: Histories  # a row for each node
    pods: Histories
    pod_nodes: Rows  # the node of each pod, counted from 0; shape (pods,)
    requests: Floats  # shape (pods, 2)
    limits: Floats  # shape (pods, 2); infinite without a limit
    ages_seconds: Floats  # since each pod's first observation; shape (pods,)
    cold: NDArray[np.bool_]  # shape (pods,)
    workloads: Histories
    inherited: Rows
    horizons_seconds: tuple[float, ...] = HORIZONS_SECONDS  # how far ahead to predict peaks
    # What each node has in all, which nothing can exceed; shape (nodes, 2). None or infinite where it is not known
    capacity: Floats | None = None

    def __post_init__(self) -> None:
        for shared in (self.pod_nodes, self.requests, self.limits, self.ages_seconds, self.cold, self.inherited):
            shared.setflags(write=False)  # all predictors share these

    @property
    def nodes(self) -> int:
        return len(self.whole)

    def by_node(self, amounts: Floats) -> Floats:
        """The sums of the pods' amounts, shape (pods, 2), on each node; shape (nodes, 2).

        Adds pod by pod, so that a node's sum does not depend on the other nodes of the request.
        """
        columns = [np.bincount(self.pod_nodes, weights=column, minlength=self.nodes) for column in amounts.T]
        return np.stack(columns, axis=1)

    def inheriting(self, judged: Callable[[Histories], Floats]) -> Floats:
        """`judged` of every pod's own history, shape (pods, 2).

        A pod that inherits counts like its workload, but only up to its request, which is its value without a history.
        """
        amounts = judged(self.pods)
        if len(self.inherited):
            own, request = amounts[self.inherited], self.requests[self.inherited]
            amounts[self.inherited] = np.maximum(own, np.minimum(request, judged(self.workloads)))
        return amounts

    def by_pod(self, judged: Callable[[Histories], Floats], *, capped: bool = True) -> Floats:
        """`judged` of every pod, shape (pods, 2), the request of a cold pod. `capped`: but at most what a pod can use.

        A pod cannot use more than its limit; without one, it is expected to stay within its request or its largest
        usage.
        """
        amounts = self.inheriting(judged)
        if not capped:
            return np.where(self.cold[:, np.newaxis], self.requests, amounts)
        unlimited = np.isinf(self.limits)
        if unlimited.any():
            most = np.where(unlimited, np.maximum(self.requests, self.pods.maxima(DAYS_OF_MAXIMA)), self.limits)
        else:
            most = self.limits
        return np.where(self.cold[:, np.newaxis], self.requests, np.minimum(amounts, most))

    def over_pods(self, judged: Callable[[Histories], Floats], *, capped: bool = True) -> Floats:
        """The sum of `by_pod` and of the system's part, shape (nodes, 2)."""
        return self.by_node(self.by_pod(judged, capped=capped)) + judged(self.system)

    def cold_floor(self) -> Floats:
        """The requests of cold pods above the mean usage of all others, shape (nodes, 2).

        A predictor that only knows the whole node must not lend the request of a pod that has just arrived.
        """
        return self.over_pods(lambda histories: histories.means)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a prediction whose horizon has passed; amounts have the shape (nodes, 2).

    `nodes` are the keys of the node series in `Situation.whole`. The actual peak is the largest sum, over the samples
    within the horizon, of the system's usage and that of the pods that existed at the prediction.
    """

    nodes: tuple[str, ...]
    predicted_at: float  # Unix seconds, the `Situation.time` of the prediction
    horizon_seconds: float
    promised: Floats
    realised: Floats


@dataclass(frozen=True)
class OpenPromises:
    """The promises of one horizon that have no outcome yet, the oldest first, and the most that was used by now.

    `nodes` as in `Outcome`; `predicted_at` has the shape (promises,), amounts the shape (promises, nodes, 2).
    """

    nodes: tuple[str, ...]
    horizon_seconds: float
    predicted_at: Floats
    promised: Floats
    reached: Floats
    time: float


class Debt(NamedTuple):
    """What broken promises of the last four weeks cost a node.

    A surprise breaks all promises that are open. `promises` are the broken ones that are not made up for, `withheld` is
    how much less is lent because of them, in cores or bytes, until `seconds` from now, if nothing else breaks. `last`
    is the time of the last surprise in Unix seconds, 0 without one, `cause` the reason for it.
    """

    surprises: int
    promises: float
    withheld: float
    seconds: float
    last: float
    cause: SurpriseCause


class Uses(enum.StrEnum):
    """The parameters of a policy that a model may read, by the names they have in explanations."""

    SIGMA = "sigma"
    TARGET = "targetViolation"
    PERCENTILE = "percentile"
    BORG_RATIO = "borgRatio"


class Predictor(Protocol):
    """A model of the peak. A predictor without state of its own only needs `peak`.

    The class may declare the parameters that it `uses`, which are then shown with its result, and whose change begins
    the record of its promises anew; and the safety margin that it takes where the policy sets none. Who uses the target
    keeps to it, and starts from the fleet's prior.

    The agent records an exception or an invalid result, and uses a safe result instead.
    """

    uses: ClassVar[frozenset[Uses]] = frozenset()
    default_margin_percent: ClassVar[float | None] = None

    def update(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        """A training step of the bank at `time` (Unix seconds): one sample for each key, shape (keys, 2)."""
        return

    def peak(self, situation: Situation) -> Candidates:
        """The usage that may be reached within each horizon, by each of the predictor's own methods.

        Each has shape (horizons, nodes, 2), or (nodes, 2) if the horizon does not matter. The largest of them, per
        resource, is the peak; it covers cold pods.
        """
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Receives outcomes of earlier predictions, the oldest of each horizon first. There is one for every hour."""
        return

    def watch(self, promises: Sequence[OpenPromises]) -> None:
        """Receives the promises that are still open, at each training step in which one is broken."""
        return

    def debts(self, node: str) -> Mapping[float, tuple[Debt, Debt]]:
        """What broken promises cost a node series, by horizon in seconds; cpu and memory."""
        return {}

    def tails(self, node: str) -> Mapping[float, tuple[ObservedTail, ObservedTail]]:
        """The tail of a node series' outcomes, by horizon in seconds, for the fleet's prior; cpu and memory."""
        return {}

    def set_clock(self, seconds: float) -> None:
        """The wall clock was set forward by that much, or back if below 0; no time has passed."""
        return

    def reclaimable(self, situation: Situation, inputs: Inputs) -> Reclaimable | None:
        """The reclaimable amount by the predictor's own rule; None for the common rule."""
        return None

    def state(self) -> bytes:
        """The state to keep beyond the process, for the checkpoint; at most 1 MiB."""
        return b""

    def restore(self, state: bytes) -> None:
        """Restores an earlier `state`; called before all updates."""
        return


class NSigmaV1(Predictor):
    """mean + N * stdev of the usage of all pods together (seed koordinator-node-prediction, N-sigma Prediction)."""

    name = "n-sigma-v1"
    uses = frozenset({Uses.SIGMA})

    def __init__(self, parameters: Parameters) -> None:
        self._sigma, self._cap_pods = parameters.sigma, parameters.sigma_cap_pods
        self._factor = parameters.with_margin(0)

    def _judged(self, histories: Histories) -> Floats:
        return (histories.means + self._sigma * histories.stdevs) * self._factor

    def peak(self, situation: Situation) -> Candidates:
        candidates = {"n-sigma-v1": self._judged(situation.whole)}
        return candidates | {"cold-pods": situation.cold_floor()} if situation.cold.any() else candidates


class NSigmaV2(NSigmaV1):
    """The larger of v1 and the sum over pods, including the system, of each one's mean + N * stdev (same place).

    A cold pod counts with its request in the sum.
    """

    name = "n-sigma-v2"

    def peak(self, situation: Situation) -> Candidates:
        by_node = self._judged(situation.whole)
        return {"n-sigma-v1": by_node, "pods-n-sigma": situation.over_pods(self._judged, capped=self._cap_pods)}


class BorgDefault(Predictor):
    """The sum of requests times a fixed ratio (seed, Alternatives); it ignores usage, also the system's."""

    name = "borg-default"
    uses = frozenset({Uses.BORG_RATIO})

    def __init__(self, parameters: Parameters) -> None:
        self._factor = parameters.with_margin(0) / parameters.borg_ratio

    def peak(self, situation: Situation) -> Candidates:
        factors = np.where(situation.cold, 1.0, self._factor)
        return {"borg-default": situation.by_node(situation.requests * factors[:, np.newaxis])}


class ResourceCentral(Predictor):
    """The sum of a percentile of the usage of each pod and of the system (seed, Alternatives).

    A percentile of usage is no more than a pod can use; that of a histogram, the end of a bucket, is capped at it.
    """

    name = "resource-central"
    uses = frozenset({Uses.PERCENTILE})

    def __init__(self, parameters: Parameters) -> None:
        self._percentiles = parameters.percentiles
        self._factor = parameters.with_margin(0)

    def peak(self, situation: Situation) -> Candidates:
        return {"resource-central": situation.over_pods(self._judged)}

    def _judged(self, histories: Histories) -> Floats:
        return histories.percentiles(self._percentiles) * self._factor
