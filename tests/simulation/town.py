"""A simulated cluster without nodes and faults, for scripts: its cloud is the product's own, and users do as told."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from prometheus_client import CollectorRegistry

from manager.autoscaler.cloudprovider.simulated import fake_nodes, state_store
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.registry import Registry, decode_registry
from manager.autoscaler.scale_up import pending_pods
from manager.daemon_settings import DaemonSettings
from manager.main import Manager
from shared import names, settings
from shared.api.core import ConfigMap, Node, Pod
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import CONFIGMAPS, EVENTS, NODES, PODDISRUPTIONBUDGETS, PODS
from shared.stop import Stop
from tests.simulation.cluster import Cluster, Size
from tests.simulation.network import NoServer
from tests.simulation.virtual import EPOCH, WORLD, Process

T = TypeVar("T")

HOME, NAMESPACE = names.INSTALL_NAMESPACE, "default"
PATIENCE_SECONDS = 1800.0
LOOK_SECONDS = 2.0
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


def eventually(look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """The first true answer of `look`, which must come within these seconds of virtual time."""
    until = WORLD.now + seconds
    while not (found := look()):
        assert WORLD.now < until, f"not within {seconds:g} s"
        WORLD.park(LOOK_SECONDS)
    return found


class Town:
    """Its methods are for the task of a script."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._cluster = Cluster(Size(nodes=0, managers=0, agents=0), directory, seed)
        self._cluster.start_bare()
        self.client: Client = self._cluster.client("users")
        self.directory = directory
        self._file = directory / "offer.yaml"
        self._managers = 0
        self.wanted: dict[str, str] = {}  # cpu of the pods that a controller makes again, by name
        self.made_again: list[str] = []
        self._made: set[str] = set()
        WORLD.spawn(self._replicate, "replicas", Process("replicas"))

    def offer(self, *groups: dict[str, Any], **more: Any) -> None:
        """What the cloud has, from its next refresh on."""
        self._file.write_text(yaml.safe_dump({"groups": list(groups), **more}))

    def manager(self, *nodes: str, **given: Any) -> Manager:
        """Starts one, which leads without a Lease."""
        fixed = {"leader_elect": False, "cloud_provider": "simulated", "cloud_config": str(self._file), "nodes": nodes}
        chosen = settings.combine(DaemonSettings, fixed | given)
        made: list[Manager] = []

        def boot() -> None:
            registry, stop, serve = CollectorRegistry(), Stop(), NoServer
            client = self._cluster.client("manager", stop, registry)
            without_socket: Any = serve
            manager = Manager(chosen, client, SystemClock(), registry, serve=without_socket)
            manager.start()
            made.append(manager)

        self._managers += 1
        WORLD.spawn(boot, "boot", Process(f"manager-{self._managers}"))
        return eventually(lambda: made)[0]

    def pods(self, count: int, cpu: str = "1900m", prefix: str = "p", **spec: Any) -> None:
        for number in range(count):
            self._create_pod(f"{prefix}{number}", cpu, spec)

    def delete_pod(self, name: str) -> None:
        self.client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    def want(self, count: int, cpu: str = "1900m") -> None:
        """Pods `p0`, `p1` and so on, which a controller makes again when they end."""
        self.wanted |= {f"p{number}": cpu for number in range(count)}

    def spare(self, *names: str) -> None:
        """These are not wanted any more."""
        for name in names:
            del self.wanted[name]
            self._made.discard(name)
            with contextlib.suppress(NotFound):  # it has just been evicted
                self.delete_pod(name)

    def protect(self, name: str, at_least: int) -> None:
        spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": "web"}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        self.client.create(PODDISRUPTIONBUDGETS, body, NAMESPACE)

    @property
    def nodes(self) -> dict[str, Node]:
        found = self.client.list(NODES, into=Node, label_selector=f"{fake_nodes.LABEL_CLOUD}=true").items
        return {node.metadata.name: node for node in found}

    def tainted(self, key: str) -> list[str]:
        return [name for name, node in self.nodes.items() if any(each.key == key for each in node.spec.taints or ())]

    def eventually_running(self, count: int) -> dict[str, str]:
        """The node of each pod, once `count` pods run and no others exist."""

        def running() -> dict[str, str]:
            pods = self.client.list(PODS, NAMESPACE, into=Pod).items
            found = {pod.metadata.name: pod.spec.node_name for pod in pods if pod.status.phase == "Running"}
            return found if len(found) == count == len(pods) else {}

        return eventually(running)

    def eventually_bound(self, count: int) -> dict[str, str]:
        """The node of each bound pod, once there are `count` of them."""

        def bound() -> dict[str, str]:
            pods = self.client.list(PODS, NAMESPACE, into=Pod).items
            found = {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name}
            return found if len(found) == count else {}

        return eventually(bound)

    def eventually_unschedulable(self, count: int) -> None:
        def found() -> int:
            return sum(map(pending_pods.found_unschedulable, self.client.list(PODS, NAMESPACE, into=Pod).items))

        eventually(lambda: found() == count)

    def targets(self) -> dict[str, int]:
        """The target sizes of the cloud's groups."""
        groups = json.loads(self.data(state_store.CONFIG_MAP).get(state_store.KEY, '{"groups": {}}'))["groups"]
        return {name: entry.get("target", 0) for name, entry in groups.items()}

    def registry(self) -> Registry:
        text = self.data(names.REGISTRY_CONFIG_MAP)[registry_store.KEY]
        return decode_registry(text, "the script", EPOCH + WORLD.now)

    def data(self, name: str) -> dict[str, str]:
        """Of a ConfigMap in the manager's namespace; nothing without one."""
        try:
            return dict(self.client.get(CONFIGMAPS, name, HOME, into=ConfigMap).data or {})
        except NotFound:
            return {}

    def keep(self, name: str, **data: str) -> None:
        """Writes such a ConfigMap anew."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        with contextlib.suppress(NotFound):
            self.client.delete(CONFIGMAPS, name, HOME)
        self.client.create(CONFIGMAPS, body, HOME)

    def events(self, reason: str = "") -> list[dict[str, Any]]:
        """What managers have recorded, of that reason or of any."""
        found = self.client.list(EVENTS).items
        own = [event for event in found if event.get("source", {}).get("component") == "headroom-manager"]
        return [event for event in own if reason in ("", event["reason"])]

    def _create_pod(self, name: str, cpu: str, spec: dict[str, Any]) -> None:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        whole = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        metadata = {"name": name, "labels": {"app": "web"}, "annotations": SAFE}
        self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}, NAMESPACE)

    def _replicate(self) -> None:
        while True:
            WORLD.park(1.0)
            present = (
                {pod["metadata"]["name"] for pod in self.client.list(PODS, NAMESPACE).items} if self.wanted else ()
            )
            for name, cpu in list(self.wanted.items()):
                if name in present or name not in self.wanted:
                    continue
                with contextlib.suppress(AlreadyExists):
                    self._create_pod(name, cpu, {"nodeSelector": {"team": "web"}})
                    if name in self._made:
                        self.made_again.append(name)
                    self._made.add(name)


def latest(manager: Manager) -> dict[str, Any]:
    """The last iteration, as the API answers it."""
    found: dict[str, Any] = answered(log(manager).plan() or {})
    return found


def log(manager: Manager) -> Any:
    """The manager's decision log."""
    inner: Any = manager
    return inner._autoscaler.decision_log


def answered(answer: object) -> Any:
    """An answer of the API as JSON."""
    return msgspec.to_builtins(answer)


def decision(manager: Manager, group: str) -> dict[str, Any]:
    """What the last iteration decided for a group; nothing if it did not."""
    return next((each for each in latest(manager).get("decisions", []) if each["group"] == group), {})


def later_iterations(manager: Manager, count: int = 3) -> None:
    """Returns after `count` more iterations."""
    seen = latest(manager).get("iteration", 0)
    eventually(lambda: latest(manager).get("iteration", 0) >= seen + count)


def later_decisions(manager: Manager) -> None:
    """The same for a manager that may have just begun, and that sees enough to decide."""
    eventually(lambda: latest(manager).get("blocked_reason") == "")
    later_iterations(manager)
