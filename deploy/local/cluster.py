"""The local cluster as processes: which ones, on which ports, with which arguments."""

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deploy.local import bootstrap, identities, kubeconfig, samples, webhook
from deploy.local import profile as profiles
from deploy.local.cloud import LocalCloud
from deploy.local.control_plane import ControlPlane
from deploy.local.embedded import EmbeddedServer
from deploy.local.home import Home
from deploy.local.kubelet import node
from deploy.local.kubelet.process import VARIABLE_CLUSTER
from deploy.local.notices import Notices
from deploy.local.options import ClusterKind, SchedulerKind, UpOptions
from deploy.local.ports import LOOPBACK
from deploy.local.simulated import fleet, workloads
from deploy.local.supervisor import Program, Supervisor
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.http import SocketTransport

logger = logging.getLogger(__name__)

READY_SECONDS = 60.0
REQUEST_SECONDS = 2.0
SETTLE_SECONDS = 15.0

Say = Callable[[str], None]


class StartFailed(HeadroomError):
    """The cluster did not start."""


class LocalCluster:
    """One cluster in one home, on the very ports of its `options`; `start` once, `close` once."""

    def __init__(self, home: Home, options: UpOptions, cloud: LocalCloud | None, say: Say) -> None:
        self._home = home
        self._options = options
        self._cloud = cloud
        self._profile = profiles.PROFILES[options.profile]
        self._say = say
        self.name = f"headroom-{home.cluster_id}"
        self.node_name = node.host_name()
        self.kubeconfig = home.kubeconfig
        self.manager_url = f"http://{LOOPBACK}:{options.ports.manager}"
        self.agent_url = f"http://{LOOPBACK}:{options.ports.agent}"
        self._token = home.token_file.read_text().strip()
        self._server = _server(home, options, self._token)
        self._agent_config = home.directory / "agent.yaml"
        self._cgroup_parent = ("--cgroup-parent", home.cgroup_parent)
        self._supervisor: Supervisor | None = None
        self.notices: Notices | None = None
        """Reports the simulated cloud's actions, if there is a cloud; set by the start."""
        self.busy_node = ""
        """The simulated node of a new demo whose pod gets busy; set by the start."""

    def write_files(self) -> None:
        """Writes the kubeconfig and the settings of agents, which the processes read at their start."""
        kubeconfig.write(self._home.kubeconfig, self._server.server, self._token, self._server.ca_file)
        self._agent_config.write_text(profiles.agent_settings(self._profile))

    def start(self, cancelled: Callable[[], bool]) -> None:
        """Returns once every process has started and the API server serves. Raises StartFailed, HeadroomError."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # pods run `headroom` too
        environment = os.environ | {VARIABLE_CLUSTER: self._home.cluster_id, "PYTHONUNBUFFERED": "1", "PATH": path}
        self._supervisor = Supervisor(self._home.logs, environment, on_death=self._on_death)
        for program in self._server.programs():
            self._supervisor.add(program)
        self._await_api_server(cancelled)
        for program in self._server.controllers():
            self._supervisor.add(program)
        client = Client(self._connection(), "headroom-up")
        if self._cloud is not None:
            self.notices = Notices(client, self._cloud.file)
            self.notices.new()  # skips the events of earlier starts
        is_new = bootstrap.install(client, self._profile)
        if not is_new:
            self._say(f"configuration: {profiles.config_map_key()} exists already and is kept")
        webhook.create_priority_classes(client)
        self._server.prepare(self._home.kubeconfig)
        webhook.register(client, f"https://{LOOPBACK}:{self._options.ports.webhook}")
        for program in self._programs(client):
            self._supervisor.add(program)
        bootstrap.create_pods(client, samples.sample_pods(self.node_name, node.host_size()), samples.NAMESPACE)
        # The load of the start is no usage to learn from, so this machine's agent starts last.
        _await(lambda: cancelled() or bootstrap.has_settled(client, self._options.nodes), SETTLE_SECONDS)
        self._supervisor.add(self._agent(client))
        if self._cloud is not None and self._cloud.is_sample:
            pods = samples.cloud_pods()
            self._say(f"{len(pods)} pods are created that fit on no node. The autoscaler launches nodes for them:")
            bootstrap.create_pods(client, pods, samples.NAMESPACE)
        if is_new and self._options.tells_story:
            self.busy_node = fleet.node_names(self._options.nodes)[-1]
            bootstrap.create_pods(client, [workloads.busy_pod(self.busy_node)], workloads.NAMESPACE)

    def close(self) -> None:
        """Ends every process."""
        if self._supervisor is not None:
            self._supervisor.close()

    def _connection(self) -> Connection:
        ca_file = self._server.ca_file
        return Connection(self._server.server, StaticToken(self._token), ca_file=str(ca_file) if ca_file else None)

    def _await_api_server(self, cancelled: Callable[[], bool]) -> None:
        if not _await(lambda: cancelled() or self._is_ready(), READY_SECONDS):
            raise StartFailed(f"the API server is not ready after {READY_SECONDS:.0f} s; see {self._home.logs}")
        if cancelled():
            raise StartFailed("stopped while the API server started")

    def _is_ready(self) -> bool:
        ca_file = self._server.ca_file
        if ca_file is not None and not ca_file.exists():
            return False
        transport = SocketTransport(self._connection(), "headroom-up")
        try:
            transport.request("GET", "/readyz", timeout_seconds=REQUEST_SECONDS)
        except HeadroomError:
            return False
        finally:
            transport.close()
        return True

    def _on_death(self, program: Program, code: int, delay_seconds: float) -> None:
        how = f"exit status {code}" if code >= 0 else f"signal {-code}"
        log = self._home.logs / f"{program.name}.log"
        self._say(f"{program.name} ended ({how}), restarting it in {delay_seconds:.1f} s; see {log}")

    def _programs(self, client: Client) -> list[Program]:
        """In start order; the agent of this machine starts later, because the kubelet creates the cgroups it reads."""
        access = ("--kubeconfig", str(self._home.kubeconfig))
        schedule = "true" if self._options.scheduler is SchedulerKind.HEADROOM else "false"
        simulated = Program("simulated", "deploy.local.simulated", (*access, *self._simulation()))
        return [
            Program("manager", "manager", (
                *self._access(client, identities.MANAGER),
                *("--listen", f"{LOOPBACK}:{self._options.ports.manager}"),
                *("--leader-elect", "false"),
                *("--cluster-name", self.name),
                *("--webhook-listen", f"{LOOPBACK}:{self._options.ports.webhook}", "--webhook-hosts", LOOPBACK),
                *(self._cloud.flags if self._cloud is not None else ()),
            )),
            Program("node", "deploy.local.node", (
                *access, *self._cgroup_parent, *self._state("kubelet"), *self._server.kubelet_certificate,
                *("--schedule", schedule, "--extender-url", f"{self.manager_url}/scheduler"),
            )),
            *([simulated] if self._options.nodes or self._cloud is not None else []),
        ]  # fmt: skip

    def _agent(self, client: Client) -> Program:
        arguments = (
            *self._access(client, identities.AGENT, node_name=self.node_name),
            *self._cgroup_parent,
            *self._state("agent"),
            *("--node-name", self.node_name),
            *("--listen", f"{LOOPBACK}:{self._options.ports.agent}"),
            *("--config", str(self._agent_config)),
        )
        return Program("agent", "agent", arguments)

    def _access(self, client: Client, service_account: str, node_name: str | None = None) -> tuple[str, str]:
        """On a real API server the product uses the chart's service accounts, with exactly their rights."""
        if self._options.kind is ClusterKind.EMBEDDED:
            return ("--kubeconfig", str(self._home.kubeconfig))
        path = self._home.directory / f"{service_account}.kubeconfig"
        token = identities.token(client, service_account, node_name)
        kubeconfig.write(path, self._server.server, token, self._server.ca_file)
        return ("--kubeconfig", str(path))

    def _simulation(self) -> tuple[str, ...]:
        agents = identities.AGENT if self._options.kind is ClusterKind.APISERVER else ""
        return (
            *self._state("simulated"),
            *("--nodes", str(self._options.nodes)),
            *("--speed", str(self._options.speed)),
            *(("--trace", str(self._options.trace)) if self._options.trace else ()),
            *("--agent-config", str(self._agent_config)),
            *("--agent-service-account", agents),
        )

    def _state(self, name: str) -> tuple[str, str]:
        return ("--state-dir", str(self._home.directory / name))


def _server(home: Home, options: UpOptions, token: str) -> EmbeddedServer | ControlPlane:
    if options.kind is ClusterKind.EMBEDDED:
        return EmbeddedServer(home.directory / "apiserver", options.ports.api, home.token_file)
    return ControlPlane(
        home.directory / "control-plane",
        options.ports.api,
        token,
        durable=not home.claim.temporary,
        scheduler=options.scheduler is SchedulerKind.KUBE,
        manager_url=f"http://{LOOPBACK}:{options.ports.manager}",
    )


def _await(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
