"""Where the parts of a cluster find each other. Addresses are those of its own network, which nothing else reaches."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

NODE, SECOND = NODES = ("node-1", "node-2")
NODE_IP = "10.77.0.1"  # of the first node
API_IP = "10.96.0.1"  # the Service `kubernetes`, and at once the address of the API server: no proxy is needed
API_PORT = 443
DNS_IP = "10.96.0.10"  # nobody is there: nothing here asks for names
SERVICES = "10.96.0.0/16"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"

HOSTS = ("127.0.0.1", API_IP, NODE_IP, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""Whom the API server's certificate speaks for."""


@dataclass(frozen=True)
class Layout:
    """A cluster's folder, the folder of its logs, and what it is made from, as one of its nodes sees it.

    The folder outlives no cluster.
    """

    directory: Path
    logs: Path
    tools: Path
    assets: Path
    seed: Path
    token: str
    port: int
    node: str = NODE

    @property
    def number(self) -> int:
        """Counted from 1, on which all that is not a node's own runs."""
        return 1 + NODES.index(self.node)

    @property
    def node_ip(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def pods(self) -> str:
        """Addresses of the node's pods."""
        return f"10.78.{self.number}.0/24"

    @property
    def own(self) -> Path:
        """The folder of what is this node's alone."""
        return self.directory / self.node

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
        paths = {name: Path(fields[name]) for name in ("directory", "logs", "tools", "assets", "seed")}
        return cls(**fields | paths)
