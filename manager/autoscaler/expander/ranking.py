"""The cost-based rank of an option: suppress(NodeUnfitness, NodeCount) x (C + X) / (T + X); the lowest wins.

The preset `seed` follows "Cost-based node group ranking function for Cluster Autoscaler". The preset
`cluster-autoscaler` follows Cluster Autoscaler's code, which differs in the preferred sizes, in the pod whose price is
X, in the effect of GPUs on unfitness, and in groups that do not exist yet. The preset `least-cost` follows the proposal
without a preferred size: only prices decide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from manager.autoscaler.expander.option import Option
from manager.autoscaler.pricing.model import PricingModel, Unpriced
from shared.quantity import Amounts

_STEEPNESS = 15.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PreferredSize:
    """In a cluster of at most `nodes`, a machine with this many cores fits best."""

    nodes: float
    cpu_milli: int


@dataclass(frozen=True)
class Preset:
    """The constants of the formula.

    Without `preferred`, every machine fits. `stabilization` is the pod whose price is X. `gpu_unfitness` replaces a GPU
    machine's suppressed unfitness; `new_group_factor` multiplies the rank of a group that does not exist yet.
    """

    name: str
    preferred: tuple[PreferredSize, ...]
    stabilization: Amounts
    gpu_unfitness: float | None = None
    new_group_factor: float = 1.0


SEED = Preset(
    name="seed",
    preferred=tuple(
        PreferredSize(nodes, cores * 1000)
        for nodes, cores in ((2, 1), (6, 2), (20, 4), (80, 8), (300, 16), (math.inf, 32))
    ),
    stabilization={"cpu": 500},
)
CLUSTER_AUTOSCALER = Preset(
    name="cluster-autoscaler",
    preferred=tuple(
        PreferredSize(nodes, cores * 1000)
        for nodes, cores in ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16), (math.inf, 32))
    ),
    stabilization={"cpu": 500, "memory": 500 * _MIB},
    gpu_unfitness=1000.0,
    new_group_factor=2.0,
)
LEAST_COST = Preset(name="least-cost", preferred=(), stabilization={"cpu": 500})
PRESETS = {preset.name: preset for preset in (SEED, CLUSTER_AUTOSCALER, LEAST_COST)}


@dataclass(frozen=True, slots=True)
class Rank:
    """suppressed_unfitness x (nodes_price + stabilization_price) / (pods_price + stabilization_price)
    x new_group_factor; the lowest rank wins.

    `nodes_price` (C) is the new nodes' cost per hour, `pods_price` (T) their pods' cost on machines that fit them
    perfectly, `stabilization_price` (X) that of one small pod. `unfitness` is the factor by which a machine is larger
    or smaller than the preferred one; more nodes suppress it. Null where it is infinite.
    """

    nodes_price: float
    pods_price: float
    stabilization_price: float
    stabilized_ratio: float | None
    unfitness: float
    suppressed_unfitness: float
    new_group_factor: float
    rank: float | None

    @property
    def height(self) -> tuple[float, float]:
        """The value that ranks are compared by: infinite ones by the price of the nodes."""
        return (math.inf, self.nodes_price) if self.rank is None else (self.rank, 0.0)


@dataclass(frozen=True, slots=True)
class PricedOption:
    """An option, and its rank, or why it has none."""

    option: Option
    rank: Rank | None
    problem: str = ""


def rank_options(
    options: Sequence[Option], model: PricingModel, preset: Preset, preferred_cpu_milli: int | None
) -> list[PricedOption]:
    """Every option with its rank, in the given order. An option without a price has no rank."""
    try:
        stabilization = model.pod_price(preset.stabilization)
    except Unpriced:
        stabilization = 0.0
    return [_ranked(option, model, preset, preferred_cpu_milli, stabilization) for option in options]


def best_options(ranks: Sequence[PricedOption]) -> list[Option]:
    """The options of the lowest rank, exact ties included; none if nothing could be priced."""
    lowest = min((each.rank.height for each in ranks if each.rank), default=None)
    return [each.option for each in ranks if each.rank and each.rank.height == lowest]


def preferred_cpu_milli(preset: Preset, cluster_nodes: int) -> int | None:
    """The machine size that best fits a cluster of this many nodes; None if the preset prefers none."""
    return next((size.cpu_milli for size in preset.preferred if cluster_nodes <= size.nodes), None)


def unfitness(preferred_milli: int | None, node_milli: int) -> float:
    """How far a machine is from the preferred size; 1 is an exact match, or that none is preferred."""
    if preferred_milli is None:
        return 1.0
    return max(preferred_milli / node_milli, node_milli / preferred_milli)


def suppress(node_unfitness: float, node_count: int) -> float:
    """The unfitness, suppressed towards 1 with more nodes at once, since their size then matters less."""
    return (node_unfitness - 1) * (1 - math.tanh((node_count - 1) / _STEEPNESS)) + 1


def stabilized_price(nodes_price: float, pods_price: float, stabilization_price: float) -> float:
    """(C + X) / (T + X). Infinite if pods cost nothing and X is unknown, because then no price is worth paying."""
    divisor = pods_price + stabilization_price
    return (nodes_price + stabilization_price) / divisor if divisor > 0 else math.inf


def _ranked(
    option: Option, model: PricingModel, preset: Preset, preferred_milli: int | None, stabilization: float
) -> PricedOption:
    node_milli = option.machine.capacity.get("cpu", 0)
    if node_milli <= 0:
        return PricedOption(option, None, "the machine has no cpu")
    try:
        nodes_price = model.node_price(option.machine) * option.node_count
        pods_price = sum(model.pod_price(each.requests) * each.pods for each in option.classes)
    except Unpriced as problem:
        return PricedOption(option, None, str(problem))
    away = unfitness(preferred_milli, node_milli)
    overridden = preset.gpu_unfitness if option.has_gpu else None
    suppressed = suppress(away, option.node_count) if overridden is None else overridden
    ratio = stabilized_price(nodes_price, pods_price, stabilization)
    factor = 1.0 if option.exists else preset.new_group_factor
    finite = _finite(ratio), _finite(suppressed * ratio * factor)
    return PricedOption(
        option, Rank(nodes_price, pods_price, stabilization, finite[0], away, suppressed, factor, finite[1])
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
