"""Whether a node may take a pod, by Kubernetes' rules, on objects as the API server prints them.

Plain and slow, and made of nothing that the product is made of: it is what the product's placements are judged by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Json = Mapping[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE_LABELS = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Fraction(1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")},
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def amount(text: object) -> Fraction:
    """A quantity."""
    found = re.fullmatch(r"([+-]?[0-9.]+)([a-zA-Z]*)", str(text))
    assert found is not None, text
    return Fraction(found[1]) * _SUFFIXES[found[2]]


@dataclass(eq=False)
class CheckedPod:
    """A pod, with what it asks for added up."""

    given: Json
    requests: dict[str, Fraction] = field(init=False)

    def __post_init__(self) -> None:
        self.requests = _requests(self.spec)

    @property
    def name(self) -> str:
        return str(self.given["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.given["metadata"].get("namespace") or "")

    @property
    def labels(self) -> Mapping[str, str]:
        return self.given["metadata"].get("labels") or {}

    @property
    def spec(self) -> Json:
        found: Json = self.given["spec"]
        return found

    @property
    def is_terminating(self) -> bool:
        return bool(self.given["metadata"].get("deletionTimestamp"))

    def terms(self, kind: str) -> Sequence[Json]:
        """Required terms of `podAffinity` or `podAntiAffinity`."""
        return ((self.spec.get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or ()

    @property
    def constraints(self) -> list[Json]:
        """Spread constraints that must hold."""
        listed: Iterable[Json] = self.spec.get("topologySpreadConstraints") or ()
        return [each for each in listed if each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]

    @property
    def host_ports(self) -> list[tuple[str, str, int]]:
        """(address, protocol, port) of all containers that keep running."""
        running = [*(self.spec.get("containers") or ()), *filter(_is_sidecar, self.spec.get("initContainers") or ())]
        return [
            (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
            for container in running
            for port in container.get("ports") or ()
            if port.get("hostPort")
        ]


@dataclass(eq=False)
class Machine:
    """A node with the pods on it. `accepts`: it is ready, and not about to go."""

    name: str
    labels: dict[str, str]
    allocatable: Mapping[str, Fraction]
    taints: Sequence[Json] = ()
    unschedulable: bool = False
    accepts: bool = True
    pods: list[CheckedPod] = field(default_factory=list)


def machine(node: Json, *, name: str = "", accepts: bool = True) -> Machine:
    """A Node, or with a name another one of its kind."""
    labels = dict(node["metadata"].get("labels") or {})
    if name:
        labels[HOSTNAME] = name
    spec = node.get("spec") or {}
    return Machine(
        name or node["metadata"]["name"],
        labels,
        {each: amount(text) for each, text in (node["status"].get("allocatable") or {}).items()},
        spec.get("taints") or (),
        bool(spec.get("unschedulable")),
        accepts,
    )


@dataclass
class World:
    """All machines, and what pods refer to: labels of namespaces, claims by "namespace/name", volumes by name."""

    machines: list[Machine]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[str, Json] | None = None
    volumes: Mapping[str, Json] = field(default_factory=dict)

    def refusal(self, pod: CheckedPod, node: Machine) -> str:
        """The first rule that keeps the pod off the node, in the scheduler's order; empty when it fits."""
        checks: list[tuple[str, Callable[[], bool]]] = [
            ("not accepting", lambda: node.accepts),
            ("unschedulable", lambda: not node.unschedulable or _tolerates(pod, _UNSCHEDULABLE)),
            ("taints", lambda: tolerates(pod, node)),
            ("affinity", lambda: matches_node(pod, node)),
            ("ports", lambda: not any(_ports_conflict(pod, other) for other in node.pods)),
            ("resources", lambda: has_room(pod, node)),
            ("volumes", lambda: self._reaches_volumes(pod, node)),
            ("zones", lambda: self._is_in_zones_of_volumes(pod, node)),
            ("missing label", lambda: all(each["topologyKey"] in node.labels for each in pod.constraints)),
            ("spread", lambda: self._is_spread(pod, node)),
            ("pod affinity", lambda: self._affinity_holds(pod, node)),
            ("pod anti-affinity", lambda: self._anti_affinity_holds(pod, node)),
            ("anti-affinity of others", lambda: self._nobody_objects(pod, node)),
        ]
        return next((name for name, check in checks if not check()), "")

    def _bound(self, pod: CheckedPod) -> list[Json]:
        """The volumes behind the pod's bound claims."""
        found = []
        for volume in pod.spec.get("volumes") or ():
            if volume.get("persistentVolumeClaim"):
                name = volume["persistentVolumeClaim"]["claimName"]
            elif volume.get("ephemeral") is not None:
                name = f"{pod.name}-{volume['name']}"
            else:
                continue
            claim = (self.claims or {}).get(f"{pod.namespace}/{name}")
            bound = self.volumes.get(claim["spec"].get("volumeName", "")) if claim else None
            if bound is not None:
                found.append(bound)
        return found

    def _reaches_volumes(self, pod: CheckedPod, node: Machine) -> bool:
        for volume in self._bound(pod):
            required = (volume["spec"].get("nodeAffinity") or {}).get("required")
            if required and not any(_term_holds(term, node) for term in required["nodeSelectorTerms"]):
                return False
        return True

    def _is_in_zones_of_volumes(self, pod: CheckedPod, node: Machine) -> bool:
        if not any(key in node.labels for key in ZONE_LABELS):
            return True
        for volume in self._bound(pod):
            for key, value in (volume["metadata"].get("labels") or {}).items():
                if key in ZONE_LABELS:
                    there = node.labels.get(key, node.labels.get(ZONE_LABELS[key]))
                    if there not in value.split("__"):
                        return False
        return True

    def _means(self, term: Json, owner: CheckedPod, other: CheckedPod) -> bool:
        """Whether an affinity term of the owner's means another pod."""
        named = term.get("namespaces") or ()
        wanted = term.get("namespaceSelector")
        if not named and wanted is None:
            in_namespace = other.namespace == owner.namespace
        else:
            in_namespace = other.namespace in named or (
                wanted is not None and selects(wanted, self.namespaces.get(other.namespace, {}))
            )
        return in_namespace and selects(_with_keys(term, owner), other.labels)

    def _together(self, node: Machine, key: str) -> list[CheckedPod]:
        if key not in node.labels:
            return []
        return [pod for each in self.machines if each.labels.get(key) == node.labels[key] for pod in each.pods]

    def _affinity_holds(self, pod: CheckedPod, node: Machine) -> bool:
        terms = pod.terms("podAffinity")
        if not all(term["topologyKey"] in node.labels for term in terms):
            return False

        def means(other: CheckedPod) -> bool:
            return all(self._means(term, pod, other) for term in terms)

        if all(any(map(means, self._together(node, term["topologyKey"]))) for term in terms):
            return True
        company = any(
            means(other)
            for each in self.machines
            if any(term["topologyKey"] in each.labels for term in terms)
            for other in each.pods
        )
        return not company and means(pod)

    def _anti_affinity_holds(self, pod: CheckedPod, node: Machine) -> bool:
        return not any(
            self._means(term, pod, other)
            for term in pod.terms("podAntiAffinity")
            for other in self._together(node, term["topologyKey"])
        )

    def _nobody_objects(self, pod: CheckedPod, node: Machine) -> bool:
        for each in self.machines:
            for other in each.pods:
                for term in other.terms("podAntiAffinity"):
                    key = term["topologyKey"]
                    is_near = key in each.labels and each.labels[key] == node.labels.get(key)
                    if is_near and self._means(term, other, pod):
                        return False
        return True

    def _is_spread(self, pod: CheckedPod, node: Machine) -> bool:
        """As kube-scheduler counts: for an empty selector no other pod, but the pod itself."""
        keys = [each["topologyKey"] for each in pod.constraints]
        for constraint in pod.constraints:
            selector = _with_keys(constraint, pod)
            is_empty = selector is not None and not any(selector.values())
            counts: dict[str, int] = {}
            for each in self.machines:
                if not all(key in each.labels for key in keys):
                    continue
                if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not matches_node(pod, each):
                    continue
                if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor" and not tolerates(pod, each):
                    continue
                domain = each.labels[constraint["topologyKey"]]
                counts[domain] = counts.get(domain, 0) + sum(
                    not is_empty
                    and other.namespace == pod.namespace
                    and not other.is_terminating
                    and selects(selector, other.labels)
                    for other in each.pods
                )
            least = min(counts.values(), default=0) if len(counts) >= (constraint.get("minDomains") or 1) else 0
            there = counts.get(node.labels[constraint["topologyKey"]], 0) + selects(selector, pod.labels)
            if there - least > constraint.get("maxSkew", 1):
                return False
        return True


def has_room(pod: CheckedPod, node: Machine) -> bool:
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        return False
    for name, asked in pod.requests.items():
        used = sum(other.requests.get(name, Fraction(0)) for other in node.pods)
        if asked > 0 and used + asked > node.allocatable.get(name, 0):
            return False
    return True


def tolerates(pod: CheckedPod, node: Machine) -> bool:
    return all(_tolerates(pod, taint) for taint in node.taints if taint.get("effect") in ("NoSchedule", "NoExecute"))


def matches_node(pod: CheckedPod, node: Machine) -> bool:
    """Selector and required node affinity."""
    if any(node.labels.get(key) != value for key, value in (pod.spec.get("nodeSelector") or {}).items()):
        return False
    required = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    return required is None or any(_term_holds(term, node) for term in required["nodeSelectorTerms"])


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """A label selector; none at all selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerates(pod: CheckedPod, taint: Json) -> bool:
    for each in pod.spec.get("tolerations") or ():
        is_key = each.get("key") == taint["key"] or (not each.get("key") and each.get("operator") == "Exists")
        is_effect = not each.get("effect") or each["effect"] == taint["effect"]
        is_value = each.get("operator") == "Exists" or (each.get("value") or "") == (taint.get("value") or "")
        if is_key and is_effect and is_value:
            return True
    return False


def _term_holds(term: Json, node: Machine) -> bool:
    of_labels, of_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return (
        bool(of_labels or of_fields)
        and all(_holds(each, node.labels) for each in of_labels)
        and all(_holds(each, {"metadata.name": node.name}) for each in of_fields)
    )


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement["key"])
    values: Sequence[str] = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
        case other:
            raise AssertionError(other)


def _with_keys(term: Json, owner: CheckedPod) -> Json | None:
    """A term's selector with the owner's values of `matchLabelKeys` demanded, of `mismatchLabelKeys` excluded."""
    selector: Json | None = term.get("labelSelector")
    if selector is None:
        return None
    more = [
        {"key": key, "operator": operator, "values": [owner.labels[key]]}
        for listed, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(listed) or ()
        if key in owner.labels
    ]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}


def _ports_conflict(one: CheckedPod, other: CheckedPod) -> bool:
    for address, protocol, port in one.host_ports:
        for their_address, their_protocol, their_port in other.host_ports:
            same_address = address == their_address or "0.0.0.0" in (address, their_address)
            if (protocol, port) == (their_protocol, their_port) and same_address:
                return True
    return False


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _requests(spec: Json) -> dict[str, Fraction]:
    """The most that is asked for at any moment of the pod's life, start-up included, and its overhead."""
    sidecars: list[Json] = []
    moments: list[list[Json]] = []
    for container in spec.get("initContainers") or ():
        moments.append([*sidecars, container])
        if _is_sidecar(container):
            sidecars.append(container)
    moments.append([*sidecars, *(spec.get("containers") or ())])
    found: dict[str, Fraction] = {}
    for running in moments:
        total: dict[str, Fraction] = {}
        for container in running:
            for name, asked in _asked(container).items():
                total[name] = total.get(name, Fraction(0)) + asked
        for name, asked in total.items():
            found[name] = max(found.get(name, Fraction(0)), asked)
    for name, text in ((spec.get("resources") or {}).get("requests") or {}).items():  # of the pod as a whole
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            found[name] = amount(text)
    for name, text in (spec.get("overhead") or {}).items():
        found[name] = found.get(name, Fraction(0)) + amount(text)
    return found


def _asked(container: Json) -> dict[str, Fraction]:
    """A limit stands in for a request that is not there."""
    resources = container.get("resources") or {}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(text) for name, text in given.items()}
