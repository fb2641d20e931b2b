"""Buys what `headroom plan` says as real Nodes, and lets the real kube-scheduler bind the pods to them.

The pods of a round are alike, so that the order in which the scheduler takes them does not matter.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deploy import plan
from deploy.plan import PlanSettings
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.config import SimulatedCloud
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from shared.api.core import Pod
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, PODS
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer
from tests.support.random_clusters import DISK, HOSTNAME, REQUIRED, ZONE, Json

PATIENCE_SECONDS = 180.0
_TAINT = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
_GROUPS: list[dict[str, Any]] = [
    {"name": "a", "machine_type": "n1-standard-4", "zone": "a", "max": 20},
    {"name": "b", "machine_type": "n1-standard-4", "zone": "b", "max": 20, "labels": {DISK: "ssd"}},
    {"name": "big", "machine_type": "n1-standard-8", "zone": "a", "max": 20},
    {"name": "tainted", "machine_type": "n1-standard-2", "zone": "b", "max": 20, "taints": [_TAINT], "price": 0.01},
]


@dataclass
class Bought:
    """Of rounds; `problems` are sentences."""

    rounds: int = 0
    nodes: int = 0
    idle: int = 0
    promised: int = 0
    bound: int = 0
    problems: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running(server: ApiServer, directory: Path, seed: int) -> Iterator["Purchases"]:
    with kube_scheduler.running({}, server.kubeconfig, directory):
        yield Purchases(server, directory, seed)


class Purchases:
    """Rounds from one seed, each in an empty cluster."""

    def __init__(self, server: ApiServer, directory: Path, seed: int) -> None:
        self._client: Client = server.client()
        self._namespace = server.add_namespace()
        self._chance = random.Random(seed)
        file = directory / "cloud.yaml"
        file.write_text(yaml.safe_dump({"groups": _GROUPS}))
        self._cloud: SimulatedCloud = MachineOffer(file).cloud
        self._settings = PlanSettings(
            kubeconfig=str(server.kubeconfig), cloud_config=str(file), scale_down_enabled=False
        )
        self._number = 0

    def buy(self, rounds: int) -> Bought:
        found = Bought()
        for number in range(rounds):
            try:
                self._round(_KINDS[number % len(_KINDS)], found)
            finally:
                self._clear()
        return found

    def _round(self, kind: Callable[[random.Random], Json], found: Bought) -> None:
        spec = kind(self._chance)
        for group in self._chance.sample(("a", "b"), self._chance.randint(0, 1)):
            self._add_node(group)
        names = self._create(spec, self._chance.randint(1, 7))
        eventually(lambda: all(map(_is_judged, self._pods(names))), PATIENCE_SECONDS)
        waiting = {pod.metadata.name for pod in self._pods(names) if not pod.spec.node_name}
        answer = plan.plan(self._settings).answer
        promised = sum(each.triggered + each.on_nodes for each in answer.pending)
        more = {each.group: each.to_size - each.from_size for each in answer.decisions if each.to_size > each.from_size}
        nodes = [self._add_node(group) for group, count in more.items() for _ in range(count)]
        bound = self._bound_eventually(waiting, promised)
        idle = set(nodes) - {pod.spec.node_name for pod in self._pods(names)}
        found.rounds += 1
        found.nodes += len(nodes)
        found.promised += promised
        found.bound += bound
        found.idle += len(idle)
        if bound < promised or idle:
            said = sorted({_message(pod) for pod in self._pods(waiting)} - {""})
            what = f"{promised} of {len(waiting)} pods promised for {more}, {bound} bound, idle: {sorted(idle)}"
            found.problems.append(f"{what}; {said}; {spec}")

    def _create(self, spec: Json, count: int) -> set[str]:
        names = set()
        for _ in range(count):
            self._number += 1
            name = f"p{self._number}"
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": "web"}},
                "spec": spec,
            }
            self._client.create(PODS, body, self._namespace)
            names.add(name)
        return names

    def _bound_eventually(self, waiting: set[str], promised: int) -> int:
        def bound() -> int:
            return sum(bool(pod.spec.node_name) for pod in self._pods(waiting))

        with contextlib.suppress(AssertionError):
            eventually(lambda: bound() >= promised, PATIENCE_SECONDS)
        return bound()

    def _add_node(self, group: str) -> str:
        self._number += 1
        config = next(each for each in self._cloud.groups if each.name == group)
        made = fake_nodes.node(f"{group}-{self._number}", config, self._cloud)
        body = fake_nodes.registration(made, 0, time.time(), ready=True)
        self._client.create(NODES, body)
        self._client.patch(NODES, made.metadata.name, {"spec": {"taints": list(made.spec.taints or ())}})
        return made.metadata.name

    def _pods(self, names: set[str]) -> list[Pod]:
        listed = self._client.list(PODS, self._namespace, into=Pod).items
        return [pod for pod in listed if pod.metadata.name in names]

    def _clear(self) -> None:
        for resource in (PODS, NODES):
            for item in self._client.list(resource).items:
                meta = item["metadata"]
                with contextlib.suppress(NotFound):
                    self._client.delete(resource, meta["name"], meta.get("namespace"), grace_period_seconds=0)


def _is_judged(pod: Pod) -> bool:
    return bool(pod.spec.node_name or _message(pod))


def _message(pod: Pod) -> str:
    return next((each.message for each in pod.status.conditions or () if each.reason == "Unschedulable"), "")


def _plain(chance: random.Random) -> Json:
    asked = {"cpu": chance.choice(("500m", "900m", "1700m")), "memory": chance.choice(("256Mi", "1Gi"))}
    container = {"name": "c", "image": "none", "resources": {"requests": asked}}
    return {"containers": [container]}


def _zone(chance: random.Random) -> Json:
    return {**_plain(chance), "nodeSelector": {ZONE: chance.choice("ab")}}


def _disk(chance: random.Random) -> Json:
    key = {"key": DISK, "operator": chance.choice(("Exists", "DoesNotExist"))}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [key]}]}
    return {**_plain(chance), "affinity": {"nodeAffinity": {REQUIRED: terms}}}


def _tolerating(chance: random.Random) -> Json:
    return {**_plain(chance), "tolerations": [{"key": "dedicated", "operator": "Exists"}]}


def _apart(chance: random.Random) -> Json:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {**_plain(chance), "affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def _together(chance: random.Random) -> Json:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {**_plain(chance), "affinity": {"podAffinity": {REQUIRED: [term]}}}


def _spread(chance: random.Random) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    constraint = {
        "topologyKey": chance.choice((ZONE, HOSTNAME)),
        "maxSkew": chance.randint(1, 2),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": chance.choice((selector, selector, {})),
    }
    return {**_plain(chance), "topologySpreadConstraints": [constraint]}


def _port(chance: random.Random) -> Json:
    spec = _plain(chance)
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    return spec


def _initialised(chance: random.Random) -> Json:
    spec = _plain(chance)
    big = {"name": "i", "image": "none", "resources": {"requests": {"cpu": "2500m"}}}
    return {**spec, "initContainers": [{**big, **({"restartPolicy": "Always"} if chance.random() < 0.5 else {})}]}


_KINDS: tuple[Callable[[random.Random], Json], ...] = (
    _plain,
    _zone,
    _disk,
    _tolerating,
    _apart,
    _together,
    _spread,
    _port,
    _initialised,
    _spread,
)
