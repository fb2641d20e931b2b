"""What holds of all ProvisioningRequests: bought as a whole or not at all, never beyond limits, and promised once."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pod_injection.request_states import RequestStage
from shared.api.core import Node
from shared.api.provisioningrequest import ProvisioningRequest
from tests.support.properties import examples
from tests.unit.manager.objects import NOW
from tests.unit.manager.requests import ATOMIC, CHECK, SOURCES, after, booked, request
from tests.unit.manager.test_planning import Cloud, config, node, planned, pod

CORES = 4  # of a node, which nothing else limits here
SIZES = {"large": 3, "small": 1}


@st.composite
def asked(draw: st.DrawFn) -> tuple[ProvisioningRequest, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        sets: dict[str, Any] = {"large": draw(st.integers(1, 3))}
        if draw(st.booleans()):
            sets["small"] = draw(st.integers(1, 6))
        name, kind = f"r{number}", draw(st.sampled_from([ATOMIC, CHECK]))
        is_booked = draw(st.booleans()) and number == 0
        found.append(booked(name, kind, **sets) if is_booked else request(name, kind, at=NOW - number, **sets))
    return tuple(found)


pending = st.lists(st.integers(1, CORES), max_size=3).map(
    lambda sizes: tuple(pod(f"p{number}", {"cpu": str(size)}) for number, size in enumerate(sizes))
)
present = st.integers(0, 4).map(lambda count: tuple(node(f"n{number}") for number in range(count)))


def round_with(nodes: tuple[Node, ...], most: int, **more: Any) -> PlannedIteration:
    cloud = Cloud(Group("a", 0, most, len(nodes)))
    cloud.has("a", *nodes)
    return planned(cloud, config("a"), nodes=nodes, chunk_sources=SOURCES, **more)


def bought(of: PlannedIteration) -> int:
    return sum(each.to_size - each.from_size for each in of.iteration.actions if each.kind is ActionKind.INCREASE)


def cores(of: ProvisioningRequest) -> int:
    return sum(SIZES[each.pod_template_ref.name] * each.count for each in of.spec.pod_sets or ())


@examples(60)
@given(present, pending, asked(), st.integers(0, 6))
def test_no_room_is_promised_twice_or_beyond_limits(
    nodes: tuple[Node, ...], pods: Any, requests: tuple[ProvisioningRequest, ...], more: int
) -> None:
    found = round_with(nodes, len(nodes) + more, pods=pods, provisioning_requests=requests)
    assert 0 <= bought(found) <= more
    assert found.iteration.requests is not None
    states = {each.key: each for each in found.iteration.requests.requests}
    new = [each for each in requests if states[each.metadata.key].said and each.status.conditions == ()]
    stages = {each.metadata.key: states[each.metadata.key].stage for each in new}
    plan = found.iteration.requests
    held = 0 if plan.memory.lost else sum(cores(each) for each in requests if each.status.conditions)
    promised = held + sum(cores(each) for each in new if stages[each.metadata.key] is RequestStage.BOOKED)
    assert promised <= len(nodes) * CORES
    whole = held + sum(
        cores(each) for each in new if stages[each.metadata.key] in (RequestStage.BOOKED, RequestStage.REQUESTED)
    )
    assert whole <= (len(nodes) + bought(found)) * CORES


@examples(60)
@given(present, asked(), st.integers(0, 6))
def test_what_is_bought_for_a_request_is_all_it_needs_and_is_not_bought_again(
    nodes: tuple[Node, ...], requests: tuple[ProvisioningRequest, ...], more: int
) -> None:
    most, cache = len(nodes) + more, AutoscalerCache(config("a"))
    found = round_with(nodes, most, provisioning_requests=requests, cache=cache)
    plan = found.iteration.requests
    assert plan is not None
    served = {plan.request_of[pod] for decision in plan.decisions for pod in decision.triggered}
    assert len(served) == (1 if bought(found) else 0)
    grown = (*nodes, *(node(f"new{number}") for number in range(bought(found))))
    later = tuple(after(each, found) for each in requests)
    restarted = AutoscalerCache(config("a"))
    for memory in (cache,) if plan.memory.lost else (cache, restarted):
        again = round_with(grown, most, provisioning_requests=later, cache=memory)
        assert again.iteration.requests is not None
        states = {each.key: each.stage for each in again.iteration.requests.requests}
        assert all(states[key] is RequestStage.BOOKED for key in served)


@examples(40)
@given(present, asked())
def test_rounds_come_to_an_end_with_room_for_every_request_that_buys(
    nodes: tuple[Node, ...], requests: tuple[ProvisioningRequest, ...]
) -> None:
    cache = AutoscalerCache(config("a"))
    for _ in range(len(requests) + 1):
        found = round_with(nodes, 60, provisioning_requests=requests, cache=cache)
        nodes = (*nodes, *(node(f"new{len(nodes)}-{number}") for number in range(bought(found))))
        requests = tuple(after(each, found) for each in requests)
    assert not bought(found)
    assert found.iteration.requests is not None
    buying = {each.metadata.key for each in requests if each.spec.provisioning_class_name == ATOMIC}
    assert all(each.stage is RequestStage.BOOKED for each in found.iteration.requests.requests if each.key in buying)
