"""The API's answer on how the promises of all nodes are kept."""

from dataclasses import dataclass, field

from manager.nodeside.fleet import FleetOverview, PromiseRate
from manager.nodeside.promises import RESOURCES, PooledWithdrawal
from shared import durations


@dataclass(frozen=True)
class FleetRow:
    """How often promises with a target were broken over all nodes. `missed` is only set if there are at least a
    thousand outcomes.
    """

    resource: str
    horizon_seconds: int
    nodes: int
    outcomes: int
    violation_percent: float
    target_violation_percent: float
    missed: bool


@dataclass(frozen=True)
class KindRow(FleetRow):
    """The same over the nodes of one kind, by the requests of their Prod pods: "replicas" if one workload holds half of
    them or more, else "few large pods" if they are fewer than eight equal pods, or as uneven, else "many small pods".
    """

    kind: str


@dataclass(frozen=True)
class NodeRateRow:
    """How often one node broke its promises for one resource and horizon, in its `outcomes`.

    `cause` is the likely cause of the last surprise: "Correlated", "Growing", "Bursting", or empty if it is not known.
    """

    node: str
    resource: str
    horizon_seconds: int
    outcomes: int
    violation_percent: float
    target_violation_percent: float
    cause: str


@dataclass(frozen=True)
class TailRow:
    """The tail of residuals that a node starts with before it has outcomes, in multiples of the forecast's scale."""

    horizon_seconds: int
    resource: str
    quantile: float
    mean_excess: float


@dataclass(frozen=True)
class PriorRow:
    """The prior in use: "built-in", or "fleet". The fleet's prior was pooled from `nodes` nodes at time `pooled` (RFC
    3339).
    """

    source: str
    nodes: int
    pooled: str | None
    tails: list[TailRow]


@dataclass(frozen=True)
class FleetWithdrawal:
    """Percentage of the offer that is withdrawn per day, measured by the agents of `nodes` nodes.

    `window_seconds` is the longest period that an agent measured. Nodes are weighted by what they offer. A percentage
    is null if nothing is offered.
    """

    nodes: int
    window_seconds: int
    cpu_percent_per_day: float | None
    memory_percent_per_day: float | None


@dataclass(frozen=True)
class FleetPrediction:
    """Whether the fleet's promises are kept, over all nodes and by their kind. `alarms` are targets missed by a factor
    of two for more than a day.

    `refused_nodes` counts nodes whose reported outcomes are impossible; they are left out. `withdrawal` is null if no
    agent reports it. `worst_nodes` are up to 20 nodes that broke most promises for their target, the worst first, each
    with the resource and horizon that it broke most.
    """

    rates: list[FleetRow]
    prior: PriorRow
    alarms: list[str]
    refused_nodes: int
    withdrawal: FleetWithdrawal | None = None
    kinds: list[KindRow] = field(default_factory=list)
    worst_nodes: list[NodeRateRow] = field(default_factory=list)


def fleet(of: FleetOverview) -> FleetPrediction:
    """How promises are kept over all nodes."""
    prior = of.prior
    tails = [
        TailRow(horizon, resource, tail.quantile, tail.excess)
        for horizon, both in sorted(prior.by_horizon.items() if prior else ())
        for resource, tail in zip(RESOURCES, both, strict=True)
    ]
    return FleetPrediction(
        rates=[FleetRow(*_rate(rate)) for rate in of.rates],
        prior=PriorRow("built-in", 0, None, [])
        if prior is None
        else PriorRow("fleet", prior.nodes, durations.timestamp(prior.time), tails),
        alarms=list(of.alarms),
        refused_nodes=of.refused_nodes,
        withdrawal=None if of.withdrawal is None else _fleet_withdrawal(of.withdrawal),
        kinds=[KindRow(*_rate(rate), kind=kind) for kind, rates in of.rates_by_kind.items() for rate in rates],
        worst_nodes=[
            NodeRateRow(
                one.node,
                one.resource,
                one.horizon_seconds,
                one.outcomes,
                round(one.violated_percent, 4),
                round(one.target_percent, 4),
                one.cause,
            )
            for one in of.worst_nodes
        ],
    )


def _rate(of: PromiseRate) -> tuple[str, int, int, int, float, float, bool]:
    violated, target = round(of.violated_percent, 4), round(of.target_percent, 4)
    return of.resource, of.horizon_seconds, of.nodes, of.outcomes, violated, target, of.is_missed


def _fleet_withdrawal(of: PooledWithdrawal) -> FleetWithdrawal:
    cpu, memory = (None if each is None else round(each, 2) for each in of.percents_per_day)
    return FleetWithdrawal(of.nodes, of.window_seconds, cpu, memory)
