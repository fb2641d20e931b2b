"""Requests for the VMs of a recording, by the rules of `headroom recommend`, of VPA and of krr, held against its last
week, of which they know nothing.

`python -m tests.bench.rightsizing TRACES_DIR` prints the table of docs/how-to/savings.md. krr's rules are made anew
from what is known of them, and share nothing with the product.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from deploy.savings import usage
from deploy.savings.recommending import MIB, EstimatorName, RecommendationRules, recommend
from deploy.savings.usage import (
    DAY_SECONDS,
    QUANTILE,
    ContainerKey,
    ContainerUse,
    KnownUsage,
    PodDay,
    PodSamples,
    Source,
)
from deploy.savings.workloads import ContainerRole, WorkloadContainer
from shared.quantity import MILLI_PER_CORE, Resources
from tests.bench import recorded
from tests.bench.recorded import BITBRAINS

HISTORY_DAYS, KRR_DAYS, TESTED_DAYS = 8, 14, 7
LEAST_KNOWN = 0.95  # share of samples
STEP_SECONDS, HOUR_SECONDS = 300.0, 3600.0
_KRR_QUANTILE, _KRR_MARGIN = 0.95, 1.15
_KRR_LEAST = Resources(10, 100 * MIB)
_KEY = ContainerKey("bitbrains", "Deployment", "vm", "main")


class RecordedContainer(NamedTuple):
    """One VM: Unix seconds, cores and bytes at these times, and the size that it was given."""

    times: Floats
    cores: Floats
    memory: Floats
    size: Resources

    def between(self, start: float, end: float) -> "RecordedContainer":
        some = (self.times >= start) & (self.times < end)
        return RecordedContainer(self.times[some], self.cores[some], self.memory[some], self.size)


Rule = Callable[[RecordedContainer], Resources]


class WeekOutcome(NamedTuple):
    """Of one rule, in percent: requests of what the VMs were given; samples above the request; VMs above it for more
    than a hundredth of the week, and, of memory, for one sample.
    """

    cpu_requested: float
    cpu_samples_above: float
    cpu_vms_above: float
    memory_requested: float
    memory_vms_above: float


def headroom(seen: RecordedContainer) -> Resources:
    return _recommended(seen, EstimatorName.HEADROOM)


def vpa(seen: RecordedContainer) -> Resources:
    return _recommended(seen, EstimatorName.VPA)


def krr_simple(seen: RecordedContainer) -> Resources:
    """The 95th percentile of all of the window, as PromQL has it; the largest sample of memory, and 15 %."""
    cpu = math.ceil(float(np.nanquantile(seen.cores, _KRR_QUANTILE)) * MILLI_PER_CORE)
    memory = math.ceil(float(np.nanmax(seen.memory)) * _KRR_MARGIN / MIB) * MIB
    return Resources(max(cpu, _KRR_LEAST.cpu_milli), max(memory, _KRR_LEAST.memory_bytes))


RULES: Sequence[tuple[str, Rule, int]] = (
    ("Headroom", headroom, HISTORY_DAYS),
    ("Headroom", headroom, KRR_DAYS),
    ("VPA's target", vpa, HISTORY_DAYS),
    ("krr `simple`", krr_simple, KRR_DAYS),
)


def week_outcome(containers: Sequence[RecordedContainer], rule: Rule, days: int) -> WeekOutcome:
    """What the requests of that rule, from so many days before the last week, come to in that week."""
    given, asked, above, most = [], [], [], []
    for each in containers:
        end = float(each.times[-1]) - TESTED_DAYS * DAY_SECONDS
        seen, came = each.between(end - days * DAY_SECONDS, end), each.between(end, math.inf)
        request = rule(seen)
        given.append(each.size)
        asked.append(request)
        above.append(float(np.mean(came.cores * MILLI_PER_CORE > request.cpu_milli)))
        most.append(float(came.memory.max()) > request.memory_bytes)
    cpu, memory = (100 * np.sum(asked, axis=0) / np.sum(given, axis=0)).tolist()
    shares = np.array(above)
    return WeekOutcome(
        cpu, 100 * float(shares.mean()), 100 * float(np.mean(shares > 0.01)), memory, 100 * float(np.mean(most))
    )


def bitbrains(directory: Path) -> Iterator[RecordedContainer]:
    """VMs that were there for nearly all of the month."""
    times, milli = recorded.series_of(directory / f"{BITBRAINS}_cpu_millicores.csv.gz")
    _, mib = recorded.series_of(directory / f"{BITBRAINS}_mem_mib.csv.gz")
    about = directory / "bitbrains_rnd_meta.csv"
    cores, memory = recorded.sizes_of(about, "cpu_limit_cores"), recorded.sizes_of(about, "mem_limit_mib")
    known = ~(np.isnan(milli) | np.isnan(mib))
    for row in np.flatnonzero(known.mean(axis=1) >= LEAST_KNOWN):
        some = known[row]
        size = Resources(int(cores[row] * MILLI_PER_CORE), int(memory[row] * MIB))
        yield RecordedContainer(times[some], milli[row, some] / MILLI_PER_CORE, mib[row, some] * MIB, size)


def _recommended(seen: RecordedContainer, estimator: EstimatorName) -> Resources:
    """By the product's own functions, from what Prometheus would have told it."""
    cpu, memory = PodSamples("vm", seen.times, seen.cores), PodSamples("vm", seen.times, seen.memory)
    use = ContainerUse(
        Source.PROMETHEUS,
        cpu=usage.over_days(_by_day(cpu), of_peaks=False, seconds_apart=STEP_SECONDS),
        memory=usage.over_days(_by_day(memory), of_peaks=True, seconds_apart=STEP_SECONDS),
        history=usage.remember([_hourly(cpu)], [memory]) if estimator is EstimatorName.VPA else None,
    )
    now = WorkloadContainer(_KEY, ContainerRole.MAIN, 1, *seen.size, None, None, requested=seen.size)
    (made,) = recommend([now], KnownUsage({_KEY: use}), RecommendationRules(estimator=estimator))
    return Resources(made.cpu.request or 0, made.memory.request or 0)


def _by_day(of: PodSamples) -> list[PodDay]:
    """What Prometheus answers of each day."""
    found = []
    dates = (of.times // DAY_SECONDS).astype(np.int64)
    for date in np.unique(dates):
        day = of.values[dates == date]
        quantile = float(np.quantile(day, QUANTILE, method="higher"))
        found.append(PodDay(of.pod, int(date), float(np.median(day)), quantile, float(day.max()), len(day)))
    return found


def _hourly(of: PodSamples) -> PodSamples:
    """VPA asks Prometheus for the rate over each hour."""
    count = int(HOUR_SECONDS / STEP_SECONDS)
    whole = len(of.times) // count * count
    return PodSamples(of.pod, of.times[count - 1 : whole : count], of.values[:whole].reshape(-1, count).mean(axis=1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    containers = list(bitbrains(parser.parse_args(arguments).traces))
    print(
        f"| {len(containers)} VMs | cpu requested | samples above | VMs above for 1 % | memory requested | VMs above |"
    )
    print("|---|---|---|---|---|---|")
    for name, rule, days in RULES:
        figures = " | ".join(f"{each:.1f} %" for each in week_outcome(containers, rule, days))
        print(f"| {name}, {days} days | {figures} |", flush=True)


if __name__ == "__main__":
    main()
