"""Koordinator's model: percentiles of decaying histograms, by pod and by class, and what it takes to be reclaimable.

All of it in integers (milli-cores and bytes) truncated where Koordinator truncates, so that its own cases hold.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from agent.predict_server.models import Candidates, Histories, Parameters, Predictor, Situation
from shared.api.predictpolicy import PERCENTILE
from shared.quantity import MILLI_PER_CORE, Resources

DEFAULT_MARGIN_PERCENT = 10

BY_POD = "percentile-pods"
BY_CLASS = "percentile-classes"

_UNITS = np.array([MILLI_PER_CORE, 1.0])


class Percentile(Predictor):
    """p95 of cpu and p98 of memory unless set, and 10 % on top; summed over pods, or over classes and system."""

    name = PERCENTILE

    def __init__(self, parameters: Parameters) -> None:
        self._percentiles = parameters.percentiles
        self._factor = parameters.with_margin(DEFAULT_MARGIN_PERCENT)

    def peak(self, situation: Situation) -> Candidates:
        by_pod = self.by_pod(situation).sum(axis=0)
        return {BY_POD: by_pod / _UNITS, BY_CLASS: self.by_class(situation) / _UNITS}

    def by_pod(self, situation: Situation) -> Floats:
        """Each pod's peak in whole milli-cores and bytes, shape (pods, 2). The system is in none of them."""
        peaks: Floats = np.trunc(np.trunc(situation.by_pod(self._judged) * _UNITS) * self._factor)
        return peaks

    def by_class(self, situation: Situation) -> Floats:
        """The peak of the classes and the system together in the same units, shape (2,)."""
        return with_margin(np.trunc(self._judged(situation.classes) * _UNITS), self._factor)

    def _judged(self, histories: Histories) -> Floats:
        return histories.percentiles(self._percentiles)


def with_margin(peaks: Floats, factor: float) -> Floats:
    """The sum of whole amounts, shape (rows, 2), by the factor, truncated once."""
    total: Floats = np.trunc(peaks.sum(axis=0) * factor)
    return total


class Lender(NamedTuple):
    """A pod of a lending class; `peak` contains the safety margin and is None for a pod without a model."""

    request: Resources
    cold: bool
    holds_request: bool
    peak: Resources | None


class Level(NamedTuple):
    """What one of the two ways of looking makes of it: by pod, or by class."""

    unreclaimable: Resources  # predicted to be used
    unpredicted: Resources  # requests nothing can be said about
    reclaimable: Resources  # before the node's bound

    @property
    def peak(self) -> Resources:
        return self.unreclaimable.plus(self.unpredicted)

    def bound(self, allocatable: Resources) -> Resources:
        """What the node has left for it."""
        return allocatable.minus(self.unreclaimable).floored()

    def result(self, allocatable: Resources) -> Resources:
        return self.bound(allocatable).least(self.reclaimable)


def pod_level(lenders: Sequence[Lender], ratio_percent: int = 100) -> Level:
    """Pod by pod: none lends less than nothing. A cold pod counts with its request even on its way out."""
    unreclaimable = unpredicted = reclaimable = Resources()
    for lender in lenders:
        if lender.cold or (lender.holds_request and lender.peak is None):
            unpredicted = unpredicted.plus(lender.request)
        elif lender.holds_request and lender.peak is not None:
            unreclaimable = unreclaimable.plus(lender.peak)
            entitled = lender.request.percent(cpu=ratio_percent, memory=ratio_percent)
            reclaimable = reclaimable.plus(entitled.minus(lender.peak).floored())
    return Level(unreclaimable, unpredicted, reclaimable)


def class_level(lenders: Sequence[Lender], peak: Resources, ratio_percent: int = 100) -> Level:
    """All requests against the peak of classes and system. An old pod without a model lends nothing here either."""
    requested = Resources()
    for lender in lenders:
        if lender.holds_request and (lender.cold or lender.peak is not None):
            requested = requested.plus(lender.request)
    entitled = requested.percent(cpu=ratio_percent, memory=ratio_percent)
    return Level(peak, Resources(), entitled.minus(peak).floored())
