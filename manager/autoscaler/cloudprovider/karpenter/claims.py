"""NodeClaims: the ones that are created, and what is to be read in the existing ones. Pure.

A NodeClaim is ours if it carries our label, and no label of a NodePool; nothing else is ever written to.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from manager.autoscaler.cloudprovider.catalogue import USUAL
from manager.autoscaler.cloudprovider.contract import ErrorClass, Instance, InstanceError, InstanceState
from manager.autoscaler.cloudprovider.karpenter.catalogue import (
    LABEL_CAPACITY_TYPE,
    LABEL_NODE_POOL,
    KarpenterMachineType,
    Offering,
)
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterGroup
from manager.autoscaler.cloudprovider.node_template import LABEL_ARCH, LABEL_MACHINE_TYPE, LABEL_OS, LABEL_ZONE
from shared import durations, names, quantity
from shared.api.core import Condition, Quantities, Taint
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.quantity import QuantityError

SCHEME = "karpenter://"  # of the ids of instances that have no machine yet
MOST_NAMED = 5
LAUNCHED, REGISTERED, INITIALIZED = "Launched", "Registered", "Initialized"
DISRUPTION_REASON, DRIFTED = "DisruptionReason", "Drifted"


class NodeClassReference(Wire, frozen=True):
    group: str = ""
    kind: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ClaimRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeClaimSpec(Wire, frozen=True):
    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: tuple[ClaimRequirement, ...] = ()
    taints: tuple[Taint, ...] | None = None
    startup_taints: tuple[Taint, ...] | None = None


class NodeClaimStatus(Wire, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    allocatable: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None


@prepared
class NodeClaim(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def group(self) -> str:
        return self.metadata.label(names.LABEL_NODE_GROUP) or ""

    @property
    def is_ours(self) -> bool:
        return bool(self.group) and self.metadata.label(LABEL_NODE_POOL) is None

    @property
    def is_leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def has_machine(self) -> bool:
        return bool(self.status.provider_id) or self.holds(LAUNCHED)

    @property
    def instance_id(self) -> str:
        """The Node's provider id as soon as it is known."""
        return self.status.provider_id or SCHEME + self.metadata.name

    @property
    def offering(self) -> Offering:
        """What it asks for; "" for what it does not name."""
        wanted = {each.key: each.values[0] for each in self.spec.requirements if each.values}
        keys = (LABEL_MACHINE_TYPE, LABEL_ZONE, LABEL_CAPACITY_TYPE)
        return Offering(*(wanted.get(key, "") for key in keys))

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions or () if each.type == kind), None)

    def holds(self, kind: str) -> bool:
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def created_group(self) -> KarpenterGroup | None:
        """The created group that it belongs to, as it was when the claim was made."""
        text = self.metadata.annotation(names.ANNOTATION_NODE_GROUP_SPEC)
        try:
            found = msgspec.json.decode(text, type=KarpenterGroup) if text else None
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
        return found if found is not None and found.name == self.group and found.autoprovisioned else None

    @property
    def reported(self) -> dict[str, int]:
        """The allocatable amounts that it reports; none before the launch, and none that cannot be read."""
        return read_amounts(self.status.allocatable or {})


@dataclass(frozen=True)
class NodeDefaults:
    """What every node of this cloud gets, from the file or from the NodePool that it names. `hashes` are those
    annotations of the node class that say what it is now, and `hash_problem` says why they are not known.
    """

    node_class: NodeClassReference = field(default_factory=NodeClassReference)
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()
    hash_problem: str = ""


def read_amounts(quantities: Quantities) -> dict[str, int]:
    found = {}
    for resource, text in quantities.items():
        try:
            found[resource] = quantity.milli(text) if resource == names.CPU else quantity.whole(text)
        except QuantityError:
            continue
    return found


def body(
    name: str, group: KarpenterGroup, machine: KarpenterMachineType, defaults: NodeDefaults, grace_seconds: float
) -> dict[str, object]:
    """The NodeClaim to create: one machine type, one zone, one capacity type, so that shape and price are known.

    It never expires: when a node goes is for the autoscaler to decide. Its termination has an end, as a pod that must
    not be disrupted would otherwise keep it for ever.
    """
    wanted = {
        LABEL_MACHINE_TYPE: group.machine_type,
        LABEL_ZONE: group.zone,
        LABEL_CAPACITY_TYPE: group.capacity_type,
        LABEL_ARCH: machine.node_labels[LABEL_ARCH],
        LABEL_OS: machine.node_labels[LABEL_OS],
    }
    # A node counts as initialized once its devices are there; cores and memory are the machine type's.
    devices = {each: text for each, text in machine.allocatable.items() if each not in USUAL}
    annotations = {names.ANNOTATION_DO_NOT_DISRUPT: "true"}
    if group.autoprovisioned:
        annotations[names.ANNOTATION_NODE_GROUP_SPEC] = msgspec.json.encode(group).decode()
    spec: dict[str, object] = {
        "nodeClassRef": defaults.node_class,
        "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()],
        "resources": {"requests": devices},
        "taints": list(dict.fromkeys((*defaults.taints, *group.taints))),
        "startupTaints": list(defaults.startup_taints),
        "terminationGracePeriod": durations.render(grace_seconds),
        "expireAfter": "Never",
    }
    labels = dict(defaults.labels) | group.labels | {names.LABEL_NODE_GROUP: group.name}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def instance(claim: NodeClaim, stuck: Collection[str]) -> Instance:
    """What the autoscaler sees of it.

    A claim that is among the `stuck` ones has failed, and is to go: it keeps Karpenter as a whole waiting.
    """
    if claim.is_leaving:
        return Instance(claim.instance_id, InstanceState.DELETING)
    if claim.holds(REGISTERED):
        return Instance(claim.instance_id, InstanceState.RUNNING)
    error = launch_error(claim) if claim.metadata.name in stuck else None
    return Instance(claim.instance_id, InstanceState.CREATING, error)


def is_stuck(claim: NodeClaim, waited_seconds: float, launch_seconds: float) -> bool:
    """Whether it has waited for a machine for too long."""
    return not (claim.is_leaving or claim.holds(LAUNCHED)) and waited_seconds > launch_seconds


def stray_problem(those: Iterable[str], stuck: Collection[str]) -> str:
    """The sentence about claims whose group is not known."""
    stuck_first = sorted(those, key=lambda each: (each not in stuck, each))
    found = [f"NodeClaim {each}" + (" gets no machine" if each in stuck else "") for each in stuck_first]
    rest = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return f"neither the file nor the registry contains it: {', '.join([*found[:MOST_NAMED], *rest])}"


def launch_error(claim: NodeClaim) -> InstanceError:
    found = claim.condition(LAUNCHED)
    if found is None or not found.reason:
        return InstanceError(ErrorClass.OTHER, "LaunchTimeout", "Karpenter has not launched it, and does not say why")
    return InstanceError(ErrorClass.OTHER, found.reason, found.message or found.reason)


def latest_reports(claims: Iterable[NodeClaim]) -> dict[str, dict[str, int]]:
    """What the youngest launched claim of each machine type reports."""
    launched = sorted((each for each in claims if each.reported), key=lambda each: each.metadata.created_at)
    return {each.offering.machine_type: each.reported for each in launched}


def latest_launched(claims: Iterable[NodeClaim], machine_type: str) -> NodeClaim | None:
    """The youngest claim of the machine type that has a machine."""
    there = [each for each in claims if each.has_machine and each.offering.machine_type == machine_type]
    return max(there, key=lambda each: each.metadata.created_at, default=None)


def first_initialized(claims: Iterable[NodeClaim], machine_type: str) -> NodeClaim | None:
    """The first claim of the machine type whose Node is up."""
    return next(
        (each for each in claims if each.offering.machine_type == machine_type and each.holds(INITIALIZED)), None
    )
