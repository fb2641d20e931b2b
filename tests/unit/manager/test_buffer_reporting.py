"""What is told of CapacityBuffers: their status, Events, metrics, the API's answer, and the table of a plan."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from deploy import plan_table
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pod_injection import buffer_reading
from manager.autoscaler.pod_injection.buffer_planning import PODS_FIRST, BufferState, buffer_plan
from manager.autoscaler.pod_injection.buffer_reading import BufferChunks, BufferSources
from manager.autoscaler.reporting import answers, events, group_rows, object_status
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from shared.api.capacitybuffer import CapacityBuffer, CapacityBufferStatus
from shared.errors import InvalidInput
from shared.kube.events import ObjectRef
from tests.support import schemas
from tests.unit.manager.buffers import DEPLOYMENT, TEMPLATE, buffer, deployment, template
from tests.unit.manager.objects import NOW
from tests.unit.manager.test_planning import Cloud, config, node, planned, pod

STATUS = ObjectRef("v1", "ConfigMap", "status", "kube-system")
SOURCES = BufferSources({TEMPLATE: template(), DEPLOYMENT: deployment(10)})


def read(given: CapacityBuffer) -> tuple[BufferChunks | None, InvalidInput | None]:
    found, refused = buffer_reading.read_buffers([given], SOURCES, {})
    return found.get("ns/b"), refused.get("CapacityBuffer ns/b")


def patched(given: CapacityBuffer, state: BufferState | None, now: float = NOW) -> dict[str, Any]:
    made: Any = object_status.buffer_patch(given, *read(given), state, now)
    return {} if made is None else made["status"]


def conditions(of: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in of["conditions"]}


def test_a_status_says_what_a_buffer_was_read_as() -> None:
    status = patched(buffer(replicas=3), None)
    assert conditions(status) == {
        "ReadyForProvisioning": ("True", "AttributesSetSuccessfully", "ready"),
        "LimitedByQuotas": ("False", "ResourceQuotasAllocated", ""),
    }
    assert [each["observedGeneration"] for each in status["conditions"]] == [3, 3]
    del status["conditions"]
    assert status == {
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
        "replicas": 3,
        "podTemplateRef": {"name": "chunk"},
        "podTemplateGeneration": 7,
    }
    assert "podTemplateRef" not in patched(buffer(of=DEPLOYMENT, percentage=20), None)


def test_a_status_says_which_quotas_leave_room_for_fewer_chunks() -> None:
    chunks, _ = read(buffer(replicas=3))
    assert chunks is not None
    fewer = replace(chunks, count=1, limited_by=("q", "r"))
    made: Any = object_status.buffer_patch(buffer(replicas=3), fewer, None, None, NOW)
    said = ("True", "ResourceQuotasAllocated", "1 of 3 chunks, by ResourceQuotas q, r")
    assert (conditions(made["status"])["LimitedByQuotas"], made["status"]["replicas"]) == (said, 1)


def test_a_refused_buffer_is_told_what_is_wrong_with_it() -> None:
    status = patched(buffer(replicas=-3), None)
    said = conditions(status)
    assert said["ReadyForProvisioning"] == ("False", "error", "CapacityBuffer ns/b: spec.replicas: -3: it is negative")
    assert said["Provisioning"][:2] == ("False", "NotReadyForProvisioning")
    assert "replicas" not in status
    chunks, _ = read(buffer(replicas=2))
    _, problem = read(buffer(replicas=-3))
    kept: Any = object_status.buffer_patch(buffer(replicas=-3), chunks, problem, None, NOW)
    assert conditions(kept["status"])["ReadyForProvisioning"][2].endswith("; the last valid version stays in effect")
    assert kept["status"]["replicas"] == 2


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (BufferState("ns/b"), ("False", "BufferIsEmpty", "the buffer has no chunks")),
        (
            BufferState("ns/b", chunks=3, on_nodes=2, on_mid=1),
            ("True", "FitsExistingCapacity", "of 3 chunks 2 have room on nodes, 1 have room in Mid on offer"),
        ),
        (
            BufferState("ns/b", chunks=3, on_nodes=2, triggered=1),
            ("True", "RequiresNewCapacity", "of 3 chunks 2 have room on nodes, 1 get new nodes"),
        ),
        (
            BufferState("ns/b", chunks=3, triggered=1, reasons={"a": ("Insufficient cpu",), "b": ("x", "y")}),
            ("False", "NoCapacity", "of 3 chunks 1 get new nodes, 2 get no node: 1 Insufficient cpu, 1 x, 1 y"),
        ),
        (
            BufferState("ns/b", chunks=1, reasons={"": ("max total nodes in cluster reached",)}),
            ("False", "NoCapacity", "of 1 chunks 1 get no node: max total nodes in cluster reached"),
        ),
        (
            BufferState("ns/b", chunks=1, reasons={"a": (PODS_FIRST,)}),
            ("True", "RequiresNewCapacity", f"of 1 chunks 1 get no node: 1 {PODS_FIRST}"),
        ),
    ],
)
def test_a_status_says_whether_chunks_have_room(state: BufferState, said: tuple[str, str, str]) -> None:
    assert conditions(patched(buffer(replicas=3), state))["Provisioning"] == said


def test_a_status_that_says_it_already_is_not_written_and_conditions_of_others_stay() -> None:
    given = buffer(replicas=3)
    other: dict[str, object] = {"type": "example.com/audited", "status": "False"}
    given = msgspec.structs.replace(given, status=CapacityBufferStatus(conditions=(other,)))
    state = BufferState("ns/b", chunks=3, on_nodes=3)
    status = patched(given, state)
    assert status["conditions"][0] == other
    kept = msgspec.structs.replace(given, status=msgspec.convert(status, CapacityBufferStatus))
    assert patched(kept, state, NOW + 99) == {}
    later = patched(kept, replace(state, on_nodes=1, triggered=2), NOW + 99)["conditions"]
    assert [each["lastTransitionTime"] for each in later[1:]] == [
        each["lastTransitionTime"] for each in status["conditions"][1:]
    ], "it is still provisioning"


def a_round(*buffers: CapacityBuffer, most: int = 5, **more: Any) -> Iteration:
    return planned(
        Cloud(Group("a", 0, most, 0)),
        config("a"),
        capacity_buffers=buffers,
        chunk_sources=SOURCES.found,
        nodes=(node("n"),),
        **more,
    ).iteration


def done(made: Iteration) -> Iteration:
    return replace(made, actions=tuple(replace(each, done=True) for each in made.actions))


def about_buffers(made: Iteration, before: Iteration | None = None) -> list[tuple[ObjectRef, str, str]]:
    told = events.events(made, STATUS, before=before)
    return [(each.regarding, each.reason, each.message) for each in told if each.regarding.kind == "CapacityBuffer"]


REF = ObjectRef("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "b", "ns", "uid-b")


def test_a_buffer_has_one_event_for_all_chunks_that_get_nodes_and_pods_have_theirs() -> None:
    made = done(a_round(buffer(replicas=3), pods=(pod("p"), pod("q"))))
    assert about_buffers(made) == [(REF, "TriggeredScaleUp", "buffer triggered scale-up: [{a 0->4 (max: 5)}]")]
    told = {each.regarding.name for each in events.events(made, STATUS) if each.regarding.kind == "Pod"}
    assert told <= {"p", "q"}
    assert about_buffers(a_round(buffer(replicas=3))) == [], "nothing was done yet"


def test_a_buffer_that_gets_no_node_has_an_event_when_that_begins() -> None:
    made = a_round(buffer(replicas=3), most=0)
    ((regarding, reason, message),) = about_buffers(made)
    assert (regarding, reason) == (REF, "NotTriggerScaleUp")
    assert message.startswith("buffer didn't trigger scale-up: of 3 chunks 1 have room on nodes, 2 get no node: ")
    assert about_buffers(made, before=made) == []


def test_metrics_count_chunks_by_where_they_have_room_and_no_chunk_as_a_pod() -> None:
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    metrics.note(a_round(buffer(replicas=3), pods=(pod("p"),)))
    labels = {"namespace": "ns", "buffer": "b"}
    kinds = {"on_nodes": 0, "on_mid": 0, "triggered": 3, "unplaced": 0}
    for kind, count in kinds.items():
        assert registry.get_sample_value("headroom_autoscaler_buffer_chunks", {**labels, "kind": kind}) == count
    assert registry.get_sample_value("headroom_autoscaler_pending_pods", {"kind": "triggered"}) == 0


def test_the_answer_has_every_buffer_and_what_was_decided_about_them() -> None:
    plan = answers.plan(a_round(buffer("b", replicas=3), buffer("c", replicas=1), buffer("bad"), most=2))
    told = msgspec.json.decode(msgspec.json.encode(plan))
    assert list(schemas.problems(told, schemas.published("plan"))) == []
    first, second = plan.buffers
    assert (first.buffer, first.requests, first.chunks) == ("ns/b", {"cpu": 3000}, 3)
    assert (first.on_nodes + second.on_nodes, first.triggered + second.triggered) == (1, 2)
    assert [each.chosen for each in plan.buffer_decisions[0].options] == [True]
    assert {each.position for each in plan.buffer_decisions[0].options[0].classes} <= {0, 1}
    assert [each.object for each in plan.invalid_objects] == ["CapacityBuffer ns/bad"]
    assert [each.nodes for each in plan.decisions if each.what == ActionKind.INCREASE.value] == [2]


def test_the_table_of_a_plan_has_the_room_of_buffers_and_why_there_is_none() -> None:
    made = a_round(buffer(replicas=3), most=1)
    text = plan_table.render(answers.plan(made), group_rows.groups(made))
    assert "Room of CapacityBuffers:" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("  ns/b  ")]
    assert row == ["ns/b", "3", "1", "0", "1", "1", "3", "cpu"]
    assert "ns/b gets no node for 1 chunk:" in text
    told = text.partition("Options for them:\n")[2].splitlines()
    assert told[1].split()[:2] == ["*", "a"]
    none = a_round()
    assert "CapacityBuffer" not in plan_table.render(answers.plan(none), group_rows.groups(none))


def test_the_answer_and_the_table_say_how_many_chunks_there_would_be_without_a_quota() -> None:
    chunks, _ = read(buffer(replicas=3))
    assert chunks is not None
    plan = buffer_plan([replace(chunks, count=1, limited_by=("q",))], [])
    made = replace(a_round(), buffers=plan)
    answer = answers.plan(made)
    assert [(each.chunks, each.wanted, each.limited_by) for each in answer.buffers] == [(1, 3, ["q"])]
    said = "  ns/b would have 3 chunks but for ResourceQuota q"
    assert said in plan_table.render(answer, group_rows.groups(made)).splitlines()
