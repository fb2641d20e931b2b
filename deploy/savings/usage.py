"""The usage of containers, as reported by a source. Pure."""

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from deploy.savings.vpa import MemoryPeaks, VpaHistory

DAY_SECONDS = 86_400.0
QUANTILE = 0.95  # of one replica's busiest day, for cpu


class ContainerKey(NamedTuple):
    """`kind` and `workload` identify what recreates the pods."""

    namespace: str
    kind: str
    workload: str
    container: str

    @property
    def owner(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.workload}"

    def __str__(self) -> str:
        return f"{self.owner} {self.container}"


class Source(enum.StrEnum):
    """A source of usage, the best first."""

    AGENTS = "agents"
    PROMETHEUS = "prometheus"
    VPA = "vpa"


@dataclass(frozen=True)
class ResourceUse:
    """One resource in cores or bytes, over all replicas. `quantile` is the largest 95th percentile of any replica
    on any day, `most` the largest sample. `points` counts samples, `days` their history, and
    `gaps` the days without samples between. `busiest` names what decided the quantile or the peak.
    """

    median: float
    quantile: float
    most: float
    points: int
    days: float
    gaps: int = 0
    busiest: str = ""


@dataclass(frozen=True)
class ContainerUse:
    """The usage of one container; None for an unknown resource. `history` is VPA's memory of it.

    `shared`: the samples come from pods with several containers, divided in proportion to their requests. `killed` are
    the memory limits (bytes) at which the kernel killed it, `throttled` is the share of throttled periods.
    """

    source: Source
    cpu: ResourceUse | None = None
    memory: ResourceUse | None = None
    history: VpaHistory | None = None
    shared: bool = False
    killed: tuple[int, ...] = ()
    throttled: float | None = None

    @property
    def days(self) -> float:
        return min((each.days for each in (self.cpu, self.memory) if each is not None), default=0.0)

    @property
    def points(self) -> int:
        return min((each.points for each in (self.cpu, self.memory) if each is not None), default=0)

    @property
    def gaps(self) -> int:
        return max((each.gaps for each in (self.cpu, self.memory) if each is not None), default=0)


class PodDay(NamedTuple):
    """One replica on one day, counted from 1970."""

    pod: str
    day: int
    median: float
    quantile: float
    most: float
    points: int


class PodSamples(NamedTuple):
    """The usage of one replica: Unix seconds, and cores or bytes."""

    pod: str
    times: Floats
    values: Floats


def over_days(days: Iterable[PodDay], *, of_peaks: bool, seconds_apart: float) -> ResourceUse | None:
    """All replicas and days combined; None without any. `busiest` comes from the peaks, or else from the quantiles."""
    listed = list(days)
    if not listed:
        return None
    seen = {each.day for each in listed}
    decides = max(listed, key=lambda each: each.most if of_peaks else each.quantile)
    date = np.datetime64(decides.day, "D")
    points = sum(each.points for each in listed)
    # From the longest-running replica: several at a time do not make a longer history.
    by_pod: defaultdict[str, int] = defaultdict(int)
    by_date: defaultdict[int, int] = defaultdict(int)
    for each in listed:
        by_pod[each.pod] += each.points
        by_date[each.day] = max(by_date[each.day], each.points)
    return ResourceUse(
        median=float(np.median([each.median for each in listed])),
        quantile=max(each.quantile for each in listed),
        most=max(each.most for each in listed),
        points=points,
        days=sum(by_date.values()) * seconds_apart / DAY_SECONDS,
        gaps=max(seen) - min(seen) + 1 - len(seen),
        busiest=f"{decides.pod} on {date}",
    )


def remember(cpu: Iterable[PodSamples], memory: Iterable[PodSamples]) -> VpaHistory:
    """VPA's memory of these samples."""
    history = VpaHistory()
    steps = [(time, value) for each in cpu for time, value in zip(each.times, each.values, strict=True)]
    for time, value in sorted(steps):
        if not math.isnan(value):
            history.add_cpu(float(time), float(value))
    for each in memory:
        peaks = MemoryPeaks()
        for time, value in zip(each.times, each.values, strict=True):
            if not math.isnan(value):
                peaks.sample(float(time), int(value))
        history.add_peaks(peaks)
    return history


@dataclass(frozen=True)
class KnownUsage:
    """The known usage of a cluster's containers, each from its best source. `notes` say what is missing."""

    uses: Mapping[ContainerKey, ContainerUse] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_better(self, other: "KnownUsage") -> "KnownUsage":
        """With the containers that the other knows from a better source."""
        ranks = list(Source)
        better = {
            key: use
            for key, use in other.uses.items()
            if key not in self.uses or ranks.index(use.source) < ranks.index(self.uses[key].source)
        }
        return KnownUsage({**self.uses, **better}, (*self.notes, *other.notes))
