"""The predicted peaks of pods, read from a NodeMetric on request.

Keeping them for every pod of a cluster would take much memory, and few are ever read.
"""

import logging
import threading
from collections.abc import Collection, Mapping
from typing import NamedTuple

from shared import names
from shared.api.core import Quantities
from shared.api.meta import Wire
from shared.api.nodemetric import PodExtensions
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import NODEMETRICS
from shared.quantity import INT64_MAX, QuantityError, Resources

logger = logging.getLogger(__name__)

KEPT_SECONDS = 60.0  # reports come by the minute
MOST_READ = 20  # nodes for one question
MOST_KEPT = 200  # nodes
TIMEOUT_SECONDS = 5.0  # a reader waits for it


class _ReportedPod(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    extensions: PodExtensions | None = None


class _Status(Wire, frozen=True):
    pods_metric: tuple[_ReportedPod, ...] | None = None


class _Metric(Wire, frozen=True):
    status: _Status = _Status()


class _NodePeaks(NamedTuple):
    """The peaks by a pod's "namespace/name", until a monotonic time."""

    peaks: Mapping[str, Resources]
    until: float


class PodPeaks:
    """Reads few nodes at a time. Safe for any thread."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, _NodePeaks] = {}

    def read(self, pods: Mapping[str, Collection[str]]) -> Mapping[str, Resources]:
        """The peaks of these `pods` by "namespace/name", as far as they are known; `pods` are by node.

        The report of a node counts for its own pods alone. Beyond `MOST_READ` nodes, none are read.
        """
        if len(pods) > MOST_READ:
            return {}
        return {key: peak for node, keys in pods.items() for key, peak in self._read_node(node).items() if key in keys}

    def _read_node(self, node: str) -> Mapping[str, Resources]:
        with self._lock:
            kept = self._kept.get(node)
        if kept is not None and self._clock.monotonic() < kept.until:
            return kept.peaks
        try:
            listing = self._client.list(NODEMETRICS, into=_Metric, field_selector=f"metadata.name={node}")
        except HeadroomError as problem:
            logger.warning("the predicted peaks of pods are not known: %s", problem, extra={"node": node})
            peaks: dict[str, Resources] = {}
        else:
            peaks = _peaks([pod for metric in listing.items for pod in metric.status.pods_metric or ()])
        with self._lock:
            self._kept.pop(node, None)
            self._kept[node] = _NodePeaks(peaks, self._clock.monotonic() + KEPT_SECONDS)
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return peaks


def _peaks(pods: Collection[_ReportedPod]) -> dict[str, Resources]:
    known = {
        f"{pod.namespace}/{pod.name}": _amount(pod.extensions.predicted_peak)
        for pod in pods
        if pod.extensions is not None and pod.extensions.predicted_peak is not None
    }
    return {key: peak for key, peak in known.items() if peak is not None}


def _amount(reported: Quantities) -> Resources | None:
    """The amount; None if it cannot be a peak, or lacks a resource."""
    if not {names.CPU, names.MEMORY} <= reported.keys():
        return None
    try:
        peak = Resources.parse(reported)
    except (QuantityError, ValueError):
        return None
    return peak if min(peak) >= 0 and max(peak) < INT64_MAX else None
