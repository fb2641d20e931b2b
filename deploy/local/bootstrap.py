"""What a fresh local cluster is given: namespaces, the colocation configuration, sample pods. What exists stays."""

import contextlib
import threading
from collections.abc import Iterable

import msgspec

from deploy.local import profile as profiles
from deploy.local.profile import Profile
from deploy.local.simulated import annotations
from shared import names
from shared.api.core import Node, Pod
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Forbidden
from shared.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODS

SERVICE_ACCOUNT_SECONDS = 15.0


def install(client: Client, profile: Profile) -> bool:
    """The product's namespace and ConfigMap; False when an earlier configuration was there and is kept."""
    create_namespace(client, names.INSTALL_NAMESPACE)
    config = msgspec.json.format(msgspec.json.encode(profiles.colocation_config(profile)), indent=2).decode()
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.CONFIG_MAP, "namespace": names.INSTALL_NAMESPACE},
        "data": {names.CONFIG_KEY_COLOCATION: config},
    }
    try:
        client.create(CONFIGMAPS, config_map, names.INSTALL_NAMESPACE)
    except AlreadyExists:
        return False
    return True


def create_namespace(client: Client, name: str) -> None:
    """Unless it is there already."""
    with contextlib.suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def create_pods(client: Client, pods: Iterable[dict[str, object]], namespace: str) -> None:
    """Those that are not there yet. A young namespace refuses pods until its service account has been made."""
    deadline = client.clock.monotonic() + SERVICE_ACCOUNT_SECONDS
    for pod in pods:
        while True:
            try:
                client.create(PODS, pod, namespace)
            except AlreadyExists:
                pass
            except Forbidden:
                if client.clock.monotonic() > deadline:
                    raise
                client.clock.wait(threading.Event(), 0.1)
                continue
            break


def has_settled(client: Client, simulated_nodes: int) -> bool:
    """Whether every pod there is runs, or has run, and every simulated node has its agent."""
    phases = {pod.status.phase for pod in client.list(PODS, into=Pod).items}
    simulated = client.list(NODES, into=Node, label_selector=f"{names.LABEL_SIMULATED}=true").items
    watched = [node for node in simulated if node.metadata.annotation(annotations.AGENT_ADDRESS)]
    return phases.isdisjoint({"", "Pending"}) and len(watched) >= simulated_nodes
