"""The processes of a simulated cluster, and how each begins."""

import copy
import functools
import importlib
import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from agent.main import Agent
from agent.metrics_advisor.source import UsageSource
from agent.predict_server.calibration import HOUR_SECONDS
from agent.reporter import reporter
from agent.settings import AgentSettings
from deploy.local import bootstrap
from deploy.local.apiserver import app as apiserver
from deploy.local.apiserver.__main__ import install, read_definitions
from deploy.local.apiserver.app import Application
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.store import ObjectChange, Store
from deploy.local.embedded import CRD_DIR
from deploy.local.options import ProfileName
from deploy.local.profile import PROFILES
from deploy.local.scheduler import scheduler
from deploy.local.scheduler.scheduler import Scheduler
from deploy.local.simulated import kubelet, workloads
from deploy.local.simulated.kubelet import SimulatedKubelet
from deploy.local.simulated.source import SimulatedSource
from manager.autoscaler import listers
from manager.autoscaler.cloudprovider.simulated import machines
from manager.autoscaler.cloudprovider.simulated.fake_nodes import ANNOTATION_FAKE, FAKE
from manager.daemon_settings import DaemonSettings
from manager.main import Manager
from shared import durations, settings
from shared.clock import SystemClock
from shared.errors import HeadroomError
from shared.kube import node_heartbeat
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.events import Recorder
from shared.kube.resources import NODEMETRICS, NODES
from shared.quantity import Resources
from shared.stop import Stop
from shared.telemetry import Loops
from tests.simulation import cloud as clouds
from tests.simulation.disk import Disk
from tests.simulation.faults import AGENT, API_SERVER, CLOUD, MANAGER, USERS, Fault, FaultKind, Faults, Strike
from tests.simulation.loads import LoadedSource, Loads
from tests.simulation.network import ApiServer, Journal, NoServer, SimulatedTransport
from tests.simulation.stand_ins import Event, seeded
from tests.simulation.users import Users
from tests.simulation.virtual import WORLD, Process

# The models around the product need not be as quick as the real parts: each acts on a change at once, and
# looks at these times for what it has missed. The same is true of an agent that takes a sample in ten seconds, and of
# kinds that this API server never has.
_PACE_SECONDS = {
    (listers, "ABSENT_SECONDS"): 600.0,
    (reporter, "LOOK_SECONDS"): 5.0,
    (kubelet, "BEAT_SECONDS"): 60.0,
    (kubelet, "LOOK_SECONDS"): 3.0,
    (machines, "BEAT_SECONDS"): math.inf,  # the kubelets' heartbeats suffice
    (machines, "TICK_SECONDS"): 2.0,
    (scheduler, "TICK_SECONDS"): 2.0,
    (apiserver, "TICK_SECONDS"): 5.0,
}

# What processes import when they are made; here that comes before time begins, and once for all simulations.
_IMPORTED_LATER = (
    "agent.predict_server.peak_mix",
    "manager.autoscaler.expander.built_in",
    "manager.autoscaler.loop",
    "manager.autoscaler.http.router",
    "manager.page",
    "numpy.ma",
)


def prepare() -> None:
    """Changes the product's modules in this process for good: once, and never in one that runs other tests."""
    for (module, name), seconds in _PACE_SECONDS.items():
        setattr(module, name, seconds)
    for part in _IMPORTED_LATER:
        importlib.import_module(part)
    # Nobody connects to a simulated process, and the schemas of its answers take as much CPU as a minute of its work.
    routes: Any = APIRouter
    routes.add_api_route = lambda self, path, endpoint, **options: None


DEFINITIONS = list(read_definitions([CRD_DIR]))
TOKEN = "a-token-of-the-simulation"
MANAGER_FLAGS = (
    "--listen=127.0.0.1:0",
    "--authorization=off",
    "--cloud-provider=simulation",
    "--nodes=0:12:general",
    "--nodes=0:6:big",
    "--cluster-name=simulation",
    "--retry-period=4s",  # of the Lease: two attempts before its renew deadline, at half the messages
    "--scale-down-unneeded-time=30s",
    "--scale-down-delay-after-add=30s",
    "--scale-down-utilization-threshold=0.7",
    "--node-delete-delay-after-taint=20s",  # long enough to be disturbed
    "--scale-down-peaks=false",  # nodes that are bought have no agents
    "--scale-down-delay-after-failure=1m",
    "--max-node-provision-time=4m",
    "--initial-node-group-backoff-duration=1m",
    "--max-node-group-backoff-duration=4m",
)
CLOUD_FILE = """
machine_types:
- {name: small, capacity: {cpu: "2", memory: 8Gi}, price: 0.08}
- {name: medium, capacity: {cpu: "4", memory: 16Gi}, price: 0.15}
- {name: large, capacity: {cpu: "8", memory: 32Gi}, price: 0.28}
groups:
- {name: general, machine_type: medium, max: 20, boot_seconds: 40, ready_seconds: 5, delete_seconds: 20}
- {name: big, machine_type: large, max: 10, boot_seconds: 40, ready_seconds: 5, delete_seconds: 20}
- {name: foreign, machine_type: small, max: 5, size: 1, boot_seconds: 40, ready_seconds: 5, delete_seconds: 20}
"""


@dataclass(frozen=True)
class Size:
    """How large a cluster is: nodes of its own, managers, and how many of the nodes have real agents; `report_seconds`
    is the time between two reports of the others. `prediction_hour_seconds` is an hour of the agents' prediction.
    """

    nodes: int = 3
    managers: int = 2
    agents: int = 1
    sample_seconds: float = 10.0
    report_seconds: float = 60.0
    prediction_hour_seconds: int = HOUR_SECONDS


@dataclass
class Cluster(Strike):
    """All processes by what faults call them. What a process is made of is in `Process.own`."""

    size: Size
    directory: Path
    seed: int
    faults: Faults = field(default_factory=Faults)
    journal: Journal = field(default_factory=Journal)
    api: ApiServer = field(default_factory=ApiServer)
    processes: dict[str, Process] = field(default_factory=dict)
    ready: Event = field(default_factory=Event)
    frozen: list[object] = field(default_factory=list)  # of ended API servers
    store_listeners: list[Callable[[ObjectChange], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "cloud.yaml"
        file.write_text(CLOUD_FILE)
        self.cloud = clouds.install(self.directory, file, self.faults)
        self.disk = Disk()
        self.disk.install()
        self._numbers = itertools.count()
        self.users: Users | None = None
        hour_seconds = self.size.prediction_hour_seconds
        surprised = self.node_names[: self.size.agents] if hour_seconds < HOUR_SECONDS else []
        self.loads = {node: Loads(self.client(USERS), self.seed, node, hour_seconds) for node in surprised}
        self.store: Store | None = None

    def start(self) -> None:
        """Boots everything; `ready` is set once users may come."""
        self._start_api()
        WORLD.spawn(self._boot, "boot", Process("bootstrap"))

    @property
    def targets(self) -> dict[str, list[str]]:
        """What faults may concern, by role."""
        return {
            MANAGER: [f"manager-{number}" for number in range(self.size.managers)],
            AGENT: [f"agent-{name}" for name in self.node_names[: self.size.agents]],
            "scheduler": ["scheduler"],
            "kubelets": ["kubelets"],
            API_SERVER: [API_SERVER],
            CLOUD: [CLOUD],
            USERS: [USERS],
        }

    @property
    def node_names(self) -> list[str]:
        return [f"node-{number}" for number in range(self.size.nodes)]

    def state_of(self, agent: str) -> Path:
        """The state directory of an agent, by what faults call it."""
        return self.directory / agent

    def client(self, target: str, stop: Stop | None = None, registry: CollectorRegistry | None = None) -> Client:
        """A client of the running process, which faults call `target`."""
        transport = SimulatedTransport(self.api, self.faults, self.journal, TOKEN, target)
        connection = Connection("http://apiserver", StaticToken(TOKEN))
        return Client(connection, target, clock=SystemClock(), registry=registry, stop=stop, transport=transport)

    def managers(self) -> list[Process]:
        """The running managers."""
        found = (self.processes.get(name) for name in self.targets[MANAGER])
        return [each for each in found if each is not None and each.alive]

    def begin(self, fault: Fault) -> None:
        process = self.processes.get(fault.target)
        match fault.kind:
            case FaultKind.KILL if process is not None:
                WORLD.kill(process)
                if fault.target.startswith(AGENT):
                    self.disk.lose_unsynced(self.state_of(fault.target))
            case FaultKind.PAUSE if process is not None:
                process.paused_until = WORLD.now + fault.seconds
            case FaultKind.STEP_CLOCK if process is not None:
                process.wall_offset = self.faults.chance_of(fault).uniform(-20.0, 20.0)
            case FaultKind.DRIFT_CLOCK if process is not None:
                process.run_at(self.faults.rate_of(fault), WORLD.now)
            case FaultKind.FILL_DISK:
                self.disk.full.add(self.state_of(fault.target))
            case FaultKind.RESTART:
                self._stop_api()
            case FaultKind.HOSTILE_POD | FaultKind.HOSTILE_REPORT if self.users is not None:
                self.users.strike(fault, self.faults.chance_of(fault))
            case FaultKind.COMPACT if self.api.app is not None:
                app: Any = self.api.app
                app.compact()
            case FaultKind.LOSE_MACHINE:
                if (lost := self.cloud.lose_machine(fault)) is not None:
                    WORLD.spawn(lambda: self._forget_node(lost), "lost machine", Process("cloud controller"))

    def end(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL if not self.processes[fault.target].alive:
                self._starters()[fault.target]()
            case FaultKind.STEP_CLOCK if fault.target in self.processes:
                self.processes[fault.target].correct_wall(WORLD.now)
            case FaultKind.DRIFT_CLOCK if fault.target in self.processes:
                self.processes[fault.target].run_at(1.0, WORLD.now)
                self.processes[fault.target].correct_wall(WORLD.now)
            case FaultKind.FILL_DISK:
                self.disk.full.discard(self.state_of(fault.target))
            case FaultKind.RESTART if not self.api.process.alive:
                self._start_api()

    def _starters(self) -> dict[str, Callable[[], None]]:
        starters: dict[str, Callable[[], None]] = {"scheduler": self._start_scheduler}
        for number in range(self.size.managers):
            starters[f"manager-{number}"] = functools.partial(self._start_manager, number)
        for name in self.node_names[: self.size.agents]:
            starters[f"agent-{name}"] = functools.partial(self._start_agent, name)
        return starters

    def _process(self, target: str) -> Process:
        """A new process in the place of the last one of that target, if there was one."""
        process = Process(f"{target}.{next(self._numbers)}")
        self.processes[target] = process
        return process

    def _start_api(self) -> None:
        process = self.api.process = self._process(API_SERVER)
        self.frozen.append(self.api.loop)
        api_loop = self.api.loop = type(self.api.loop)()

        def serve() -> None:
            kinds = KindRegistry()
            self.store = store = Store(self.directory / "api", kinds.fields)
            app = Application(store, kinds, TOKEN)
            install(store, kinds, app.writes, copy.deepcopy(DEFINITIONS))
            for listener in self.store_listeners:
                store.listen(listener)
            api_loop.run_soon(app.start)
            self.api.serve(app)
            self.frozen.append(app)
            api_loop.serve()

        WORLD.spawn(serve, "apiserver", process)

    def _stop_api(self) -> None:
        WORLD.kill(self.api.process)
        self.api.break_off()
        if self.store is not None:
            self.store.close()
            self.store = None

    def start_bare(self) -> None:
        """Starts API server, kubelets and scheduler alone; for a task."""
        self._start_api()
        self._install()
        self._start_kubelets()
        self._start_scheduler()

    def _install(self) -> Client:
        clock = SystemClock()
        while self.api.app is None:
            clock.wait(threading.Event(), 0.1)
        admin = self.client("bootstrap")
        bootstrap.install(admin, PROFILES[ProfileName.PRODUCTION])
        return admin

    def _boot(self) -> None:
        clock, admin = SystemClock(), self._install()
        bootstrap.create_namespace(admin, workloads.NAMESPACE)
        for name in self.node_names:
            admin.create(NODES, _node(name, clock.now()))
        for number, name in enumerate(self.node_names):
            bootstrap.create_pods(admin, workloads.sample_pods(name, number), workloads.NAMESPACE)
        self._start_kubelets()
        self._start_scheduler()
        self._start_cloud()
        for number in range(self.size.managers):
            self._start_manager(number)
        for number, name in enumerate(self.node_names):
            if number < self.size.agents:
                self._start_agent(name)
            else:
                self._start_reporter(name)
        self.ready.set()

    def _start_manager(self, number: int) -> None:
        target = f"manager-{number}"
        process = self._process(target)

        def boot() -> None:
            registry, clock, stop = CollectorRegistry(), SystemClock(), Stop()
            client = self.client(target, stop, registry)
            argv = [*MANAGER_FLAGS, f"--identity={process.name}", f"--cloud-config={self.directory / 'cloud.yaml'}"]
            given = settings.load(DaemonSettings, program="manager", description="", argv=argv, environment={})
            removal = replace(given.autoscaler.removal, unremovable_node_recheck_timeout_seconds=60.0)
            given = replace(given, autoscaler=replace(given.autoscaler, removal=removal))
            serve: Any = NoServer
            manager = process.own["manager"] = Manager(given, client, clock, registry, serve=serve)
            manager.start()

        WORLD.spawn(boot, "boot", process)

    def _start_agent(self, node: str) -> None:
        target = f"agent-{node}"
        process = self._process(target)

        def boot() -> None:
            given = AgentSettings(
                node_name=node,
                listen="127.0.0.1:0",
                authorization="off",
                state_dir=str(self.state_of(target)),
                metric_cache_on_disk=False,
                collect_interval_seconds=self.size.sample_seconds,
                cold_start_seconds=300,
                checkpoint_interval_seconds=60,
                prediction_hour_seconds=self.size.prediction_hour_seconds,
            )
            clock = SystemClock()
            source: UsageSource = SimulatedSource(node, workloads.NODE_SIZE, clock, speed=1.0)
            if node in self.loads:
                source = LoadedSource(source, self.loads[node], workloads.NODE_SIZE)
            serve: Any = NoServer
            agent = process.own["agent"] = Agent(
                given, self.client(target), source, clock, CollectorRegistry(), serve=serve
            )
            agent.start()

        WORLD.spawn(boot, "boot", process)

    def _start_reporter(self, node: str) -> None:
        """A node's reports without an agent: numbers alone."""
        process, chance = self._process(f"reporter-{node}"), seeded("reporter", node, self.seed)

        def report() -> None:
            clock, client = SystemClock(), self.client("kubelets").single_attempt()
            while True:
                clock.wait(threading.Event(), self.size.report_seconds + chance.random())
                nothing = {"resources": {"cpu": "0", "memory": "0"}}
                lends = {"cpu": f"{chance.randint(0, 4000)}m", "memory": f"{chance.randint(0, 8)}Gi"}
                status = {
                    "updateTime": durations.timestamp(clock.now()),
                    "nodeMetric": {"nodeUsage": nothing, "systemUsage": nothing},
                    "podsMetric": [],
                    "prodReclaimableMetric": {"resource": {"resources": lends}},
                }
                try:
                    client.patch(NODEMETRICS, node, {"status": status}, subresource="status")
                except HeadroomError:
                    continue

        WORLD.spawn(report, "reports", process)

    def _start_kubelets(self) -> None:
        process = self._process("kubelets")

        def boot() -> None:
            loops = Loops(CollectorRegistry(), SystemClock())
            client = self.client("kubelets", loops.stop)
            SimulatedKubelet(client, SystemClock(), appeared=lambda _: None, gone=lambda _: None).start(loops)

        WORLD.spawn(boot, "boot", process)

    def _start_scheduler(self) -> None:
        process = self._process("scheduler")

        def boot() -> None:
            loops = Loops(CollectorRegistry(), SystemClock())
            client = self.client("scheduler", loops.stop)
            recorder = Recorder(client, "scheduler", "simulation")
            loops.start("events", recorder.run)
            Scheduler(client, recorder).start(loops)

        WORLD.spawn(boot, "boot", process)

    def _start_cloud(self) -> None:
        self.processes[CLOUD] = self.cloud.process

        def boot() -> None:
            loops = Loops(CollectorRegistry(), SystemClock())
            self.cloud.start(self.client("cloud controller", loops.stop), SystemClock(), loops)

        WORLD.spawn(boot, "boot", self.cloud.process)

    def _forget_node(self, name: str) -> None:
        """The Node of a lost machine goes once the cloud's controller has noticed."""
        clock, client = SystemClock(), self.client("cloud controller")
        clock.wait(threading.Event(), 30.0)
        while True:
            try:
                client.delete(NODES, name)
            except HeadroomError as error:
                if getattr(error, "status", 0) != 404:
                    clock.wait(threading.Event(), 5.0)
                    continue
            return


def _node(name: str, now: float) -> dict[str, object]:
    size: Resources = workloads.NODE_SIZE
    amounts = {**size.quantities(), "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "headroom.io/simulated": "true"},
            "annotations": {ANNOTATION_FAKE: FAKE},
        },
        "spec": {"taints": [workloads.TAINT]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": node_heartbeat.conditions(now)},
    }
