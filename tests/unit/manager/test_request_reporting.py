"""What is told of ProvisioningRequests: their conditions, Events, metrics, and the API's answer."""

from dataclasses import replace
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from deploy import plan_table
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers, events, group_rows, object_status
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from shared.api.provisioningrequest import ProvisioningRequest, ProvisioningRequestStatus
from shared.kube.events import ObjectRef
from tests.support import schemas
from tests.unit.manager.objects import NOW
from tests.unit.manager.requests import CHECK, SOURCES, after, booked, request, state
from tests.unit.manager.test_planning import Cloud, config, node, planned

STATUS = ObjectRef("v1", "ConfigMap", "status", "kube-system")


def round_of(*requests: ProvisioningRequest, most: int = 5, **more: Any) -> Any:
    return planned(
        Cloud(Group("a", 0, most, 0)), config("a"), provisioning_requests=requests, chunk_sources=SOURCES, **more
    )


def told(iteration: Iteration, before: Iteration | None = None) -> list[tuple[str, str, str]]:
    done = replace(iteration, actions=tuple(replace(each, done=True) for each in iteration.actions))
    found = events.events(done, STATUS, before=before)
    return [(each.type, each.reason, each.message) for each in found if each.regarding.kind == "ProvisioningRequest"]


def test_conditions_keep_those_of_others_and_are_written_once() -> None:
    other: dict[str, object] = {"type": "example.com/audited", "status": "False"}
    given = msgspec.structs.replace(request(large=1), status=ProvisioningRequestStatus(conditions=(other,)))
    found = round_of(given, nodes=(node("n"),))
    made: Any = object_status.request_patch(given, state(found), NOW)
    assert made["status"]["conditions"][0] == other
    assert [(each["type"], each["status"], each["reason"]) for each in made["status"]["conditions"][1:]] == [
        ("Accepted", "True", "Accepted"),
        ("Provisioned", "True", "CapacityIsFound"),
    ]
    assert {each.get("observedGeneration") for each in made["status"]["conditions"][1:]} == {1}
    assert made["metadata"] == {"resourceVersion": given.metadata.resource_version}
    assert object_status.request_patch(after(given, found), state(found), NOW) is None
    assert state(round_of(after(given, found), nodes=(node("n"),))).said == ()


def test_each_turn_is_told_once_on_the_request() -> None:
    found = round_of(request(large=2)).iteration
    assert told(found) == [
        ("Normal", "TriggeredScaleUp", "request triggered scale-up: [{a 0->2 (max: 5)}]"),
        ("Normal", "CapacityIsRequested", "nodes are on their way for the pods that have no room yet"),
    ]
    short = round_of(request("r", CHECK, large=1)).iteration
    assert told(short) == [("Normal", "CapacityIsNotFound", "0 of 1 pods have room")]
    assert told(short, before=short) == []
    assert [each[:2] for each in told(round_of(request()).iteration)] == [("Warning", "FailedToCreatePods")]


def test_the_answer_has_every_request_that_is_not_over_and_what_was_bought() -> None:
    over = request("over", said=(("Failed", True, "Expired", NOW),), large=1)
    found = round_of(request(large=2), booked("b", large=1), over).iteration
    answer = answers.plan(found)
    assert [(each.request, each.state, each.pods) for each in answer.requests] == [
        ("ns/b", "booked", 1),
        ("ns/r", "requested", 2),
    ]
    assert [each.outcome for each in answer.request_decisions] == ["scale up"]
    said = msgspec.json.decode(msgspec.json.encode(answer))
    assert list(schemas.problems(said, schemas.published("plan"))) == []
    table = plan_table.render(answer, group_rows.groups(found))
    assert "  ns/r     best-effort-atomic-scale-up     2        0  requested  CapacityIsRequested" in table.splitlines()


def test_requests_are_counted_by_class_and_state() -> None:
    over = request("over", CHECK, said=(("BookingExpired", True, "Any", NOW),), large=1)
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    metrics.note(round_of(request(large=2), over).iteration)
    name = "headroom_autoscaler_provisioning_requests"
    kinds = ("best-effort-atomic-scale-up.autoscaling.x-k8s.io", "requested"), (CHECK, "expired")
    for kind, stage in kinds:
        assert registry.get_sample_value(name, {"class": kind, "state": stage}) == 1
