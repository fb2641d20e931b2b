"""Small instances of pods without a node, what the autoscaler buys for them, and the least that this can cost.

The machines have prices as clouds list them: 2, 4 or 8 GiB a core, and twice the price for twice the size. The optimum
is exact: the pods of a node are one of the maximal patterns that fit on its machine, and HiGHS chooses how many nodes
of each pattern have all pods at the least cost.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import highspy

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.expander.ranking import Preset
from manager.autoscaler.pricing.gce import LABELS_INSTANCE_TYPE
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up import orchestrator, salvo
from manager.autoscaler.scale_up.decisions import ScaleUpOutcome
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot import cluster, templates
from manager.autoscaler.snapshot.cluster import NodeInfo
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo

_MIB = 1 << 20
_OVERHEAD_CPU_MILLI, _OVERHEAD_MEMORY_MIB = 100, 512
_FAMILIES = {"c": (2, 0.0425), "m": (4, 0.048), "r": (8, 0.063)}  # GiB and $/h per core
_CPU_MILLI = (250, 500, 1000, 1500, 2000, 3500)
_MEMORY_MIB = (256, 512, 1024, 2048, 4096, 8192, 12288)


class Pods(NamedTuple):
    """Some pods with the same requests."""

    cpu_milli: int
    memory_mib: int
    replicas: int


class MachineType(NamedTuple):
    """What pods may have of a machine, and its price per hour."""

    cpu_milli: int
    memory_mib: int
    price: float


TYPES = {
    f"{family}-{cores}": MachineType(
        cores * 1000 - _OVERHEAD_CPU_MILLI, cores * gib * 1024 - _OVERHEAD_MEMORY_MIB, cores * price
    )
    for family, (gib, price) in _FAMILIES.items()
    for cores in (2, 4, 8, 16)
}


def instances(chance: random.Random, most_shapes: int) -> Iterator[list[Pods]]:
    """Endlessly: two to `most_shapes` shapes of up to twelve pods."""
    while True:
        yield [
            Pods(chance.choice(_CPU_MILLI), chance.choice(_MEMORY_MIB), chance.randint(1, 12))
            for _ in range(chance.randint(2, most_shapes))
        ]


def cost_of_decisions(instance: Sequence[Pods], preset: Preset) -> float:
    """Per hour, of the nodes that the autoscaler buys in one iteration for an empty cluster; all pods have a place."""
    machines = [_machine(name, each) for name, each in TYPES.items()]
    states = [
        GroupStatus(Group(each.name, 0, 1000, 0), template=templates.from_provider(each.name, each, ()))
        for each in machines
    ]
    pricing = FilePricing({name: each.price for name, each in TYPES.items()})
    settings = ScaleUpSettings(Ownership(dict.fromkeys(TYPES)), pricing, preset=preset)
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), [_class(*each) for each in enumerate(instance)], states)
    cost, chance = 0.0, random.Random(1)
    while (decision := orchestrator.decide(situation, settings, chance)).outcome is ScaleUpOutcome.GROW:
        cost += sum(TYPES[group].price * count for group, count in decision.nodes.items())
        situation = salvo.apply_decision(situation, decision)
    assert not any(each.pods for each in decision.left)
    return cost


def least_cost(instance: Sequence[Pods]) -> float:
    """Per hour, of the cheapest nodes that have room for all pods."""
    prices: dict[tuple[int, ...], float] = {}
    for machine in TYPES.values():
        for pattern in _maximal_patterns(instance, machine):
            prices[pattern] = min(machine.price, prices.get(pattern, machine.price))
    solver = highspy.Highs()
    solver.silent()
    for pods in instance:
        solver.addRow(pods.replicas, highspy.kHighsInf, 0, [], [])
    for column, (pattern, price) in enumerate(prices.items()):
        rows = [row for row, count in enumerate(pattern) if count]
        solver.addCol(price, 0, highspy.kHighsInf, len(rows), rows, [float(pattern[row]) for row in rows])
        solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(solver.getObjectiveValue())


def _maximal_patterns(instance: Sequence[Pods], machine: MachineType) -> Iterator[tuple[int, ...]]:
    """How many pods of each shape a node has, if no further pod fits."""

    def size(pattern: Sequence[int]) -> tuple[int, int]:
        pairs = list(zip(instance, pattern, strict=True))
        return sum(each.cpu_milli * count for each, count in pairs), sum(
            each.memory_mib * count for each, count in pairs
        )

    for pattern in product(*(range(min(each.replicas, machine.cpu_milli // each.cpu_milli) + 1) for each in instance)):
        cpu, memory = (most - used for most, used in zip(machine, size(pattern), strict=False))
        if (
            any(pattern)
            and min(cpu, memory) >= 0
            and not any(
                count < each.replicas and each.cpu_milli <= cpu and each.memory_mib <= memory
                for each, count in zip(instance, pattern, strict=True)
            )
        ):
            yield pattern


def _machine(name: str, machine: MachineType) -> NodeInfo:
    amounts = {"cpu": machine.cpu_milli, "memory": machine.memory_mib * _MIB, "pods": 110}
    capacity = {**amounts, "cpu": machine.cpu_milli + _OVERHEAD_CPU_MILLI}
    return NodeInfo(name, {LABELS_INSTANCE_TYPE[0]: name}, capacity=capacity, allocatable=amounts)


def _class(number: int, pods: Pods) -> EquivalenceGroup:
    requests: Mapping[str, int] = {"cpu": pods.cpu_milli, "memory": pods.memory_mib * _MIB}
    return EquivalenceGroup(
        PodInfo("default", requests=requests), tuple(f"default/{number}-{each}" for each in range(pods.replicas))
    )
