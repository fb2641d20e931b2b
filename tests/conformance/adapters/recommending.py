"""VPA's estimators: peaks of memory, multipliers of bounds, estimates of requests."""

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from deploy.savings import vpa
from deploy.savings.vpa import MemoryPeaks, VpaHistory
from shared.quantity import MILLI_PER_CORE, Resources
from tests.conformance.matching import Holds, KnownDifference

Input = dict[str, Any]

RATIO = 0.05  # by which a bucket is wider than the one before


_NO_BOUNDS = "recommendations have VPA's target, and none of its bounds"


def bounds_multiplier(row: Input) -> object:
    raise KnownDifference(_NO_BOUNDS)


def memory_peaks(row: Input) -> object:
    if any(what == "oom" for what, *_ in row["steps"]):
        raise KnownDifference("a kill is no peak of memory: what a container needs after it bounds the recommendation")
    peaks = MemoryPeaks(row["interval_s"])
    accepted = [peaks.sample(time, used) for _, time, used in row["steps"]]
    return {"events": [list(event) for event in peaks.events], "accepted": accepted}


def estimated(row: Input) -> object:
    """VPA's rows differ by the keys of their input."""
    if "cpu_samples" in row:
        return _percentiles(row)
    if "min_cpu" in row:
        base = Resources(*map(int, (row["base_cpu"] * MILLI_PER_CORE, row["base_mem"])))
        least = Resources(*map(int, (row["min_cpu"] * MILLI_PER_CORE, row["min_mem"])))
        found = vpa.at_least(base, least)
        return {"cpu_cores": found.cpu_milli / MILLI_PER_CORE, "mem_bytes": float(found.memory_bytes)}
    raise KnownDifference(_NO_BOUNDS)


def _percentiles(row: Input) -> object:
    history = VpaHistory()
    for cores in row["cpu_samples"]:
        history.add_cpu(0.0, cores)
    for used in row["mem_samples"]:
        peaks = MemoryPeaks()
        peaks.sample(0.0, int(used))
        history.add_peaks(peaks)
    cores, used = history.percentiles(row["cpu_percentile"])[0], history.percentiles(row["mem_percentile"])[1]
    return {
        "cpu_approx": Holds(lambda claim: math.isclose(cores, cast(float, claim), rel_tol=RATIO)),
        "mem_approx": Holds(lambda claim: math.isclose(used, cast(float, claim), rel_tol=RATIO)),
        "relative_tolerance": RATIO,
        "exact_cpu_milli": int(cores * MILLI_PER_CORE),
        "exact_mem_bytes": int(used),
    }


ADAPTERS: Mapping[str, Callable[[Any], object]] = {"bounds_multiplier": bounds_multiplier, "memory_peaks": memory_peaks}
