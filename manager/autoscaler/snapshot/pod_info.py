"""The facts of a pod that decide where it can run, read once from its wire form into integers and plain terms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from manager.autoscaler.snapshot import volumes
from manager.autoscaler.snapshot.devices import ClaimedDevices, ClaimProblem
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from manager.autoscaler.snapshot.volumes import AttachedVolume, InlineDisk, UnboundClaim
from shared.api import podgroup, pods
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
)
from shared.api.selectors import LabelRequirement, LabelSelector
from shared.errors import InvalidInput
from shared.quantity import Amounts, QuantityError

LABEL_HOSTNAME = "kubernetes.io/hostname"
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
_RESTART_ALL = "RestartAllContainers"
_NATIVE = "kubernetes.io/"  # names no extended resource that a DeviceClass can serve
_NO_DEVICES = ClaimedDevices()
_NO_FEATURES = frozenset[str]()
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
    the volumes' location labels, each with the permitted values; `unbound` claims get their volume with the pod.
    `allocated` are the nodes that devices of its claims allow, and `features` those that the node has to declare.
    `refused` are nodes, by name, that the scheduler has refused although the other demands allow them.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[NodeSelector, ...] = ()
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    allocated: tuple[NodeSelector, ...] = ()
    features: frozenset[str] = frozenset()
    unbound: tuple[UnboundClaim, ...] = ()
    refused: frozenset[str] = frozenset()


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

    `of_node`: the pod comes with its node, as DaemonSet pods do. `attached` are the volumes that its node attaches; of
    pods that were read on their nodes, the nodes have them. `pod_group` is the key of a pending pod's PodGroup, and
    `scheduler_name` whose answers about it count.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    priority: int = 0
    demands: NodeDemands = _NO_DEMANDS
    ports: tuple[HostPort, ...] = ()
    disks: tuple[InlineDisk, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    terminating: bool = False
    of_node: bool = False
    attached: tuple[AttachedVolume, ...] = ()
    pod_group: str = ""
    scheduler_name: str = ""

    @property
    def attracts_itself(self) -> bool:
        """Whether it satisfies its own affinity, so that the first of its kind may go anywhere."""
        return all(term.matches(self) for term in self.affinity)


def read_pending(
    pod: Pod, surroundings: ReferencedObjects, carriers: Mapping[str, str] = MappingProxyType({})
) -> PodInfo:
    """The facts of one pod. `carriers` has, of each ResourceClaim that several pods name, the one that takes its
    devices; the others go to its node. Raises InvalidInput.
    """
    reader = _Reader(pod, surroundings)
    requests, claimed = reader.requests(), reader.claimed_devices(carriers)
    affinity = pod.spec.affinity
    mounted = reader.volumes()
    return PodInfo(
        namespace=pod.metadata.namespace,
        labels={**(pod.metadata.labels or {}), **dict.fromkeys(map(_carrying, claimed.carried), "")},
        requests=_sum(_sum(requests, claimed.amounts), surroundings.devices.of_extended(requests)),
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
                for volume in mounted.bound
                if volume.spec.node_affinity and volume.spec.node_affinity.required
            ),
            zones=tuple(sorted({zone for volume in mounted.bound for zone in _zones(volume)})),
            allocated=claimed.allocated,
            features=_features(pod),
            unbound=tuple(sorted(mounted.unbound, key=attrgetter("size_bytes"))),
        ),
        ports=reader.ports(),
        disks=volumes.inline_disks(pod),
        affinity=(
            *reader.terms("podAffinity", affinity.pod_affinity if affinity else None),
            *(_beside_carrier(pod, claim) for claim in claimed.shared),
        ),
        anti_affinity=reader.terms("podAntiAffinity", affinity.pod_anti_affinity if affinity else None),
        spread=reader.spread(),
        terminating=pods.is_terminating(pod),
        attached=tuple(sorted(set(surroundings.volumes_of(pod)))),
        pod_group=podgroup.pod_group_of(pod),
        scheduler_name=pod.spec.scheduler_name,
    )


def read_placed(pod: Pod, surroundings: ReferencedObjects, *, of_node: bool = False) -> PodInfo:
    """The facts that still matter for a pod on its node, claims whose volumes are being bound included.

    Raises InvalidInput.
    """
    reader = _Reader(pod, surroundings)
    requests = reader.requests()
    affinity = pod.spec.affinity
    return PodInfo(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels or {},
        requests=_sum(requests, surroundings.devices.held_by(pod, requests) if uses_devices(pod) else {}),
        priority=pod.spec.priority or 0,
        demands=reader.binding(),
        ports=reader.ports(),
        disks=volumes.inline_disks(pod),
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


def uses_devices(pod: Pod) -> bool:
    """Whether a ResourceClaim is of the pod."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def refers(pod: Pod, facts: PodInfo) -> bool:
    """Whether any of the facts are of other objects: claims, devices, labels of namespaces."""
    affinity = pod.spec.affinity
    both = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    return (
        uses_devices(pod)
        or any(volumes.volume_claims(pod))
        or any(term.namespace_selector is not None for one in both if one for term in one.required or ())
        or any("/" in name and not name.startswith(_NATIVE) for name in facts.requests)  # devices may serve it
    )


def _sum(requests: Amounts, devices: Mapping[str, int]) -> Amounts:
    return (
        {name: requests.get(name, 0) + devices.get(name, 0) for name in (*requests, *devices)} if devices else requests
    )


def _carrying(claim: str) -> str:
    """The label, in place of one that no pod has, of the pod that takes the devices of a shared claim."""
    return f"resourceclaim/{claim}"


def _beside_carrier(pod: Pod, claim: str) -> PodTerm:
    selector = LabelSelector(match_labels={_carrying(claim): ""})
    return PodTerm(LABEL_HOSTNAME, frozenset({pod.metadata.namespace}), selector)


def _features(pod: Pod) -> frozenset[str]:
    """The features that nodes must declare, as of Kubernetes 1.36 (component-helpers, nodedeclaredfeatures)."""
    spec = pod.spec
    found = _NO_FEATURES
    for container in (*spec.containers, *(spec.init_containers or ())):
        if any(rule.action == _RESTART_ALL for rule in container.restart_policy_rules or ()):
            found |= {"RestartAllContainersOnContainerExits"}
    return found | {"UserNamespacesHostNetworkSupport"} if spec.host_network and spec.host_users is False else found


def _zones(volume: PersistentVolume) -> Iterable[tuple[str, tuple[str, ...]]]:
    for key, value in (volume.metadata.labels or {}).items():
        if key in ZONE_LABELS:
            yield key, tuple(value.split(_BETWEEN_ZONES))


@dataclass(frozen=True)
class _Volumes:
    """The volumes behind bound claims, and the claims that get their volume with the pod."""

    bound: list[PersistentVolume] = field(default_factory=list)
    unbound: list[UnboundClaim] = field(default_factory=list)


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

    def claimed_devices(self, carriers: Mapping[str, str]) -> ClaimedDevices:
        if not self.pod.spec.resource_claims:
            return _NO_DEVICES
        try:
            return self.surroundings.devices.of_pod(self.pod, carriers)
        except ClaimProblem as problem:
            raise self.refused("spec.resourceClaims", problem.claim, problem.problem) from problem

    def ports(self) -> tuple[HostPort, ...]:
        """For a pod on the host network every container port is a host port; a pod template may omit it."""
        sidecars = (each for each in self.pod.spec.init_containers or () if each.restart_policy == "Always")
        return tuple(
            HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", number)
            for container in (*self.pod.spec.containers, *sidecars)
            for port in container.ports or ()
            if (number := port.host_port or (port.container_port if self.pod.spec.host_network else 0)) > 0
        )

    def volumes(self) -> "_Volumes":
        """What the claims of the pod require of a node. A claim requires nothing where it is not known how it gets its
        volume.
        """
        found = _Volumes()
        claims, known = self.surroundings.claims, self.surroundings.volumes
        if claims is None:
            return found
        for name, volume in volumes.volume_claims(self.pod):
            claim = claims.get(f"{self.pod.metadata.namespace}/{name}")
            if claim is None:
                if volume.ephemeral is None:
                    raise self.refused("spec.volumes", name, f'persistentvolumeclaim "{name}" not found')
                continue
            if claim.metadata.deletion_timestamp is not None:
                raise self.refused("spec.volumes", name, f'persistentvolumeclaim "{name}" is being deleted')
            bound_to = claim.spec.volume_name
            if not bound_to:
                self._add_unbound(claim, found)
            elif known is not None:
                if bound_to not in known:
                    raise self.refused("spec.volumes", name, f'its persistentvolume "{bound_to}" does not exist')
                found.bound.append(known[bound_to])
        return found

    def _add_unbound(self, claim: PersistentVolumeClaim, found: "_Volumes") -> None:
        index, name = self.surroundings.volume_index, claim.metadata.name
        waits = index.waits_for_pod(claim)
        if waits is False:
            of_class = f' of storage class "{claim.storage_class}"' if claim.storage_class else ""
            problem = f'pod has unbound immediate PersistentVolumeClaims: "{name}"{of_class}'
            raise self.refused("spec.volumes", name, problem)
        if waits:
            found.unbound.append(index.unbound_claim(claim))

    def binding(self) -> NodeDemands:
        """The claims that get their volumes now: kube-scheduler nominates the node first, then binds its volumes."""
        index = self.surroundings.volume_index
        waiting = [each for each in self.surroundings.unbound_claims(self.pod) if index.waits_for_pod(each)]
        if not waiting:
            return _NO_DEMANDS
        found = map(index.unbound_claim, waiting)
        return NodeDemands(unbound=tuple(sorted(found, key=attrgetter("size_bytes"))))

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
        if wanted.is_empty:
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
            if selector.is_empty:  # kube-scheduler counts no pod then, so that only the topology key is required
                selector = None
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
