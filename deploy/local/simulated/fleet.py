"""The simulated nodes of one process, and those that a simulated cloud creates, with real agents while they are few."""

import contextlib
import dataclasses
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from agent.main import Agent
from agent.settings import AgentSettings
from deploy.local import bootstrap, identities
from deploy.local.kubelet.node import NodeHeart, ReportedNode
from deploy.local.simulated import annotations, workloads
from deploy.local.simulated.kubelet import SimulatedKubelet
from deploy.local.simulated.source import SimulatedSource
from deploy.local.simulated.traces import Series
from manager.autoscaler.cloudprovider.simulated.fake_nodes import ANNOTATION_FAKE, FAKE
from shared import names
from shared.api.core import Node, Pod
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, PODS
from shared.kube.retry import Backoff, Jitter
from shared.quantity import Resources
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0
MAX_RETRY_SECONDS = 5.0
RUNTIME = "simulated://0.1.0"
MOST_BOUGHT_AGENTS = 20  # each has a dozen threads


@dataclass(frozen=True)
class Simulation:
    """The properties of the nodes. `policy` holds the agents' start settings, with times in simulated time.

    Each agent uses `agent_service_account`, bound to its Node, or the cluster's only user if that is empty.
    """

    node_count: int
    speed: float
    trace: Sequence[Series]
    policy: AgentSettings
    state_dir: Path
    connection: Connection
    agent_service_account: str = ""


def node_names(count: int) -> list[str]:
    """ "sim-0", "sim-1", ..., padded so that they sort by name."""
    width = len(str(count - 1))
    return [f"sim-{number:0{width}d}" for number in range(count)]


def accelerated(policy: AgentSettings, speed: float) -> AgentSettings:
    """`policy` for a world that runs `speed` times as fast: the prediction's hour shrinks by that factor."""
    hour_seconds = min(3600, max(1, round(policy.prediction_hour_seconds / speed)))
    return msgspec.structs.replace(policy, prediction_hour_seconds=hour_seconds)


class SimulatedNode:
    """One simulated node of the given size, and its agent."""

    def __init__(self, name: str, size: Resources, simulation: Simulation, client: Client, clock: Clock) -> None:
        self.name = name
        self._client = client
        self._settings = msgspec.structs.replace(
            accelerated(simulation.policy, simulation.speed),
            node_name=name,
            listen="127.0.0.1:0",
            state_dir=str(simulation.state_dir / name),
            metric_cache_on_disk=False,
        )
        self._source = SimulatedSource(name, size, clock, speed=simulation.speed, trace=simulation.trace)
        self._simulation = simulation
        self._clock = clock
        self._agent: Agent | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start_agent(self) -> None:
        """Starts the agent of the registered Node. Raises HeadroomError if it gets no token."""
        if self._closed:
            return  # the Node is deleted, so there is no token for it
        client = self._agent_client()
        agent = Agent(self._settings, client, self._source, self._clock, CollectorRegistry())
        with self._lock:
            if self._closed:
                return
            self._agent = agent
            agent.start()

    def publish_address(self) -> None:
        """Writes the agent's address to the Node. Raises HeadroomError; ignores a deleted Node."""
        with self._lock:
            agent = self._agent
            if agent is None or self._closed:
                return
        host, port = agent.address
        patch = {"metadata": {"annotations": {annotations.AGENT_ADDRESS: f"{host}:{port}"}}}
        with contextlib.suppress(NotFound):
            self._client.patch(NODES, self.name, patch)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._agent is not None:
            self._agent.close()

    def _agent_client(self) -> Client:
        if not self._simulation.agent_service_account:
            return self._client
        token = identities.token(self._client, self._simulation.agent_service_account, self.name)
        return Client(
            dataclasses.replace(self._simulation.connection, credentials=StaticToken(token)), "headroom-agent"
        )


class SimulatedFleet:
    """The initial nodes and those that a simulated cloud makes, each with an agent as long as its Node exists."""

    def __init__(self, simulation: Simulation, client: Client, clock: Clock) -> None:
        self._simulation = simulation
        self._client = client
        self._clock = clock
        self._nodes: dict[str, SimulatedNode] = {}
        self._lock = threading.Lock()  # guards the nodes
        self._without_agent: queue.SimpleQueue[SimulatedNode] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._names = frozenset(node_names(simulation.node_count))
        self._kubelet = SimulatedKubelet(client, clock, appeared=self._on_appeared, gone=self._on_gone)

    def start(self, loops: Loops, ended: threading.Event) -> None:
        """Returns once all pods run, however often the API server refuses meanwhile, or once `ended` is set."""
        self._ended = ended
        for name in sorted(self._names):
            self._persist(f"registration of {name}", self._registration(name))
        self._kubelet.start(loops)
        self._persist("sample pods", self._create_workloads)
        self._persist("start of the sample pods", self._await_workloads)
        loops.start("simulated-agents", self._start_agents)

    def close(self) -> None:
        with self._lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            node.close()

    def _registration(self, name: str) -> Callable[[], None]:
        labels, kept = {names.LABEL_SIMULATED: "true"}, {ANNOTATION_FAKE: FAKE}
        facts = ReportedNode(name, workloads.NODE_SIZE, labels, kept, taints=(workloads.TAINT,), runtime=RUNTIME)
        return NodeHeart(self._client, facts, self._clock).register

    def _create_workloads(self) -> None:
        bootstrap.create_namespace(self._client, workloads.NAMESPACE)
        pods = workloads.sample_pods(self._simulation.node_count)
        bootstrap.create_pods(self._client, pods, workloads.NAMESPACE)

    def _await_workloads(self) -> None:
        """Waits for the pods: an agent that watched its node fill up would long rate it as volatile."""
        deadline = self._clock.monotonic() + SETTLE_SECONDS
        while self._clock.monotonic() < deadline and not self._ended.is_set():
            listed = self._client.list(PODS, workloads.NAMESPACE, into=Pod).items
            if all(pod.status.phase == "Running" for pod in listed):
                return
            self._clock.wait(self._ended, 0.2)

    def _start_agents(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                node = self._without_agent.get(timeout=0.5)
                self._persist(f"agent of {node.name}", node.start_agent)
                self._persist(f"address of the agent of {node.name}", node.publish_address)

    def _persist(self, what: str, action: Callable[[], None]) -> None:
        """Tries until the API server accepts the request, or until the process ends."""
        backoff = Backoff(self._clock, Jitter(cap_seconds=MAX_RETRY_SECONDS))
        while not self._ended.is_set():
            try:
                action()
                return
            except HeadroomError as error:
                delay = backoff.delay_seconds(error)
                logger.warning("%s failed, tried again in %.1f s: %s", what, delay, error)
                self._clock.wait(self._ended, delay)

    def _on_appeared(self, node: Node) -> None:
        name = node.metadata.name
        with self._lock:
            if name not in self._names and len(self._nodes.keys() - self._names) >= MOST_BOUGHT_AGENTS:
                logger.info("no further agent for nodes of the cloud", extra={"node": name})
                return
            found = SimulatedNode(name, node.capacity, self._simulation, self._client, self._clock)
            self._nodes[name] = found
        self._without_agent.put(found)

    def _on_gone(self, name: str) -> None:
        with self._lock:
            node = self._nodes.pop(name, None)
        if node is not None:
            threading.Thread(target=node.close, name=f"close-{name}", daemon=True).start()
