"""What an ordinary cluster makes of a pod, and which pods it does not let in."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api, pod

PODS = "/api/v1/namespaces/default/pods?dryRun=All"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def never(api: Api, unique: str) -> Iterator[str]:
    """A class of priority 7000 that does not preempt."""
    api.ok("POST", CLASSES, {"metadata": {"name": unique}, "value": 7000, "preemptionPolicy": "Never"})
    yield unique
    api.ok("DELETE", f"{CLASSES}/{unique}")


def container(**content: Any) -> dict[str, Any]:
    return pod("a", containers=[{"name": "c", "image": "i:1"} | content])


def test_priority_comes_from_the_class(api: Api, never: str) -> None:
    for asked in ({}, {"priority": 7000}, {"preemptionPolicy": "Never"}):
        spec = api.ok("POST", PODS, pod("a", priorityClassName=never, **asked))["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (7000, "Never")
    plain = api.ok("POST", PODS, pod("a"))["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_a_priority_that_is_not_the_classs_is_forbidden(api: Api, never: str) -> None:
    refused = api.fails(403, "POST", PODS, pod("a", priority=5))
    assert refused["message"] == (
        'pods "a" is forbidden: the integer value of priority (5) must not be provided in pod spec; '
        "priority admission controller computed 0 from the given PriorityClass name"
    )
    assert refused["details"] == {"name": "a", "kind": "pods"}
    assert "computed 7000" in api.fails(403, "POST", PODS, pod("a", priority=5, priorityClassName=never))["message"]
    policy = {"priorityClassName": never, "preemptionPolicy": "PreemptLowerPriority"}
    assert "computed Never" in api.fails(403, "POST", PODS, pod("a", **policy))["message"]
    unknown = api.fails(403, "POST", PODS, pod("a", priorityClassName="no-such"))
    assert unknown["message"] == 'pods "a" is forbidden: no PriorityClass with name no-such was found'


def test_a_pod_of_an_unknown_account_is_forbidden(api: Api) -> None:
    refused = api.fails(403, "POST", PODS, pod("a", serviceAccountName="no-such"))
    assert refused["message"] == (
        'pods "a" is forbidden: error looking up service account default/no-such: serviceaccount "no-such" not found'
    )


def test_pods_tolerate_a_node_that_is_not_ready_for_five_minutes(api: Api) -> None:
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    usual = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in taints]
    assert api.ok("POST", PODS, pod("a"))["spec"]["tolerations"] == usual
    own = {"key": taints[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert api.ok("POST", PODS, pod("a", tolerations=[own]))["spec"]["tolerations"] == [own, usual[1]]
    everything = {"operator": "Exists"}
    assert api.ok("POST", PODS, pod("a", tolerations=[everything]))["spec"]["tolerations"] == [everything]


def test_probes_ports_and_references_get_their_defaults(api: Api) -> None:
    body = container(
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"grpc": {"port": 81}},
        lifecycle={"preStop": {"httpGet": {"port": 1}}},
        ports=[{"containerPort": 80}],
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )
    body["spec"]["hostNetwork"] = True
    made = api.ok("POST", PODS, body)["spec"]["containers"][0]
    counts = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    get = {"path": "/", "scheme": "HTTP"}
    assert made["livenessProbe"] == {"httpGet": {"port": 80} | get} | counts
    assert made["readinessProbe"] == {"grpc": {"port": 81, "service": ""}} | counts
    assert made["lifecycle"]["preStop"]["httpGet"] == {"port": 1} | get
    assert made["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert made["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    assert made["terminationMessagePath"] == "/dev/termination-log"
    assert (made["terminationMessagePolicy"], made["imagePullPolicy"]) == ("File", "IfNotPresent")


def test_volumes_get_their_defaults(api: Api) -> None:
    volumes = [
        {"name": "a"},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "hostPath": {"path": "/x"}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    made = {v.pop("name"): v for v in api.ok("POST", PODS, pod("a", volumes=volumes))["spec"]["volumes"]}
    assert made["a"] == {"emptyDir": {}}
    assert made["b"]["secret"]["defaultMode"] == 0o644
    assert made["c"]["hostPath"]["type"] == ""
    assert made["d"]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600


def test_a_gated_pod_says_that_it_is_not_scheduled(api: Api) -> None:
    (condition,) = api.ok("POST", PODS, pod("a", schedulingGates=[{"name": "a/b"}]))["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


def test_gates_are_opened_and_never_closed_again(api: Api, namespace: str) -> None:
    made = api.ok("POST", f"{namespace}/pods", pod("a", schedulingGates=[{"name": "a/b"}, {"name": "c/d"}]))
    for left in ([{"name": "c/d"}], []):
        made["spec"]["schedulingGates"] = left
        made = api.ok("PUT", f"{namespace}/pods/a", made)
    made["spec"]["schedulingGates"] = [{"name": "a/b"}]
    api.fails(422, "PUT", f"{namespace}/pods/a", made)


INVALID: list[tuple[dict[str, Any], str, str]] = [
    (container(imagePullPolicy="x"), "spec.containers[0].imagePullPolicy", "FieldValueNotSupported"),
    (container(terminationMessagePolicy="x"), "spec.containers[0].terminationMessagePolicy", "FieldValueNotSupported"),
    (container(image=" i"), "spec.containers[0].image", "FieldValueInvalid"),
    (container(volumeMounts=[{"name": "v", "mountPath": "/x"}]), "spec.containers[0].volumeMounts[0].name",
     "FieldValueNotFound"),
    (container(ports=[{"containerPort": 0}]), "spec.containers[0].ports[0].containerPort", "FieldValueRequired"),
    (container(ports=[{"containerPort": 1, "name": "UP"}]), "spec.containers[0].ports[0].name", "FieldValueInvalid"),
    (container(env=[{"name": ""}]), "spec.containers[0].env[0].name", "FieldValueRequired"),
    (pod("a", dnsPolicy="x"), "spec.dnsPolicy", "FieldValueNotSupported"),
    (pod("a", nodeSelector={"a b": "c"}), "spec.nodeSelector", "FieldValueInvalid"),
    (pod("a", activeDeadlineSeconds=0), "spec.activeDeadlineSeconds", "FieldValueInvalid"),
    (pod("a", shareProcessNamespace=True, hostPID=True), "spec.securityContext.shareProcessNamespace",
     "FieldValueInvalid"),
    (pod("a", tolerations=[{"operator": "Equal"}]), "spec.tolerations[0].operator", "FieldValueInvalid"),
    (pod("a", tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]),
     "spec.tolerations[0].effect", "FieldValueInvalid"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field", "reason"), INVALID, ids=[field for _, field, _ in INVALID])
def test_an_invalid_spec_is_refused_with_its_cause(api: Api, body: dict[str, Any], field: str, reason: str) -> None:
    causes = api.fails(422, "POST", PODS, body)["details"]["causes"]
    assert (field, reason) in {(cause["field"], cause["reason"]) for cause in causes}
