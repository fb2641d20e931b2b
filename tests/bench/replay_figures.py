"""What a replay comes to, from what was seen of it minute by minute. Pure."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MINUTES_PER_HOUR = 60.0


@dataclass
class Seen:
    """Each list has an entry a minute, but `waits`, one for each pod that found a node (in minutes), and `walls` and
    `cpus`, one for each round (in seconds). Pods wait whole minutes, as that is how long a step is.
    """

    targets: list[int] = field(default_factory=list)
    machines: list[int] = field(default_factory=list)  # that are paid for
    costs: list[float] = field(default_factory=list)  # of all machines, in $/h
    open_nodes: list[int] = field(default_factory=list)  # that take pods
    pending: list[int] = field(default_factory=list)
    overloaded: list[int] = field(default_factory=list)  # nodes of which more is used than there is
    replaced: int = 0
    waits: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    """Nodes are those that are paid for. A turn is a change of direction; see `turns`."""

    mean_nodes: float
    most_nodes: int
    dollars_per_day: float
    pending_pod_minutes: int
    wait_p95_minutes: float
    wait_p99_minutes: float
    turns_per_hour: float
    open_turns_per_hour: float
    overloaded_node_minutes: int
    replaced_pods: int
    round_wall_ms: float
    round_cpu_ms: float


def of(seen: Seen) -> Figures:
    hours = len(seen.machines) / MINUTES_PER_HOUR
    return Figures(
        mean_nodes=sum(seen.machines) / len(seen.machines),
        most_nodes=max(seen.machines),
        dollars_per_day=24 * sum(seen.costs) / len(seen.costs),
        pending_pod_minutes=sum(seen.pending),
        wait_p95_minutes=percentile(seen.waits, 95),
        wait_p99_minutes=percentile(seen.waits, 99),
        turns_per_hour=turns(seen.targets) / hours,
        open_turns_per_hour=turns(seen.open_nodes) / hours,
        overloaded_node_minutes=sum(seen.overloaded),
        replaced_pods=seen.replaced,
        round_wall_ms=1e3 * sum(seen.walls) / len(seen.walls),
        round_cpu_ms=1e3 * sum(seen.cpus) / len(seen.cpus),
    )


def turns(values: Sequence[int]) -> int:
    """How often the values go the other way than they went before; standing still is no way."""
    steps = [later - earlier for earlier, later in itertools.pairwise(values) if later != earlier]
    return sum((one > 0) != (other > 0) for one, other in itertools.pairwise(steps))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many of a hundred do not exceed; 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
