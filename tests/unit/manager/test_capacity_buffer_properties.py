"""What holds of all CapacityBuffers: pods come first, nothing is bought twice, and rounds come to an end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from shared.api.capacitybuffer import CapacityBuffer, ChunkSource, ChunkSourceRef
from shared.api.core import Node, Pod
from shared.names import MID_CPU, MID_MEMORY
from tests.support.properties import examples
from tests.unit.manager.buffers import TEMPLATE, buffer, template
from tests.unit.manager.test_planning import Cloud, config, node, planned, pod

CORES = 4  # of a node, which nothing else limits here
NAMES = ("a", "b", "c")


@st.composite
def wanted(draw: st.DrawFn) -> tuple[list[CapacityBuffer], dict[ChunkSourceRef, ChunkSource | str], dict[str, int]]:
    """Buffers, what they look like, and the cores of a chunk of each."""
    buffers, sources, cores = [], dict[ChunkSourceRef, ChunkSource | str](), {}
    for name in NAMES[: draw(st.integers(1, 3))]:
        ref = TEMPLATE._replace(name=name)
        size = draw(st.integers(1, CORES))
        sources[ref] = template({"cpu": str(size)})
        cores[f"ns/{name}"] = size
        on_mid = draw(st.sampled_from([None, "true", "false"]))
        buffers.append(buffer(name, of=ref, replicas=draw(st.integers(0, 6)), on_mid=on_mid))
    return buffers, sources, cores


pending = st.lists(st.integers(1, CORES), max_size=4).map(
    lambda sizes: tuple(pod(f"p{number}", {"cpu": str(size)}) for number, size in enumerate(sizes))
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Node, ...]:
    """Nodes, some of which offer Mid."""
    made = []
    for number in range(draw(st.integers(0, 3))):
        mid = draw(st.integers(0, 8))
        made.append(node(f"n{number}", more={MID_CPU: str(mid * 1000), MID_MEMORY: "64Gi"} if mid else None))
    return tuple(made)


def round_with(nodes: tuple[Node, ...], pods: tuple[Pod, ...], most: int = 50, **more: Any) -> PlannedIteration:
    cloud = Cloud(Group("a", 0, most, len(nodes)))
    cloud.has("a", *nodes)
    return planned(cloud, config("a"), nodes=nodes, pods=pods, **more)


def bought(of: PlannedIteration) -> int:
    return sum(each.to_size - each.from_size for each in of.iteration.actions if each.kind is ActionKind.INCREASE)


@examples(60)
@given(clusters(), pending, wanted(), st.integers(0, 8))
def test_buffers_never_change_what_is_decided_about_pods(
    nodes: tuple[Node, ...], pods: tuple[Pod, ...], asked: Any, most: int
) -> None:
    buffers, sources, _ = asked
    most += len(nodes)
    with_buffers = round_with(nodes, pods, most, capacity_buffers=tuple(buffers), chunk_sources=sources)
    assert with_buffers.iteration.for_pods == round_with(nodes, pods, most).iteration.for_pods
    assert len(nodes) + bought(with_buffers) <= most


@examples(60)
@given(clusters(), pending, wanted(), st.integers(0, 8))
def test_every_chunk_is_accounted_for_once_and_none_has_room_that_is_not_there(
    nodes: tuple[Node, ...], pods: tuple[Pod, ...], asked: Any, most: int
) -> None:
    buffers, sources, cores = asked
    made = round_with(nodes, pods, most + len(nodes), capacity_buffers=tuple(buffers), chunk_sources=sources)
    plan, decision = made.iteration.buffers, made.iteration.decision
    assert plan is not None
    assert decision is not None
    assert {each.key: each.chunks for each in plan.buffers} == {
        each.metadata.key: each.spec.replicas for each in buffers
    }
    assert all(min(each.on_nodes, each.on_mid, each.triggered, each.unplaced) >= 0 for each in plan.buffers)
    asks_mid = {each.metadata.key for each in buffers if (each.metadata.annotations or {}).values()}
    assert all(each.key in asks_mid for each in plan.buffers if each.on_mid)
    left = {key for each in decision.left for key in each.pods}
    placed_pods = sum(_cores(each) for each in pods if each.metadata.key not in left)
    native = sum((each.on_nodes + each.triggered) * cores[each.key] for each in plan.buffers)
    assert native + placed_pods <= (len(nodes) + bought(made)) * CORES
    mid = sum(each.on_mid * cores[each.key] for each in plan.buffers)
    assert mid * 1000 <= sum(int((each.status.allocatable or {}).get(MID_CPU, 0)) for each in nodes)


def _cores(of: Pod) -> int:
    return int((of.spec.containers[0].resources.requests or {})["cpu"])


@examples(60)
@given(clusters(), wanted())
def test_once_the_nodes_are_there_nothing_is_bought_for_the_same_chunks_again(
    nodes: tuple[Node, ...], asked: Any
) -> None:
    buffers, sources, _ = asked
    more = {"capacity_buffers": tuple(buffers), "chunk_sources": sources}
    first = round_with(nodes, (), **more)
    grown = (*nodes, *(node(f"new{number}") for number in range(bought(first))))
    rounds = 1
    while bought(made := round_with(grown, (), **more)):
        grown = (*grown, *(node(f"new{rounds}-{number}") for number in range(bought(made))))
        rounds += 1
        assert rounds <= len(NAMES)
    assert made.iteration.buffers is not None
    assert all(each.unplaced == each.triggered == 0 for each in made.iteration.buffers.buffers)
