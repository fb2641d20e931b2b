"""The facts of a pod that decide where it can run, read once from its wire form into integers and plain terms."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.api import pods
from shared.api.core import (
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from shared.api.selectors import LabelRequirement, LabelSelector
from shared.errors import InvalidInput
from shared.quantity import Amounts, QuantityError

ANY_ADDRESS = "0.0.0.0"
MOST_AMOUNT = 1 << 52  # of one resource, of one pod or node: sums of thousands of them still fit 64 bits
# The label of a volume's zone or region, and the label that a node may have instead.
ZONE_LABELS = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_BETWEEN_ZONES = "__"  # separates zones in the label of a volume that is in several
_DO_NOT_SCHEDULE = "DoNotSchedule"
_POLICIES = {"Honor": True, "Ignore": False}


class HostPort(NamedTuple):
    """A host port of a pod."""

    address: str
    protocol: str
    port: int

    def conflicts(self, other: "HostPort") -> bool:
        """Whether both cannot be on one node; the wildcard address conflicts with all."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.address == other.address or ANY_ADDRESS in (self.address, other.address))
        )


class NodeDemands(NamedTuple):
    """A pod's requirements of a node, regardless of other pods; equal demands are judged once.

    `terms` is the required node affinity, None without one; `volumes` are the demands of the pod's volumes; `zones` are
    the volumes' location labels, each with the permitted values.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[NodeSelector, ...] = ()
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


_NO_DEMANDS = NodeDemands()


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods in these namespaces (None: all) that the selector matches, in one domain of the topology key."""

    key: str
    namespaces: frozenset[str] | None
    selector: LabelSelector | None

    def matches(self, other: "PodInfo") -> bool:
        return (
            self.selector is not None
            and (self.namespaces is None or other.namespace in self.namespaces)
            and self.selector.matches(other.labels)
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """A hard topology spread constraint. The policies say which nodes count."""

    term: PodTerm
    max_skew: int
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    @property
    def key(self) -> str:
        return self.term.key


@dataclass(frozen=True, eq=False, slots=True)
class PodInfo:
    """One kind of pod. Equality is identity: each kind is created once.

    `of_node`: the pod comes with its node, as DaemonSet pods do.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    priority: int = 0
    demands: NodeDemands = _NO_DEMANDS
    ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    terminating: bool = False
    of_node: bool = False

    @property
    def attracts_itself(self) -> bool:
        """Whether it satisfies its own affinity, so that the first of its kind may go anywhere."""
        return all(term.matches(self) for term in self.affinity)


@dataclass(frozen=True)
class ReferencedObjects:
    """The objects that pods refer to: labels of namespaces by name, claims by "namespace/name", volumes by name.

    Without `claims` the volumes of pods are not judged, and without `volumes` their location is not.
    """

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[str, PersistentVolumeClaim] | None = None
    volumes: Mapping[str, PersistentVolume] | None = None


def read_pending(pod: Pod, surroundings: ReferencedObjects) -> PodInfo:
    """The facts of one pod. Raises InvalidInput."""
    reader = _Reader(pod, surroundings)
    affinity = pod.spec.affinity
    volumes = reader.volumes()
    return PodInfo(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels or {},
        requests=reader.requests(),
        priority=pod.spec.priority or 0,
        demands=NodeDemands(
            selector=tuple(sorted((pod.spec.node_selector or {}).items())),
            terms=(
                affinity.node_affinity.required.node_selector_terms
                if affinity and affinity.node_affinity and affinity.node_affinity.required
                else None
            ),
            tolerations=pod.spec.tolerations or (),
            volumes=tuple(
                volume.spec.node_affinity.required
                for volume in volumes
                if volume.spec.node_affinity and volume.spec.node_affinity.required
            ),
            zones=tuple(sorted({zone for volume in volumes for zone in _zones(volume)})),
        ),
        ports=reader.ports(),
        affinity=reader.terms("podAffinity", affinity.pod_affinity if affinity else None),
        anti_affinity=reader.terms("podAntiAffinity", affinity.pod_anti_affinity if affinity else None),
        spread=reader.spread(),
        terminating=pods.is_terminating(pod),
    )


def read_placed(pod: Pod, surroundings: ReferencedObjects, *, of_node: bool = False) -> PodInfo:
    """The facts that still matter for a pod on its node. Raises InvalidInput."""
    reader = _Reader(pod, surroundings)
    affinity = pod.spec.affinity
    return PodInfo(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels or {},
        requests=reader.requests(),
        priority=pod.spec.priority or 0,
        ports=reader.ports(),
        anti_affinity=reader.terms("podAntiAffinity", affinity.pod_anti_affinity if affinity else None),
        terminating=pods.is_terminating(pod),
        of_node=of_node,
    )


def requests_of(pod: Pod, *, of_node: bool = False) -> PodInfo | None:
    """The requests of a placed pod that is otherwise unreadable; None if even they are unreadable."""
    try:
        requests = _Reader(pod, ReferencedObjects()).requests()
    except InvalidInput:
        return None
    return PodInfo(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels or {},
        requests=requests,
        priority=pod.spec.priority or 0,
        terminating=pods.is_terminating(pod),
        of_node=of_node,
    )


def volume_claims(pod: Pod) -> Iterator[tuple[str, Volume]]:
    """The names of the claims behind the pod's volumes, each with its volume."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, volume
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", volume


def _zones(volume: PersistentVolume) -> Iterable[tuple[str, tuple[str, ...]]]:
    for key, value in (volume.metadata.labels or {}).items():
        if key in ZONE_LABELS:
            yield key, tuple(value.split(_BETWEEN_ZONES))


@dataclass(frozen=True)
class _Reader:
    pod: Pod
    surroundings: ReferencedObjects

    def refused(self, path: str, value: object, problem: str) -> InvalidInput:
        return InvalidInput(source=f"Pod {self.pod.metadata.key}", field=path, value=value, problem=problem)

    def requests(self) -> Amounts:
        try:
            asked = pods.requests(self.pod)
        except QuantityError as problem:
            raise self.refused("spec.containers[].resources", self.pod.metadata.name, str(problem)) from problem
        for resource, amount in asked.items():
            if amount < 0:
                raise self.refused("spec.containers[].resources", {resource: amount}, "a request is not negative")
        return {resource: min(amount, MOST_AMOUNT) for resource, amount in asked.items() if amount}

    def ports(self) -> tuple[HostPort, ...]:
        """For a pod on the host network every container port is a host port; a pod template may omit it."""
        sidecars = (each for each in self.pod.spec.init_containers or () if each.restart_policy == "Always")
        return tuple(
            HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", number)
            for container in (*self.pod.spec.containers, *sidecars)
            for port in container.ports or ()
            if (number := port.host_port or (port.container_port if self.pod.spec.host_network else 0)) > 0
        )

    def volumes(self) -> tuple[PersistentVolume, ...]:
        """The volumes behind bound claims. An unbound claim requires nothing."""
        claims, known = self.surroundings.claims, self.surroundings.volumes
        if claims is None:
            return ()
        found = []
        for name, volume in volume_claims(self.pod):
            claim = claims.get(f"{self.pod.metadata.namespace}/{name}")
            if claim is None:
                if volume.ephemeral is None:
                    raise self.refused("spec.volumes", name, f'persistentvolumeclaim "{name}" not found')
                continue
            if claim.metadata.deletion_timestamp is not None:
                raise self.refused("spec.volumes", name, f'persistentvolumeclaim "{name}" is being deleted')
            bound_to = claim.spec.volume_name
            if bound_to and known is not None:
                if bound_to not in known:
                    raise self.refused("spec.volumes", name, f'its persistentvolume "{bound_to}" does not exist')
                found.append(known[bound_to])
        return tuple(found)

    def terms(self, path: str, affinity: PodAffinity | None) -> tuple[PodTerm, ...]:
        required = affinity.required if affinity else None
        return tuple(self._term(f"spec.affinity.{path}", term) for term in required or ())

    def spread(self) -> tuple[Spread, ...]:
        return tuple(
            self._spread("spec.topologySpreadConstraints", constraint)
            for constraint in self.pod.spec.topology_spread_constraints or ()
            if constraint.when_unsatisfiable == _DO_NOT_SCHEDULE
        )

    def _term(self, path: str, term: PodAffinityTerm) -> PodTerm:
        if not term.topology_key:
            raise self.refused(f"{path}.topologyKey", term.topology_key, "a topology key is needed")
        selector = self._selector(f"{path}.labelSelector", term.label_selector)
        if selector is not None:
            selector = self._merged(selector, term.match_label_keys, "In")
            selector = self._merged(selector, term.mismatch_label_keys, "NotIn")
        return PodTerm(term.topology_key, self._namespaces(path, term), selector)

    def _namespaces(self, path: str, term: PodAffinityTerm) -> frozenset[str] | None:
        """The named namespaces and those that the selector matches; the pod's own if both are absent."""
        wanted = self._selector(f"{path}.namespaceSelector", term.namespace_selector)
        named = frozenset(term.namespaces or ())
        if wanted is None:
            return named or frozenset({self.pod.metadata.namespace})
        if not wanted.match_labels and not wanted.match_expressions:
            return None
        return named | {name for name, labels in self.surroundings.namespaces.items() if wanted.matches(labels)}

    def _spread(self, path: str, constraint: TopologySpreadConstraint) -> Spread:
        if not constraint.topology_key:
            raise self.refused(f"{path}.topologyKey", constraint.topology_key, "a topology key is needed")
        if constraint.max_skew < 1:
            raise self.refused(f"{path}.maxSkew", constraint.max_skew, "expected at least 1")
        if constraint.min_domains is not None and constraint.min_domains < 1:
            raise self.refused(f"{path}.minDomains", constraint.min_domains, "expected at least 1")
        for policy in (constraint.node_affinity_policy, constraint.node_taints_policy):
            if policy not in _POLICIES:
                raise self.refused(path, policy, f"a policy is one of {', '.join(_POLICIES)}")
        selector = self._selector(f"{path}.labelSelector", constraint.label_selector)
        if selector is not None:
            selector = self._merged(selector, constraint.match_label_keys, "In")
        return Spread(
            PodTerm(constraint.topology_key, frozenset({self.pod.metadata.namespace}), selector),
            constraint.max_skew,
            constraint.min_domains or 1,
            _POLICIES[constraint.node_affinity_policy],
            _POLICIES[constraint.node_taints_policy],
        )

    def _selector(self, path: str, selector: LabelSelector | None) -> LabelSelector | None:
        if selector is not None and (problem := selector.problem):
            raise self.refused(path, selector, problem)
        return selector

    def _merged(self, selector: LabelSelector, keys: Iterable[str] | None, operator: str) -> LabelSelector:
        """The selector that also requires or excludes the pod's own values of these keys; the API server may have
        merged them already.
        """
        labels = self.pod.metadata.labels or {}
        more = tuple(LabelRequirement(key, operator, (labels[key],)) for key in keys or () if key in labels)
        if not more:
            return selector
        return LabelSelector(selector.match_labels, (*(selector.match_expressions or ()), *more))
