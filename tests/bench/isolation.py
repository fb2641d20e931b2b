"""What a service of Prod notices of Mid pods beside it on a real node, by each way of bounding these.

`make bench ARGS=isolation` takes root and a quarter of an hour. The service hashes what it is asked for, out of more
than caches hold; a client in a pod of its own asks at a steady rate, and counts from when an answer was due. Beside
them are four pods of Mid: two burn all CPU they get, one takes far more memory than its limit, and one more than it
asks for, within its limit.

Each way is compared with the service alone on the same installation, a minute before. What else runs on the machine
slows Prod as Mid does, so each row says what share of the CPUs that took, and calls no latency meaningful beside much.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from deploy.local.apiserver import patching
from tests.apiserver.binaries import Unavailable
from tests.bench.row import Measure, Row
from tests.node import cgroups
from tests.node.cluster import Failed, NodeCluster, Parts
from tests.node.layout import Kind
from tests.node.pods import START_SECONDS, Pod, Pods
from tests.node.release import BY_MEDIAN, ENFORCER, NAMESPACE, Release, demo_values
from tests.node.starting import started
from tests.support import eventually

LENDING_SECONDS = 300.0
FILLING_SECONDS = 180.0  # at most, until memory is filled, or who fills it is gone
WARM_SECONDS = 5.0
LOAD_SECONDS = 20
RATE = 150  # requests a second
KIB = 2048  # hashed for each: 2 to 3 ms of a core
QUIET_SHARE = 0.05  # of the CPUs: what others may take of them for a latency to say something of Mid
RUNS, GONE = "running", "evicted"

TOTAL_MIB = psutil.virtual_memory().total >> 20
# Of the memory: what the pod `over` takes, and how many percent above what is in use evictions begin.
OVER_MIB, REACHED = TOTAL_MIB // 10, 5
# What Mid lives from, beyond all of the memory that the machine uses; the service and its client.
IDLE = {"cpu": "1000m", "memory": f"{TOTAL_MIB * 3 // 5}Mi"}
SERVICE, CLIENT = {"cpu": "500m", "memory": "128Mi"}, {"cpu": "100m", "memory": "64Mi"}
# What pods of Mid do, request, and have for limits where the scenario has them name some. Prod leaves little of two
# cores, so they ask for little.
MID = {
    "burner-1": (("burn", "2"), {"cpu": "80m", "memory": "64Mi"}, {"cpu": "80m", "memory": "64Mi"}),
    "burner-2": (("burn", "2"), {"cpu": "80m", "memory": "64Mi"}, {"cpu": "80m", "memory": "64Mi"}),
    "greedy": (("hold", "2048"), {"cpu": "20m", "memory": "64Mi"}, {"cpu": "20m", "memory": "64Mi"}),
    "over": (
        ("hold", str(OVER_MIB)),
        {"cpu": "20m", "memory": "64Mi"},
        {"cpu": "200m", "memory": f"{OVER_MIB + 256}Mi"},
    ),
}
ASKED_MILLI = 200  # by all of them

KOORDINATORS_FORM = {"manager": {"settings": {"translation": "koordinator"}}}


def _thresholds(**strategy: Any) -> dict[str, Any]:
    return {"colocationConfig": {"thresholds": {"clusterStrategy": strategy}}}


WITHOUT_EVICTION = _thresholds(evictEnabled=False)


@dataclass(frozen=True)
class Scenario:
    """A way of bounding pods of Mid: values of the chart, whether pods go under pressure, and whether they name limits.

    Evictions begin above the memory that is in use when the chart is installed.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    evicts: bool = True
    limited: bool = True

    def installed(self, used_percent: int) -> dict[str, Any]:
        """The chart's values while so much memory is in use."""
        evicting = _thresholds(memoryEvictThresholdPercent=used_percent + REACHED) if self.evicts else WITHOUT_EVICTION
        return {**self.values, **evicting}

    def resources(self, asks: Mapping[str, str], limits: Mapping[str, str]) -> dict[str, Any]:
        return {"requests": asks} | ({"limits": limits} if self.limited else {})


@dataclass(frozen=True)
class CpuReading:
    """Seconds: monotonic time, and the CPU time of all processes, of the cluster's, and of what a hypervisor took."""

    at: float
    everyone: float
    cluster: float
    stolen: float

    def share_of_others(self, later: "CpuReading", cpus: int) -> float:
        """The part of the CPUs, from 0 to 1, that was not to be had for the cluster until the later reading."""
        others = (later.everyone - self.everyone) - (later.cluster - self.cluster) + (later.stolen - self.stolen)
        return max(0.0, others) / ((later.at - self.at) * cpus)


@dataclass(frozen=True)
class Asked:
    """What the client saw, and what share of the CPUs others than the cluster took meanwhile."""

    p50_ms: float
    p99_ms: float
    per_second: float
    failed: int
    others: float

    @property
    def is_quiet(self) -> bool:
        return self.others <= QUIET_SHARE


@dataclass(frozen=True)
class Compared:
    """The service alone and then beside Mid, the cores that Mid got then, and what became of each of its pods."""

    alone: Asked
    beside: Asked
    mid_cores: float
    fates: tuple[str, ...]

    def rows(self, name: str) -> list[Row]:
        """With the share of others in each, and a latency that others may have made named as such."""
        quiet = self.alone.is_quiet and self.beside.is_quiet
        meaning = "" if quiet else "MEANS NOTHING, THE MACHINE WAS BUSY: "
        busy = f"others took {self.alone.others:.1%} of the CPUs alone, {self.beside.others:.1%} beside"
        failed = f"{self.alone.failed} and {self.beside.failed} answers failed"
        mid = f"Mid used {self.mid_cores:.2f} cores; {', '.join(self.fates)}"
        about = f"a Prod service beside Mid, {name} ({mid}; {busy}; {failed})"
        alone, beside = self.alone, self.beside
        return [
            Row(f"{meaning}p99 of {about}", beside.p99_ms, "ms", None, "alone", alone.p99_ms),
            Row(f"{meaning}median of {about}", beside.p50_ms, "ms", None, "alone", alone.p50_ms),
            Row(f"answers of {about}", beside.per_second, "1/s", None, "alone", alone.per_second),
        ]


def measures() -> tuple[Measure, ...]:
    return (_on_a_node,)


def _on_a_node() -> list[Row]:
    """The service's latency beside Mid, each with that of the service alone; nothing where no node can be made."""
    try:
        parts = Parts(os.environ, Kind.V1)
    except Unavailable as error:
        print(f"no node here: {error}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as logs:
        cluster = started(parts, Path(logs))
        try:
            return _rows(_Town(cluster))
        finally:
            cluster.close()


class _Town:
    """The chart, the service and its client."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        self._prod, self._mid, self._client = Pods(cluster), Pods(cluster), Pods(cluster)
        # Without it no pod is admitted; a cluster has it a moment after its node.
        account = ("get", "serviceaccount", "default", "--ignore-not-found")
        eventually(lambda: cluster.kubectl(*account), START_SECONDS, 0.5)
        self._prod.run("idle", requests=IDLE)
        service = self._prod.run("service", "serve", str(KIB), requests=SERVICE)
        self._url = f"http://{service['status']['podIP']}:8080/"

    def install(self, values: Mapping[str, Any]) -> Release:
        """The release with these values on top of the demo's, once it lends enough."""
        # How much is lent is not what is measured here: by the median there is enough.
        lending = {"colocationConfig": {"strategy": {"nodePredictPolicy": BY_MEDIAN}}}
        release = Release(self._cluster, patching.merge(patching.merge(demo_values(), lending), values))
        release.install()
        eventually(self._is_settled, LENDING_SECONDS, 1.0)
        eventually(lambda: release.mid_cpu() >= ASKED_MILLI, LENDING_SECONDS, 1.0)
        return release

    def _is_settled(self) -> bool:
        """Whether no pod of the release before is left, whose webhook would still be asked."""
        found = self._cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=json")
        return not any("deletionTimestamp" in pod["metadata"] for pod in json.loads(found)["items"])

    def compare(self, scenario: Scenario) -> Compared:
        """The service alone, and then beside all pods of Mid."""
        self.install(scenario.installed(int(psutil.virtual_memory().percent)))
        alone = self._ask()
        for name, (does, asks, limits) in MID.items():
            self._mid.create(name, *does, tier="koord-mid", **scenario.resources(asks, limits))
        pods = [self._begun(name) for name in MID]
        over = pods[list(MID).index("over")]
        eventually(lambda: self._held_mib(over) >= OVER_MIB or self._fate(over) != RUNS, FILLING_SECONDS, 0.5)
        time.sleep(WARM_SECONDS)
        begun, before = time.monotonic(), [self._cpu_seconds(pod) for pod in pods]
        beside = self._ask()
        used = [self._cpu_seconds(pod) - earlier for pod, earlier in zip(pods, before, strict=True)]
        mid_cores = sum(max(0.0, each) for each in used) / (time.monotonic() - begun)
        fates = tuple(f"{pod['metadata']['name']} {self._fate(pod)}" for pod in pods)
        self._mid.delete()
        return Compared(alone, beside, mid_cores, fates)

    def _ask(self) -> Asked:
        before = self._read_cpu()
        self._client.create("client", "load", self._url, str(RATE), str(LOAD_SECONDS), requests=CLIENT)
        time.sleep(LOAD_SECONDS)  # each look would take CPU time from what is measured
        eventually(lambda: self._client.get("client")["status"]["phase"] == "Succeeded", 10 * LOAD_SECONDS, 0.5)
        others = before.share_of_others(self._read_cpu(), os.cpu_count() or 1)
        told = json.loads(self._client.log("client"))
        self._client.delete()
        return Asked(told["p50_ms"], told["p99_ms"], told["per_second"], int(told["failed"]), others)

    def _read_cpu(self) -> CpuReading:
        everyone, cluster = (
            int((cgroups.ROOT / "cpuacct" / name / "cpuacct.usage").read_text()) / 1e9
            for name in ("", self._cluster.name)
        )
        return CpuReading(time.monotonic(), everyone, cluster, psutil.cpu_times().steal)

    def _begun(self, name: str) -> Pod:
        """The pod once it has begun; by then it may have been killed."""
        eventually(lambda: self._mid.get(name)["status"]["phase"] != "Pending", START_SECONDS, 0.2)
        return self._mid.get(name)

    def _held_mib(self, pod: Pod) -> int:
        try:
            return self._cluster.pod_cgroup(pod).memory_used >> 20
        except Failed:
            return 0  # it is gone

    def _cpu_seconds(self, pod: Pod) -> float:
        try:
            return self._cluster.pod_cgroup(pod).cpu_seconds
        except Failed:
            return 0.0  # it is gone

    def _fate(self, pod: Pod) -> str:
        name = pod["metadata"]["name"]
        found = self._cluster.kubectl("get", "pod", name, "--ignore-not-found", "--output=json")
        if not found:
            return GONE
        status = json.loads(found)["status"]
        ended = [each["state"].get("terminated", {}).get("reason") for each in status.get("containerStatuses", [])]
        return str(next(filter(None, ended), status["phase"].lower()))


def _scenarios() -> list[Scenario]:
    """L0 are limits by the kubelet, L1 is eviction, L2 the enforcer; the chart's default is L0 and L1."""
    return [
        Scenario("no limits, nothing bounds them", KOORDINATORS_FORM, evicts=False, limited=False),
        Scenario("no limits, L2 alone", KOORDINATORS_FORM | ENFORCER, evicts=False, limited=False),
        Scenario("L2 alone", KOORDINATORS_FORM | ENFORCER, evicts=False),
        Scenario("L0", evicts=False),
        Scenario("L0 and L1"),
        Scenario("L0, L1 and L2", ENFORCER),
    ]


def _rows(town: _Town) -> list[Row]:
    found = []
    for scenario in _scenarios():
        compared = town.compare(scenario)
        print(f"{scenario.name}: {compared}", file=sys.stderr)
        found += compared.rows(scenario.name)
    return found
