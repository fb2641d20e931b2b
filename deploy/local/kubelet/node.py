"""A Node and its heartbeat, for this machine and for simulated nodes."""

import logging
import platform
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from shared import names, quantity
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client, Patch
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.node_heartbeat import KUBELET_VERSION, conditions, renew_lease
from shared.kube.resources import NODES
from shared.quantity import Resources

logger = logging.getLogger(__name__)

BEAT_SECONDS = 10.0
STATUS_BEATS = 30  # every 30th heartbeat repeats the status, like kubelet every five minutes
POD_CAPACITY = 110
ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class ReportedNode:
    """The report of one node about itself. `kubelet_port` 0: it has no HTTP endpoint."""

    name: str
    size: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    kubelet_port: int = 0
    runtime: str = "headroom://0.1.0"


def host_name() -> str:
    """This machine's name as a valid Node name: lower-case letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.") or "localhost"


def host_size() -> Resources:
    return Resources((psutil.cpu_count() or 1) * quantity.MILLI_PER_CORE, psutil.virtual_memory().total)


def node_object(facts: ReportedNode, now: float) -> dict[str, object]:
    """The Node object for the registration."""
    taints = [dict(taint) for taint in facts.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": _labels(facts), "annotations": dict(facts.annotations)},
        "spec": {"taints": taints} if taints else {},
        "status": node_status(facts, now),
    }


def node_status(facts: ReportedNode, now: float) -> dict[str, object]:
    """The part of the status that the kubelet owns; a merge keeps extended resources that other clients wrote."""
    amounts = facts.size.quantities() | {"pods": str(POD_CAPACITY)}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": conditions(now),
        # Reports no Hostname: API servers would resolve it to reach the kubelet, and it need not be resolvable.
        "addresses": [{"type": "InternalIP", "address": ADDRESS}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.kubelet_port}},
        "nodeInfo": {
            "architecture": _architecture(),
            "containerRuntimeVersion": facts.runtime,
            "kernelVersion": platform.release(),
            "kubeletVersion": KUBELET_VERSION,
            "operatingSystem": platform.system().lower(),
            "osImage": platform.platform(terse=True),
        },
    }


class NodeHeart:
    """Registers one node and sends its heartbeats. Does not recreate a Node that is deleted meanwhile."""

    def __init__(self, client: Client, facts: ReportedNode, clock: Clock) -> None:
        self._client = client
        self._facts = facts
        self._clock = clock
        self._uid = ""
        self._beats = 0

    def register(self) -> None:
        """Creates the Node, or updates an existing one."""
        body = node_object(self._facts, self._clock.now())
        try:
            self._uid = self._client.create(NODES, body).uid
        except AlreadyExists:
            patch = {"metadata": body["metadata"]}
            self._uid = self._client.patch(NODES, self._facts.name, patch, kind=Patch.STRATEGIC).uid
        self._write_status()
        logger.info("node registered", extra={"node": self._facts.name, **self._facts.size.quantities()})

    def beat(self) -> None:
        """Sends one heartbeat; never raises for API errors, because the next one follows soon."""
        try:
            renew_lease(self._client, self._facts.name, self._uid, self._clock.now())
            self._beats += 1
            if self._beats % STATUS_BEATS == 0:
                self._write_status()
        except NotFound:
            logger.info("heartbeat without a Node", extra={"node": self._facts.name})
        except HeadroomError as error:
            logger.warning("heartbeat not written: %s", error, extra={"node": self._facts.name})

    def run(self, stop: threading.Event) -> None:
        """Registers the node, then sends heartbeats until `stop`."""
        self.register()
        while not stop.is_set():
            self.beat()
            self._clock.wait(stop, BEAT_SECONDS)

    def _write_status(self) -> None:
        # A strategic patch merges the resource maps, so it keeps what the manager wrote there.
        patch = {"status": node_status(self._facts, self._clock.now())}
        self._client.patch(NODES, self._facts.name, patch, kind=Patch.STRATEGIC, subresource="status")


def _labels(facts: ReportedNode) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": facts.name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": _architecture(),
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        **facts.labels,
    }


def _architecture() -> str:
    """Go's name of the architecture."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
