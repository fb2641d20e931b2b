"""What the API answers, and how an answer is made of what the controller knows. The schemas are in docs/schemas."""

from dataclasses import dataclass

from manager.configuration import Configuration
from manager.controller import LastWrite, NodeState
from manager.noderesource import writing
from shared import durations, names
from shared.explanation import ResourceExplanation
from shared.quantity import QuantityError, Resources

_UNDECIDED = ResourceExplanation((), "undecided", 0)


@dataclass(frozen=True)
class Amount:
    """cpu in thousandths of a core, memory in bytes."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True)
class NodeRow:
    """One node. `mid` is what its status offers now, `reason` why; an amount nobody knows is null."""

    name: str
    simulated: bool
    allocatable: Amount | None
    requested: Amount
    used: Amount | None
    predicted_peak: Amount | None
    reclaimable: Amount | None
    mid: Amount
    reason: str


@dataclass(frozen=True)
class Nodes:
    nodes: list[NodeRow]


@dataclass(frozen=True)
class TermRow:
    """One term; `unit` is "milli", "bytes" or "percent", `time` when the source said so (RFC 3339)."""

    name: str
    value: int
    unit: str
    source: str
    time: str | None


@dataclass(frozen=True)
class ResourceRow:
    """How one resource came about; `bound` names the term that decided."""

    terms: list[TermRow]
    bound: str
    result: int


@dataclass(frozen=True)
class BothResources:
    cpu: ResourceRow
    memory: ResourceRow


@dataclass(frozen=True)
class LastWriteRow:
    """What this manager last wrote to the Node; null amounts when it took Mid away."""

    time: str
    reason: str
    cpu_milli: int | None
    memory_bytes: int | None


@dataclass(frozen=True)
class Explained:
    node: str
    resources: BothResources
    last_write: LastWriteRow | None


@dataclass(frozen=True)
class Status:
    """The manager itself. `waiting_for` is what it has not seen in full yet; `config_problem` what it refused."""

    leader: bool
    dry_run: bool
    waiting_for: list[str]
    colocation_enabled: bool
    config_map: str
    config_problem: str | None


def nodes(states: list[NodeState]) -> Nodes:
    """The table."""
    return Nodes([row(state) for state in states])


def row(state: NodeState) -> NodeRow:
    """One line of the table."""
    node, decision = state.node, state.decision
    seen = None if decision is None else decision.observed
    try:
        allocatable: Resources | None = node.allocatable
    except QuantityError:
        allocatable = None
    return NodeRow(
        name=node.metadata.name,
        simulated=node.metadata.label(names.LABEL_SIMULATED) == "true",
        allocatable=_amount(allocatable),
        requested=Amount(*state.requested.total),
        used=_amount(seen.usage if seen else None),
        predicted_peak=_amount(seen.peak if seen else None),
        reclaimable=_amount(seen.reclaimable if seen else None),
        mid=Amount(*(writing.on_offer(node) or Resources())),
        reason=decision.explanation.reason if decision else "not decided yet",
    )


def explained(state: NodeState) -> Explained:
    """Every term of one node's offer."""
    explanation = state.decision.explanation if state.decision else None
    cpu, memory = (explanation.cpu, explanation.memory) if explanation else (_UNDECIDED, _UNDECIDED)
    last_write = None if state.last_write is None else _last_write(state.last_write)
    return Explained(state.node.metadata.name, BothResources(_resource(cpu), _resource(memory)), last_write)


def status(
    configuration: Configuration, *, config_map: str, leader: bool, dry_run: bool, waiting_for: list[str]
) -> Status:
    """The manager itself."""
    problem = None if configuration.problem is None else str(configuration.problem)
    return Status(leader, dry_run, waiting_for, configuration.enabled, config_map, problem)


def _resource(of: ResourceExplanation) -> ResourceRow:
    terms = [TermRow(term.name, term.value, term.unit, term.source, term.time) for term in of.terms]
    return ResourceRow(terms, of.bound, of.result)


def _last_write(last: LastWrite) -> LastWriteRow:
    cpu_milli, memory_bytes = last.offer or (None, None)
    return LastWriteRow(durations.timestamp(last.time), last.reason, cpu_milli, memory_bytes)


def _amount(of: Resources | None) -> Amount | None:
    return None if of is None else Amount(*of)
