"""An agent's measurements when a threshold was reached; implausible ones are refused. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from shared import names, quantity
from shared.api import nodemetric
from shared.api.core import Quantities
from shared.errors import InvalidInput
from shared.quantity import INT64_MAX, Resources

MOST_PODS = 4096  # of a node
MOST_TEXT = 16  # characters of a decimal


class PodPressure(NamedTuple):
    """A pod's usage, and its requests of Mid and Batch."""

    usage: Resources
    held: Resources


class NodePressure(msgspec.Struct, frozen=True, gc=False):
    """The node and its Mid and Batch pods, by UID; see the wire's `Pressure`. CPU is in milli-cores."""

    resources: tuple[str, ...]
    capacity: Resources
    usage: Resources
    cpu_request: int
    cpu_usage: int
    cpu_limit: int
    pods: Mapping[str, PodPressure]
    stalls: tuple[str, str] = ("", "")  # of cpu and memory, as reported


def read(wire: nodemetric.Pressure | None, *, source: str) -> NodePressure | None:
    """Raises InvalidInput."""
    if wire is None:
        return None
    source = f"{source} status.prediction.pressure"
    if len(wire.pods or ()) > MOST_PODS:
        problem = f"no node runs more than {MOST_PODS} of them"
        raise InvalidInput(source=source, field="pods", value=len(wire.pods or ()), problem=problem)
    capacity = _amounts(wire.capacity, source, "capacity")
    if min(capacity) <= 0:
        raise InvalidInput(source=source, field="capacity", value=wire.capacity, problem="a node has some of both")
    tiers = [
        _amounts({names.CPU: value}, source, f"tiersCPU{name}").cpu_milli
        for name, value in (
            ("Request", wire.tiers_cpu_request),
            ("Usage", wire.tiers_cpu_usage),
            ("Limit", wire.tiers_cpu_limit),
        )
    ]
    return NodePressure(
        resources=tuple(name for name in (names.MEMORY, names.CPU) if name in wire.resources),
        capacity=capacity,
        usage=_amounts(wire.usage, source, "usage"),
        cpu_request=tiers[0],
        cpu_usage=tiers[1],
        cpu_limit=tiers[2],
        pods={
            pod.uid: PodPressure(*(_amounts(each, source, f"pods[{pod.uid}]") for each in (pod.usage, pod.held)))
            for pod in wire.pods or ()
        },
        stalls=((wire.cpu_stall_percent or "")[:MOST_TEXT], (wire.memory_stall_percent or "")[:MOST_TEXT]),
    )


def _amounts(listed: Quantities | None, source: str, field: str) -> Resources:
    given = listed or {}
    try:
        cpu, memory = quantity.milli(given.get(names.CPU, "0")), quantity.whole(given.get(names.MEMORY, "0"))
        if not 0 <= min(cpu, memory) <= max(cpu, memory) < INT64_MAX:
            raise ValueError("must be from 0 to less than 2^63")
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise InvalidInput(source=source, field=field, value=dict(given), problem=str(error)) from error
    return Resources(cpu, memory)
