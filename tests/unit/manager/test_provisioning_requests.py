"""ProvisioningRequests: what they ask for, what is booked, and what is bought for them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import Group, Instance, InstanceState
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_request
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pod_injection import request_planning, request_reading
from manager.autoscaler.pod_injection.buffer_reading import BufferSources
from manager.autoscaler.pod_injection.request_reading import ReadRequests
from manager.autoscaler.pod_injection.request_states import BOOKED_SECONDS, RequestStage
from manager.autoscaler.scale_down.removal_status import NodeStanding
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.pending_pods import PendingRules
from shared.api.core import Pod
from shared.api.provisioningrequest import ProvisioningRequest
from tests.unit.manager.buffers import TEMPLATE, buffer, template
from tests.unit.manager.objects import NOW
from tests.unit.manager.requests import ATOMIC, CHECK, SOURCES, after, booked, of, request, state
from tests.unit.manager.test_capacity_buffers import TwoMachines
from tests.unit.manager.test_planning import Cloud, actions, config, node, planned, pod

GROWS = ActionKind.INCREASE
MANY: dict[str, Any] = {f"t{number}": 1 for number in range(33)}
UNNAMED: dict[str, Any] = {"": 1}


def read(
    *given: ProvisioningRequest, sources: Any = SOURCES, pods: Sequence[Pod] = (), now: float = NOW
) -> ReadRequests:
    return request_reading.read_requests(given, BufferSources(sources, pods), now, promises={}, templates={})


def consumer(name: str, of_request: str, cpu: str = "3", **spec: Any) -> Pod:
    made = pod(name, {"cpu": cpu}, **spec)
    annotations = {"autoscaling.x-k8s.io/consume-provisioning-request": of_request}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


def round_of(
    cloud: Cloud, *requests: ProvisioningRequest, known: Registry | None = None, **more: Any
) -> PlannedIteration:
    chosen = more.pop("chosen", config("a", pending=PendingRules(enable_provisioning_requests=True)))
    more = {"chunk_sources": {**SOURCES, TEMPLATE: template()}, **more}
    return planned(cloud, chosen, known, provisioning_requests=requests, **more)


def news(of_round: PlannedIteration, name: str = "r") -> tuple[str, str]:
    found = state(of_round, name)
    return found.stage.value, found.reason


# What they ask for.


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (request(), "spec.podSets: 0: there are between 1 and 32"),
        (request(**MANY), "spec.podSets: 33: there are between 1 and 32"),
        (request(large=0), "spec.podSets[0].count: 0: it is less than 1"),
        (request(small=1, large=-3), "spec.podSets[1].count: -3: it is less than 1"),
        (request(large=10**9), "spec.podSets[0].count: 1000000000: more than 10000 pods"),
        (request(small=9_999, large=2), "spec.podSets[1].count: 2: more than 10000 pods"),
        (request(**UNNAMED), "spec.podSets[0].podTemplateRef.name: '': it is empty"),
        (
            request(large=1, parameters={"ValidUntilSeconds": "soon"}),
            "spec.parameters.ValidUntilSeconds: 'soon': it is",
        ),
        (request(large=1, parameters={"ValidUntilSeconds": "0"}), "spec.parameters.ValidUntilSeconds: '0': it is not"),
        (
            request("r", CHECK, large=1, parameters={"noRetry": "True"}),
            "spec.parameters.noRetry: 'True': it is neither",
        ),
    ],
)
def test_a_request_that_means_nothing_fails_by_field_and_value(given: ProvisioningRequest, problem: str) -> None:
    found = read(given, request("good", small=2))
    (failed,) = found.others
    assert (failed.stage, failed.reason) == (RequestStage.FAILED, "FailedToCreatePods")
    assert failed.message.startswith(f"ProvisioningRequest ns/r: {problem}")
    assert [each.state.key for each in found.requests] == ["ns/good"]
    assert list(found.refused) == ["ProvisioningRequest ns/r"]


@pytest.mark.parametrize(
    "given",
    [
        request("r", "queued-provisioning.gke.io", large=1),
        request("r", CHECK.upper(), large=1),
        request("r", "", large=1),
        request("r", CHECK, large=1, parameters={"processorInstance": "second"}),
    ],
)
def test_a_request_of_another_class_is_left_alone(given: ProvisioningRequest) -> None:
    assert read(given) == ReadRequests()
    assert request_reading.named([given]) == []


def test_thousands_of_pods_are_one_class_for_each_template() -> None:
    (found,) = read(request(small=5_000, large=1)).requests
    assert [len(each.pods) for each in found.classes] == [5_000, 1]
    assert len({pod for each in found.classes for pod in each.pods}) == 5_001


def test_a_request_waits_for_a_template_that_is_missing_or_unreadable_until_it_expires() -> None:
    sources = {of("bad"): template({"cpu": "lots"}), of("shut"): "403 Forbidden"}
    for name, problem in (("bad", "'PodTemplate ns/bad'"), ("shut", "403 Forbidden"), ("gone", "there is none")):
        (waiting,) = read(request(**dict[str, Any]({name: 1})), sources=sources).others
        assert (waiting.stage, waiting.said[-1][:3]) == (
            RequestStage.PENDING,
            ("Accepted", False, "FailedToCreatePods"),
        )
        assert problem in waiting.message
    assert read(request(gone=1), sources=SOURCES, now=NOW + 8 * 86_400).others[0].reason == "Expired"
    assert read(request(large=1, parameters={"ValidUntilSeconds": "90"}), now=NOW + 29).requests
    assert read(request(large=1, parameters={"ValidUntilSeconds": "90"}), now=NOW + 30).others[0].reason == "Expired"


@pytest.mark.parametrize("over", ["Failed", "BookingExpired", "CapacityRevoked"])
def test_a_request_that_is_over_books_nothing_and_is_counted(over: str) -> None:
    done = request(said=(("Provisioned", True, "CapacityIsFound", NOW), (over, True, "Any", NOW)), large=1)
    found = read(done)
    assert (found.requests, found.others, sum(found.over.values())) == ((), (), 1)
    assert request_reading.named([done]) == []


# The room that is there.


def test_a_check_finds_room_that_is_there_and_buys_none() -> None:
    cloud = Cloud(Group("a", 0, 9, 0))
    nodes = (node("n"), node("o"))
    found = round_of(cloud, request("r", CHECK, large=2), nodes=nodes)
    assert (actions(found), news(found)) == ([], ("booked", "CapacityIsFound"))
    assert [each[:3] for each in state(found).said] == [
        ("Accepted", True, "Accepted"),
        ("Provisioned", True, "CapacityIsFound"),
    ]
    short = round_of(cloud, request("r", CHECK, large=3), nodes=nodes)
    assert (actions(short), news(short)) == ([], ("pending", "CapacityIsNotFound"))
    assert state(short).message == "2 of 3 pods have room"
    once = round_of(cloud, request("r", CHECK, large=3, parameters={"noRetry": "true"}), nodes=nodes)
    assert news(once) == ("failed", "CapacityIsNotFound")


def test_a_check_leaves_the_room_of_pods_buffers_and_older_requests() -> None:
    cloud = Cloud(Group("a", 0, 9, 0))
    check = request("r", CHECK, large=1)
    for more in (
        {"pods": (pod("p"),)},
        {"capacity_buffers": (buffer(replicas=1),)},
    ):
        assert news(round_of(cloud, check, nodes=(node("n"),), **more)) == ("pending", "CapacityIsNotFound")
        assert news(round_of(cloud, check, nodes=(node("n"), node("o")), **more)) == ("booked", "CapacityIsFound")
    for other in (booked("b", large=1), request("b", CHECK, at=NOW - 90, large=1), request("b", ATOMIC, large=1)):
        assert news(round_of(cloud, check, other, nodes=(node("n"),))) == ("pending", "CapacityIsNotFound")
        assert news(round_of(cloud, check, other, nodes=(node("n"), node("o")))) == ("booked", "CapacityIsFound")


def test_a_node_on_its_way_is_no_room_for_a_check() -> None:
    cloud = Cloud(Group("a", 0, 5, 1))
    cloud.members["a"].append(Instance("id:a-0", InstanceState.CREATING))
    under_way = add_request(Registry(), Increase("a", 0, 1, 5), NOW - 10, 900)
    assert news(round_of(cloud, request("r", CHECK, large=1), known=under_way)) == ("pending", "CapacityIsNotFound")
    bought = round_of(cloud, request("r", ATOMIC, large=1), known=under_way)
    assert (actions(bought), news(bought)) == ([], ("requested", "CapacityIsRequested"))


def test_pods_and_chunks_do_not_get_booked_room() -> None:
    cloud = Cloud(Group("a", 0, 9, 0))
    for more in ({"pods": (pod("p"),)}, {"capacity_buffers": (buffer(replicas=1),)}):
        assert actions(round_of(cloud, nodes=(node("n"),), **more)) == []
        assert actions(round_of(cloud, booked(large=1), nodes=(node("n"),), **more)) == [(GROWS, "a", 1)]


def test_a_booking_ends_in_time_or_once_its_pods_have_come_and_with_its_request() -> None:
    cloud, waiting = Cloud(Group("a", 0, 9, 0)), (pod("p"),)
    late = booked(since=NOW - BOOKED_SECONDS, large=1)
    found = round_of(cloud, late, nodes=(node("n"),), pods=waiting)
    assert (actions(found), news(found)) == ([], ("expired", "CapacityReservationTimeExpired"))
    just = booked(since=NOW - BOOKED_SECONDS + 1, large=1)
    assert actions(round_of(cloud, just, nodes=(node("n"),), pods=waiting)) == [(GROWS, "a", 1)]
    came = (consumer("c", "r", nodeName="n"),)
    found = round_of(cloud, booked(large=1), nodes=(node("n"), node("o")), pods=(*waiting, *came))
    assert (actions(found), news(found)) == ([], ("expired", "CapacityBookingConsumed"))
    assert actions(round_of(cloud, nodes=(node("n"),), pods=waiting)) == []


def test_a_request_whose_pods_come_first_needs_no_room_and_nothing_is_bought_for_a_check() -> None:
    came, cloud = (consumer("c", "r", nodeName="n"),), Cloud(Group("a", 0, 9, 0))
    for kind in (ATOMIC, CHECK):
        found = round_of(cloud, request("r", kind, large=1), nodes=(node("n"),), pods=came)
        assert (actions(found), news(found)) == ([], ("booked", "CapacityIsFound"))
        assert round_of(cloud, booked("r", kind, large=1), nodes=(node("n"),), pods=came).iteration.requests is not None
    claimed = request("r", CHECK, said=(("Provisioned", False, "CapacityIsRequested", NOW),), large=1)
    assert (actions(round_of(cloud, claimed)), news(round_of(cloud, claimed))[0]) == ([], "pending")


def test_each_pod_that_comes_takes_its_part_of_the_booking() -> None:
    pods = [
        consumer("c", "r", "1", nodeName="n"),
        consumer("d", "r", "7", nodeName="n"),
        consumer("e", "s", nodeName="n"),
    ]
    (found,) = read(booked(large=2, small=2), pods=pods).requests
    # One looks like a small pod; another like none, and is taken for a large one.
    assert [len(each.pods) for each in found.classes] == [1, 1]
    assert (found.state.pods, found.state.consumed) == (4, 2)


@pytest.mark.parametrize("prefix", ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"])
def test_no_node_is_bought_for_a_pod_that_consumes_a_request_unless_requests_do_not_count(prefix: str) -> None:
    cloud, made = Cloud(Group("a", 0, 9, 0)), pod("p")
    annotations = {f"{prefix}/consume-provisioning-request": "r"}
    waits = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))
    found = round_of(cloud, booked(large=1), pods=(waits,))
    assert actions(found) == []
    assert found.iteration.skipped_pods == {"ns/p": "it consumes ProvisioningRequest ns/r"}
    assert actions(planned(cloud, config("a"), pods=(waits,))) == [(GROWS, "a", 1)]


def test_booked_room_keeps_its_node() -> None:
    def standing(*requests: ProvisioningRequest) -> NodeStanding:
        cloud = Cloud(Group("a", 0, 5, 1))
        cloud.has("a", node("n"))
        found = round_of(cloud, *requests, nodes=(node("n"),), chosen=config("a", scale_down_enabled=True))
        assert found.iteration.scale_down is not None
        return found.iteration.scale_down.statuses["n"].standing

    assert standing() is NodeStanding.UNNEEDED
    assert standing(booked(large=1)) is not NodeStanding.UNNEEDED
    assert standing(request("r", CHECK, large=1)) is not NodeStanding.UNNEEDED
    assert standing(booked(since=NOW - BOOKED_SECONDS, large=1)) is NodeStanding.UNNEEDED


def test_of_a_booking_whose_template_goes_the_last_one_known_holds() -> None:
    def read_again(sources: Any, templates: Any) -> ReadRequests:
        return request_reading.read_requests(
            [booked(large=1)], BufferSources(sources), NOW, promises={}, templates=templates
        )

    (kept,) = read_again({}, read(booked(large=1)).templates).requests
    assert kept.pods == 1
    (failed,) = read_again({}, {}).others
    assert (failed.stage, failed.reason) == (RequestStage.FAILED, "FailedToBookCapacity")
    unread = read_again({of("large"): "503"}, {})
    assert [each.pods for each in unread.requests] == [0]
    assert (unread.others, unread.templates) == ((), {})


# The room that is bought.


def test_nodes_are_bought_for_all_pods_at_once_and_the_answer_comes_with_the_nodes() -> None:
    cloud, cache = Cloud(Group("a", 0, 5, 0)), AutoscalerCache(config("a"))
    asked = request(large=2, small=2)
    found = round_of(cloud, asked, cache=cache)
    assert actions(found) == [(GROWS, "a", 2)]
    assert found.iteration.actions[0].reason == "4 requested pods"
    assert news(found) == ("requested", "CapacityIsRequested")
    asked = after(asked, found)
    cloud.listed = [Group("a", 0, 5, 2)]
    cloud.members["a"] += [Instance(f"id:a-{number}", InstanceState.CREATING) for number in range(2)]
    under_way = add_request(Registry(), Increase("a", 0, 2, 5), NOW - 10, 900)
    for memory in (cache, AutoscalerCache(config("a"))):  # also after a restart
        found = round_of(cloud, asked, known=under_way, cache=memory)
        assert (actions(found), news(found)) == ([], ("requested", "CapacityIsRequested"))
    cloud.members["a"] = []
    cloud.has("a", node("n"), node("o"))
    found = round_of(cloud, asked, nodes=(node("n"), node("o")), cache=cache)
    assert (actions(found), news(found)) == ([], ("booked", "CapacityIsProvisioned"))


def test_what_is_there_already_is_not_bought() -> None:
    found = round_of(Cloud(Group("a", 0, 5, 0)), request(large=1), nodes=(node("n"),))
    assert (actions(found), news(found)) == ([], ("booked", "CapacityIsFound"))
    partly = round_of(Cloud(Group("a", 0, 5, 0)), request(large=3), nodes=(node("n"),))
    assert (actions(partly), news(partly)) == ([(GROWS, "a", 2)], ("requested", "CapacityIsRequested"))


@pytest.mark.parametrize(
    ("most", "limit"),
    [(2, {}), (9, {"max_nodes_total": 2})],
)
def test_nothing_is_bought_where_limits_leave_no_room_for_all(most: int, limit: dict[str, Any]) -> None:
    found = round_of(Cloud(Group("a", 0, most, 0)), request(large=3), chosen=config("a", decides=limit))
    assert (actions(found), news(found)) == ([], ("pending", "CapacityIsNotFound"))
    assert state(found).message.startswith("of 3 pods ")


def test_several_groups_together_take_what_none_takes_alone() -> None:
    disk = node("template", more={"example.com/disk": "1"})
    cloud = TwoMachines({"a": node("template"), "b": disk})
    found = round_of(cloud, request(large=1, other=2), chosen=config("a", "b"))
    assert {(kind, group) for kind, group, _ in actions(found)} == {(GROWS, "b")}
    assert news(found) == ("requested", "CapacityIsRequested")
    cloud.listed = [Group("a", 0, 5, 0), Group("b", 0, 2, 0)]
    found = round_of(cloud, request(large=3, other=2), chosen=config("a", "b"))
    assert sorted(group for _, group, _ in actions(found)) == ["a", "b"]
    cloud.listed = [Group("a", 0, 5, 0), Group("b", 0, 1, 0)]
    found = round_of(cloud, request(large=1, other=2), chosen=config("a", "b"))
    assert (actions(found), news(found)) == ([], ("pending", "CapacityIsNotFound"))


def test_a_request_without_room_is_asked_again_after_a_pause_that_doubles() -> None:
    cloud, cache = Cloud(Group("a", 0, 1, 0)), AutoscalerCache(config("a"))
    asked = request(large=2)
    pauses = []
    for _ in range(6):
        found = round_of(cloud, asked, cache=cache)
        assert news(found) == ("pending", "CapacityIsNotFound")
        (retry,) = cache.requests.retries.values()
        pauses.append(retry.seconds)
        assert retry.at == NOW + retry.seconds
        asked = after(asked, found)
        quiet = round_of(Cloud(Group("a", 0, 9, 0)), asked, cache=cache)  # not before its time
        assert (actions(quiet), state(quiet).said) == ([], ())
        cache.requests = replace(cache.requests, retries={"uid-r": replace(retry, at=NOW)})
    assert pauses == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    assert actions(round_of(Cloud(Group("a", 0, 9, 0)), asked, cache=cache)) == [(GROWS, "a", 2)]
    round_of(cloud, cache=cache)
    assert cache.requests == request_planning.RequestMemory()  # with the request goes what is kept of it


def test_what_comes_short_of_its_nodes_is_bought_for_again_or_waits() -> None:
    on_its_way = request(said=(("Provisioned", False, "CapacityIsRequested", NOW - 300),), large=2)
    large, full = Cloud(Group("a", 0, 5, 1)), Cloud(Group("a", 0, 1, 1))
    for cloud in (large, full):
        cloud.has("a", node("n"))
    found = round_of(large, on_its_way, nodes=(node("n"),))
    assert (actions(found), news(found)) == ([(GROWS, "a", 2)], ("requested", "CapacityIsRequested"))
    found = round_of(full, on_its_way, nodes=(node("n"),))
    assert (actions(found), news(found)) == ([], ("pending", "CapacityIsNotFound"))


def test_one_request_is_bought_for_in_a_round_the_oldest_first() -> None:
    requests = [request("b", at=NOW - 10, large=1), request("a", at=NOW - 20, large=2)]
    found = round_of(Cloud(Group("a", 0, 9, 0)), *requests)
    assert (actions(found), news(found, "a"), state(found, "b").said) == (
        [(GROWS, "a", 2)],
        ("requested", "CapacityIsRequested"),
        (),
    )


def test_while_pods_wait_for_a_later_round_nothing_is_bought_for_requests() -> None:
    ssd, hdd = (node("template", more={f"example.com/{disk}": "1"}) for disk in ("ssd", "hdd"))
    pods = tuple(pod(disk, {f"example.com/{disk}": "1"}) for disk in ("ssd", "hdd"))
    found = round_of(TwoMachines({"a": ssd, "b": hdd}), request(large=4), pods=pods, chosen=config("a", "b"))
    assert found.iteration.requests is not None
    assert found.iteration.requests.decisions == ()
    assert state(found).message == request_planning.PODS_FIRST
    asked = request(said=(("Provisioned", False, "CapacityIsRequested", NOW - 9),), large=4)
    found = round_of(TwoMachines({"a": ssd, "b": hdd}), asked, pods=pods, chosen=config("a", "b"))
    assert (news(found), state(found).said) == (("requested", "CapacityIsRequested"), ())


def test_advice_buys_nothing_and_promises_nothing() -> None:
    chosen = config("a", group_modes={"a": Mode.RECOMMEND})
    found = round_of(Cloud(Group("a", 0, 5, 0)), request(large=1), chosen=chosen)
    assert [(each.kind, each.mode) for each in found.iteration.actions] == [(GROWS, Mode.RECOMMEND)]
    assert (news(found), state(found).message) == (("pending", "CapacityIsNotFound"), request_planning.ADVICE)
    mixed = config("a", "b", group_modes={"a": Mode.RECOMMEND})
    both = round_of(Cloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0)), request(large=1), chosen=mixed)
    assert news(both) == ("requested", "CapacityIsRequested")
    assert [each.group for each in both.iteration.actions if each.mode is Mode.ENFORCE] == ["b"]


def test_what_was_promised_holds_before_the_conditions_show_it() -> None:
    cloud, cache = Cloud(Group("a", 0, 9, 0)), AutoscalerCache(config("a"))
    younger, older = request("y", CHECK, large=1), request("o", CHECK, at=NOW - 90, large=2)
    found = round_of(cloud, younger, older, nodes=(node("n"),), cache=cache)
    assert (news(found, "y")[0], news(found, "o")[0]) == ("booked", "pending")
    cache.requests = replace(cache.requests, retries={})
    found = round_of(cloud, younger, older, nodes=(node("n"), node("m")), pods=(pod("p"),), cache=cache)
    assert (news(found, "y")[0], news(found, "o")[0]) == ("booked", "pending")
    assert state(found, "y").said  # and is written again
