"""Requests, quality of service and priority class of a pod."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from shared.api import pods
from shared.api.core import Pod
from shared.names import KubeQoS, PriorityClass, QoS
from shared.quantity import QuantityError, Resources


def pod(spec: Mapping[str, object] | None = None, labels: dict[str, str] | None = None, **status: object) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "labels": labels}, "spec": spec or {}, "status": status}, Pod)


def container(cpu: str | None = None, memory: str | None = None, **more: object) -> dict[str, object]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return {"name": "c", "resources": {"requests": requests}} | more


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container("1", "1Gi"), container("500m", "1Gi")]}, Resources(1500, 2 << 30)),
        ({"containers": [container("1")], "initContainers": [container("3", "1Ki")]}, Resources(3000, 1024)),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("200m", restartPolicy="Always"), container("900m")],
            },
            Resources(1200, 0),
        ),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2"), container("200m", restartPolicy="Always")],
            },
            Resources(2000, 0),
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "50m", "memory": "1Mi"}}, Resources(1050, 1 << 20)),
        (
            {
                "containers": [container("1", "1Mi"), container("3")],
                "resources": {"requests": {"cpu": "2", "example.com/gpu": "9"}},
                "overhead": {"cpu": "50m"},
            },
            Resources(2050, 1 << 20),
        ),
        (
            {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "6", "memory": "1Gi"}}},
            Resources(6000, 1 << 30),
        ),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2", "1Mi")],
                "resources": {"limits": {"cpu": "6", "memory": "1Gi"}},
            },
            Resources(2000, 1 << 20),
        ),
        (
            {
                "containers": [container("1")],
                "resources": {
                    "requests": {"cpu": "3"},
                    "limits": {"cpu": "6", "memory": "1Gi", "example.com/gpu": "9"},
                },
                "overhead": {"cpu": "50m"},
            },
            Resources(3050, 1 << 30),
        ),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, Resources(2000, 0)),
        ({}, Resources()),
    ],
)
def test_a_pod_requests_what_kubernetes_says_it_does(spec: dict[str, object], expected: Resources) -> None:
    assert pods.native_request(pod(spec)) == expected


def test_extended_resources_are_whole_units() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"kubernetes.io/mid-cpu": "1500"}}}]}
    assert pods.requests(pod(spec)) == {"kubernetes.io/mid-cpu": 1500}


def test_huge_pages_a_pod_is_limited_to_are_requested_whatever_its_containers_request() -> None:
    asking = {"name": "c", "resources": {"requests": {"hugepages-2Mi": "2Mi"}}}
    spec = {"containers": [asking], "resources": {"limits": {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}}}
    assert pods.requests(pod(spec)) == {"hugepages-2Mi": 4 << 20, "hugepages-1Gi": 1 << 30}


def reported(in_force: str, allocated: str | None = None, name: str = "c") -> dict[str, object]:
    granted = {} if allocated is None else {"allocatedResources": {"cpu": allocated, "memory": "1Mi"}}
    return {"name": name, "resources": {"requests": {"cpu": in_force, "memory": "1Mi"}}, **granted}


PENDING = {"type": "PodResizePending", "status": "True"}
INFEASIBLE = PENDING | {"reason": "Infeasible"}


@pytest.mark.parametrize(
    ("status", "cpu_milli"),
    [
        (reported("2", "2"), 2000),
        (reported("2000m"), 2000),
        (reported("4", "4"), 4000),
        (reported("2", "3"), 3000),
        (reported("3", "2"), 3000),
        (reported("1", "1"), 2000),
        (reported("9", "9", name="other"), 2000),
        ({"name": "c", "allocatedResources": {"cpu": "4"}}, 2000),
    ],
)
@pytest.mark.parametrize(
    ("sidecars", "field"), [(False, "containerStatuses"), (True, "initContainerStatuses")], ids=["container", "sidecar"]
)
def test_a_container_being_resized_asks_for_the_most_of_what_it_has_and_is_to_have(
    status: dict[str, object], cpu_milli: int, sidecars: bool, field: str
) -> None:
    asking = container("2", "1Mi", restartPolicy="Always" if sidecars else None)
    asking["resources"] = {"requests": {"cpu": "2", "memory": "1Mi", "example.com/gpu": "1"}}
    spec = {"initContainers": [asking]} if sidecars else {"containers": [asking]}
    statuses: dict[str, Any] = {field: [status]}
    given = pod(spec, conditions=[PENDING], **statuses)
    assert pods.requests(given) == {"cpu": cpu_milli, "memory": 1 << 20, "example.com/gpu": 1}


@pytest.mark.parametrize("wanted", ["1", "8"])
def test_a_resize_that_the_node_can_never_grant_does_not_count(wanted: str) -> None:
    spec = {"containers": [container(wanted, "1Mi")]}
    given = pod(spec, conditions=[INFEASIBLE], containerStatuses=[reported("2", "3")])
    assert pods.native_request(given) == Resources(3000, 1 << 20)


def test_what_is_reported_of_an_init_container_that_ends_does_not_count() -> None:
    given = pod({"initContainers": [container("1")]}, initContainerStatuses=[reported("4", "4")])
    assert pods.native_request(given) == Resources(1000, 0)


def test_a_limit_stands_in_for_a_request_of_a_container_being_resized() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "5", "memory": "1Mi"}}}]}
    assert pods.native_request(pod(spec, containerStatuses=[reported("4", "4")])) == Resources(5000, 1 << 20)


def test_a_reported_amount_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(QuantityError, match="lots"):
        pods.requests(pod({"containers": [container("1")]}, containerStatuses=[reported("lots")]))


def test_a_request_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(QuantityError, match="lots"):
        pods.native_request(pod({"containers": [container("lots")]}))


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, KubeQoS.BEST_EFFORT),
        ({"cpu": "1"}, {}, KubeQoS.BURSTABLE),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}, KubeQoS.GUARANTEED),
        ({}, {"cpu": "1", "memory": "1Gi"}, KubeQoS.GUARANTEED),
        ({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}, KubeQoS.BURSTABLE),
        ({"cpu": "1"}, {"cpu": "1"}, KubeQoS.BURSTABLE),
        ({"cpu": "0"}, {"cpu": "1", "memory": "1Gi"}, KubeQoS.BURSTABLE),
        ({"kubernetes.io/mid-cpu": "1"}, {"kubernetes.io/mid-cpu": "1"}, KubeQoS.BEST_EFFORT),
        ({"ephemeral-storage": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, KubeQoS.GUARANTEED),
    ],
)
def test_quality_of_service_follows_requests_and_limits(
    requests: dict[str, str], limits: dict[str, str], expected: KubeQoS
) -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}
    assert pods.kube_qos(pod(spec)) is expected
    whole = {"containers": [container("100m")], "resources": spec["containers"][0]["resources"]}
    assert pods.kube_qos(pod(whole)) is expected


def test_the_status_settles_the_quality_of_service() -> None:
    assert pods.kube_qos(pod({"containers": [container("1")]}, qosClass="Guaranteed")) is KubeQoS.GUARANTEED


@pytest.mark.parametrize(
    ("labels", "priority", "raw", "resolved"),
    [
        ({}, 9000, PriorityClass.PROD, PriorityClass.PROD),
        ({}, 7999, PriorityClass.MID, PriorityClass.MID),
        ({}, 5000, PriorityClass.BATCH, PriorityClass.BATCH),
        ({}, 3500, PriorityClass.FREE, PriorityClass.FREE),
        ({}, 8500, PriorityClass.NONE, PriorityClass.PROD),
        ({}, None, PriorityClass.NONE, PriorityClass.PROD),
        ({"koordinator.sh/priority-class": "koord-mid"}, 9000, PriorityClass.MID, PriorityClass.MID),
        ({"koordinator.sh/priority-class": "gold"}, 7500, PriorityClass.NONE, PriorityClass.PROD),
        ({"koordinator.sh/qosClass": "BE"}, None, PriorityClass.NONE, PriorityClass.BATCH),
        ({"koordinator.sh/qosClass": "SYSTEM"}, None, PriorityClass.NONE, PriorityClass.PROD),
    ],
)
def test_the_priority_class_comes_from_label_then_priority_then_quality(
    labels: dict[str, str], priority: int | None, raw: PriorityClass, resolved: PriorityClass
) -> None:
    subject = pod({"containers": [container("1")], "priority": priority}, labels)
    assert (pods.raw_priority_class(subject), pods.priority_class(subject)) == (raw, resolved)


@pytest.mark.parametrize(
    ("labels", "priority", "resources", "expected"),
    [
        ({}, None, {"requests": {"kubernetes.io/mid-cpu": "500"}}, PriorityClass.MID),
        ({}, 0, {"limits": {"kubernetes.io/mid-memory": "1Gi", "cpu": "1"}}, PriorityClass.MID),
        ({}, -5, {"requests": {"kubernetes.io/batch-cpu": "500"}, "limits": {"cpu": "1"}}, PriorityClass.BATCH),
        ({}, None, {"requests": {"kubernetes.io/batch-cpu": "1", "kubernetes.io/mid-cpu": "1"}}, PriorityClass.MID),
        ({}, 9000, {"requests": {"kubernetes.io/mid-cpu": "500"}}, PriorityClass.PROD),
        ({"koordinator.sh/priority-class": "gold"}, 0, {"limits": {"kubernetes.io/mid-cpu": "5"}}, PriorityClass.MID),
        ({}, None, {"requests": {"example.com/gpu": "1", "cpu": "1"}}, PriorityClass.PROD),
    ],
)
def test_a_pod_that_names_no_class_has_that_of_the_tier_it_asks_for(
    labels: dict[str, str], priority: int | None, resources: dict[str, object], expected: PriorityClass
) -> None:
    asking = {"name": "c", "resources": resources}
    for spec in ({"containers": [asking]}, {"containers": [container("1")], "initContainers": [asking]}):
        subject = pod({**spec, "priority": priority}, labels)
        assert pods.priority_class(subject) is expected
        assert pods.is_reclaimable(subject) is (expected is PriorityClass.PROD)


def test_a_pod_without_requests_is_batch() -> None:
    assert pods.priority_class(pod({"containers": [container()]})) is PriorityClass.BATCH
    assert pods.qos(pod({"containers": [container()]})) is QoS.BE


@pytest.mark.parametrize(
    ("phase", "active"), [("", True), ("Pending", True), ("Running", True), ("Succeeded", False), ("Failed", False)]
)
def test_a_finished_pod_holds_nothing(phase: str, active: bool) -> None:
    assert pods.is_active(pod(phase=phase)) is active


def limited(cpu: str | None = None, **more: object) -> dict[str, object]:
    return {"name": "c", "resources": {"limits": {} if cpu is None else {"cpu": cpu}}} | more


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [limited("1"), limited("500m")]}, {"cpu": 1500}),
        ({"containers": [limited("1"), limited()]}, {"cpu": 1000}),
        ({"containers": [limited("1")], "initContainers": [limited("3")]}, {"cpu": 3000}),
        ({"containers": [limited("1")], "initContainers": [limited("1", restartPolicy="Always")]}, {"cpu": 2000}),
        ({"containers": [limited("1")], "overhead": {"cpu": "250m", "memory": "1Ki"}}, {"cpu": 1250}),
        ({"containers": [limited()], "overhead": {"cpu": "250m"}}, {}),
        ({"containers": [container("4")]}, {}),
    ],
)
def test_limits_follow_the_rule_of_requests_where_there_are_any(
    spec: Mapping[str, object], expected: dict[str, int]
) -> None:
    assert pods.limits(pod(spec)) == expected
