"""Turns samples into the fleet to replay: the requests of each series, and where each runs. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent.backtest import packing
from agent.backtest.recording import PodSchedule, RecordedUsage, side_by_side
from agent.backtest.study import HOUR_SECONDS, RecordedFleet
from agent.metric_cache.aggregate import Aggregation
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from deploy.backtest.samples import Samples, on_grid
from deploy.backtest.tables import SeriesRequests
from shared.errors import InvalidInput

TRAINING_SECONDS = 30.0  # between two training steps of an agent
BYTES_PER_CORE = float(4 << 30)  # of the machine that recorded shares refer to


@dataclass(frozen=True)
class SeriesPlacement:
    """How series become nodes: packed onto nodes of `node_cores`, or where they ran (`recorded`).

    With `recorded` None, the source decides. `churn_hours` is the mean life of a packed pod, None for pods that stay.
    `max_nodes` limits the nodes per seed. The largest recorded machine has `node_cores`.
    """

    node_cores: float = 64.0
    recorded: bool | None = None
    churn_hours: float | None = None
    seeds: int = 1
    max_nodes: int | None = None


def fleet(
    samples: Samples,
    requested: SeriesRequests | None,
    placement: SeriesPlacement,
    note: Callable[[str], None],
    training: Aggregation = Aggregation.P90,
) -> RecordedFleet:
    """The fleet to replay; `note` receives a sentence about what is left out.

    Samples that are finer than an agent's training steps are aggregated as there, by `training`.

    Raises InvalidInput where requests are missing, or where nothing is left.
    """
    cores, memory_bytes = _requests(samples, requested, placement.node_cores)
    of_cpu = samples.unit.resource == "cpu"
    requests = cores if of_cpu else memory_bytes
    known = np.flatnonzero(np.isfinite(requests) & (requests > 0))
    missing = len(requests) - len(known)
    if not len(known):
        problem = f"nothing is known of what these requested of {samples.unit.resource}; name a file with --limits"
        raise InvalidInput(source=samples.source, field="requests", value=list(samples.names[:3]), problem=problem)
    if missing:
        note(f"{samples.source}: {missing} of {len(requests)} series requested nothing and are left out")
    grid = on_grid(samples)
    machine = placement.node_cores * (1.0 if of_cpu else BYTES_PER_CORE) if samples.unit.of_machine else 1.0
    workloads = (
        _numbered([samples.workloads[one] for one in known.tolist()]) if samples.workloads else np.zeros(0, np.intp)
    )
    usage = RecordedUsage(grid.usage[known] * machine, requests[known], grid.start, grid.interval_seconds, workloads)
    usage = replace(usage, aggregate=samples.aggregate)
    recorded = usage.in_steps(TRAINING_SECONDS, training).capped_and_filled()
    schedule = _schedule(samples.of(known), requested, placement, recorded, cores[known])
    if not schedule.nodes:
        problem = "no node is half full of these series; name the size of nodes with --node-cores"
        raise InvalidInput(source=samples.source, field="cores of a node", value=placement.node_cores, problem=problem)
    return RecordedFleet(recorded, schedule.split_at_gaps(recorded))


def _numbered(workloads: Sequence[str]) -> Rows:
    """A number for each name, -1 for an empty one."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(filter(None, workloads)))}
    return np.array([numbers.get(name, -1) for name in workloads], np.intp)


def _requests(samples: Samples, requested: SeriesRequests | None, machine_cores: float) -> tuple[Floats, Floats]:
    """Cores and bytes of each series; NaN where unknown."""
    if requested is None:
        unknown = np.full(len(samples.names), np.nan)
        cores, memory_bytes = samples.cores, samples.memory_bytes
        return cores if len(cores) else unknown, memory_bytes if len(memory_bytes) else unknown
    cores = np.array([requested.cores.get(name, np.nan) for name in samples.names])
    memory_bytes = np.array([requested.memory_bytes.get(name, np.nan) for name in samples.names])
    if requested.of_machines:
        return cores * machine_cores, memory_bytes * machine_cores * BYTES_PER_CORE
    return cores, memory_bytes


def _schedule(
    samples: Samples,
    requested: SeriesRequests | None,
    placement: SeriesPlacement,
    recorded: RecordedUsage,
    cores: Floats,
) -> PodSchedule:
    """Where the series with requests run; `samples` holds only these series."""
    of_machines = requested is not None and requested.of_machines
    if placement.recorded is not False and (of_machines or samples.nodes):
        _, node = np.unique(np.array(samples.names if of_machines else samples.nodes), return_inverse=True)
        return _first_nodes(packing.static(node, recorded.ticks), placement.max_nodes)
    if placement.recorded or of_machines:
        problem = "machines have no churn" if of_machines else "where these ran is not recorded; name a life, or none"
        raise InvalidInput(source="--churn", field=samples.source, value=_churn(placement), problem=problem)
    if np.isnan(cores).any():
        problem = "nodes are packed by requested cores, which are not known of all"
        raise InvalidInput(source=samples.source, field="requests", value=samples.unit.resource, problem=problem)
    packed = (_packed(placement, recorded, cores, seed) for seed in range(placement.seeds))
    return side_by_side([_first_nodes(one, placement.max_nodes) for one in packed])


def _churn(placement: SeriesPlacement) -> str:
    if placement.recorded:
        return "recorded"
    return "none" if placement.churn_hours is None else f"{placement.churn_hours:g}h"


def _packed(placement: SeriesPlacement, recorded: RecordedUsage, cores: Floats, seed: int) -> PodSchedule:
    rng = np.random.default_rng(seed)
    node = packing.first_fit(cores, placement.node_cores, rng)
    if placement.churn_hours is None:
        return packing.static(node, recorded.ticks)
    ticks_per_hour = HOUR_SECONDS / recorded.interval_seconds
    return packing.churned(
        node, cores, recorded.ticks, mean_hours=placement.churn_hours, ticks_per_hour=ticks_per_hour, rng=rng
    )


def _first_nodes(schedule: PodSchedule, most: int | None) -> PodSchedule:
    if most is None or schedule.nodes <= most:
        return schedule
    pods = slice(0, int(np.searchsorted(schedule.node, most)))
    return replace(
        schedule,
        node=schedule.node[pods],
        series=schedule.series[pods],
        first=schedule.first[pods],
        end=schedule.end[pods],
        nodes=most,
    )
