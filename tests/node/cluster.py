"""A cluster with a real node, or two, from outside."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from deploy.local import ports
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.resources import NODES
from shared.kube.retry import Jitter, Retry
from tests.apiserver import binaries
from tests.apiserver.binaries import Unavailable
from tests.node import cgroups, kernel, programs, seed, tools
from tests.node.images import ROOT, Builder
from tests.node.keeper import UNSHARE
from tests.node.layout import NODE, SECOND, Kind, Layout
from tests.node.layout import NODES as NODE_NAMES
from tests.node.machine import CABLE
from tests.node.pod_cgroups import Cgroup
from tests.node.programs import may_lower_oom_scores
from tests.support import eventually

START_SECONDS = 180.0
VERSION = "0.1.0"

CABLE_NEEDED = "a pair of network devices (veth)"

# What a node in namespaces is made of, by what shows in namespaces of its own that it is to be had.
_ATTEMPTS = {
    "namespaces": "true",
    "an overlay of file systems": "mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work &&"
    " mount -t overlay overlay /usr -o lowerdir=/usr,upperdir=/mnt/upper,workdir=/mnt/work",
    CABLE_NEEDED: "ip link add one type veth peer name two",
    "a bridge between network devices": "ip link add bridge type bridge",
}


class Failed(HeadroomError):
    """A command inside the cluster failed."""


class NodeCluster:
    """Runs from its making until `close`, or until this process ends in any other way."""

    def __init__(self, parts: "Parts", logs: Path, port: int = 0) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.node.keeper"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.layout = Layout(
            directory=Path(self._told()),
            logs=logs,
            tools=parts.tools,
            assets=parts.assets,
            seed=parts.seed,
            kind=parts.kind,
            kernel=parts.kernel,
            image=parts.image,
            token=secrets.token_hex(16),
            port=ports.free(port),
        )
        self._first: dict[str, int] = {}  # process of each node
        try:
            self._start(self.layout)
            self._wait_until(lambda: self.layout.ca_file.exists() and self.serves(), NODE)
            eventually(lambda: self._is_ready(NODE), START_SECONDS)
        except BaseException:
            self.close()
            raise

    def add_node(self) -> None:
        """Starts the second node, and returns once it is ready for pods."""
        logs = self.layout.logs / SECOND
        logs.mkdir()
        layout = replace(self.layout, node=SECOND, logs=logs)
        self._tell(layout.to_json())
        self._told()
        self._first[SECOND] = eventually(lambda: self._first_process(SECOND))
        if layout.kernel is None:
            self._plug_in(layout)
        eventually(lambda: self._is_ready(SECOND), START_SECONDS)

    def _plug_in(self, layout: Layout) -> None:
        """Connects the second node's namespaces with the first one's."""
        first = self._first[NODE]
        # Its network namespace has to be its own before a device can go there.
        eventually(lambda: _network_of(self._first[SECOND]) not in (_network_of(os.getpid()), _network_of(first)))
        into = ["nsenter", f"--target={first}", "--net", "ip"]
        for line in (f"link set {CABLE} netns {self._first[SECOND]}", f"route add {layout.pods} via {layout.node_ip}"):
            self._run([*into, *line.split()], None)

    def _start(self, layout: Layout) -> None:
        self._tell(layout.to_json())
        self._told()
        self._first[layout.node] = eventually(lambda: self._first_process(layout.node))

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.layout.kubeconfig("admin")

    @property
    def connection(self) -> Connection:
        """As an administrator speaks to the API server."""
        return Connection(self.layout.server, StaticToken(self.layout.token), ca_file=str(self.layout.ca_file))

    @property
    def nodes(self) -> list[str]:
        """Those that have been started."""
        return list(self._first)

    @property
    def name(self) -> str:
        """By which the machine's cgroups know it."""
        return self.layout.directory.name

    def client(self) -> Client:
        """A client that hurries."""
        return Client(self.connection, "test", retry=Retry(deadline_seconds=20, jitter=Jitter(0.05, 0.5)))

    def kubectl(self, *words: str | Path, text: str | None = None) -> str:
        """What it prints; it has to succeed."""
        return self._run([str(self.layout.assets / "kubectl"), *map(str, words)], text)

    def helm(self, *words: str | Path) -> str:
        """What it prints; it has to succeed."""
        return self._run([str(self.layout.assets / "helm"), *map(str, words)], None)

    def state(self) -> str:
        """Pods, their owners, nodes and Events, to find out why something does not happen."""
        everywhere = ("get", "--all-namespaces")
        pods = self.kubectl(*everywhere, "pods,replicasets,daemonsets", "--output=wide")
        events = self.kubectl(*everywhere, "events", "--sort-by=.lastTimestamp")
        return "\n".join([pods, self.kubectl("describe", "nodes"), events])

    @contextlib.contextmanager
    def forwarded(self, namespace: str, pod: str, port: int) -> Iterator[int]:
        """A port of this machine that leads to one of the pod's."""
        words = ("port-forward", f"--namespace={namespace}", pod, f":{port}", "--address=127.0.0.1")
        process = subprocess.Popen(
            [str(self.layout.assets / "kubectl"), *words],
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline()  # Forwarding from 127.0.0.1:40000 -> 9316
                if not said:
                    raise Failed(f"no way to port {port} of {pod}")
                yield int(said.split(" -> ")[0].rpartition(":")[2])
            finally:
                process.kill()

    def inside(self, *command: str | Path, node: str = NODE) -> str:
        """What the command prints that runs on the node; it has to succeed."""
        words = [str(word) for word in command]
        if self.layout.kernel is None:
            target = f"--target={self._first[node]}"
            return self._run(["nsenter", target, "--mount", "--net", "--pid", "--uts", *words], None)
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(str(replace(self.layout, node=node).commands))
            way.sendall(f"{json.dumps(words)}\n".encode())
            with way.makefile("rb") as answer:
                status, output, errors = json.load(answer)
        if status:
            raise Failed(f"{' '.join(words)}: {errors.strip()[-2000:]}\n{output[-2000:]}")
        return str(output)

    def at_api_server(self, *command: str | Path) -> str:
        """What the command prints that runs on the API server's network; it has to succeed."""
        if self.layout.kernel is None:
            return self.inside(*command)
        return self._run(["nsenter", f"--target={self._first[NODE]}", "--net", *map(str, command)], None)

    def in_network(self, node: str) -> list[str]:
        """The words that run a command of this machine in the network of a node that shares its kernel."""
        return ["nsenter", f"--target={self._first[node]}", "--net"]

    def process(self, name: str) -> int:
        """The number of a program of the first node or of the control plane, as the kernel that it runs on counts."""
        return int((self.layout.process_ids / name).read_text())

    def cgroup(self, *path: str) -> Cgroup:
        """A cgroup of the first node, by its path below the kubelet's tree with the driver cgroupfs."""
        systemd = self.layout.kind is Kind.SYSTEMD
        return Cgroup(self.inside, path, v2=self.layout.kernel is not None, systemd=systemd)

    def pod_cgroup(self, pod: Mapping[str, Any]) -> Cgroup:
        """The pod's own."""
        qos = {"Guaranteed": (), "Burstable": ("burstable",), "BestEffort": ("besteffort",)}[pod["status"]["qosClass"]]
        return self.cgroup(*qos, f"pod{pod['metadata']['uid']}")

    def signal(self, process: int | str, how: signal.Signals) -> None:
        """Sends a program, or a process by its number on the first node, a signal."""
        pid = self.process(process) if isinstance(process, str) else process
        if self.layout.kernel is not None and process in {each.name for each in programs.control_plane(self.layout)}:
            os.kill(pid, how)
        else:
            self.inside("kill", f"-{how.value}", str(pid))

    def kill(self, name: str) -> None:
        """kill -9, and back again: returns once another process runs, unless it is held."""
        killed = self.process(name)
        self.signal(name, signal.SIGKILL)
        if not (self.layout.held / name).exists():
            eventually(lambda: self.process(name) != killed)

    def hold(self, name: str) -> None:
        """From now on a program that ends is not started again."""
        (self.layout.held / name).touch()

    def release(self, name: str) -> None:
        """It is started again."""
        (self.layout.held / name).unlink()

    def serves(self) -> bool:
        """Whether the API server is ready."""
        with contextlib.suppress(httpx.HTTPError, OSError):
            verify = ssl.create_default_context(cafile=self.layout.ca_file)
            headers = {"Authorization": f"Bearer {self.layout.token}"}
            answer = httpx.get(f"{self.layout.server}/readyz", headers=headers, verify=verify, timeout=5)
            return answer.is_success
        return False

    def close(self) -> None:
        """Ends it, and returns once nothing is left."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.wait()
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()

    def _wait_until(self, condition: Callable[[], bool], node: str) -> None:
        def holds() -> bool:
            if not Path(f"/proc/{self._first[node]}").exists():
                log = self.layout.logs / ("" if node == NODE else node) / "init.log"
                raise Failed(f"{node} ended: {log.read_text()[-2000:]}")
            return condition()

        eventually(holds, START_SECONDS)

    def _is_ready(self, name: str) -> bool:
        for node in self.client().list(NODES).items:
            conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", [])}
            if node["metadata"]["name"] == name and conditions.get("Ready") == "True":
                return True
        return False

    def _first_process(self, node: str) -> int:
        """The node's first one, or the one that its kernel is the child of; 0 while there is none."""
        made, place = _children(self._keeper.pid), NODE_NAMES.index(node)
        if place >= len(made):
            return 0
        if self.layout.kernel is not None:
            return made[place] if replace(self.layout, node=node).commands.exists() else 0
        return next(iter(_children(made[place])), 0)

    def _run(self, command: Sequence[str], text: str | None) -> str:
        done = subprocess.run(
            command,
            input=text,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}\n{done.stdout[-2000:]}")
        return done.stdout

    @property
    def environment(self) -> Mapping[str, str]:
        """By which kubectl and Helm find the cluster, and keep their own files in its folder."""
        homes = {f"HELM_{part}_HOME": str(self.layout.directory / "helm") for part in ("CACHE", "CONFIG", "DATA")}
        return homes | {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.layout.directory / "kubectl")}

    def _tell(self, line: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{line}\n")
        self._keeper.stdin.flush()

    def _told(self) -> str:
        assert self._keeper.stdout is not None
        if line := self._keeper.stdout.readline().strip():
            return line
        raise Failed("the cluster's keeper ended before it began")


def _children(pid: int) -> list[int]:
    """The oldest comes first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _network_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


class Parts:
    """What a cluster is started from, built where it is missing. Raises Unavailable."""

    def __init__(self, environment: Mapping[str, str], kind: Kind) -> None:
        check_machine(kind)
        cache = binaries.cache_home(environment) / "node"
        cache.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.kernel = None if kind is Kind.V1 else _kernel(cache)
        self.assets = binaries.assets(environment, ("kubelet",))
        with binaries.locked(cache / "lock"):
            self.tools = tools.unpacked(cache)
            builder = Builder(cache, self.tools)
            ours = [builder.headroom(component, VERSION) for component in ("agent", "manager")]
            images = (builder.probe(environment), *ours)
            self.seed = seed.made(cache, self.tools, images)
            self.image = None if kind is Kind.V1 else seed.disk(self.seed)


def _kernel(cache: Path) -> Path:
    """Of a node that has its own; nodes without one can start while it is built."""
    with binaries.locked(cache / "kernel.lock"):
        return kernel.built(cache)


def not_run(kind: Kind) -> list[str]:
    """What this tier does not show on this machine, each with the reason."""
    if kind is not Kind.V1:
        return []
    lines = ["NOT RUN: cgroup v2, since the controllers of this machine are mounted as v1"]
    if not may_lower_oom_scores():
        lines.append(
            "NOT RUN: the order of the OOM killer, since without CAP_SYS_RESOURCE oom_score_adj cannot be lowered"
        )
    return lines


def check_machine(kind: Kind) -> None:
    """Raises Unavailable with the reason why no node can be started here."""
    if os.geteuid() != 0:
        raise Unavailable("a node and its images are made with namespaces and mounts, which only root may make")
    for program in ("unshare", "nsenter", "ip", "mount", "openssl", "go"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not on PATH")
    if kind is Kind.V1:
        cgroups.check()
    attempts = _ATTEMPTS if kind is Kind.V1 else {CABLE_NEEDED: _ATTEMPTS[CABLE_NEEDED]}
    around = UNSHARE if kind is Kind.V1 else ("unshare", "--net")
    for wanted, attempt in attempts.items():
        done = subprocess.run([*around, "sh", "-e", "-c", attempt], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{wanted} cannot be had here: {done.stderr.strip()}")
