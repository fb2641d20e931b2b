"""Limits on attached volumes while pods are placed, against sets that are counted anew."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.estimator.binpacking import Permissions
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.volumes import NOT_INSTALLED, AttachedVolume
from tests.support.properties import examples

DRIVERS = ("one.example.com", "other.example.com")
ROOM = {"cpu": 8000, "pods": 20}
VOLUMES = [AttachedVolume(driver, f"v{number}") for driver in DRIVERS for number in range(4)]

volumes = st.frozensets(st.sampled_from(VOLUMES), max_size=3)
limits = st.dictionaries(st.sampled_from(DRIVERS), st.integers(0, 4) | st.just(NOT_INSTALLED))
classes = st.lists(st.tuples(volumes, st.integers(1, 4)), min_size=1, max_size=5)
nodes = st.lists(st.tuples(limits, volumes), max_size=4)


def machine(name: str, most: dict[str, int], attached: frozenset[AttachedVolume] = frozenset()) -> NodeInfo:
    labels = {LABEL_HOSTNAME: name}
    return NodeInfo(name, labels, allocatable=ROOM, capacity=ROOM, volume_limits=most, attached=attached)


def pending(listed: Sequence[tuple[frozenset[AttachedVolume], int]]) -> list[EquivalenceGroup]:
    return [
        EquivalenceGroup(
            PodInfo(requests={"cpu": 1000 + number}, attached=tuple(sorted(wanted))),
            tuple(f"ns/p{number}-{each}" for each in range(count)),
        )
        for number, (wanted, count) in enumerate(listed)
    ]


def takes(node: NodeInfo, there: set[AttachedVolume], wanted: Sequence[AttachedVolume]) -> bool:
    """kube-scheduler's NodeVolumeLimits."""
    new = Counter(each.driver for each in wanted if each not in there)
    used = Counter(each.driver for each in there)
    if any(node.volume_limits.get(each.driver) == NOT_INSTALLED for each in wanted):
        return False
    return all(used[driver] + count <= node.volume_limits.get(driver, 99) for driver, count in new.items())


def check(packing: Packing, known: Sequence[NodeInfo]) -> None:
    """Replays the placements, and tries what has none."""
    template = packing.template
    every = [*known, *([template.node] * packing.new_count if template is not None else ())]
    there = [set(each.attached) for each in every]
    room = [ROOM["cpu"]] * len(every)
    for position, rows, counts, _ in packing.placements:
        facts = packing.problem.classes[position].facts
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            assert takes(every[row], there[row], facts.attached)
            there[row] |= set(facts.attached)
            room[row] -= count * facts.requests["cpu"]
    for position, left in enumerate(packing.pending.tolist()):
        facts = packing.problem.classes[position].facts
        for row in range(len(known)) if left else ():
            fits = room[row] >= facts.requests["cpu"] and takes(every[row], there[row], facts.attached)
            assert not fits, (position, row)


@examples(200)
@given(nodes, classes)
def test_pods_go_where_their_volumes_can_be_attached_and_wait_only_without_such_a_node(
    given_nodes: list[tuple[dict[str, int], frozenset[AttachedVolume]]],
    listed: list[tuple[frozenset[AttachedVolume], int]],
) -> None:
    known = [machine(f"n{number}", *each) for number, each in enumerate(given_nodes)]
    taken = cluster.snapshot_of_nodes(known)
    packed = binpacking.pack_on_existing_nodes(problem.packing_problem(taken, pending(listed)))
    check(packed, known)
    mark = len(packed.placements)
    packed.take_back(0)
    assert mark >= len(packed.placements) == 0
    again = binpacking.pack_on_existing_nodes(packed.problem)
    assert again.pending.tolist() == packed.pending.tolist()


@examples(200)
@given(nodes, limits, classes)
def test_an_estimate_buys_no_node_that_cannot_take_the_volumes_that_it_was_bought_for(
    given_nodes: list[tuple[dict[str, int], frozenset[AttachedVolume]]],
    most: dict[str, int],
    listed: list[tuple[frozenset[AttachedVolume], int]],
) -> None:
    known = [machine(f"n{number}", *each) for number, each in enumerate(given_nodes)]
    template = NodeTemplate("g", machine("template", most))
    asked = problem.packing_problem(cluster.snapshot_of_nodes(known), pending(listed), [template])
    left = binpacking.pack_on_existing_nodes(asked)
    fit = binpacking.fit_on_new_node(asked, template, left)
    for position, facts in enumerate(each.facts for each in asked.classes):
        assert bool(fit.flags[position]) is takes(template.node, set(), facts.attached)
        assert bool(fit.reasons(position)) is not bool(fit.flags[position])
    found = binpacking.estimate(asked, template, fit.positions, Permissions(), after=left)
    assert found.placed == {
        position: int(left.pending[position]) for position in fit.positions.tolist() if left.pending[position]
    }
    bought: dict[int, set[AttachedVolume]] = {}
    for position, rows, _, _ in found.placements:
        facts = asked.classes[position].facts
        for row in rows.tolist():
            if row >= len(known):
                there = bought.setdefault(row, set())
                assert takes(template.node, there, facts.attached)
                there |= set(facts.attached)
    assert len(bought) == found.node_count


@examples(50)
@given(st.integers(1, 5), st.integers(1, 30))
def test_volumes_alone_need_as_many_nodes_as_the_limit_says(most: int, count: int) -> None:
    listed = [(frozenset({AttachedVolume(DRIVERS[0], f"own-{number}")}), 1) for number in range(count)]
    template = NodeTemplate("g", machine("template", {DRIVERS[0]: most}))
    asked = problem.packing_problem(cluster.snapshot_of_nodes([]), pending(listed), [template])
    found = binpacking.estimate(asked, template, range(count), Permissions())
    assert found.node_count == max(-(-count // most), -(-count // 7))


def test_pods_that_share_a_volume_need_it_once() -> None:
    shared = [(frozenset({AttachedVolume(DRIVERS[0], "shared")}), 7)]
    template = NodeTemplate("g", machine("template", {DRIVERS[0]: 1}))
    asked = problem.packing_problem(cluster.snapshot_of_nodes([]), pending(shared), [template])
    assert binpacking.estimate(asked, template, [0], Permissions()).node_count == 1
