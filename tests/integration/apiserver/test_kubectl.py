"""The real kubectl against the server: what a person types."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.apiserver.conftest import Api, Kubectl, pod
from tests.support.apiserver import ApiServer

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    },
}


def node(name: str) -> dict[str, Any]:
    return NODE | {"metadata": {"name": name, "labels": {"zone": name}}}


def manifest(name: str, kind: str = "ConfigMap", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} | fields


def test_nodes_are_shown_and_changed(kubectl: Kubectl, unique: str) -> None:
    assert kubectl("apply -f -", node(unique)) == f"node/{unique} created\n"
    assert kubectl("apply -f -", node(unique)) == f"node/{unique} unchanged\n"
    assert kubectl(f"get node {unique} --no-headers").split()[:3] == [unique, "Ready", "<none>"]
    assert "127.0.0.1" in kubectl(f"get node {unique} -o wide")
    assert kubectl(f"get nodes -l zone={unique} -o name") == f"node/{unique}\n"
    kubectl(f"label node {unique} a=b")
    kubectl(f"annotate node {unique} c=d")
    kubectl(f"cordon {unique}")
    kubectl(f"taint node {unique} k=v:NoSchedule")
    described = kubectl(f"describe node {unique}")
    for part in ("a=b", "c: d", "Unschedulable:      true", "k=v:NoSchedule", "KubeletReady"):
        assert part in described
    assert "SchedulingDisabled" in kubectl(f"get node {unique}")
    kubectl(f"wait --for=condition=Ready node/{unique} --timeout=60s")
    assert kubectl(f"delete node {unique}") == f'node "{unique}" deleted\n'


def test_a_raw_path_is_answered(kubectl: Kubectl, server: ApiServer) -> None:
    prefix = f"/{server.token}" if server.ca_file is None else ""
    assert '"nodemetrics/status"' in kubectl(f"get --raw {prefix}/apis/slo.koordinator.sh/v1alpha1")


def test_objects_are_applied(kubectl: Kubectl, unique: str) -> None:
    kubectl("apply -f -", manifest(unique, data={"a": "1", "b": "2"}))
    kubectl("apply -f -", manifest(unique, data={"a": "1", "c": "3"}))
    assert kubectl(f"get cm {unique} -o jsonpath={{.data}}") == '{"a":"1","c":"3"}'
    assert "already exists" in kubectl("create -f -", manifest(unique), fails=True)


def test_every_patch_type_works(kubectl: Kubectl, unique: str) -> None:
    kubectl("create -f -", node(unique))
    kubectl(f'patch node {unique} -p {{"metadata":{{"labels":{{"s":"1"}}}}}}')
    kubectl(f'patch node {unique} --type=merge -p {{"metadata":{{"labels":{{"m":"1"}}}}}}')
    kubectl(f'patch node {unique} --type=json -p [{{"op":"add","path":"/metadata/labels/j","value":"1"}}]')
    kubectl(f'patch node {unique} --subresource=status -p {{"status":{{"capacity":{{"cpu":"8"}}}}}}')
    shown = kubectl(f"get node {unique} -o jsonpath={{.metadata.labels}}{{.status.capacity.cpu}}")
    assert shown.endswith("8")
    assert all(f'"{label}":"1"' in shown for label in "smj")
    kubectl(f"delete node {unique}")


def test_node_metrics_have_their_columns_and_explain_themselves(kubectl: Kubectl, unique: str) -> None:
    metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": unique}}
    kubectl("apply -f -", metric)
    usage = '{"resources":{"cpu":"1500m","memory":"2Gi"}}'
    status = f'{{"status":{{"nodeMetric":{{"nodeUsage":{usage}}},"prodPeakMetric":{{"resource":{usage}}}}}}}'
    kubectl(f"patch nm {unique} --subresource=status --type=merge -p {status}")
    header, row = kubectl(f"get nm {unique}").splitlines()
    assert header.split() == [
        "NAME",
        "CPU",
        "MEMORY",
        "PEAK-CPU",
        "PEAK-MEMORY",
        "RECLAIMABLE-CPU",
        "RECLAIMABLE-MEMORY",
        "REPORTED",
        "AGE",
    ]
    assert row.split()[:5] == [unique, "1500m", "2Gi", "1500m", "2Gi"]
    assert unique in kubectl("get headroom -o name")
    explained = kubectl("explain nodemetric.status.prediction")
    assert "How the prediction came about." in explained
    assert "historyPercent" in explained
    assert "strict decoding error: unknown field" in kubectl("apply -f -", metric | {"spec": {"typo": 1}}, fails=True)


def test_pods_are_shown_selected_and_deleted(kubectl: Kubectl, api: Api, namespace: str) -> None:
    space = namespace.rpartition("/")[2]
    kubectl(f"run web --image=busybox --labels=app=web -n {space}")
    assert kubectl(f"get pods -n {space} --no-headers").split()[:4] == ["web", "0/1", "Pending", "0"]
    assert "web" in kubectl(f"get pods -n {space} -l app=web --field-selector status.phase=Pending -o wide")
    assert "Error from server (BadRequest)" in kubectl(f"get pods -n {space} --field-selector spec.foo=a", fails=True)
    uid = api.ok("GET", f"{namespace}/pods/web")["metadata"]["uid"]
    about = {"kind": "Pod", "namespace": space, "name": "web", "uid": uid}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": "Tested",
        "message": "by hand",
        "type": "Normal",
    }
    api.ok("POST", f"{namespace}/events", event)
    assert "by hand" in kubectl(f"get events -n {space}")
    assert "by hand" in kubectl(f"describe pod web -n {space}")
    kubectl(f"wait --for=jsonpath={{.status.phase}}=Pending pod/web -n {space} --timeout=60s")
    kubectl(f"delete pod web -n {space}")
    kubectl(f"delete ns {space} --timeout=60s")


def test_a_node_is_drained(kubectl: Kubectl, unique: str) -> None:
    kubectl("create -f -", node(unique))
    container = {"name": "c", "image": "busybox"}
    kubectl(
        "create -f -",
        manifest(
            unique, "Pod", spec={"nodeName": unique, "containers": [container], "terminationGracePeriodSeconds": 0}
        ),
    )
    assert f"node/{unique} drained" in kubectl(f"drain {unique} --force --timeout=60s")
    assert "NotFound" in kubectl(f"get pod {unique}", fails=True)
    kubectl(f"delete node {unique}")


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("api-resources", "nodemetrics"),
        ("api-versions", "slo.koordinator.sh/v1alpha1"),
        ("get leases -A", ""),
        ("get ns", "kube-node-lease"),
        ("get crd", "nodemetrics.slo.koordinator.sh"),
        ("cluster-info", "running at"),
    ],
)
def test_the_cluster_answers(kubectl: Kubectl, command: str, part: str) -> None:
    assert part in kubectl(command)


@pytest.mark.own_decision("a whole API server reads protobuf, and controllers act on what it stores")
@pytest.mark.parametrize("command", ["create namespace {}", "create deployment {} --image=none"])
def test_what_kubectl_sends_as_protobuf_is_answered_with_a_command_that_works(
    command: str, kubectl: Kubectl, unique: str
) -> None:
    given = command.format(unique)
    said = kubectl(given, fails=True)
    assert "add `--dry-run=client -o yaml | kubectl apply -f -` to the command" in said
    assert "make run CLUSTER=node" in said
    made = yaml.safe_load(kubectl(f"{given} --dry-run=client -o yaml"))
    assert "created" in kubectl("apply -f -", made)


@pytest.mark.own_decision("pods of a whole API server are containers")
@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("exec {} -- true", "`kubectl exec` or `kubectl cp`"),
        ("cp {}:/tmp/a {}", "`kubectl exec` or `kubectl cp`"),
        ("attach {} --pod-running-timeout=60s", "`kubectl attach`"),
        ("port-forward {} :80", "`kubectl port-forward`"),
    ],
)
def test_what_reaches_into_a_pod_is_answered_with_what_to_do_instead(
    command: str, what: str, kubectl: Kubectl, api: Api, unique: str, tmp_path: Path
) -> None:
    kubectl(f"run {unique} --image=busybox")
    api.patch(f"/api/v1/namespaces/default/pods/{unique}/status", {"status": {"phase": "Running"}})
    said = kubectl(command.format(unique, tmp_path / "copy"), fails=True)
    assert f"no Pod is reached by {what} here" in said
    assert "make run CLUSTER=node" in said
    assert "malformed" not in said
    kubectl(f"delete pod {unique} --grace-period=0 --force")


@pytest.mark.own_decision("pods of a whole API server are containers")
@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_only_a_pod_that_exists_is_refused_as_out_of_reach(subresource: str, api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/pods", pod("there"))
    assert api.fails(501, "POST", f"{namespace}/pods/there/{subresource}")["reason"] == "NotImplemented"
    assert api.fails(404, "POST", f"{namespace}/pods/gone/{subresource}")["reason"] == "NotFound"


@pytest.mark.own_decision("kubectl sends a whole API server its token over TLS")
def test_the_token_that_begins_a_path_authenticates_and_no_other_does(server: ApiServer) -> None:
    with httpx.Client(base_url=server.url, headers={"User-Agent": "kubectl/v1.36.0"}) as http:
        assert http.get(f"/{server.token}/api/v1/nodes").status_code == 200
        assert http.get("/wrong/api/v1/nodes").status_code == 403
        without = http.get("/api/v1/nodes")
    assert without.status_code == 403
    assert "begin the path of `kubectl get --raw` with that of the server's URL" in without.json()["message"]
    assert server.token not in without.text


@pytest.mark.own_decision("a whole API server reads protobuf")
def test_what_a_user_may_do_is_said_although_the_question_is_not_read(kubectl: Kubectl) -> None:
    assert "your user may do everything in it" in kubectl("auth can-i create pods", fails=True)
