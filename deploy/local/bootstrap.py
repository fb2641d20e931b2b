"""What a fresh local cluster is given: namespaces, the colocation configuration, sample pods. What exists stays."""

import contextlib
from collections.abc import Iterable

import msgspec

from deploy.local import profile as profiles
from deploy.local.profile import Profile
from deploy.local.simulated import annotations
from shared import names
from shared.api.core import Node, Pod
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists
from shared.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODS


def install(client: Client, profile: Profile) -> bool:
    """The product's namespace and ConfigMap; False when an earlier configuration was there and is kept."""
    with contextlib.suppress(AlreadyExists):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.INSTALL_NAMESPACE}}
        client.create(NAMESPACES, namespace)
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


def create_pods(client: Client, pods: Iterable[dict[str, object]], namespace: str) -> None:
    """Those that are not there yet."""
    for pod in pods:
        with contextlib.suppress(AlreadyExists):
            client.create(PODS, pod, namespace)


def has_settled(client: Client, simulated_nodes: int) -> bool:
    """Whether every pod there is runs, or has run, and every simulated node has its agent."""
    phases = {pod.status.phase for pod in client.list(PODS, into=Pod).items}
    simulated = client.list(NODES, into=Node, label_selector=f"{names.LABEL_SIMULATED}=true").items
    watched = [node for node in simulated if node.metadata.annotation(annotations.AGENT_ADDRESS)]
    return phases.isdisjoint({"", "Pending"}) and len(watched) >= simulated_nodes


def kubeconfig(server: str, token: str) -> dict[str, object]:
    """A kubeconfig for `server` with one context."""
    name = "headroom"
    # kubectl sends no bearer token over plain http; a user in the URL it sends everywhere, and the server takes its
    # password for the token.
    scheme, _, address = server.partition("://")
    server = f"{scheme}://{name}:{token}@{address}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
