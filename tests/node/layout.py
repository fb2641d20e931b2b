"""Where the parts of a cluster find each other. Addresses are those of its own network, which nothing else reaches."""

import enum
import json
from dataclasses import asdict, dataclass
from pathlib import Path

NODE, SECOND = NODES = ("node-1", "node-2")
NODE_IP = "10.77.0.1"  # of the first node
API_IP = "10.96.0.1"  # the Service `kubernetes`, and at once the address of the API server: no proxy is needed
API_PORT = 443
COMMANDS_PORT = 7
DNS_IP = "10.96.0.10"  # nobody is there: nothing here asks for names
SERVICES = "10.96.0.0/16"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


class Kind(enum.StrEnum):
    """What a node is made of."""

    UML = "uml"  # a kernel of its own in user mode, with cgroup v2
    SYSTEMD = "uml-systemd"  # likewise, with systemd, by which the kubelet makes its cgroups
    V1 = "v1"  # namespaces of this machine's kernel, with its cgroups of v1


DEFAULT = Kind.V1

HOSTS = ("127.0.0.1", API_IP, NODE_IP, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""Whom the API server's certificate speaks for."""


@dataclass(frozen=True)
class Layout:
    """A cluster's folder, the folder of its logs, and what it is made from, as one of its nodes sees it.

    The folder outlives no cluster. A node with a `kernel` of its own has `image` as its disk when it starts.
    """

    directory: Path
    logs: Path
    tools: Path
    assets: Path
    seed: Path
    token: str
    port: int
    kind: Kind = DEFAULT
    kernel: Path | None = None
    image: Path | None = None
    node: str = NODE

    @property
    def number(self) -> int:
        """Counted from 1, on which all that is not a node's own runs."""
        return 1 + NODES.index(self.node)

    @property
    def node_ip(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def outer_ip(self) -> str:
        """Of the API server's end of the cable to a node with a kernel of its own."""
        return f"10.79.{self.number}.1"

    @property
    def inner_ip(self) -> str:
        """Of the node's end of it."""
        return f"10.79.{self.number}.2"

    @property
    def pods(self) -> str:
        """Addresses of the node's pods."""
        return f"10.78.{self.number}.0/24"

    @property
    def own(self) -> Path:
        """The folder of what is this node's alone."""
        return self.directory / self.node

    @property
    def file(self) -> Path:
        """Where this is kept."""
        return self.directory / f"{self.node}.json"

    @property
    def disk(self) -> Path:
        """The folder of what this node's programs write on disk."""
        return self.own / "disk"

    @property
    def commands(self) -> Path:
        """A socket, by which commands come into a node with a kernel of its own."""
        return self.directory / f"{self.node}.commands"

    @property
    def server(self) -> str:
        """For clients outside."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def ca_file(self) -> Path:
        return self.certificates / "ca.crt"

    @property
    def held(self) -> Path:
        """A program for which a file is here is not started again when it ends."""
        return self.own / "held"

    @property
    def process_ids(self) -> Path:
        """By program, as its own namespace counts."""
        return self.own / "pids"

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user}.kubeconfig"

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Layout":
        fields = json.loads(text)
        names = ("directory", "logs", "tools", "assets", "seed", "kernel", "image")
        paths = {name: Path(fields[name]) for name in names if fields[name] is not None}
        return cls(**fields | paths | {"kind": Kind(fields["kind"])})
