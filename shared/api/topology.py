"""NodeResourceTopology, `topology.node.k8s.io/v1alpha1`: the NUMA zones of a node, and the resources of each."""

from typing import TypeAlias

from shared.api.meta import ObjectMeta, Wire, prepared

Quantity: TypeAlias = str | int | float


class ZoneResource(Wire, frozen=True):
    """One resource of a zone, with all fields of the kind."""

    name: str = ""
    capacity: Quantity | None = None
    allocatable: Quantity | None = None
    available: Quantity | None = None


class Zone(Wire, frozen=True):
    name: str = ""
    resources: tuple[ZoneResource, ...] | None = None


@prepared
class NodeResourceTopology(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    zones: tuple[Zone, ...] | None = None
