"""Koordinator's rows about what an agent collects and reports."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metrics_advisor import formats
from agent.metrics_advisor.advisor import Roster
from agent.metrics_advisor.numa import NumaNodes
from agent.metrics_advisor.source import Sample
from agent.reporter import measurements, policy, report
from agent.settings import AgentSettings
from agent.states_informer.pods import describe
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import ResourceMap
from shared.quantity import MILLI_PER_CORE, Resources
from tests.conformance.matching import KnownDifference

Input: TypeAlias = Any  # JSON of another project's making


def nodemetric_reporter(given: Input) -> object:
    """Koordinator's rows differ by the keys of their input."""
    if "windowSeconds" in given:
        ratio = given.get("ratio", measurements.COLD_START_RATIO)
        return {"coldStart": measurements.in_cold_start(given["sampleRangeSeconds"], given["windowSeconds"], ratio)}
    if "numa" in given:
        return {"numaUsages": numa_usages(given["numa"])}
    base = replace(policy.from_settings(AgentSettings()), shortest_interval_seconds=30)
    found = policy.overridden(base, {key: value for key, value in given.items() if value is not None})
    return {"intervalSeconds": int(found.intervals.report), "aggregateDurationSeconds": found.aggregate_seconds}


def numa_usages(given: Input) -> object:
    def usage(pair: Input) -> Usage | None:
        if pair is None:
            return None
        amount = Resources.parse(dict(zip(("cpu", "memory"), pair, strict=True)))
        return Usage(amount.cpu_milli / MILLI_PER_CORE, amount.memory_bytes)

    def quantities(usage: ResourceMap | None) -> Mapping[str, object]:
        return (usage and usage.resources) or {}

    read = [(int(number), usage(row["node"]), usage(row["sys"])) for number, row in given.items()]
    nodes = [measurements.NumaAverages(number, node, system) for number, node, system in read if node is not None]
    return [
        {
            "numaNodeID": one.numa_node_id,
            "nodeUsage": quantities(one.node_usage),
            "systemUsage": quantities(one.system_usage),
        }
        for one in report.numa(nodes) or ()
    ]


def collector(given: Input) -> object:
    """Koordinator's rows differ by the keys of their input."""
    if "MemTotal_kB" in given:
        lines = [f"{key.removesuffix('_kB')}: {value} kB\n" for key, value in given.items()]
        return {"usageBytes": formats.used_bytes("".join(lines).encode())}
    if "podsSampleAgeSeconds" in given:
        return {"sample": outdated_system(given["podsSampleAgeSeconds"], given["outdatedInterval"])}
    if "nodeNumaCPU" in given:
        return numa_system(given)
    return system(given)


def system(given: Input) -> object:
    """The node's usage beyond its pods, of one tick."""
    if given.get("hostApps"):
        raise KnownDifference("host applications are not measured apart: their usage counts as the system's")
    pods = {f"pod-{place}": _usage(one) for place, one in enumerate(given["pods"])}
    described = [describe(Pod(metadata=ObjectMeta(uid=uid))) for uid in pods]
    roster = Roster(described, pods, ())
    rows = roster.values(Sample(_usage(given["node"]), pods)).reshape(-1)
    found = dict(zip(roster.keys, rows.tolist(), strict=True))
    return {metric.value: found[SeriesKey(Kind.SYSTEM, "", metric)] for metric in (Metric.CPU, Metric.MEMORY)}


def outdated_system(age_seconds: int, fresh_seconds: int) -> Usage | None:
    """What is still known of the system when its last sample is this old."""
    cache = MetricCache()
    second = cache.second()
    cache.append(second, {series.NODE: Usage(1, 1024), series.SYSTEM: Usage(0.5, 512)})
    return cache.usages(Aggregation.LAST, fresh_seconds, until=second + age_seconds).get(series.SYSTEM)


def numa_system(given: Input) -> object:
    """The system's memory out of a machine's files, and its CPU shared out."""
    held = {int(number): value for number, value in given["podsNumaMemory"].items()}
    readings: dict[SeriesKey, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "stat").write_text("cpu  0 0 0 0 0 0 0 0\n")
        for number, value in given["nodeNumaMemory"].items():
            node = root / f"devices/system/node/node{number}"
            node.mkdir(parents=True)
            (node / "cpulist").write_text(f"{number}\n")
            sizes = {"MemTotal": value // 1024, "MemFree": 0, "Active(file)": 0, "Inactive(file)": 0, "SReclaimable": 0}
            (node / "meminfo").write_text("".join(f"Node {number} {key}: {kib} kB\n" for key, kib in sizes.items()))
        NumaNodes(root, root, time.monotonic).sample(held, readings)
    for number, cores in given["nodeNumaCPU"].items():
        readings[SeriesKey(Kind.NUMA, number, Metric.CPU)] = cores
    usages = measurements.numa_usages(readings, Usage(given["sysCPU"], 0))
    known = {str(one.number): one.system for one in usages if one.system is not None}
    return {
        "cpu": {number: one.cpu_cores for number, one in known.items()},
        "memory": {number: int(one.memory_bytes) for number, one in known.items()},
    }


def _usage(given: Input) -> Usage:
    return Usage(given["cpu"], given["memory"])


ADAPTERS = {"nodemetric_reporter": nodemetric_reporter, "collector": collector}
