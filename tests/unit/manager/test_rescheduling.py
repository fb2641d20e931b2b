"""Where pods of nodes that leave go, held against the same in plain words: pod by pod, node by node."""

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.estimator import problem
from manager.autoscaler.scale_down.removal_simulation import NoPlace, PodBatch, PodMove, Rescheduling
from manager.autoscaler.snapshot import cluster, pod_info
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.api.core import Node, Pod
from tests.support.properties import examples
from tests.unit.manager.wire_objects import SURROUNDINGS, raw_node, raw_pod


@dataclass(frozen=True)
class Sizes:
    """Nodes by cores (tenths) and MiB, kinds of pods by the same, and how many of each kind are on each node."""

    nodes: list[tuple[int, int]]
    kinds: list[tuple[int, int]]
    pods: list[list[int]]

    @property
    def moving(self) -> dict[int, list[PodBatch]]:
        return {
            row: [
                PodBatch(kind, tuple(f"default/p{row}-{kind}-{number}" for number in range(count)))
                for kind, count in enumerate(counts)
                if count
            ]
            for row, counts in enumerate(self.pods)
        }


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    nodes = draw(st.lists(st.tuples(st.integers(4, 20), st.integers(4, 20)), min_size=2, max_size=9))
    kinds = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4, unique=True))
    pods = []
    for cores, memory in nodes:
        counts = []
        for cpu, mib in kinds:
            count = draw(st.integers(0, min(3, cores // cpu, memory // mib)))
            cores, memory = cores - count * cpu, memory - count * mib
            counts.append(count)
        pods.append(counts)
    return Sizes(nodes, kinds, pods)


def rescheduling(case: Sizes) -> Rescheduling:
    nodes = [
        cluster.node_info(
            msgspec.convert(raw_node(f"n{row}", {}, {"cpu": f"{cpu}00m", "memory": f"{mib}Mi", "pods": "90"}), Node),
            NodeState.READY,
        )
        for row, (cpu, mib) in enumerate(case.nodes)
    ]
    pods = [
        msgspec.convert(raw_pod(f"k{kind}", f"o{kind}", requests(cpu, mib)), Pod)
        for kind, (cpu, mib) in enumerate(case.kinds)
    ]
    classes = [EquivalenceGroup(pod_info.read_pending(pod, SURROUNDINGS), ()) for pod in pods]
    placed = [
        (row, classes[batch.position].facts)
        for row, found in case.moving.items()
        for batch in found
        for _ in batch.pods
    ]
    snapshot = cluster.snapshot_of_nodes(nodes, placed)
    return Rescheduling(problem.packing_problem(snapshot, classes), case.moving)


def requests(cpu: int, mib: int) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}00m", "memory": f"{mib}Mi"}}}]}


class PlainRescheduling:
    """Each pod of a batch goes to the first node that fits after the one that took the last of them."""

    def __init__(self, case: Sizes) -> None:
        self._case = case
        self._there = {row: list(found) for row, found in case.moving.items()}
        self.left: set[int] = set()
        self._free = [
            [whole - sum(count * kind[which] for count, kind in zip(counts, case.kinds, strict=True))
             for which, whole in enumerate(node)]
            for node, counts in zip(case.nodes, case.pods, strict=True)
        ]  # fmt: skip

    def leave(self, row: int) -> tuple[PodMove, ...] | str:
        """The moves, or the pod that finds no place."""
        before = [list(each) for each in self._free]
        self.left.add(row)
        arrivals: list[tuple[int, PodBatch]] = []
        for batch in sorted(self._there[row], key=lambda each: (-self._size(each.position), each)):
            found = self._rows(batch)
            if len(found) < len(batch.pods):
                self._free = before
                self.left.discard(row)
                return batch.pods[-1]
            names = iter(batch.pods)
            for to, count in sorted(Counter(found).items()):
                arrivals.append((to, batch._replace(pods=tuple(itertools.islice(names, count)))))
        for to, batch in arrivals:
            self._there[to].append(batch)
        return tuple(PodMove(pod, to) for to, batch in arrivals for pod in batch.pods)

    def _rows(self, batch: PodBatch) -> list[int]:
        kind, there, first = self._case.kinds[batch.position], len(self._free), 0
        found: list[int] = []
        for _ in batch.pods:
            for row in (*range(first, there), *range(first)):
                free = self._free[row]
                if row not in self.left and all(amount <= left for amount, left in zip(kind, free, strict=True)):
                    self._free[row] = [left - amount for amount, left in zip(kind, free, strict=True)]
                    found.append(row)
                    first = row + 1
                    break
        return found

    def _size(self, kind: int) -> float:
        return sum(self._case.kinds[kind][which] / max(each[which] for each in self._case.kinds) for which in (0, 1))


@examples(200)
@given(sizes(), st.randoms(use_true_random=False))
def test_pods_go_to_the_first_nodes_that_fit_however_many_nodes_left_or_could_not_before(
    case: Sizes, order: random.Random
) -> None:
    found, plain = rescheduling(case), PlainRescheduling(case)
    stuck = 0
    for row in [order.randrange(len(case.nodes)) for _ in range(2 * len(case.nodes))]:
        if row in plain.left:
            continue
        expected, got = plain.leave(row), found.leave(row)
        if isinstance(expected, str):
            stuck += 1
            assert isinstance(got, NoPlace)
            assert f"pod {expected}" in got.detail
        else:
            assert got == expected
    event(f"{stuck} stuck, {len(plain.left)} left")
