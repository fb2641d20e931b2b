"""The local cluster as processes: which ones, on which ports, with which arguments."""

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.local import bootstrap, samples
from deploy.local import profile as profiles
from deploy.local.home import VARIABLE_CLUSTER, Home
from deploy.local.kubelet import node
from deploy.local.profile import Profile
from deploy.local.supervisor import Program, Supervisor
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
READY_SECONDS = 20.0
SETTLE_SECONDS = 15.0
CRD_DIR = Path(__file__).parent.parent / "helm" / "headroom" / "crds"

Say = Callable[[str], None]


class StartFailed(HeadroomError):
    """The cluster did not come up."""


@dataclass(frozen=True)
class Ports:
    """Loopback ports, each one free when it was chosen."""

    api: int
    manager: int
    agent: int


@dataclass(frozen=True)
class Plan:
    """What is to run."""

    profile: Profile
    ports: Ports
    simulated_nodes: int
    speed: float
    trace: Path | None


def free_port(preferred: int) -> int:
    """`preferred` if nobody listens there, else (or for 0) a port the kernel picks."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StartFailed("no free port on 127.0.0.1")


class LocalCluster:
    """One cluster in one home; `start` once, `close` once."""

    def __init__(self, home: Home, plan: Plan, say: Say) -> None:
        self._home = home
        self._plan = plan
        self._say = say
        self.node_name = node.host_name()
        self.server = f"http://{LOOPBACK}:{plan.ports.api}"
        self.manager_url = f"http://{LOOPBACK}:{plan.ports.manager}"
        self.agent_url = f"http://{LOOPBACK}:{plan.ports.agent}"
        self._token = home.token_file.read_text().strip()
        self._supervisor: Supervisor | None = None

    def write_files(self) -> None:
        """The kubeconfig and the agents' settings, which the processes start from."""
        config = yaml.safe_dump(bootstrap.kubeconfig(self.server, self._token), sort_keys=False)
        self._home.kubeconfig.touch(mode=0o600)
        self._home.kubeconfig.write_text(config)
        self._agent_config.write_text(profiles.agent_settings(self._plan.profile))

    def start(self, cancelled: Callable[[], bool]) -> None:
        """Returns once every process was started and the API server serves. Raises StartFailed."""
        environment = os.environ | {VARIABLE_CLUSTER: self._home.cluster_id, "PYTHONUNBUFFERED": "1"}
        self._supervisor = Supervisor(self._home.logs, environment, on_death=self._on_death)
        self._ready_file.unlink(missing_ok=True)
        self._supervisor.add(self._api_server())
        self._await_api_server(cancelled)
        client = Client(Connection(self.server, StaticToken(self._token)), "headroom-up")
        if not bootstrap.install(client, self._plan.profile):
            self._say(f"configuration: {profiles.config_map_key()} was there already and is kept as it is")
        *others, agent = self._programs()
        for program in others:
            self._supervisor.add(program)
        bootstrap.create_pods(client, samples.sample_pods(self.node_name, node.host_size()), samples.NAMESPACE)
        # The bustle of the start is no usage to learn from, so the agent of this machine comes last.
        _await(lambda: cancelled() or bootstrap.has_settled(client, self._plan.simulated_nodes), SETTLE_SECONDS)
        self._supervisor.add(agent)
        client.close()

    def close(self) -> None:
        """Ends every process."""
        if self._supervisor is not None:
            self._supervisor.close()

    @property
    def _agent_config(self) -> Path:
        return self._home.directory / "agent.yaml"

    @property
    def _ready_file(self) -> Path:
        return self._home.directory / "apiserver.ready"

    def _await_api_server(self, cancelled: Callable[[], bool]) -> None:
        if not _await(lambda: cancelled() or self._ready_file.exists(), READY_SECONDS):
            raise StartFailed(f"the API server is not ready after {READY_SECONDS:.0f} s; see {self._home.logs}")
        if cancelled():
            raise StartFailed("stopped while the API server started")

    def _on_death(self, program: Program, code: int, delay_seconds: float) -> None:
        how = f"exit status {code}" if code >= 0 else f"signal {-code}"
        log = self._home.logs / f"{program.name}.log"
        self._say(f"{program.name} ended ({how}), starting it again in {delay_seconds:.1f} s; see {log}")

    def _api_server(self) -> Program:
        return Program(
            "apiserver",
            "deploy.local.apiserver",
            (
                *("--listen", f"{LOOPBACK}:{self._plan.ports.api}"),
                *("--data-dir", str(self._home.directory / "apiserver")),
                *("--token-file", str(self._home.token_file)),
                *("--crd-dir", str(CRD_DIR)),
                *("--ready-file", str(self._ready_file)),
            ),
        )

    def _programs(self) -> list[Program]:
        """In the order they start, this machine's agent last. The kubelet makes the cgroups it looks for."""
        access = ("--kubeconfig", str(self._home.kubeconfig))
        parent = ("--cgroup-parent", self._home.cgroup_parent)
        simulated = Program("simulated", "deploy.local.simulated", (*access, *self._simulation()))
        return [
            Program("manager", "manager", (*access, "--listen", f"{LOOPBACK}:{self._plan.ports.manager}",
                                           "--leader-elect", "false")),
            Program("node", "deploy.local.node", (*access, *parent, *self._state("kubelet"))),
            *([simulated] if self._plan.simulated_nodes else []),
            Program("agent", "agent", (
                *access, *parent, *self._state("agent"),
                *("--node-name", self.node_name),
                *("--listen", f"{LOOPBACK}:{self._plan.ports.agent}"),
                *("--config", str(self._agent_config)),
            )),
        ]  # fmt: skip

    def _simulation(self) -> tuple[str, ...]:
        return (
            *self._state("simulated"),
            *("--nodes", str(self._plan.simulated_nodes)),
            *("--speed", str(self._plan.speed)),
            *(("--trace", str(self._plan.trace)) if self._plan.trace else ()),
            *("--agent-config", str(self._agent_config)),
        )

    def _state(self, name: str) -> tuple[str, str]:
        return ("--state-dir", str(self._home.directory / name))


def _await(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
