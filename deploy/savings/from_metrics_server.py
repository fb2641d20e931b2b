"""Usage from metrics-server: one moment of pods and nodes, without history. Pure."""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deploy.savings.objects import NodeMetricsSample, PodMetrics
from deploy.savings.usage import ContainerKey, ContainerUse, KnownUsage, ResourceUse, Source
from shared import durations, quantity
from shared.api.core import Quantities
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, QuantityError, Resources

OLD_SECONDS = 300.0  # metrics-server samples at least once a minute, and drops what it has not seen since
_MOST_NAMED = 3


@dataclass(frozen=True)
class NodesMoment:
    """The joint usage of `nodes` of a cluster at `time`, in Unix seconds: pods and the system."""

    time: float
    nodes: int
    used: Resources


class MetricsServerAnswer(NamedTuple):
    """Without nodes there is no `moment`."""

    known: KnownUsage
    moment: NodesMoment | None


class _Amounts(NamedTuple):
    """In cores and bytes; None for what a sample lacks."""

    cpu: float | None
    memory: float | None


def read(
    pods: Iterable[PodMetrics],
    nodes: Iterable[NodeMetricsSample],
    owner_of: Mapping[str, tuple[str, str, str]],
    node_names: Collection[str],
    now: float | None = None,
) -> MetricsServerAnswer:
    """The moment of the cluster's pods and nodes; an unreadable sample is ignored with a note.

    `now`, in Unix seconds, decides which samples are too old.
    """
    refused: list[str] = []
    times: list[float] = []
    uses = _containers(pods, owner_of, times, refused)
    moment = _nodes(nodes, node_names, times, refused)
    notes = refused[:_MOST_NAMED]
    if len(refused) > _MOST_NAMED:
        notes.append(f"{len(refused) - _MOST_NAMED} more samples of metrics-server are passed by")
    if now is not None and times and now - max(times) > OLD_SECONDS:
        age = durations.render(round(now - max(times)))
        notes.append(f"metrics-server's newest sample is {age} old, of {durations.timestamp(max(times))}")
    return MetricsServerAnswer(KnownUsage(uses, tuple(notes)), moment)


def _containers(
    measured: Iterable[PodMetrics], owner_of: Mapping[str, tuple[str, str, str]], times: list[float], refused: list[str]
) -> dict[ContainerKey, ContainerUse]:
    replicas: defaultdict[ContainerKey, list[_Amounts]] = defaultdict(list)
    for pod in measured:
        owner = owner_of.get(pod.metadata.key)
        if owner is None:
            continue
        source = f"PodMetrics {pod.metadata.key}"
        try:
            time = _time(source, pod.timestamp)
            found = [
                (ContainerKey(*owner, each.name), _amounts(source, f"containers[{place}].usage", each.usage or {}))
                for place, each in enumerate(pod.containers)
            ]
        except InvalidInput as error:
            refused.append(f"{error}; it is passed by")
            continue
        times += time
        for key, amounts in found:
            replicas[key].append(amounts)
    return {
        key: ContainerUse(
            Source.SNAPSHOT,
            cpu=_use([each.cpu for each in samples if each.cpu is not None]),
            memory=_use([each.memory for each in samples if each.memory is not None]),
        )
        for key, samples in replicas.items()
    }


def _nodes(
    measured: Iterable[NodeMetricsSample], names: Collection[str], times: list[float], refused: list[str]
) -> NodesMoment | None:
    known, newest = dict[str, Resources](), 0.0
    for node in measured:
        name = node.metadata.name
        if name not in names:
            continue
        source = f"NodeMetrics {name}"
        try:
            time = _time(source, node.timestamp)
            cpu, memory = _amounts(source, "usage", node.usage or {})
        except InvalidInput as error:
            refused.append(f"{error}; it is passed by")
            continue
        times += time
        newest = max([newest, *time])
        known[name] = Resources(round((cpu or 0.0) * MILLI_PER_CORE), int(memory or 0.0))
    return NodesMoment(newest, len(known), quantity.total(list(known.values()))) if known else None


def _use(samples: Sequence[float]) -> ResourceUse | None:
    if not samples:
        return None
    most = max(samples)
    return ResourceUse(statistics.median(samples), most, most, 1, 0.0)


def _amounts(source: str, field: str, usage: Quantities) -> _Amounts:
    """The amounts of a sample. Raises InvalidInput."""

    def amount(name: str) -> float | None:
        if name not in usage:
            return None
        try:
            found = quantity.milli(usage[name]) / MILLI_PER_CORE if name == CPU else float(quantity.whole(usage[name]))
        except QuantityError as error:
            problem = "expected a quantity, such as 250m or 512Mi"
            raise InvalidInput(source=source, field=f"{field}.{name}", value=usage[name], problem=problem) from error
        if found < 0:
            raise InvalidInput(source=source, field=f"{field}.{name}", value=usage[name], problem="less than nothing")
        return found

    return _Amounts(amount(CPU), amount(MEMORY))


def _time(source: str, timestamp: str | None) -> list[float]:
    """Unix seconds; None if the sample has no time. Raises InvalidInput."""
    try:
        return [] if timestamp is None else [durations.instant(timestamp)]
    except ValueError as error:
        problem = "expected an instant, such as 2026-01-31T12:00:00Z"
        raise InvalidInput(source=source, field="timestamp", value=timestamp, problem=problem) from error
