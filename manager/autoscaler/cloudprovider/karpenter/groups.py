"""Groups: what a spec becomes, the Node that a group's next claim will be, and whether a node is still that. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.errors import Refused, Unsupported
from manager.autoscaler.cloudprovider.karpenter import NAME, claims
from manager.autoscaler.cloudprovider.karpenter.catalogue import LABEL_CAPACITY_TYPE, Offering
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim, NodeDefaults
from manager.autoscaler.cloudprovider.karpenter.config import (
    MAX_GROUP_NAME,
    KarpenterAutoprovisioning,
    KarpenterCloud,
    KarpenterGroup,
)
from manager.autoscaler.cloudprovider.karpenter.registry import SoldOut
from manager.autoscaler.cloudprovider.node_template import LABEL_HOSTNAME, LABEL_ZONE, digest_suffix
from shared import names
from shared.api.core import Node, NodeSpec, NodeStatus, Taint
from shared.api.meta import ObjectMeta
from shared.quantity import format_amounts

HASH, HASH_VERSION = "-hash", "-hash-version"  # of annotations; hashes of different versions cannot be compared
# What Karpenter gives to every node that is up.
_OF_KARPENTER = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}


@dataclass(frozen=True)
class BuyingState:
    """All that decides whether, and what, may be bought.

    `problem`: why nothing may; `withheld`: machine types that do not match what was reported, with the reason;
    `sold_out` by offering, as text.
    """

    cloud: KarpenterCloud
    defaults: NodeDefaults = field(default_factory=NodeDefaults)
    problem: str = ""
    withheld: Mapping[str, str] = field(default_factory=dict)
    sold_out: Mapping[str, SoldOut] = field(default_factory=dict)

    def sold_out_reason(self, offering: Offering, now: float) -> str:
        """Why the offering is left alone at `now`, in Unix seconds; empty if it is not."""
        found = self.sold_out.get(str(offering))
        if found is None or found.until < now:
            return ""
        return f"{offering} is out of stock, retried in {found.until - now:.0f} s: {found.message}"

    def refusal(self, group: KarpenterGroup, now: float) -> str:
        """Why no claim of the group may be made; empty if one may."""
        if self.problem:
            return self.problem
        machine = self.cloud.catalogue.types.get(group.machine_type)
        if machine is None:
            return f"machine type {group.machine_type} is no longer in the catalogue"
        if machine.price(group.zone, group.capacity_type) is None:
            return f"{offering_of(group)} is no longer in the catalogue"
        return self.withheld.get(group.machine_type, "") or self.sold_out_reason(offering_of(group), now)

    def machine_types(self) -> tuple[str, ...]:
        """Those that groups may be created of. Raises Unsupported without auto-provisioning."""
        offered = self.autoprovisioning
        types = self.cloud.catalogue.types
        wanted = offered.machine_types if offered.machine_types is not None else tuple(types)
        return tuple(each for each in wanted if each not in self.withheld)

    @property
    def autoprovisioning(self) -> KarpenterAutoprovisioning:
        if self.cloud.autoprovisioning is None:
            raise Unsupported(NAME, "", "the file has no autoprovisioning")
        return self.cloud.autoprovisioning

    def made_of(self, spec: GroupSpec, now: float, suffix: str = "") -> KarpenterGroup:
        """The group for a spec: of its machine type the cheapest offering that suits its labels, and is in stock.

        Without a suffix the name says the spec and the offering, so that another offering is another candidate.
        Raises Refused.
        """
        offered = self.autoprovisioning
        if self.problem:
            raise Refused(NAME, "", self.problem)
        if spec.machine_type not in self.machine_types():
            raise Refused(
                NAME, "", self.withheld.get(spec.machine_type, f"{spec.machine_type} is not in the catalogue")
            )
        machine = self.cloud.catalogue.types[spec.machine_type]
        for resource, amount in spec.extra_resources.items():
            if machine.allocatable_amounts.get(resource, 0) < amount:
                raise Refused(NAME, "", f"{resource}: {amount}: machine type {spec.machine_type} has fewer")
        offering = self._offering(spec, offered, now)
        group = KarpenterGroup(
            name=node_template.group_name(
                spec.prefix, spec.machine_type, suffix or digest_suffix((spec, offering)), MAX_GROUP_NAME
            ),
            machine_type=offering.machine_type,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            max=offered.max,
            labels=dict(spec.labels),
            taints=tuple(spec.taints),
            autoprovisioned=True,
        )
        given = self._given_labels(group)
        for key, value in spec.labels.items():
            if given.get(key, value) != value:
                raise Refused(NAME, "", f"label {key}: {value!r}: it is {given[key]!r} on all of them")
            if key not in given and (problem := node_template.label_problem(key, value)):
                raise Refused(NAME, "", f"label {key}: {value!r}: {problem}")
        own = {key: value for key, value in spec.labels.items() if key not in given}
        return msgspec.structs.replace(group, labels=own)

    def template(self, group: KarpenterGroup) -> Node:
        """The next Node of the group. Raises Refused for a machine type that is not in the catalogue."""
        machine = self.cloud.catalogue.types.get(group.machine_type)
        if machine is None:
            raise Refused(NAME, group.name, f"machine type {group.machine_type} is not in the catalogue")
        name = f"template-{group.name}"
        labels = self._given_labels(group) | group.labels | {LABEL_HOSTNAME: name}
        return Node(
            metadata=ObjectMeta(name=name, labels=labels),
            spec=NodeSpec(taints=tuple(dict.fromkeys((*self.defaults.taints, *group.taints)))),
            status=NodeStatus(
                capacity=format_amounts(machine.capacity_amounts),
                allocatable=format_amounts(machine.allocatable_amounts),
            ),
        )

    def _offering(self, spec: GroupSpec, offered: KarpenterAutoprovisioning, now: float) -> Offering:
        """Raises Refused."""
        zone = spec.labels.get(LABEL_ZONE)
        capacity_type = spec.labels.get(LABEL_CAPACITY_TYPE)
        found = [
            offering
            for _, offering in self.cloud.catalogue.offerings(spec.machine_type, offered.zones, offered.capacity_types)
            if zone in (None, offering.zone) and capacity_type in (None, offering.capacity_type)
        ]
        if not found:
            asked = ", ".join(filter(None, (zone, capacity_type))) or "any zone"
            raise Refused(NAME, "", f"{spec.machine_type} is not offered in {asked}")
        reasons = [self.sold_out_reason(each, now) for each in found]
        in_stock = next((each for each, reason in zip(found, reasons, strict=True) if not reason), None)
        if in_stock is None:
            raise Refused(NAME, "", reasons[0])
        return in_stock

    def _given_labels(self, group: KarpenterGroup) -> dict[str, str]:
        """Those of all nodes of the group, without its own."""
        machine = self.cloud.catalogue.types[group.machine_type]
        return (
            dict(self.defaults.labels)
            | machine.node_labels
            | _OF_KARPENTER
            | {
                LABEL_ZONE: group.zone,
                LABEL_CAPACITY_TYPE: group.capacity_type,
                names.LABEL_NODE_GROUP: group.name,
            }
        )


def offering_of(group: KarpenterGroup) -> Offering:
    return Offering(group.machine_type, group.zone, group.capacity_type)


def drift_reason(claim: NodeClaim, group: KarpenterGroup, defaults: NodeDefaults) -> str:
    """How the claim differs from the next one of its group; empty where it does not."""
    said = claim.condition(claims.DRIFTED)
    if said is not None and said.status == "True":
        return f"its NodeClaim says that it has drifted: {said.reason} {said.message}".rstrip()
    offering, node_class = offering_of(group), claim.spec.node_class_ref
    if claim.offering != offering:
        return f"it was launched as {claim.offering}, but its group launches {offering} now"
    if node_class != defaults.node_class:
        return f"it was launched by {node_class}, but its group launches by {defaults.node_class} now"
    if _read(claim.spec.taints or ()) != _read((*defaults.taints, *group.taints)):
        return "it was launched with taints that differ from its group's"
    labels = claim.metadata.labels or {}
    other = [key for key, value in (dict(defaults.labels) | group.labels).items() if labels.get(key) != value]
    if other:
        return f"it was launched with a label {min(other)} that differs from its group's"
    return _hash_reason(claim, dict(defaults.hashes))


def _hash_reason(claim: NodeClaim, now: dict[str, str]) -> str:
    """Karpenter's providers write a hash of the node class into the class, and into each claim at its launch."""
    launched = claim.metadata.annotations or {}
    for key, value in now.items():
        version = key + HASH_VERSION.removeprefix(HASH)
        comparable = key.endswith(HASH) and key in launched and launched.get(version) == now.get(version)
        if comparable and launched[key] != value:
            return f"its node class has changed since it was launched ({key})"
    return ""


def _read(taints: Iterable[Taint]) -> frozenset[tuple[str, str, str]]:
    return frozenset((each.key, each.value, each.effect) for each in taints)
