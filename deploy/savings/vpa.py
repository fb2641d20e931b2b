"""The estimators of the Vertical Pod Autoscaler's recommender, equal to it to the bit. Pure.

Source: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/recommender: `model/container.go` (peaks of memory),
`model/aggregations_config.go` (histograms), `logic/estimator.go` and `logic/recommender.go` (least amounts).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agent.predict_server import compact, histogram
from agent.predict_server.bank import Bank
from agent.predict_server.compact import CompactHistogram
from shared.quantity import MILLI_PER_CORE, Resources

DAY_SECONDS = 86_400.0
CPU_BUCKETS = histogram.exponential(max_value=1000, first_bucket_size=0.01, ratio=1.05, epsilon=0.0001)
MEMORY_BUCKETS = histogram.exponential(max_value=1e12, first_bucket_size=1e7, ratio=1.05, epsilon=0.0001)
CPU_SAMPLE_WEIGHT = 0.1
MARGIN = 0.15
TARGET_PERCENTILE = 0.9
OOM_BUMP_RATIO, OOM_LEAST_BUMP_BYTES = 1.2, 100 << 20
POD_LEAST_MILLI, POD_LEAST_BYTES = 25, 250 << 20
MOST_AMOUNT = 100_000_000_000_000

_ROW = np.array([0])


def scale(amount: int, factor: float) -> int:
    """An amount times a factor, truncated, and at most VPA's largest amount."""
    product = amount * factor
    return MOST_AMOUNT if product > MOST_AMOUNT else int(product)


def with_margin(amount: int, fraction: float = MARGIN) -> int:
    return amount + scale(amount, fraction)


def oom_need(used: int) -> int:
    """The bytes needed by a container that was killed at this usage."""
    return int(max(used + OOM_LEAST_BUMP_BYTES, used * OOM_BUMP_RATIO))


class PeakEvent(NamedTuple):
    """`what` is "add" or "sub": adds or removes a peak of that many bytes, in the interval that ends then."""

    what: str
    bytes: int
    ends: float


@dataclass
class MemoryPeaks:
    """One peak for each interval of one container. A larger peak replaces the previous one of the same interval."""

    interval_seconds: float = DAY_SECONDS
    events: list[PeakEvent] = field(default_factory=list)
    _ends: float | None = None
    _last: float = -math.inf
    _peak: int = 0

    def sample(self, time: float, used: int) -> bool:
        """Records usage in bytes at that time; false if it is invalid or late."""
        if used < 0 or time < self._last:
            return False
        self._last = time
        ends = time if self._ends is None else self._ends
        if time < ends:
            if not self._peak or used <= self._peak:
                return True
            self.events.append(PeakEvent("sub", self._peak, ends))
        else:
            ends += ((time - ends) // self.interval_seconds + 1) * self.interval_seconds
        self._ends, self._peak = ends, used
        self.events.append(PeakEvent("add", used, ends))
        return True


@dataclass
class VpaHistory:
    """VPA's memory of one container, all replicas together. Times are Unix seconds."""

    cpu: Bank = field(default_factory=lambda: Bank(CPU_BUCKETS, DAY_SECONDS, rows=1))
    memory: Bank = field(default_factory=lambda: Bank(MEMORY_BUCKETS, DAY_SECONDS, rows=1))
    first: float = math.inf
    last: float = -math.inf
    samples: int = 0

    def add_cpu(self, time: float, cores: float) -> None:
        self.cpu.add(_ROW, np.array([cores]), time, CPU_SAMPLE_WEIGHT)
        self.first, self.last = min(self.first, time), max(self.last, time)
        self.samples += 1

    def add_peaks(self, peaks: MemoryPeaks) -> None:
        """Adds the peaks of one replica."""
        for what, used, ends in peaks.events:
            change = self.memory.add if what == "add" else self.memory.subtract
            change(_ROW, np.array([float(used)]), ends)

    def restore(self, cpu: CompactHistogram, memory: CompactHistogram) -> None:
        """The history in a checkpoint. Raises ValueError."""
        compact.load(self.cpu, 0, cpu)
        compact.load(self.memory, 0, memory)

    @property
    def days(self) -> float:
        return max(0.0, self.last - self.first) / DAY_SECONDS if self.samples else 0.0

    def percentiles(self, p: float) -> tuple[float, float]:
        """Cores and bytes."""
        return percentile(self.cpu, p), percentile(self.memory, p)

    def target(self, containers: int = 1) -> Resources:
        """VPA's present recommendation for one of this many containers of a pod."""
        cores, used = self.percentiles(TARGET_PERCENTILE)
        return at_least(Resources(with_margin(int(cores * MILLI_PER_CORE)), with_margin(int(used))), floor(containers))


def percentile(bank: Bank, p: float) -> float:
    """The upper edge of the bucket at which this share of the weight is reached."""
    return float(bank.histograms.percentiles(_ROW, np.array([p]))[0, 0])


def floor(containers: int) -> Resources:
    """The minimum for each of this many containers."""
    share = 1.0 / max(1, containers)
    return Resources(scale(POD_LEAST_MILLI, share), scale(POD_LEAST_BYTES, share))


def at_least(amount: Resources, least: Resources) -> Resources:
    return Resources(max(amount.cpu_milli, least.cpu_milli), max(amount.memory_bytes, least.memory_bytes))


def filled_buckets(bank: Bank) -> Iterator[float]:
    """The upper ends of the non-empty buckets."""
    starts = bank.histograms.buckets.starts
    for bucket in np.flatnonzero(bank.histograms.counting(_ROW)[0]).tolist():
        yield float(starts[min(bucket + 1, len(starts) - 1)])
