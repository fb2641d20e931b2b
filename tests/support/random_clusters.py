"""Random nodes and pods for which a random pod mostly has a node, as bodies for the API server to create."""

import random
from collections.abc import Callable
from typing import Any

from shared.api.dra import IMPLICIT_RESOURCE_PREFIX

Json = dict[str, Any]

ZONE, HOSTNAME, DISK, CORES = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/disk", "cores"
WIDGETS = "example.com/widgets"
RUNTIME_CLASS = "heavy"
RESTARTS_ALL = "RestartAllContainersOnContainerExits"  # a feature that nodes declare
TERMINATING, FINISHED = "terminating", "finished"  # what becomes of a placed pod, by its label FATE
FATE = "fate"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_TAINTS = (
    {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "b", "effect": "NoExecute"},
    {"key": "spot", "value": "", "effect": "NoSchedule"},
    {"key": "soft", "value": "", "effect": "PreferNoSchedule"},
)
_TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
    {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
)
_APPS = ("web", "db", "cache")
_PORTS = (8080, 8443)
DRIVER = "gpu.example.com"
ACCELERATORS = "example.com/accelerators"  # served by devices
_LARGE = f'device.attributes["{DRIVER}"].memoryGi >= 80'


def _device_class(name: str, *expressions: str, extended: str | None = None) -> Json:
    selectors = [{"cel": {"expression": each}} for each in (f'device.driver == "{DRIVER}"', *expressions)]
    spec = {"selectors": selectors, "extendedResourceName": extended}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value},
    }


# What pods refer to, and what exists before the first cluster.
DEVICE_CLASSES = (_device_class("gpu", extended=ACCELERATORS), _device_class("large-gpu", _LARGE))
RUNTIME = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": RUNTIME_CLASS},
    "handler": "none",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}},
}
NAMESPACE_LABELS: tuple[dict[str, str], ...] = ({"team": "red"}, {"team": "blue"}, {})


class RandomClusters:
    """Draws clusters from a seed; `namespaces` exist, with `NAMESPACE_LABELS` in their order."""

    def __init__(self, seed: int, namespaces: tuple[str, ...]) -> None:
        self._chance = random.Random(seed)
        self._namespaces = namespaces
        self._number = 0
        self.claims: dict[str, Json] = {}  # by pod
        self._shared: list[tuple[str, str]] = []  # by namespace and name, allocated claims of placed pods

    def nodes(self) -> list[Json]:
        """The nodes of a new cluster, without the taint of nodes that are not ready."""
        self._number += 1
        return [self._node(f"n{self._number}-{index}") for index in range(self._chance.randint(5, 9))]

    def slices(self, nodes: list[Json]) -> list[Json]:
        """The devices of some of these nodes."""
        found = []
        for node in nodes:
            name = node["metadata"]["name"]
            if self._chance.random() < 0.5:
                sizes = [self._chance.choice((40, 80)) for _ in range(self._chance.randint(1, 3))]
                devices = [
                    {"name": f"d{number}", "attributes": {"memoryGi": {"int": size}}}
                    for number, size in enumerate(sizes)
                ]
                pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
                found.append(
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceSlice",
                        "metadata": {"name": name},
                        "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices},
                    }
                )
        return found

    def allocated(self, slices: list[Json], placed: list[Json]) -> list[Json]:
        """Claims of placed pods, with their status: some have a device of their node."""
        found = []
        for each in slices:
            node = each["spec"]["nodeName"]
            pod = next((pod for pod in placed if pod["spec"]["nodeName"] == node), None)
            if pod is None or FATE in pod["metadata"]["labels"] or self._chance.random() < 0.4:
                continue
            name = pod["metadata"]["name"]
            claim = self._claim(name, pod["metadata"]["namespace"], [_request("one", "gpu", 1)])
            self._use(pod["spec"], name)
            there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            device = self._chance.choice(each["spec"]["devices"])["name"]
            results = [{"request": "one", "driver": DRIVER, "pool": node, "device": device}]
            allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [there]}}
            found.append({**claim, "status": {"allocation": allocation}})
        self._shared = [(claim["metadata"]["namespace"], claim["metadata"]["name"]) for claim in found]
        return found

    def placed(self, nodes: list[Json]) -> list[Json]:
        """Pods on these nodes, which tolerate everything, or taints would have them evicted."""
        chance, found = self._chance, []
        for node in nodes:
            for _ in range(chance.choice((0, 1, 1, 2, 3))):
                cpu, memory = f"{chance.choice((50, 300, 900))}m", f"{chance.choice((64, 512, 1500))}Mi"
                spec: Json = {"nodeName": node["metadata"]["name"], "tolerations": [{"operator": "Exists"}]}
                spec["containers"] = [_container("c", cpu=cpu, memory=memory)]
                if chance.random() < 0.15:
                    spec["containers"][0]["ports"] = [self._port()]
                if chance.random() < 0.1:
                    spec["affinity"] = {"podAntiAffinity": {REQUIRED: [self._pod_term()]}}
                pod = self._pod(spec)
                if chance.random() < 0.15:
                    pod["metadata"]["labels"][FATE] = chance.choice((TERMINATING, FINISHED))
                found.append(pod)
        return found

    def pod(self) -> Json:
        """A pod that waits for a node."""
        spec: Json = {"containers": [self._asking("c")]}
        for share, feature in _FEATURES:
            if self._chance.random() < share:
                feature(self, spec)
        pod = self._pod(spec)
        if self._chance.random() < 0.15:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            self.claims[name] = self._claim(name, namespace, self._requests())
            self._use(spec, name)
        elif self._shared and self._chance.random() < 0.06:
            pod["metadata"]["namespace"], name = self._chance.choice(self._shared)
            self._use(spec, name)
        return pod

    def _requests(self) -> list[Json]:
        """Of a claim."""
        requests = (
            _request("any", "gpu", self._chance.randint(1, 2)),
            _request("large", "large-gpu", 1),
            _request("selected", "gpu", 1, _LARGE),
            _request("lost", "gpu", 1, f'device.attributes["{DRIVER}"].memoryGi < 10'),
        )
        return self._chance.sample(
            requests[:3] if self._chance.random() < 0.9 else requests, self._chance.choice((1, 1, 2))
        )

    @staticmethod
    def _claim(name: str, namespace: str, requests: list[Json]) -> Json:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": requests}},
        }

    @staticmethod
    def _use(spec: Json, claim: str) -> None:
        spec["resourceClaims"] = [{"name": "devices", "resourceClaimName": claim}]

    def _node(self, name: str) -> Json:
        chance = self._chance
        labels = {HOSTNAME: name, ZONE: chance.choice("aabbc"), CORES: str(chance.choice((2, 4, 8, 16)))}
        if chance.random() < 0.6:
            labels[DISK] = chance.choice(("ssd", "hdd"))
        if chance.random() < 0.1:
            del labels[ZONE]
        spec: Json = {"taints": [dict(taint) for taint in _TAINTS if chance.random() < 0.16]}
        if chance.random() < 0.12:
            spec = {"unschedulable": True, "taints": [*spec["taints"], UNSCHEDULABLE_TAINT]}
        amounts = {
            "cpu": chance.choice(("1900m", "3920m", "7910m")),
            "memory": chance.choice(("3Gi", "13Gi", "28Gi")),
            "ephemeral-storage": "40Gi",
            "pods": chance.choice(("3", "8", "110")),
        }
        if chance.random() < 0.4:
            amounts[WIDGETS] = str(chance.randint(1, 4))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
                "declaredFeatures": [RESTARTS_ALL] if chance.random() < 0.5 else [],
            },
        }

    def _pod(self, spec: Json) -> Json:
        self._number += 1
        labels = {"app": self._chance.choice(_APPS), "version": self._chance.choice("12")}
        metadata = {"name": f"p{self._number}", "namespace": self._chance.choice(self._namespaces), "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _asking(self, name: str) -> Json:
        chance = self._chance
        asked = {"cpu": f"{chance.choice((50, 200, 700, 1500, 2500))}m"}
        asked["memory"] = f"{chance.choice((64, 256, 1024, 4096))}Mi"
        if chance.random() < 0.12:
            asked["ephemeral-storage"] = f"{chance.choice((1, 30, 60))}Gi"
        return _container(name, **asked)

    def _port(self) -> Json:
        port: Json = {"containerPort": 80, "hostPort": self._chance.choice(_PORTS)}
        if self._chance.random() < 0.3:
            port["hostIP"] = self._chance.choice(("0.0.0.0", "10.0.0.1", "10.0.0.2"))
        if self._chance.random() < 0.3:
            port["protocol"] = "UDP"
        return port

    def _selector(self) -> Json | None:
        chance = self._chance
        drawn = chance.random()
        if drawn < 0.5:
            return {"matchLabels": {"app": chance.choice(_APPS)}}
        if drawn < 0.8:
            operator = chance.choice(("In", "NotIn"))
            return {"matchExpressions": [{"key": "app", "operator": operator, "values": list(chance.sample(_APPS, 2))}]}
        return {} if drawn < 0.95 else None

    def _pod_term(self) -> Json:
        chance = self._chance
        term: Json = {"topologyKey": chance.choice((ZONE, HOSTNAME, DISK))}
        if (selector := self._selector()) is not None:
            term["labelSelector"] = selector
            if selector and chance.random() < 0.15:
                term[chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
        drawn = chance.random()
        if drawn < 0.2:
            term["namespaces"] = [chance.choice(self._namespaces)]
        elif drawn < 0.4:  # with NotIn and DoesNotExist kube-scheduler matches every namespace: kubernetes#141526
            wanted = {"key": "team", "operator": "In", "values": [chance.choice(("red", "blue"))]}
            term["namespaceSelector"] = chance.choice(({}, {"matchExpressions": [wanted]}))
        return term


def _container(name: str, **requests: str) -> Json:
    return {"name": name, "image": "none", "resources": {"requests": requests}}


def _request(name: str, device_class: str, count: int, *selectors: str) -> Json:
    exactly: Json = {"deviceClassName": device_class, "count": count}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return {"name": name, "exactly": exactly}


def _init(draw: RandomClusters, spec: Json) -> None:
    spec["initContainers"] = [draw._asking("i")]
    if draw._chance.random() < 0.6:
        spec["initContainers"].insert(draw._chance.randint(0, 1), {**draw._asking("s"), "restartPolicy": "Always"})


def _overhead(draw: RandomClusters, spec: Json) -> None:
    spec["runtimeClassName"] = RUNTIME_CLASS


def _pod_level(draw: RandomClusters, spec: Json) -> None:
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["resources"] = {}
    spec["resources"] = {"requests": {"cpu": draw._chance.choice(("500m", "2")), "memory": "512Mi"}}


def _widgets(draw: RandomClusters, spec: Json) -> None:
    count = str(draw._chance.randint(1, 3))
    asked = spec["containers"][0]["resources"]
    for part in ("requests", "limits"):
        asked.setdefault(part, {})[WIDGETS] = count


def _accelerators(draw: RandomClusters, spec: Json) -> None:
    asked, count = spec["containers"][0]["resources"], str(draw._chance.randint(1, 2))
    resource = draw._chance.choice((ACCELERATORS, f"{IMPLICIT_RESOURCE_PREFIX}large-gpu"))
    for part in ("requests", "limits"):
        asked.setdefault(part, {})[resource] = count


def _node_selector(draw: RandomClusters, spec: Json) -> None:
    spec["nodeSelector"] = draw._chance.choice(({ZONE: "a"}, {ZONE: "b"}, {DISK: "ssd"}, {ZONE: "a", DISK: "hdd"}))


def _node_affinity(draw: RandomClusters, spec: Json) -> None:
    chance = draw._chance

    def requirement() -> Json:
        return chance.choice(
            (
                {"key": ZONE, "operator": "In", "values": chance.sample("abc", 2)},
                {"key": ZONE, "operator": "NotIn", "values": [chance.choice("abc")]},
                {"key": DISK, "operator": chance.choice(("Exists", "DoesNotExist"))},
                {"key": CORES, "operator": chance.choice(("Gt", "Lt")), "values": ["6"]},
            )
        )

    terms: list[Json] = [{"matchExpressions": [requirement() for _ in range(chance.randint(1, 2))]}]
    if chance.random() < 0.3:
        terms.append({"matchExpressions": [requirement()]})
    if chance.random() < 0.1:
        terms.append({})  # matches nothing
    if chance.random() < 0.15:
        name = f"n{draw._number}-0"
        terms[0]["matchFields"] = [
            {"key": "metadata.name", "operator": chance.choice(("In", "NotIn")), "values": [name]}
        ]
    spec.setdefault("affinity", {})["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}


def _tolerations(draw: RandomClusters, spec: Json) -> None:
    spec["tolerations"] = [dict(each) for each in draw._chance.sample(_TOLERATIONS, draw._chance.randint(1, 2))]


def _pod_affinity(draw: RandomClusters, spec: Json) -> None:
    spec.setdefault("affinity", {})["podAffinity"] = {REQUIRED: [draw._pod_term()]}


def _pod_anti_affinity(draw: RandomClusters, spec: Json) -> None:
    spec.setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: [draw._pod_term()]}


def _spread(draw: RandomClusters, spec: Json) -> None:
    chance = draw._chance
    found = []
    for key in chance.sample((ZONE, HOSTNAME, DISK), chance.choice((1, 1, 2))):
        constraint: Json = {"topologyKey": key, "maxSkew": chance.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
        if (selector := draw._selector()) is not None:
            constraint["labelSelector"] = selector
            if selector and chance.random() < 0.2:
                constraint["matchLabelKeys"] = ["version"]
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if chance.random() < 0.3:
                constraint[policy] = chance.choice(("Honor", "Ignore"))
        if chance.random() < 0.2:
            constraint["minDomains"] = chance.randint(1, 4)
        found.append(constraint)
    spec["topologySpreadConstraints"] = found


def _host_port(draw: RandomClusters, spec: Json) -> None:
    spec["containers"][0]["ports"] = [draw._port()]


def _restarts_all(draw: RandomClusters, spec: Json) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}


# Each with the share of pods that have it.
_FEATURES: tuple[tuple[float, Callable[[RandomClusters, Json], None]], ...] = (
    (0.2, _init),
    (0.1, _overhead),
    (0.1, _pod_level),
    (0.22, _widgets),
    (0.22, _node_selector),
    (0.3, _node_affinity),
    (0.4, _tolerations),
    (0.12, _pod_affinity),
    (0.12, _pod_anti_affinity),
    (0.2, _spread),
    (0.12, _host_port),
    (0.06, _restarts_all),
    (0.08, _accelerators),
)
