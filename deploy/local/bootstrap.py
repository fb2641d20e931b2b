"""The initial objects of a local cluster: namespaces, colocation configuration, sample pods. Existing objects stay."""

import contextlib
import threading
from collections.abc import Iterable

import msgspec

from deploy.local import profile as profiles
from deploy.local.profile import ClusterProfile
from shared import names
from shared.api.core import Node, Pod
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Forbidden
from shared.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODS

SERVICE_ACCOUNT_SECONDS = 15.0


def install(client: Client, profile: ClusterProfile) -> bool:
    """Creates the product's namespace and ConfigMap; False if an earlier configuration exists, which stays."""
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
    """Creates the namespace unless it exists."""
    with contextlib.suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def create_pods(client: Client, pods: Iterable[dict[str, object]], namespace: str) -> None:
    """Creates the missing pods. A new namespace refuses pods until it has its service account."""
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
    """Whether every existing pod runs or has completed, and every simulated node has its agent."""
    phases = {pod.status.phase for pod in client.list(PODS, into=Pod).items}
    simulated = client.list(NODES, into=Node, label_selector=f"{names.LABEL_SIMULATED}=true").items
    watched = [node for node in simulated if node.metadata.annotation(names.ANNOTATION_AGENT_ADDRESS)]
    return phases.isdisjoint({"", "Pending"}) and len(watched) >= simulated_nodes
