"""What a service of Prod notices of Mid pods beside it on a real node, by each way of bounding these.

`make bench ARGS=isolation` takes root and ten minutes. The service hashes what it is asked for, out of more
than caches hold; a client in a pod of its own asks at a steady rate, and counts from when an answer was due. Beside
them are four pods of Mid: two burn all CPU they get, one takes far more memory than its limit, and one more than it
asks for, within its limit.
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
from tests.bench.row import Row
from tests.node.cluster import NodeCluster, Parts
from tests.node.pods import Pod, Pods
from tests.node.release import BY_MEDIAN, ENFORCER, NAMESPACE, Release, demo_values
from tests.support import eventually

LENDING_SECONDS = 300.0
WARM_SECONDS = 20.0  # in which memory is filled, and what is to go has gone
LOAD_SECONDS = 30
RATE = 150  # requests a second
KIB = 2048  # hashed for each: 2 to 3 ms of a core
GONE = "evicted"

# What Mid lives from, beyond all of the memory that the machine uses; the service and its client.
IDLE = {"cpu": "1000m", "memory": f"{psutil.virtual_memory().total * 3 // 5 >> 20}Mi"}
SERVICE, CLIENT = {"cpu": "500m", "memory": "128Mi"}, {"cpu": "100m", "memory": "64Mi"}
# What pods of Mid do, request, and have for limits where the scenario has them name some. Prod leaves little of two
# cores, so they ask for little.
MID = {
    "burner-1": (("burn", "2"), {"cpu": "80m", "memory": "64Mi"}, {"cpu": "80m", "memory": "64Mi"}),
    "burner-2": (("burn", "2"), {"cpu": "80m", "memory": "64Mi"}, {"cpu": "80m", "memory": "64Mi"}),
    "greedy": (("hold", "2048"), {"cpu": "20m", "memory": "64Mi"}, {"cpu": "20m", "memory": "64Mi"}),
    "over": (("hold", "3900"), {"cpu": "20m", "memory": "64Mi"}, {"cpu": "200m", "memory": "4Gi"}),
}
ASKED_MILLI = 200  # by all of them

KOORDINATORS_FORM = {"manager": {"settings": {"translation": "koordinator"}}}


def _thresholds(**strategy: Any) -> dict[str, Any]:
    return {"colocationConfig": {"thresholds": {"clusterStrategy": strategy}}}


def _eviction() -> dict[str, Any]:
    """Thresholds that the memory of the pod over its request reaches, and nothing that is there now."""
    return _thresholds(memoryEvictThresholdPercent=int(psutil.virtual_memory().percent) + 9)


WITHOUT_EVICTION = _thresholds(evictEnabled=False)


@dataclass(frozen=True)
class Scenario:
    """A way of bounding pods of Mid: values of the chart, and whether the pods name limits."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    limited: bool = False

    def resources(self, asks: Mapping[str, str], limits: Mapping[str, str]) -> dict[str, Any]:
        return {"requests": asks} | ({"limits": limits} if self.limited else {})


@dataclass(frozen=True)
class Measured:
    """What the client saw, the cores that pods of Mid got meanwhile, and what became of each."""

    p50_ms: float
    p99_ms: float
    per_second: float
    failed: int
    mid_cores: float = 0.0
    fates: tuple[str, ...] = ()

    def said(self) -> str:
        return f"Mid used {self.mid_cores:.2f} cores; {', '.join(self.fates)}"


def rows() -> list[Row]:
    """The service's latency beside Mid, each with that of the service alone; nothing where no node can be made."""
    try:
        parts = Parts(os.environ)
    except Unavailable as error:
        print(f"no node here: {error}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as logs:
        cluster = NodeCluster(parts, Path(logs))
        try:
            return _rows(_Town(cluster))
        finally:
            cluster.close()


class _Town:
    """The chart, the service and its client."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        self._prod, self._mid, self._client = Pods(cluster), Pods(cluster), Pods(cluster)
        self._release = self.install({})
        self._prod.run("idle", requests=IDLE)
        service = self._prod.run("service", "serve", str(KIB), requests=SERVICE)
        self._url = f"http://{service['status']['podIP']}:8080/"

    def install(self, values: Mapping[str, Any]) -> Release:
        """The release with these values on top of the demo's."""
        # How much is lent is not what is measured here: by the median there is enough.
        lending = {"colocationConfig": {"strategy": {"nodePredictPolicy": BY_MEDIAN}}}
        release = Release(self._cluster, patching.merge(patching.merge(demo_values(), lending), values))
        release.install()
        eventually(self._is_settled, LENDING_SECONDS, 1.0)
        return release

    def _is_settled(self) -> bool:
        """Whether no pod of the release before is left, whose webhook would still be asked."""
        found = self._cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=json")
        return not any("deletionTimestamp" in pod["metadata"] for pod in json.loads(found)["items"])

    def alone(self) -> Measured:
        return self._asked()

    def beside(self, scenario: Scenario) -> Measured:
        """The service beside all pods of Mid."""
        self.install(scenario.values)
        eventually(lambda: self._release.mid_cpu() >= ASKED_MILLI, LENDING_SECONDS, 1.0)
        pods = [
            self._mid.run(name, *does, tier="koord-mid", **scenario.resources(asks, limits))
            for name, (does, asks, limits) in MID.items()
        ]
        time.sleep(WARM_SECONDS)
        begun, before = time.monotonic(), [self._cpu_seconds(pod) for pod in pods]
        seen = self._asked()
        used = [self._cpu_seconds(pod) - earlier for pod, earlier in zip(pods, before, strict=True)]
        mid_cores = sum(max(0.0, each) for each in used) / (time.monotonic() - begun)
        fates = tuple(f"{pod['metadata']['name']} {self._fate(pod)}" for pod in pods)
        self._mid.delete()
        return Measured(seen.p50_ms, seen.p99_ms, seen.per_second, seen.failed, mid_cores, fates)

    def _asked(self) -> Measured:
        self._client.create("client", "load", self._url, str(RATE), str(LOAD_SECONDS), requests=CLIENT)
        eventually(lambda: self._client.get("client")["status"]["phase"] == "Succeeded", 10 * LOAD_SECONDS, 1.0)
        told = json.loads(self._client.log("client"))
        self._client.delete()
        return Measured(told["p50_ms"], told["p99_ms"], told["per_second"], int(told["failed"]))

    def _cpu_seconds(self, pod: Pod) -> float:
        try:
            return int((self._cluster.pod_cgroup("cpuacct", pod) / "cpuacct.usage").read_text()) / 1e9
        except OSError:
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
    unbounded = KOORDINATORS_FORM | WITHOUT_EVICTION
    return [
        Scenario("no limits, nothing bounds them", unbounded),
        Scenario("no limits, L2 alone", unbounded | ENFORCER),
        Scenario("L2 alone", unbounded | ENFORCER, limited=True),
        Scenario("L0", WITHOUT_EVICTION, limited=True),
        Scenario("L0 and L1", _eviction(), limited=True),
        Scenario("L0, L1 and L2", _eviction() | ENFORCER, limited=True),
    ]


def _rows(town: _Town) -> list[Row]:
    alone = town.alone()
    found = []
    for scenario in _scenarios():
        beside = town.beside(scenario)
        print(f"{scenario.name}: {beside} (alone: {alone})", file=sys.stderr)
        about = f"a Prod service beside Mid, {scenario.name} ({beside.said()})"
        found += [
            Row(f"p99 of {about}", beside.p99_ms, "ms", None, "alone", alone.p99_ms),
            Row(f"median of {about}", beside.p50_ms, "ms", None, "alone", alone.p50_ms),
            Row(f"answers of {about}", beside.per_second, "1/s", None, "alone", alone.per_second),
        ]
    return found
