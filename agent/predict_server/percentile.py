"""Koordinator's model: percentiles of decaying histograms, by pod and by class, and its rule for reclaiming.

All amounts are integers (milli-cores and bytes), truncated where Koordinator truncates, so that its own test cases
pass.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from agent.predict_server.histories import Candidates, Histories
from agent.predict_server.lenders import ProdPod as Known
from agent.predict_server.models import Parameters, Predictor, Situation, Uses
from agent.predict_server.reclaimable import (
    UNITS,
    Inputs,
    Reclaimable,
    ReclaimableAmount,
    explain,
    largest,
    smallest,
    whole,
)
from shared import durations
from shared.api.predictpolicy import PERCENTILE
from shared.explanation import Term
from shared.quantity import MILLI_PER_CORE, Resources

DEFAULT_MARGIN_PERCENT = 10.0

BY_POD = "percentile-pods"
BY_CLASS = "percentile-classes"

_PER_UNIT = np.array([MILLI_PER_CORE, 1.0])


class Percentile(Predictor):
    """The percentile model: by default p95 of cpu and p98 of memory, plus 10 %; summed over pods, or over classes and
    system.
    """

    name = PERCENTILE
    uses = frozenset({Uses.PERCENTILE})
    default_margin_percent = DEFAULT_MARGIN_PERCENT

    def __init__(self, parameters: Parameters) -> None:
        self._percentiles = parameters.percentiles
        self._factor = parameters.with_margin(DEFAULT_MARGIN_PERCENT)

    def peak(self, situation: Situation) -> Candidates:
        by_pod = np.where(situation.cold[:, np.newaxis], situation.requests * _PER_UNIT, self.by_pod(situation))
        return {BY_POD: situation.by_node(by_pod) / _PER_UNIT, BY_CLASS: self.by_class(situation) / _PER_UNIT}

    def reclaimable(self, situation: Situation, inputs: Inputs) -> Reclaimable:
        """Koordinator's rule: the lesser of its pod level and its class level."""
        peaks = self.of_warm_pods(situation)
        seen = [as_koordinator(one, peaks.get(one.pod.uid)) for one in inputs.lending]
        (class_peak,) = whole(self.by_class(situation))
        return by_pod_and_class(inputs, seen, class_peak)

    def of_warm_pods(self, situation: Situation) -> dict[str, Resources]:
        """The peaks of the pods with enough history, by uid."""
        pods = zip(situation.pods.keys, whole(self.by_pod(situation)), situation.cold.tolist(), strict=True)
        return {uid: peak for uid, peak, cold in pods if not cold}

    def by_pod(self, situation: Situation) -> Floats:
        """Each pod's peak in whole milli-cores and bytes, shape (pods, 2). The system is not included."""
        peaks: Floats = np.trunc(np.trunc(situation.inheriting(self._judged) * _PER_UNIT) * self._factor)
        return peaks

    def by_class(self, situation: Situation) -> Floats:
        """The peak of the classes and the system together in the same units, shape (nodes, 2)."""
        by_class = np.trunc(self._judged(situation.classes) * _PER_UNIT).reshape(situation.nodes, -1, 2)
        return with_margin(by_class, self._factor)

    def _judged(self, histories: Histories) -> Floats:
        return histories.percentiles(self._percentiles)


def with_margin(peaks: Floats, factor: float) -> Floats:
    """The sums of whole amounts, shape (..., rows, 2), times the factor, each truncated once."""
    totals: Floats = np.trunc(peaks.sum(axis=-2) * factor)
    return totals


class PercentilePod(NamedTuple):
    """A pod of a lending class; `peak` includes the safety margin and is None for a pod without a model."""

    request: Resources
    cold: bool
    holds_request: bool
    peak: Resources | None


def as_koordinator(one: Known, peak: Resources | None) -> PercentilePod:
    """Koordinator's cold pods are the young ones, even those being deleted. An old pod without a model is not cold."""
    cold = one.cold and (one.young or (one.pod.holds_request and one.observed))
    return PercentilePod(one.pod.request, cold, one.pod.holds_request, peak)


class Level(NamedTuple):
    """The result of one of the two levels: by pod, or by class."""

    unreclaimable: Resources  # predicted usage
    unpredicted: Resources  # requests without a prediction
    reclaimable: Resources  # before the node's bound

    @property
    def peak(self) -> Resources:
        return self.unreclaimable.plus(self.unpredicted)

    def bound(self, allocatable: Resources) -> Resources:
        """The level's amount, bounded by the node's remaining room."""
        return allocatable.minus(self.unreclaimable).floored()

    def result(self, allocatable: Resources) -> Resources:
        return self.bound(allocatable).least(self.reclaimable)


def pod_level(lenders: Sequence[PercentilePod], ratio_percent: int = 100) -> Level:
    """Pod by pod: none lends less than zero. A cold pod counts with its request even while it is being deleted."""
    unreclaimable = unpredicted = reclaimable = Resources()
    for lender in lenders:
        if lender.cold or (lender.holds_request and lender.peak is None):
            unpredicted = unpredicted.plus(lender.request)
        elif lender.holds_request and lender.peak is not None:
            unreclaimable = unreclaimable.plus(lender.peak)
            entitled = lender.request.percent(cpu=ratio_percent, memory=ratio_percent)
            reclaimable = reclaimable.plus(entitled.minus(lender.peak).floored())
    return Level(unreclaimable, unpredicted, reclaimable)


def class_level(lenders: Sequence[PercentilePod], peak: Resources, ratio_percent: int = 100) -> Level:
    """All requests minus the peak of classes and system. An old pod without a model lends nothing here either."""
    requested = Resources()
    for lender in lenders:
        if lender.holds_request and (lender.cold or lender.peak is not None):
            requested = requested.plus(lender.request)
    entitled = requested.percent(cpu=ratio_percent, memory=ratio_percent)
    return Level(peak, Resources(), entitled.minus(peak).floored())


def by_pod_and_class(inputs: Inputs, lenders: Sequence[PercentilePod], class_peak: Resources) -> Reclaimable:
    """The lesser of the results of the pod level and the class level."""
    levels = {
        BY_POD: pod_level(lenders, inputs.ratio_percent),
        BY_CLASS: class_level(lenders, class_peak, inputs.ratio_percent),
    }
    results = {name: level.result(inputs.allocatable) for name, level in levels.items()}
    result, peak = smallest(results), largest({name: level.peak for name, level in levels.items()})
    time = durations.timestamp(inputs.now)

    def terms(resource: int) -> list[Term]:
        return [
            Term(f"{what} {name}", amount[resource], UNITS[resource], "prediction", time)
            for name, level in levels.items()
            for what, amount in (("reclaimable", level.reclaimable), ("room above", level.bound(inputs.allocatable)))
        ]

    def bound(resource: int) -> str:
        return min(results, key=lambda name: results[name][resource])

    return explain(inputs, ReclaimableAmount(result, peak, (bound(0), bound(1)), (terms(0), terms(1))))
