"""What containers used, as a source tells of it. Pure."""

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
    """`kind` and `workload` are of what makes the pods anew."""

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
    """Where usage is known from, the best first."""

    AGENTS = "agents"
    PROMETHEUS = "prometheus"
    VPA = "vpa"
    SNAPSHOT = "metrics-server"  # one sample: no ground for a recommendation


@dataclass(frozen=True)
class ResourceUse:
    """Of one resource in cores or bytes, over all replicas: `quantile` is the largest of what each replica reached on
    each of its days but for a twentieth of the time, `most` the largest sample. `points` are samples, `days` of history
    they make up, and `gaps` days between have none. `busiest` names what decided the quantile or the peak.
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
    """Of one container; None where nothing is known of a resource. `history` is what VPA would remember of it.

    `shared`: the samples are of pods with several containers, divided as their requests are. `killed` are the memory
    limits (bytes) at which the kernel killed it, `throttled` the share of periods in which it was held back.
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
    """What one replica used: Unix seconds, and cores or bytes."""

    pod: str
    times: Floats
    values: Floats


def over_days(days: Iterable[PodDay], *, of_peaks: bool, seconds_apart: float) -> ResourceUse | None:
    """All replicas and days as one; None without any. The `busiest` is that of the peaks, or of the quantiles."""
    listed = list(days)
    if not listed:
        return None
    seen = {each.day for each in listed}
    decides = max(listed, key=lambda each: each.most if of_peaks else each.quantile)
    date = np.datetime64(decides.day, "D")
    points = sum(each.points for each in listed)
    # Of the replica that was seen for longest: several at a time do not make a longer history.
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
    """What VPA would remember of these samples."""
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
    """What sources tell of a cluster's containers: the best source of each. `notes` say what is missing."""

    uses: Mapping[ContainerKey, ContainerUse] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_better(self, other: "KnownUsage") -> "KnownUsage":
        """With containers of which the other knows from a better source."""
        ranks = list(Source)
        better = {
            key: use
            for key, use in other.uses.items()
            if key not in self.uses or ranks.index(use.source) < ranks.index(self.uses[key].source)
        }
        return KnownUsage({**self.uses, **better}, (*self.notes, *other.notes))
