"""A real API server, a real manager, and the words to say what the cluster does."""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter

from deploy.local.scheduler import scheduler
from manager.autoscaler.actuation import actuator, node_drain
from manager.autoscaler.cloudprovider.simulated import machines
from manager.autoscaler.reporting.answers import Decisions, NodesLeft, Plan
from manager.autoscaler.reporting.group_rows import Groups
from manager.autoscaler.reporting.node_rows import NodeLeft
from manager.daemon_settings import DaemonSettings
from manager.main import Manager
from manager.nodeside import controller
from manager.nodeside.answers import Explained, Nodes, Status
from manager.nodeside.scheduling.explained import SchedulingExplained
from manager.nodeside.webhook.certificates import Rotation
from manager.nodeside.webhook.serving import AUTHENTICATION, AUTHENTICATION_NAMESPACE
from shared import durations, names, quantity
from shared import settings as settings_module
from shared.clock import Clock, ManualClock, SystemClock
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import CONFIGMAPS, EVENTS, NODEMETRICS, NODES, PODS, SECRETS
from shared.quantity import Resources
from tests.integration.manager.admission import Replica, Site
from tests.integration.manager.guarded import SECRET, Guarded, ensure
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.local_http import LOCAL_HTTP

StartManager = Callable[..., Manager]
StartGuarded = Callable[..., Guarded]
StartWebhook = Callable[..., Replica]

CORE_SCHEMA = "__pydantic_core_schema__"
# pydantic works the schema of an answer out anew for every route of every manager, a third of what a test costs, unless
# the class has it.
for answer in (Decisions, Explained, Groups, NodeLeft, Nodes, NodesLeft, Plan, SchedulingExplained, Status):
    setattr(answer, CORE_SCHEMA, TypeAdapter[Any](answer).core_schema)


class SteppedClock(ManualClock):
    """Goes on only while every loop that waits for it has nothing to do: a round in which time passes takes that time
    for its own, and what has fallen due meanwhile waits for the next one, which never comes where the clock stands.

    It starts at a whole second, as reports are dated.
    """

    def __init__(self) -> None:
        super().__init__(float(int(time.time())))
        self._until: dict[threading.Thread, float] = {}  # of all that have ever waited; -inf: they do not wait now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        waiter = threading.current_thread()
        with self._advanced:
            self._until[waiter] = self._monotonic + seconds
            try:
                return super().wait(event, seconds)
            finally:
                self._until[waiter] = -math.inf

    def advance(self, seconds: float) -> None:
        eventually(lambda: self._advanced_at_rest(seconds))

    def _advanced_at_rest(self, seconds: float) -> bool:
        with self._advanced:
            at_rest = all(until > self._monotonic for waiter, until in self._until.items() if waiter.is_alive())
            if at_rest:
                super().advance(seconds)
        return at_rest


class Cluster:
    """What users, kubelets and agents do, and what can be seen of it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def clear(self) -> None:
        """Takes away what a manager works on, and what it said."""
        for resource in (NODES, NODEMETRICS):
            for item in self.client.list(resource).items:
                with contextlib.suppress(NotFound):
                    self.client.delete(resource, item["metadata"]["name"])
        for pod in self.client.list(PODS).items:  # others' pods that wait for a node would get one bought
            with contextlib.suppress(NotFound):
                meta = pod["metadata"]
                self.client.delete(PODS, meta["name"], meta["namespace"], grace_period_seconds=0)
        for event in self.events():
            with contextlib.suppress(NotFound):
                self.client.delete(EVENTS, event["metadata"]["name"], event["metadata"]["namespace"])

    def configure(self, text: str | None = None, **strategy: object) -> None:
        """Writes the ConfigMap."""
        value = text if text is not None else json.dumps({"enable": True, **strategy})
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.CONFIG_MAP, "namespace": self.namespace},
            "data": {names.CONFIG_KEY_COLOCATION: value},
        }
        try:
            self.client.replace(CONFIGMAPS, names.CONFIG_MAP, body, self.namespace)
        except NotFound:
            self.client.create(CONFIGMAPS, body, self.namespace)

    def add_node(self, name: str, *, lends: tuple[str, str] | None = ("4", "8Gi"), **metadata: Any) -> None:
        """In one request, as kubelets do: nobody ever sees half of it. A prod pod on it requests what it `lends`."""
        native = {"cpu": "4", "memory": "8Gi"}
        status = {"capacity": native, "allocatable": native}
        meta = {"name": name, **metadata}
        self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
        if lends is not None:
            requests = dict(zip(("cpu", "memory"), lends, strict=True))
            container = {"name": "c", "image": "i", "resources": {"requests": requests}}
            pod = {"metadata": {"name": f"lender-on-{name}"}, "spec": {"nodeName": name, "containers": [container]}}
            with contextlib.suppress(AlreadyExists):  # of a node that was there before
                self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, self.namespace)

    def report(self, name: str, *, at: float, cpu: str = "1500m", memory: str = "1Gi") -> None:
        """What the agent of the node does."""
        reclaimable = {"resource": {"resources": {"cpu": cpu, "memory": memory}}}
        nothing = {"resources": {"cpu": "0", "memory": "0"}}
        lender = {"name": f"lender-on-{name}", "namespace": self.namespace, "podUsage": nothing}
        status = {
            "updateTime": durations.timestamp(at),
            "nodeMetric": {"systemUsage": nothing},
            "podsMetric": [{**lender, "priority": "koord-prod"}],
            "prodReclaimableMetric": reclaimable,
        }
        self.client.patch(NODEMETRICS, name, {"status": status}, subresource="status")

    def has_metric(self, name: str) -> bool:
        try:
            self.client.get(NODEMETRICS, name)
        except NotFound:
            return False
        return True

    def wait_for_metric(self, name: str) -> None:
        eventually(lambda: self.has_metric(name))

    def add_reporting_node(self, name: str, *, at: float, **metadata: Any) -> None:
        self.add_node(name, **metadata)
        self.wait_for_metric(name)
        self.report(name, at=at)

    def events(self, reason: str = "") -> list[dict[str, Any]]:
        """What the manager said, of that reason or of any."""
        found = self.client.list(EVENTS).items
        own = [event for event in found if event.get("source", {}).get("component") == "headroom-manager"]
        return [event for event in own if reason in ("", event["reason"])]

    def mid(self, name: str) -> Resources | None:
        """What is on offer to Mid, on which capacity and allocatable must agree."""
        status = self.client.get(NODES, name)["status"]
        capacity, allocatable = (
            [status[part].get(resource) for resource in (names.MID_CPU, names.MID_MEMORY)]
            for part in ("capacity", "allocatable")
        )
        assert capacity == allocatable
        cpu, memory = allocatable
        return None if cpu is None and memory is None else Resources(quantity.whole(cpu), quantity.whole(memory))


@pytest.fixture
def cluster(server: ApiServer, install_namespace: str) -> Iterator[Cluster]:
    """A cluster without nodes."""
    cluster = Cluster(server.client(), install_namespace)
    cluster.clear()
    yield cluster
    cluster.clear()
    cluster.client.close()


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between steps of a departure, tries to evict a pod, looks of the simulated cloud at its books, and looks of idle
    threads at whether they are to end, which every test waits for. Shorter ones cost more CPU than they save time.
    """
    monkeypatch.setattr(scheduler, "TICK_SECONDS", 0.1)
    monkeypatch.setattr(controller, "_IDLE_SECONDS", 0.2)
    monkeypatch.setattr(actuator, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(node_drain, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(machines, "TICK_SECONDS", 0.25)


@pytest.fixture
def start_manager(server: ApiServer, cluster: Cluster, short_pauses: None) -> Iterator[StartManager]:
    """Starts managers as the chart installs them, and ends them with the test."""
    started: list[tuple[Manager, Client]] = []

    def start(clock: Clock | None = None, **settings: Any) -> Manager:
        chosen: dict[str, Any] = {
            "namespace": cluster.namespace,
            "listen": "127.0.0.1:0",
            "leader_elect": False,
            "check_interval_seconds": 0.1,
            **settings,
        }
        clock = clock or SystemClock()
        registry = CollectorRegistry()
        client = Client(server.manager_connection(), "manager", registry=registry)
        parts = settings_module.combine(DaemonSettings, chosen)
        manager = Manager(parts, client, clock, registry)
        started.append((manager, client))
        manager.start()
        return manager

    yield start
    for manager, client in started:
        manager.close()
        client.close()


@pytest.fixture
def start_guarded(server: ApiServer, start_manager: StartManager) -> Iterator[StartGuarded]:
    """Starts managers that serve TLS and ask the API server who may ask."""
    client = server.client()
    ensure(client, SECRETS, "Secret", SECRET, names.INSTALL_NAMESPACE, type="Opaque")
    ensure(client, CONFIGMAPS, "ConfigMap", names.CA_CONFIG_MAP, names.INSTALL_NAMESPACE)
    ensure(client, CONFIGMAPS, "ConfigMap", AUTHENTICATION, AUTHENTICATION_NAMESPACE)
    yield lambda **settings: Guarded(server, start_manager(tls=True, authorization="delegated", **settings))
    with contextlib.suppress(NotFound):
        client.delete(SECRETS, SECRET, names.INSTALL_NAMESPACE)


@pytest.fixture
def guarded(start_guarded: StartGuarded) -> Guarded:
    return start_guarded(write_rule="upstream")


def fetch(manager: Manager, path: str) -> httpx.Response:
    """GET from a manager."""
    host, port = manager.address
    return LOCAL_HTTP.get(f"http://{host}:{port}{path}")


def explained(manager: Manager, name: str) -> dict[str, Any]:
    """What the manager answers about a node; nothing as long as it has not seen the node."""
    answer = fetch(manager, f"/api/v1/nodes/{name}")
    found: dict[str, Any] = answer.json() if answer.is_success else {}
    return found


def seen(manager: Manager, name: str) -> Resources | None:
    """What the manager has seen on offer to Mid; None as long as it has not seen the node."""
    rows = (row for row in fetch(manager, "/api/v1/nodes").json()["nodes"] if row["name"] == name)
    return next((Resources(**row["mid"]) for row in rows), None)


def summed(manager: Manager, metric: str) -> float:
    """The sum of all samples of one of the /metrics, whatever their labels."""
    samples = (line for line in fetch(manager, "/metrics").text.splitlines() if line.startswith(metric))
    return sum(float(line.rpartition(" ")[2]) for line in samples)


def counted(manager: Manager, sample: str) -> float:
    """A sample of /metrics, 0 when it is not there."""
    for line in fetch(manager, "/metrics").text.splitlines():
        name, _, value = line.rpartition(" ")
        if name == f"headroom_manager_{sample}":
            return float(value)
    return 0.0


@pytest.fixture
def site(server: ApiServer, install_namespace: str) -> Iterator[Site]:
    site = Site(server)
    yield site
    site.unregister()


@pytest.fixture
def start_webhook(site: Site) -> Iterator[StartWebhook]:
    started: list[Replica] = []

    def start(rotation: Rotation | None = None, **settings: Any) -> Replica:
        started.append(Replica(site.server, rotation or Rotation(turn_seconds=0.2), **settings))
        return started[-1]

    yield start
    for replica in started:
        replica.close()


@pytest.fixture
def replica(site: Site, start_webhook: StartWebhook) -> Replica:
    """One that the API server calls."""
    replica = start_webhook()
    site.register(replica.webhook.address)
    eventually(site.is_called)
    return replica
