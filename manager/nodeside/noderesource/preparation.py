"""Converts the Batch offer for the Node: to normalized cores, less the allocations of other allocators.

An invalid annotation of the Node is ignored, and is one of its `problems`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from manager.nodeside.noderesource import amplification, situation, third_party
from shared import names
from shared.api.core import Node
from shared.errors import InvalidInput
from shared.explanation import Explanation, ResourceExplanation, Term
from shared.quantity import Resources

RATIO = "cpu_normalization_ratio"
ORIGIN = "before_third_party"
THIRD_PARTY = "third_party"

_HEEDED = frozenset({names.ANNOTATION_CPU_NORMALIZATION_RATIO, names.ANNOTATION_THIRD_PARTY_ALLOCATIONS})

_READ = (
    situation.reservation,
    amplification.raw_allocatable,
    amplification.cpu_normalization_ratio,
    third_party.allocated,
)

T = TypeVar("T")


def prepare(batch: Explanation, node: Node) -> Explanation:
    """The explanation extended to the Node's amounts; unchanged without such annotations."""
    if _HEEDED.isdisjoint(node.metadata.annotations or ()):
        return batch
    ratio = _or_nothing(amplification.cpu_normalization_ratio, node)
    given_away = _or_nothing(third_party.allocated, node)
    cpu, memory = batch.cpu, batch.memory
    if ratio is not None and ratio > 1:
        cpu = _normalized(cpu, ratio, node)
    if given_away is not None:
        cpu = _shared(cpu, given_away.cpu_milli, "milli", node)
        memory = _shared(memory, given_away.memory_bytes, "bytes", node)
    return batch if (cpu, memory) == (batch.cpu, batch.memory) else Explanation(cpu, memory, batch.reason)


def prepare_zones(zones: Mapping[int, Resources], node: Node) -> dict[int, Resources]:
    """The Batch amounts of the zones as written; allocations of others are not known by zone."""
    ratio = _or_nothing(amplification.cpu_normalization_ratio, node)
    return {
        zone: Resources(amplification.normalized(amount.cpu_milli, ratio), amount.memory_bytes)
        for zone, amount in zones.items()
    }


def origin(prepared: Explanation) -> Resources:
    """The amount before other allocators took theirs, from a prepared explanation."""
    return Resources(_origin(prepared.cpu), _origin(prepared.memory))


def problems(node: Node) -> tuple[InvalidInput, ...]:
    """The invalid annotations about reservations, amplification and other allocators."""
    return tuple(_problems(node))


def _problems(node: Node) -> Iterator[InvalidInput]:
    for read in _READ:
        try:
            read(node)
        except InvalidInput as problem:
            yield problem


def _or_nothing(read: Callable[[Node], T | None], node: Node) -> T | None:
    try:
        return read(node)
    except InvalidInput:
        return None


def _normalized(cpu: ResourceExplanation, ratio: float, node: Node) -> ResourceExplanation:
    source = f"Node {node.metadata.name} annotation {names.ANNOTATION_CPU_NORMALIZATION_RATIO}"
    term = Term(RATIO, round(100 * ratio), "percent", source)
    return ResourceExplanation((*cpu.terms, term), cpu.bound, amplification.normalized(cpu.result, ratio))


def _shared(explained: ResourceExplanation, given_away: int, unit: str, node: Node) -> ResourceExplanation:
    source = f"Node {node.metadata.name} annotation {names.ANNOTATION_THIRD_PARTY_ALLOCATIONS}"
    terms = (
        *explained.terms,
        Term(ORIGIN, explained.result, unit, explained.bound),
        Term(THIRD_PARTY, given_away, unit, source),
    )
    result = third_party.remaining(explained.result, given_away)
    return ResourceExplanation(terms, f"{explained.bound} - {THIRD_PARTY}", result)


def _origin(explained: ResourceExplanation) -> int:
    return next((term.value for term in explained.terms if term.name == ORIGIN), explained.result)
