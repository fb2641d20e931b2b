"""Schedulers that ask the manager put a Mid pod where it is good for long, and hold it back when the prediction moves.

On a real API server that is kube-scheduler itself too, with the configuration that is shipped as a sample.
"""

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.scheduler import scheduler
from deploy.local.scheduler.extender import Extender
from deploy.local.scheduler.scheduler import Scheduler
from manager.main import Manager
from shared import durations, names
from shared.kube.events import Recorder
from shared.kube.resources import EVENTS, NODEMETRICS, NODES, PODS
from shared.quantity import Resources
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.integration.manager.guarded import Guarded
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ROOT, ApiServer, RealApiServer

GIB = 1 << 30
SAMPLE = ROOT / "deploy" / "scheduler" / "kube-scheduler-config.yaml"
SETTLED_SECONDS = 90.0
PATIENT_TIMEOUT = "10s"  # on a machine that runs a test suite


class Pods:
    """Mid pods in a namespace of their own."""

    def __init__(self, server: ApiServer) -> None:
        self._client = server.client()
        self._namespace = server.add_namespace()

    def create(
        self, name: str, *, cpu_milli: int = 1000, memory_bytes: int = 0, node: str = "", gate: str = ""
    ) -> None:
        asked = {names.MID_CPU: str(cpu_milli), names.MID_MEMORY: str(memory_bytes)}
        spec: dict[str, Any] = {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": asked, "limits": asked}}],
            "tolerations": [{"operator": "Exists"}],  # no kubelet says that these nodes are ready
        }
        if node:
            named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}
            spec["affinity"] = {"nodeAffinity": required}
        if gate:
            spec["schedulingGates"] = [{"name": gate}]
        metadata = {"name": name, "labels": {names.LABEL_PRIORITY_CLASS: "koord-mid"}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._client.create(PODS, body, self._namespace)

    def warnings(self, name: str) -> list[str]:
        found = self._client.list(EVENTS, self._namespace, field_selector=f"involvedObject.name={name}").items
        return [event["message"] for event in found if event["reason"] == "FailedScheduling"]

    def open_gates(self, name: str) -> None:
        self._client.patch(PODS, name, {"spec": {"schedulingGates": None}}, self._namespace)

    def node_of(self, name: str) -> str:
        return str(self._get(name)["spec"].get("nodeName", ""))

    def scheduler_of(self, name: str) -> str:
        return str(self._get(name)["spec"]["schedulerName"])

    def why_waiting(self, name: str) -> str:
        conditions = self._get(name)["status"].get("conditions") or ()
        return next((str(c.get("message")) for c in conditions if c.get("reason") == "Unschedulable"), "")

    def clear(self) -> None:
        for pod in self._client.list(PODS, self._namespace).items:
            self._client.delete(PODS, pod["metadata"]["name"], self._namespace, grace_period_seconds=0)

    def _get(self, name: str) -> dict[str, Any]:
        return self._client.get(PODS, name, self._namespace)


@pytest.fixture
def pods(server: ApiServer) -> Iterator[Pods]:
    made = Pods(server)
    yield made
    made.clear()


@pytest.fixture
def manager(cluster: Cluster, start_manager: StartManager) -> Manager:
    """It lets offers grow at once, since kube-scheduler looks at a waiting pod again when a Node changes."""
    cluster.configure()
    return start_manager(write_rule="upstream")


NEEDS_MORE = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")


@pytest.fixture(params=["embedded", pytest.param("kube-scheduler", marks=NEEDS_MORE)])
def scheduling(request: pytest.FixtureRequest, server: ApiServer, manager: Manager, tmp_path: Path) -> Iterator[None]:
    """A scheduler that is configured as the sample says."""
    document = yaml.safe_load(SAMPLE.read_text())
    host, port = manager.address
    document["extenders"][0]["urlPrefix"] = f"http://{host}:{port}/scheduler"
    for name in ("enableHTTPS", "tlsConfig"):  # on loopback nobody has to say who they are
        del document["extenders"][0][name]
    document["extenders"][0]["httpTimeout"] = PATIENT_TIMEOUT
    url = document["extenders"][0]["urlPrefix"]
    real = kube_scheduler.running(document, server.kubeconfig, tmp_path)
    with _embedded(server, url) if request.param == "embedded" else real:
        yield


@contextlib.contextmanager
def _embedded(server: ApiServer, url: str) -> Iterator[None]:
    client, loops = server.client(), Loops()
    recorder = Recorder(client, scheduler.NAME, "here")
    extender = Extender(url, timeout_seconds=10)
    loops.start("events", recorder.run)
    Scheduler(client, recorder, extender).start(loops)
    yield
    loops.close()
    extender.close()


def add_node(cluster: Cluster, name: str, *, used: str, peak_percent: int) -> None:
    cluster.add_node(name, lends=("1500m", "1Gi"))
    cluster.client.patch(NODES, name, {"status": {"allocatable": {"pods": "110"}}}, subresource="status")
    cluster.wait_for_metric(name)
    report(cluster, name, used=used, peak_percent=peak_percent)


def report(cluster: Cluster, name: str, *, used: str = "1", peak_percent: int = 25, memory_bytes: int = GIB) -> None:
    """The peak is that share of a node of 4 cores and 8 GiB."""
    peak = {"cpu": f"{40 * peak_percent}m", "memory": str(8 * GIB * peak_percent // 100)}
    status = {
        "updateTime": durations.timestamp(time.time()),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": used, "memory": "1Gi"}}},
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "1500m", "memory": str(memory_bytes)}}},
        "prediction": {"nodePeak": peak, "historyPercent": 100},
    }
    cluster.client.patch(NODEMETRICS, name, {"status": status}, subresource="status")


@pytest.mark.usefixtures("scheduling")
def test_a_mid_pod_goes_where_it_is_calm_and_waits_when_the_prediction_moves(
    cluster: Cluster, manager: Manager, pods: Pods
) -> None:
    # Pods that other tests left on nodes of theirs would count in kube-scheduler's own scores, so these names are new.
    add_node(cluster, "busy", used="500m", peak_percent=100)
    add_node(cluster, "calm", used="500m", peak_percent=12)
    for name in ("busy", "calm"):  # until the scheduler has seen both offers
        pods.create(f"on-{name}", cpu_milli=1, node=name)
        assert eventually(functools.partial(pods.node_of, f"on-{name}"), SETTLED_SECONDS) == name
    assert (cluster.mid("busy"), cluster.mid("calm")) == (Resources(1500, GIB), Resources(1500, GIB))
    pods.create("first", memory_bytes=GIB)
    assert eventually(lambda: pods.node_of("first"), SETTLED_SECONDS) == "calm", "in equal use, but of the lower peak"

    # Too little less to be written to the Node, yet less than the next pod asks for.
    report(cluster, "busy", memory_bytes=GIB - 1)
    eventually(lambda: fetch(manager, "/api/v1/nodes/busy").json()["resources"]["memory"]["result"] == GIB - 1)
    pods.create("second", memory_bytes=GIB)
    waiting = eventually(lambda: pods.why_waiting("second"), SETTLED_SECONDS)
    assert cluster.mid("busy") == Resources(1500, GIB)
    assert pods.node_of("second") == ""
    assert "1 Mid memory has shrunk: offers 1024 MiB, pods request 0 MiB, this pod requests 1.00 GiB" in waiting
    assert f"1 Insufficient {names.MID_CPU}" in waiting

    report(cluster, "busy", memory_bytes=2 * GIB)
    assert eventually(lambda: pods.node_of("second"), SETTLED_SECONDS) == "busy"


@NEEDS_MORE
def test_kube_scheduler_asks_over_tls_by_its_client_certificate_as_the_sample_says(
    guarded: Guarded, cluster: Cluster, pods: Pods, tmp_path: Path
) -> None:
    """Its user is let in by the chart's ClusterRoleBinding; only the manager knows that the Mid has shrunk."""
    assert isinstance(guarded.server, RealApiServer)
    certificates = tmp_path / "headroom"
    certificates.mkdir()
    certificate, key = guarded.server.scheduler_certificate()
    (certificates / "scheduler.crt").write_text(certificate)
    (certificates / "scheduler.key").write_text(key)
    (certificates / "ca.crt").write_text(eventually(guarded.authorities))
    shipped = SAMPLE.read_text().replace("/etc/kubernetes/headroom", str(certificates))
    document = yaml.safe_load(shipped)
    document["extenders"][0] |= {"urlPrefix": f"{guarded.url}/scheduler", "httpTimeout": PATIENT_TIMEOUT}
    cluster.configure()
    add_node(cluster, "shrunk", used="500m", peak_percent=12)
    with kube_scheduler.running(document, guarded.server.scheduler_kubeconfig, tmp_path):
        pods.create("first", cpu_milli=1, node="shrunk")
        assert eventually(lambda: pods.node_of("first"), SETTLED_SECONDS) == "shrunk"
        report(cluster, "shrunk", memory_bytes=GIB - 1)
        eventually(lambda: guarded.answer("/api/v1/nodes/shrunk")["resources"]["memory"]["result"] == GIB - 1)
        assert cluster.mid("shrunk") == Resources(1500, GIB)
        pods.create("second", memory_bytes=GIB, node="shrunk")
        waiting = eventually(lambda: pods.why_waiting("second"), SETTLED_SECONDS)
    assert "1 Mid memory has shrunk: offers 1024 MiB, pods request 0 MiB, this pod requests 1.00 GiB" in waiting


@NEEDS_MORE
def test_quick_pods_do_not_share_one_place(
    server: ApiServer, cluster: Cluster, manager: Manager, pods: Pods, tmp_path: Path
) -> None:
    """The Node still shows room for four; the prediction has room for three, and all are scheduled within moments."""
    host, port = manager.address
    document = yaml.safe_load(SAMPLE.read_text())
    extender = document["extenders"][0] | {"urlPrefix": f"http://{host}:{port}/scheduler"}
    document["extenders"] = [extender | {"enableHTTPS": False, "tlsConfig": None, "httpTimeout": PATIENT_TIMEOUT}]
    add_node(cluster, "quick", used="500m", peak_percent=12)
    eventually(lambda: cluster.mid("quick") == Resources(1500, GIB))
    report(cluster, "quick", memory_bytes=GIB - 1)
    eventually(lambda: fetch(manager, "/api/v1/nodes/quick").json()["resources"]["memory"]["result"] == GIB - 1)
    assert cluster.mid("quick") == Resources(1500, GIB)
    names_of = [f"q{index}" for index in range(4)]
    for name in names_of:
        pods.create(name, cpu_milli=1, memory_bytes=GIB // 4, node="quick")
    with kube_scheduler.running(document, server.kubeconfig, tmp_path):
        waiting = eventually(lambda: [why for name in names_of if (why := pods.why_waiting(name))], SETTLED_SECONDS)
        eventually(lambda: sum(pods.node_of(name) == "quick" for name in names_of) == 3, SETTLED_SECONDS)
    assert len(waiting) == 1
    assert "Mid memory has shrunk: offers 1024 MiB, pods request 768 MiB, this pod requests 256 MiB" in waiting[0]


@pytest.mark.usefixtures("scheduling")
def test_a_pod_is_placed_when_its_gates_are_open_and_not_before(cluster: Cluster, pods: Pods) -> None:
    add_node(cluster, "gated", used="1", peak_percent=25)
    pods.create("waits", cpu_milli=1, node="gated", gate="example.com/later")
    pods.create("goes", cpu_milli=1, node="gated")
    assert eventually(lambda: pods.node_of("goes"), SETTLED_SECONDS) == "gated"
    assert pods.node_of("waits") == ""
    pods.open_gates("waits")
    assert eventually(lambda: pods.node_of("waits"), SETTLED_SECONDS) == "gated"
