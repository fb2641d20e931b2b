"""Pods in wire form, reduced to the fields that the autoscaler reads, with common parts stored once.

The pods of one controller differ in little more than their names: most parts of 150,000 pods have only some hundreds of
values.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from shared.api import pods
from shared.api.core import Affinity, Condition, Container, Pod, PodStatus, Toleration, TopologySpreadConstraint, Volume
from shared.api.meta import ObjectMeta, OwnerReference

# How many different values of one part are remembered; the least recently met go first.
MOST_VALUES = 4096

# The domains of the annotations that are read, and Karpenter's; those of network plugins differ from pod to pod.
_DOMAINS = re.compile(r"(^|\.)(kubernetes\.io|autoscaling\.x-k8s\.io|karpenter\.sh)/")

S = TypeVar("S", bound=msgspec.Struct)
_Share: TypeAlias = Callable[[bytes], Any]


def slim_pod(pod: Pod) -> Pod:
    """The pod without the parts that the autoscaler does not read."""
    status, meta = pod.status, pod.metadata
    resizing = pods.resizing(pod)
    read = {pods.SCHEDULED, pods.RESIZE_PENDING} if resizing else {pods.SCHEDULED}
    annotations = {name: text for name, text in (meta.annotations or {}).items() if _DOMAINS.search(name)}
    volumes = tuple(each for each in pod.spec.volumes or () if each.projected is None)  # their names are random
    conditions = tuple(_condition(each) for each in status.conditions or () if each.type in read)
    return Pod(
        metadata=_share_parts(
            ObjectMeta(
                name=meta.name,
                namespace=sys.intern(meta.namespace),
                uid=meta.uid,
                creation_timestamp=meta.creation_timestamp,
                deletion_timestamp=meta.deletion_timestamp,
                labels=meta.labels,
                annotations=annotations or None,
                owner_references=meta.owner_references,
            ),
            _OF_METADATA,
        ),
        spec=_share_parts(
            replace(pod.spec, node_name=sys.intern(pod.spec.node_name), volumes=volumes or None), _OF_SPEC
        ),
        status=PodStatus(
            phase=sys.intern(status.phase),
            nominated_node_name=status.nominated_node_name,
            conditions=conditions or None,
            container_statuses=status.container_statuses if resizing else None,
            init_container_statuses=status.init_container_statuses if resizing else None,
            resource_claim_statuses=status.resource_claim_statuses,
            extended_resource_claim_status=status.extended_resource_claim_status,
        ),
    )


def _condition(found: Condition) -> Condition:
    return replace(found, type=sys.intern(found.type), status=sys.intern(found.status))


def _sharing(kind: Any) -> _Share:
    """A function from an encoded part to the part: the same object for the same bytes."""
    return lru_cache(MOST_VALUES)(msgspec.msgpack.Decoder(kind).decode)


_OF_METADATA: Mapping[str, _Share] = {
    "labels": _sharing(dict[str, str]),
    "annotations": _sharing(dict[str, str]),
    "owner_references": _sharing(tuple[OwnerReference, ...]),
}
_OF_SPEC: Mapping[str, _Share] = {
    "containers": _sharing(tuple[Container, ...]),
    "init_containers": _sharing(tuple[Container, ...]),
    "node_selector": _sharing(dict[str, str]),
    "affinity": _sharing(Affinity),
    "tolerations": _sharing(tuple[Toleration, ...]),
    "topology_spread_constraints": _sharing(tuple[TopologySpreadConstraint, ...]),
    "volumes": _sharing(tuple[Volume, ...]),
}
_encode = msgspec.msgpack.Encoder().encode


def _share_parts(whole: S, parts: Mapping[str, _Share]) -> S:
    try:
        shared = {name: share(_encode(part)) for name, share in parts.items() if (part := getattr(whole, name))}
    except OverflowError:  # an amount beyond 64 bits is judged, and refused by its name, where it is read
        return whole
    return replace(whole, **shared)
