"""The simulated nodes of one process, and those that a simulated cloud creates, with real agents while they are few."""

import contextlib
import dataclasses
import functools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from agent.main import Agent
from agent.settings import AgentSettings
from deploy.local import bootstrap, identities
from deploy.local.kubelet.node import NodeHeart, ReportedNode
from deploy.local.simulated import workloads
from deploy.local.simulated.kubelet import SimulatedKubelet
from deploy.local.simulated.source import SimulatedSource
from deploy.local.simulated.traces import Series
from manager.autoscaler.cloudprovider.simulated.fake_nodes import ANNOTATION_FAKE, FAKE
from shared import names
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.errors import NotFound
from shared.kube.resources import NODES
from shared.kube.retry import Backoff, Jitter
from shared.quantity import Resources
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

MAKERS = 8  # threads: the API server has the next requests while it answers one
SETTLE_SECONDS = 10.0
LOOK_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
RUNTIME = "simulated://0.1.0"
MOST_SAMPLES_PER_SECOND, MAX_SAMPLE_SECONDS = 150, 5.0
MOST_PREDICTIONS_PER_SECOND = 30
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


def spaced(policy: AgentSettings, nodes: int) -> AgentSettings:
    """`policy` for as many agents in one process, which together sample and predict at most so often that one core
    is enough. Each still predicts for every report.
    """
    sample_seconds = min(MAX_SAMPLE_SECONDS, nodes / MOST_SAMPLES_PER_SECOND)
    check_seconds = min(policy.reporting_interval_seconds, round(nodes / MOST_PREDICTIONS_PER_SECOND))
    return msgspec.structs.replace(
        policy,
        collect_interval_seconds=max(policy.collect_interval_seconds, sample_seconds),
        check_prediction_interval_seconds=max(policy.check_prediction_interval_seconds, check_seconds),
    )


class SimulatedNode:
    """One simulated node of the given size, and its agent."""

    def __init__(self, name: str, size: Resources, simulation: Simulation, client: Client, clock: Clock) -> None:
        self.name = name
        self._client = client
        self._settings = msgspec.structs.replace(
            spaced(accelerated(simulation.policy, simulation.speed), simulation.node_count),
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
        patch = {"metadata": {"annotations": {names.ANNOTATION_AGENT_ADDRESS: f"{host}:{port}"}}}
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
    """The initial nodes and those that a simulated cloud makes, each with an agent as long as its Node exists.

    Several threads make node after node: the Node, its pods and, once these run, its agent.
    """

    def __init__(self, simulation: Simulation, client: Client, clock: Clock) -> None:
        self._simulation = simulation
        self._client = client
        self._clock = clock
        self._nodes: dict[str, SimulatedNode] = {}
        self._lock = threading.Lock()  # guards the nodes
        self._steps: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._numbers = {name: number for number, name in enumerate(node_names(simulation.node_count))}
        self._kubelet = SimulatedKubelet(client, clock, appeared=self._on_appeared, gone=self._on_gone)

    def start(self, loops: Loops, ended: threading.Event) -> None:
        """Starts to make the nodes, however often the API server refuses meanwhile, until `ended` is set."""
        self._ended = ended
        namespace = functools.partial(bootstrap.create_namespace, self._client, workloads.NAMESPACE)
        self._persist("namespace of the sample pods", namespace)
        for name in self._numbers:
            self._steps.put(functools.partial(self._make, name))
        self._kubelet.start(loops)
        for number in range(MAKERS):
            loops.start(f"simulated-fleet-{number}", self._run)

    def close(self) -> None:
        with self._lock:
            nodes = list(self._nodes.values())
        with ThreadPoolExecutor(MAKERS) as pool:
            list(pool.map(SimulatedNode.close, nodes))

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                self._steps.get(timeout=0.5)()

    def _make(self, name: str) -> None:
        labels, kept = {names.LABEL_SIMULATED: "true"}, {ANNOTATION_FAKE: FAKE}
        facts = ReportedNode(name, workloads.NODE_SIZE, labels, kept, taints=(workloads.TAINT,), runtime=RUNTIME)
        self._persist(f"registration of {name}", NodeHeart(self._client, facts, self._clock).register)
        pods = workloads.sample_pods(name, self._numbers[name])
        create = functools.partial(bootstrap.create_pods, self._client, pods, workloads.NAMESPACE)
        self._persist(f"sample pods of {name}", create)

    def _start_agent(self, node: SimulatedNode, until: float) -> None:
        """Comes back to it while the pods start, until that monotonic time: an agent that watched its node fill up
        would long rate it as volatile.
        """
        is_filled = node.name not in self._numbers or self._kubelet.running_pods(node.name) >= workloads.PODS_PER_NODE
        if not is_filled and self._clock.monotonic() < until:
            self._clock.wait(self._ended, LOOK_SECONDS)
            self._steps.put(functools.partial(self._start_agent, node, until))
            return
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
            if name not in self._numbers and len(self._nodes.keys() - self._numbers) >= MOST_BOUGHT_AGENTS:
                logger.info("no further agent for nodes of the cloud", extra={"node": name})
                return
            found = SimulatedNode(name, node.capacity, self._simulation, self._client, self._clock)
            self._nodes[name] = found
        self._steps.put(functools.partial(self._start_agent, found, self._clock.monotonic() + SETTLE_SECONDS))

    def _on_gone(self, name: str) -> None:
        with self._lock:
            node = self._nodes.pop(name, None)
        if node is not None:
            threading.Thread(target=node.close, name=f"close-{name}", daemon=True).start()
