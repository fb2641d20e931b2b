"""The input of this node's predictors. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Histories
from agent.predict_server.lenders import ProdPod
from agent.predict_server.models import DAYS_OF_MAXIMA, Situation
from agent.predict_server.reclaimable import rounded_up
from agent.predict_server.table import ModelTable
from agent.states_informer.pods import NodePod
from shared.names import LENDING_CLASSES, PriorityClass
from shared.quantity import MILLI_PER_CORE, Resources


class Moment(NamedTuple):
    """When and how far ahead to predict, in seconds, on a node of that capacity, which is 0 while it is not known."""

    now: float
    horizons_seconds: tuple[float, ...]
    capacity: Resources


def prod(table: ModelTable, lending: Iterable[ProdPod], at: Moment) -> Situation:
    """The pods that hold a request that may be lent, and the system."""
    holding = [one for one in lending if one.pod.holds_request]
    return _situation(table, series.PROD_PEAK, LENDING_CLASSES, holding, at)


def node(table: ModelTable, pods: Iterable[NodePod], at: Moment) -> Situation:
    """All pods of the node, however short their history."""
    running = [
        ProdPod(pod, cold=False, observed=True, young=False)
        for pod in pods
        if pod.running and table.samples_of(pod.uid)
    ]
    return _situation(table, series.NODE, PriorityClass, running, at)


def amounts(pairs: Sequence[tuple[float, float]]) -> Floats:
    """Converts milli-cores and bytes to cores and bytes; shape (pairs, 2)."""
    return np.array(pairs, np.float64).reshape(-1, 2) / [MILLI_PER_CORE, 1]


def capacities(capacity: Resources) -> Floats:
    """What a node has in all, in cores and bytes, shape (1, 2); infinite where it is not known."""
    return amounts([(capacity.cpu_milli or math.inf, capacity.memory_bytes or math.inf)])


def most(histories: Histories) -> Resources:
    """The largest sample in a week of the first entity."""
    return rounded_up(Usage(*histories.maxima(DAYS_OF_MAXIMA)[0].tolist()))


def _situation(
    table: ModelTable,
    whole: str,
    classes: Iterable[PriorityClass],
    lending: Sequence[ProdPod],
    at: Moment,
) -> Situation:
    heirs = [(place, one.workload) for place, one in enumerate(lending) if one.workload is not None]
    return Situation(
        time=at.now,
        whole=Histories(table, [whole]),
        classes=Histories(table, [*map(series.of_class, classes), series.SYSTEM]),
        system=Histories(table, [series.SYSTEM]),
        pods=Histories(table, [one.pod.uid for one in lending]),
        pod_nodes=np.zeros(len(lending), np.intp),
        requests=amounts([one.pod.request for one in lending]),
        limits=amounts([one.pod.limit for one in lending]),
        ages_seconds=np.array([one.age_seconds for one in lending]),
        cold=np.array([one.cold for one in lending], np.bool_),
        workloads=Histories(table, [workload for _, workload in heirs]),
        inherited=np.array([place for place, _ in heirs], np.intp),
        horizons_seconds=at.horizons_seconds,
        capacity=capacities(at.capacity),
    )
