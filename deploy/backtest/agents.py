"""Reads the last week's usage of one node's pods from its agent's API, or from the agent's state folder.

Both hold means of five minutes. The folder has neither the names nor the requests of pods: its series are named by the
pods' uids. Reading does not change it, and the agent may be using it.
"""

import math
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import numpy as np

from agent.main import METRIC_CACHE_DIRECTORY
from agent.metric_cache.cache import WEEK_SECONDS, MetricCache, StorageTier
from agent.metric_cache.series import Kind, Metric
from agent.metric_cache.storage import Disk
from agent.metric_cache.windows import STEP_SECONDS
from agent.predict_server import checkpoint
from agent.predict_server.checkpoint import Content, UnusableCheckpoint
from agent.predict_server.decay import Floats
from deploy.backtest.prometheus import Period
from deploy.backtest.samples import UNITS, Samples
from deploy.backtest.server import PrometheusServer, TooMuch, read
from shared.errors import InvalidInput
from shared.names import LENDING_CLASSES
from shared.quantity import MILLI_PER_CORE

SCHEME = "agent+"  # before http:// or https://, which alone mean a Prometheus
_DAY_SECONDS = 86_400.0
_METRICS = {"cpu": Metric.CPU, "memory": Metric.MEMORY}


class _Node(msgspec.Struct, frozen=True):
    name: str


class _Amount(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_bytes: int


class _Pod(msgspec.Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    priority: str
    request: _Amount


class _Pods(msgspec.Struct, frozen=True):
    pods: list[_Pod]


class _Values(msgspec.Struct, frozen=True):
    entity: str
    values: list[float | None]


class _Series(msgspec.Struct, frozen=True):
    times: list[float]
    series: list[_Values]


class _Piece(NamedTuple):
    """Some values of one pod, NaN where there is none."""

    uid: str
    times: Floats
    values: Floats


def of_api(server: PrometheusServer, resource: str, period: Period, aggregate: str = "") -> Samples:
    """The week of pods that lend; requests are known only of running pods. Raises HeadroomError."""
    node = read(server, "/api/v1/node", _Node).name
    pods = {pod.uid: pod for pod in read(server, "/api/v1/pods", _Pods).pods}
    others = {uid for uid, pod in pods.items() if pod.priority not in LENDING_CLASSES}
    pieces = (one for one in _pieces(server, resource, period, _tier(aggregate)) if one.uid not in others)
    found = _samples(server.name, resource, node, pieces)
    known = [pods.get(uid) for uid in found.names]
    return replace(
        found,
        names=[f"{pod.namespace}/{pod.name}" if pod else uid for uid, pod in zip(found.names, known, strict=True)],
        cores=np.array([pod.request.cpu_milli / MILLI_PER_CORE if pod else math.nan for pod in known]),
        memory_bytes=np.array([float(pod.request.memory_bytes) if pod else math.nan for pod in known]),
        aggregate=aggregate or "mean",
    )


def of_folder(folder: Path, resource: str, aggregate: str = "") -> Samples:
    """The week of a state folder. Raises InvalidInput for one that has none."""
    newest = next(checkpoints(folder), None)
    if newest is None:
        raise _no_state(folder, "no checkpoint in it can be read")
    node = newest.node
    with TemporaryDirectory() as copy:
        rings = Path(copy) / METRIC_CACHE_DIRECTORY
        try:
            shutil.copytree(folder / METRIC_CACHE_DIRECTORY, rings)
        except (OSError, shutil.Error) as error:
            raise _no_state(folder, str(error)) from error
        cache = MetricCache(disk=Disk(rings, node, 0.0))
        began = float(cache.wall_time(0))
        pieces = []
        for key in cache.series_keys(Kind.POD, _METRICS[resource]):
            seconds, values = cache.range(key, 0, cache.second(), _tier(aggregate))
            pieces.append(_Piece(key.entity, began + seconds.astype(np.float64), values.astype(np.float64)))
        cache.close()
    return replace(_samples(str(folder), resource, node, pieces), aggregate=aggregate or "mean")


def _tier(aggregate: str) -> StorageTier:
    return StorageTier.MAXIMA if aggregate == "max" else StorageTier.MEANS


def checkpoints(folder: Path) -> Iterator[Content]:
    """The readable checkpoints, the newest first."""
    for path in sorted(folder.glob("prediction-*.checkpoint"), reverse=True):
        with suppress(OSError, UnusableCheckpoint):
            yield checkpoint.decode(path.read_bytes())


def _no_state(folder: Path, problem: str) -> InvalidInput:
    return InvalidInput(source="command line", field="SOURCE", value=str(folder), problem=problem)


def _pieces(server: PrometheusServer, resource: str, period: Period, tier: StorageTier) -> Iterator[_Piece]:
    """One day at a time, or less where the agent refuses a day of this many pods."""
    window, start = _DAY_SECONDS, max(period.start, period.end - WEEK_SECONDS)
    while start <= period.end:
        end = min(start + window, period.end + 1) - 1
        query = {"kind": str(Kind.POD), "metric": str(_METRICS[resource]), "tier": str(tier)}
        try:
            found = read(server, "/api/v1/series", _Series, query | {"start": f"{start:.0f}", "end": f"{end:.0f}"})
        except TooMuch:
            if window <= STEP_SECONDS:
                raise
            window /= 2
            continue
        for one in found.series:
            yield _Piece(one.entity, np.array(found.times), np.array(one.values, np.float64))
        start += window


def _samples(source: str, resource: str, node: str, pieces: Iterable[_Piece]) -> Samples:
    """Samples by uid of the pods, all on one node. Raises InvalidInput if there are none."""
    codes: dict[str, int] = {}
    found = [(np.full(len(one.times), codes.setdefault(one.uid, len(codes))), one.times, one.values) for one in pieces]
    if not found:
        raise InvalidInput(source=source, field="series", value=[], problem=f"no {resource} of pods is known there")
    places, times, values = map(np.concatenate, zip(*found, strict=True))
    known = ~np.isnan(values)
    unit = UNITS["cpu_cores"] if resource == "cpu" else UNITS["memory_bytes"]
    return Samples(source, unit, times[known], places[known], values[known], list(codes), [node] * len(codes))
