"""API servers as tests run them: real processes on real sockets, the embedded one or a real control plane."""

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from deploy.local import identities, kubeconfig, ports
from deploy.local.control_plane import APISERVER, CONTROLLER_MANAGER, SCHEDULER, ControlPlane
from deploy.local.embedded import EmbeddedServer
from deploy.local.ports import LOOPBACK
from deploy.local.supervisor import Program
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.errors import NotFound
from shared.kube.resources import CLUSTERCOLOCATIONPROFILES, CONFIGMAPS, NAMESPACES, NODEMETRICS, SERVICEACCOUNTS
from shared.kube.retry import Jitter, Retry
from tests.support import PATIENCE_SECONDS, eventually
from tests.support.client_certificates import ClientAuthority
from tests.support.daemons import Daemon
from tests.support.proxy import FaultProxy

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "integration"
START_SECONDS = 60.0
EMBEDDED, REAL, NODE = "embedded", "apiserver", "node"  # values of --cluster


class ApiServer(ABC):
    """A server on one port and one data directory for its whole life, which starts and is killed at will."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: dict[str, subprocess.Popen[bytes] | Daemon] = {}

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it."""

    @property
    @abstractmethod
    def ca_file(self) -> Path | None:
        """What an https one's certificate is verified with."""

    @property
    @abstractmethod
    def token(self) -> str:
        """Opens every door."""

    @abstractmethod
    def start(self, *rules: dict[str, Any]) -> None:
        """Returns once it serves, with these faults in force."""

    @abstractmethod
    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends what serves the API, and leaves what it has stored; `start` goes on from there."""

    @abstractmethod
    def fault(self, *rules: dict[str, Any]) -> None:
        """From now on these, and only these, go wrong; of several that match, the first acts and is used up."""

    @abstractmethod
    def faults_left(self) -> int:
        """How many of the rules have not been used up."""

    @abstractmethod
    def compact(self) -> None:
        """Forgets the history: watches and lists from older versions are told 410."""

    @abstractmethod
    def manager_connection(self) -> Connection:
        """As the manager of an installation speaks to it."""

    @abstractmethod
    def agent_connection(self, node_name: str) -> Connection:
        """As the agent on that node speaks to it."""

    @property
    def connection(self) -> Connection:
        """As an administrator speaks to it."""
        return Connection(self.url, StaticToken(self.token), ca_file=str(self.ca_file) if self.ca_file else None)

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return write_kubeconfig(self.directory / "kubeconfig", self.connection)

    def client(self, connection: Connection | None = None) -> Client:
        """A client that hurries; an administrator's, unless somebody else's `connection` is given."""
        quick = Retry(deadline_seconds=10, jitter=Jitter(0.02, 0.2))
        return Client(connection or self.connection, "test", retry=quick)

    def http(self, **options: Any) -> httpx.Client:
        """Plain calls as an administrator."""
        headers = {"Authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        verify = self.ca_file is not None and ssl.create_default_context(cafile=self.ca_file)
        options = {"timeout": PATIENCE_SECONDS} | options
        return httpx.Client(base_url=self.url, headers=headers, verify=verify, **options)

    def add_namespace(self) -> str:
        """A new namespace with a name of its own, in which pods may be created."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.client().create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.fault()

    def close(self) -> None:
        """Ends everything for good."""
        for name in reversed(list(self._processes)):
            self._end(name, signal.SIGKILL)

    def _run(self, program: Program) -> None:
        """Starts a part that does not run; it ends with this process."""
        if program.name in self._processes:
            return
        leash = [sys.executable, "-m", "deploy.local.leash", str(os.getpid())]
        with (self.directory / f"{program.name}.log").open("ab") as log:
            if os.sep in program.target:
                command = [*leash, program.target, *program.arguments]
                self._processes[program.name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
            else:
                self._processes[program.name] = Daemon(program.target, *program.arguments, stdout=log, stderr=log)

    def _end(self, name: str, how: signal.Signals) -> None:
        if process := self._processes.pop(name, None):
            os.kill(process.pid, how)
            process.wait(20)

    def _serves(self) -> bool:
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} ended: see {self.directory / name}.log"
        with contextlib.suppress(httpx.HTTPError), self.http(timeout=2) as http:
            return http.get("/readyz").is_success
        return False


class EmbeddedApiServer(ApiServer):
    """The embedded one, wrapped in faults."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        token_file = directory / "token"
        token_file.write_text(TOKEN)
        self._server = EmbeddedServer(directory / "data", ports.free(), token_file)
        self.start()

    @property
    def url(self) -> str:
        return self._server.server

    @property
    def ca_file(self) -> Path | None:
        return None

    @property
    def token(self) -> str:
        return TOKEN

    def start(self, *rules: dict[str, Any]) -> None:
        for program in self._server.programs():
            self._run(replace(program, target="tests.support.faulty_apiserver"))
        eventually(self._serves, START_SECONDS)
        if rules:
            self.fault(*rules)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        for program in self._server.programs():
            self._end(program.name, how)

    def fault(self, *rules: dict[str, Any]) -> None:
        self._post("/_faults", list(rules))

    def faults_left(self) -> int:
        with self.http() as http:
            return len(http.get("/_faults").raise_for_status().json())

    def compact(self) -> None:
        self._post("/_compact", None)

    def manager_connection(self) -> Connection:
        return self.connection

    def agent_connection(self, node_name: str) -> Connection:
        return self.connection

    def _post(self, path: str, body: object) -> None:
        try:
            with self.http() as http:
                http.post(path, json=body).raise_for_status()
        except httpx.TransportError as error:
            for name, process in self._processes.items():
                error.add_note(f"status of {name}: {process.poll()}; see {self.directory / name}.log")
            raise


class RealApiServer(ApiServer):
    """kube-apiserver with etcd and kube-controller-manager, and the chart's custom resources and access rights.

    kube-apiserver gets the `flags` as well.
    """

    def __init__(self, directory: Path, flags: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._plane = ControlPlane(directory / "control-plane", ports.free(), TOKEN, durable=False)
        self._clients = ClientAuthority(directory / "clients")
        trusting = f"--client-ca-file={self._clients.file}"
        self._programs = [
            replace(each, arguments=(*each.arguments, trusting, *flags)) if each.name == APISERVER else each
            for each in self._plane.programs()
        ]
        self._proxy: FaultProxy | None = None
        self._port = ports.free()
        try:
            self.start()
            self._plane.prepare(self.kubeconfig)
            self._wait_for_custom_kinds(200)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def ca_file(self) -> Path | None:
        return self._plane.ca_file

    @property
    def token(self) -> str:
        return TOKEN

    @property
    def scheduler_kubeconfig(self) -> Path:
        """kube-scheduler's own."""
        return self._plane.component_kubeconfig(SCHEDULER)

    def scheduler_certificate(self) -> tuple[str, str]:
        """A client certificate with kube-scheduler's name, and its key, both PEM."""
        return self._clients.issued(f"system:{SCHEDULER}")

    def start(self, *rules: dict[str, Any]) -> None:
        if rules:  # it takes so long to start that clients come back meanwhile
            self.fault(*rules)
        for program in self._programs:
            self._run(program)
        if self._proxy is None:
            eventually(self._plane.serving_key.exists, START_SECONDS)
            self._proxy = FaultProxy(self._port, self._plane.server, self._plane.ca_file, self._plane.serving_key)
        eventually(self._serves, START_SECONDS)
        for program in self._plane.controllers():
            self._run(program)
        self._wait_until_furnished("default")
        self._wait_for_custom_kinds(200, 404)  # there are none before the chart is installed

    def close(self) -> None:
        super().close()
        if self._proxy is not None:
            self._proxy.close()

    def fault(self, *rules: dict[str, Any]) -> None:
        assert self._proxy is not None
        self._proxy.script(rules)

    def faults_left(self) -> int:
        assert self._proxy is not None
        return self._proxy.rules_left()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """The controllers go too: they would wait ever longer before they came back, and every test with them."""
        self._end(CONTROLLER_MANAGER, how)
        self._end(APISERVER, how)

    def compact(self) -> None:
        """etcd forgets, and so does the API server's cache when it starts anew."""
        etcd = f"http://{LOOPBACK}:{self._plane.etcd_port}/v3"
        with httpx.Client(timeout=PATIENCE_SECONDS) as http:
            status = http.post(f"{etcd}/maintenance/status", json={}).raise_for_status().json()
            request = {"revision": status["header"]["revision"], "physical": True}
            http.post(f"{etcd}/kv/compaction", json=request).raise_for_status()
        self.kill()
        self.start()

    def manager_connection(self) -> Connection:
        return self._speaking_as(identities.MANAGER)

    def agent_connection(self, node_name: str) -> Connection:
        """The Node has to exist."""
        return self._speaking_as(identities.AGENT, node_name)

    def add_namespace(self) -> str:
        name = super().add_namespace()
        self._wait_until_furnished(name)
        return name

    def _wait_until_furnished(self, namespace: str) -> None:
        """Pods are admitted with a service account, whose tokens are mounted beside the certificate."""
        client = self.client()

        def furnished() -> bool:
            try:
                client.get(SERVICEACCOUNTS, "default", namespace)
                client.get(CONFIGMAPS, "kube-root-ca.crt", namespace)
            except NotFound:
                return False
            return True

        eventually(furnished, START_SECONDS)

    def _wait_for_custom_kinds(self, *codes: int) -> None:
        """They are served later than it says it is ready: 404 until it knows them, 429 until it has read them."""
        kinds = (NODEMETRICS, CLUSTERCOLOCATIONPROFILES)
        with self.http() as http:
            eventually(lambda: all(http.get(kind.path()).status_code in codes for kind in kinds), START_SECONDS)

    def _speaking_as(self, service_account: str, node_name: str | None = None) -> Connection:
        token = identities.token(self.client(), service_account, node_name)
        return replace(self.connection, credentials=StaticToken(token))


def write_kubeconfig(path: Path, connection: Connection) -> Path:
    """A kubeconfig for a process that is to use the connection, whose credentials have to be a token."""
    token = (connection.credentials.authorization() or "").removeprefix("Bearer ")
    kubeconfig.write(path, connection.server, token, Path(connection.ca_file) if connection.ca_file else None)
    return path


def started(kind: str, directory: Path) -> ApiServer:
    """The API server that --cluster names."""
    return RealApiServer(directory) if kind == REAL else EmbeddedApiServer(directory)


def rule(action: str, path: str = "", *, method: str = "", times: int = 1, **more: object) -> dict[str, Any]:
    """A fault for the next `times` requests whose path and query match; 0 means all of them."""
    return {"action": action, "match": {"path": path, "method": method}, "times": times} | more
