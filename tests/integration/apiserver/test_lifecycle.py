"""How objects end: finalizers, grace, owners, namespaces; how pods are bound and evicted."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.local.apiserver.bodies import How
from deploy.local.apiserver.janitor import Janitor
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.store import Store
from deploy.local.apiserver.writes import Writes
from tests.integration.apiserver.conftest import MERGE, STRATEGIC, Api, config_map, pod
from tests.support import eventually


def own_node(namespace: str) -> str:
    """A node that no other test has pods on: from one that is missing for long, all of them are taken, old or new."""
    return namespace.rpartition("/")[2]


def owned(name: str, owner: dict[str, Any]) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


def test_a_finalizer_holds_an_object_until_it_is_taken_off(api: Api, namespace: str) -> None:
    path = f"{namespace}/configmaps/a"
    api.ok("POST", f"{namespace}/configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    held = api.ok("DELETE", path)
    assert held["metadata"]["deletionTimestamp"]
    status = api.fails(
        422, "PATCH", path, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}, MERGE
    )
    assert "can be added if the object is being deleted" in status["message"]
    api.patch(path, {"metadata": {"finalizers": None}})
    assert api.gone(path)


def test_a_pod_on_a_node_is_given_its_grace_and_one_without_goes_at_once(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/pods", pod("bound", nodeName=own_node(namespace), terminationGracePeriodSeconds=7))
    api.ok("POST", f"{namespace}/pods", pod("free"))
    marked = api.ok("DELETE", f"{namespace}/pods/bound")["metadata"]
    assert (marked["deletionGracePeriodSeconds"], bool(marked["deletionTimestamp"])) == (7, True)
    api.ok("DELETE", f"{namespace}/pods/free")
    assert api.gone(f"{namespace}/pods/free")
    shorter = api.ok("DELETE", f"{namespace}/pods/bound", {"gracePeriodSeconds": 2})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 2
    api.ok("DELETE", f"{namespace}/pods/bound", {"gracePeriodSeconds": 0})
    assert api.gone(f"{namespace}/pods/bound")


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_dependents_go_with_their_owner(api: Api, namespace: str, propagation: str) -> None:
    owner = api.ok("POST", f"{namespace}/configmaps", config_map("owner"))
    api.ok("POST", f"{namespace}/configmaps", owned("child", owner))
    api.ok("DELETE", f"{namespace}/configmaps/owner?propagationPolicy={propagation}")
    eventually(lambda: api.gone(f"{namespace}/configmaps/child") and api.gone(f"{namespace}/configmaps/owner"))


@pytest.mark.embedded_only("a real one leaves orphans")
def test_what_would_leave_orphans_is_refused(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/configmaps", config_map("owner"))
    for options in ({"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
        api.fails(400, "DELETE", f"{namespace}/configmaps/owner", options)


def test_a_dependent_of_an_owner_that_never_was_goes(api: Api, namespace: str) -> None:
    owner = {"metadata": {"name": "never", "uid": "never"}}
    api.ok("POST", f"{namespace}/configmaps", owned("child", owner))
    eventually(lambda: api.gone(f"{namespace}/configmaps/child"))


def test_a_namespace_takes_its_content_along(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/configmaps", config_map("a"))
    api.ok("POST", f"{namespace}/pods", pod("bound", nodeName=own_node(namespace)))
    terminating = api.ok("DELETE", namespace)
    assert terminating["status"]["phase"] == "Terminating"
    assert "deletionGracePeriodSeconds" not in terminating["metadata"]
    status = api.fails(403, "POST", f"{namespace}/configmaps", config_map("late"))
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    eventually(lambda: "deletionTimestamp" in api.ok("GET", f"{namespace}/pods/bound")["metadata"])
    api.ok("GET", f"{namespace}/configmaps/a")  # what a pod that is still with its kubelet may be using stays
    api.ok("DELETE", f"{namespace}/pods/bound", {"gracePeriodSeconds": 0})
    eventually(lambda: api.gone(namespace))
    assert api.gone(f"{namespace}/configmaps/a")


MISBOUND: dict[str, Any] = {
    "another name": {"metadata": {"name": "b"}},
    "no node": {"metadata": {"name": "a"}},
    "no Node": {"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "n"}},
    "another pod": {"metadata": {"name": "a", "uid": "b"}, "target": {"name": "n"}},
}


@pytest.mark.parametrize("body", MISBOUND.values(), ids=MISBOUND.keys())
def test_a_binding_that_does_not_fit_is_refused(api: Api, namespace: str, body: Any) -> None:
    api.ok("POST", f"{namespace}/pods", pod("a"))
    assert not api.call("POST", f"{namespace}/pods/a/binding", body).is_success
    assert "nodeName" not in api.ok("GET", f"{namespace}/pods/a")["spec"]


def test_every_way_of_deleting_a_pod_counts_one_generation(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/pods", pod("free"))
    gone = api.ok("DELETE", f"{namespace}/pods/free")["metadata"]
    assert (gone["generation"], gone["deletionGracePeriodSeconds"], "deletionTimestamp" in gone) == (2, 0, True)
    api.ok("POST", f"{namespace}/pods", pod("bound", nodeName=own_node(namespace)))
    marks = [
        api.ok("DELETE", f"{namespace}/pods/bound?gracePeriodSeconds={seconds}")["metadata"]
        for seconds in (7, 20, 3, -1, 0)
    ]
    assert [mark["deletionGracePeriodSeconds"] for mark in marks] == [7, 7, 3, 1, 0]
    assert {mark["generation"] for mark in marks} == {2}
    assert api.gone(f"{namespace}/pods/bound")


def test_a_pod_is_bound_once(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/pods", pod("a"))
    node = own_node(namespace)
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": node}}
    assert api.call("POST", f"{namespace}/pods/a/binding", binding).status_code == 201
    bound = api.ok("GET", f"{namespace}/pods/a")
    assert (bound["spec"]["nodeName"], bound["metadata"]["generation"]) == (node, 1)
    assert ("PodScheduled", "True") in [(c["type"], c["status"]) for c in bound["status"]["conditions"]]
    status = api.fails(409, "POST", f"{namespace}/pods/a/binding", binding)
    assert f'pod a is already assigned to node "{node}"' in status["message"]


BUDGETS: list[tuple[str, dict[str, Any], int, tuple[int, int, int]]] = [
    # spec, ready pods of four -> allowed, desired, expected
    ("two of four", {"minAvailable": 2}, 4, (2, 2, 4)),
    ("half, rounded up", {"minAvailable": "51%"}, 4, (1, 3, 4)),
    ("one may miss", {"maxUnavailable": 1}, 4, (1, 3, 4)),
    ("one misses already", {"maxUnavailable": 1}, 3, (0, 3, 4)),
    ("a quarter may miss", {"maxUnavailable": "25%"}, 4, (1, 3, 4)),
]


@pytest.mark.parametrize(
    ("spec", "ready", "expected"), [case[1:] for case in BUDGETS], ids=[case[0] for case in BUDGETS]
)
def test_a_budget_counts_ready_pods(
    api: Api, namespace: str, spec: dict[str, Any], ready: int, expected: tuple[int, int, int]
) -> None:
    budgets = namespace.replace("/api/v1", "/apis/policy/v1") + "/poddisruptionbudgets"
    api.ok("POST", budgets, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}})
    for index in range(4):
        run(api, namespace, f"p{index}", ready=index < ready)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web")["spec"]}
    wanted = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    sets = namespace.replace("/api/v1", "/apis/apps/v1") + "/replicasets"
    controller = api.ok("POST", sets, {"metadata": {"name": "web"}, "spec": wanted})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": controller["metadata"]["uid"]}
    adopted = {"metadata": {"ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}]}}
    for index in range(4):
        api.patch(f"{namespace}/pods/p{index}", adopted, STRATEGIC)  # what its controller, if there is one, does too
    allowed, desired, total = expected

    def agrees() -> bool:
        status = api.ok("GET", f"{budgets}/b").get("status", {})
        counted = (status.get("disruptionsAllowed"), status.get("desiredHealthy"), status.get("expectedPods"))
        return counted == (allowed, desired, total)

    eventually(agrees)


def run(api: Api, namespace: str, name: str, *, ready: bool) -> None:
    """A running pod of the application web."""
    body = pod(name, nodeName=own_node(namespace))
    body["metadata"]["labels"] = {"app": "web"}
    api.ok("POST", f"{namespace}/pods", body)
    state = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    api.patch(f"{namespace}/pods/{name}/status", {"status": state}, STRATEGIC)


def test_eviction_spends_the_budget_and_is_refused_when_it_is_spent(api: Api, namespace: str) -> None:
    budgets = namespace.replace("/api/v1", "/apis/policy/v1") + "/poddisruptionbudgets"
    run(api, namespace, "p0", ready=True)
    run(api, namespace, "p1", ready=True)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    api.ok("POST", budgets, {"metadata": {"name": "b"}, "spec": spec})
    eventually(lambda: api.ok("GET", f"{budgets}/b").get("status", {}).get("disruptionsAllowed") == 1)
    assert api.call("POST", f"{namespace}/pods/p0/eviction", {"metadata": {"name": "p0"}}).status_code == 201
    assert "does not match name in Eviction" in api.fails(400, "POST", f"{namespace}/pods/p0/eviction", {})["message"]
    evicted = api.ok("GET", f"{namespace}/pods/p0")
    assert evicted["metadata"]["deletionTimestamp"]
    condition = next(c for c in evicted["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    status = api.fails(429, "POST", f"{namespace}/pods/p1/eviction", {"metadata": {"name": "p1"}})
    assert status["reason"] == "TooManyRequests"
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert status["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in api.ok("GET", f"{namespace}/pods/p1")["metadata"]


class Kubelet(BaseHTTPRequestHandler):
    """Answers every request for logs with the path it was asked for."""

    def do_GET(self) -> None:
        found = "/missing/" not in self.path
        self.send_response(200 if found else 400)
        self.end_headers()
        self.wfile.write(self.path.encode() if found else b"no such container")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def kubelet_port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Kubelet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.embedded_only("kube-apiserver speaks TLS with kubelets, as the whole cluster's own tests do")
def test_logs_come_from_the_kubelet_of_the_pods_node(api: Api, namespace: str, unique: str, kubelet_port: int) -> None:
    endpoints = {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}}
    api.ok("POST", "/api/v1/nodes", {"metadata": {"name": unique}, "status": endpoints})
    for name, node in (("a", unique), ("missing", unique), ("lost", "nowhere")):
        api.ok("POST", f"{namespace}/pods", pod(name, nodeName=node))
    space = namespace.rpartition("/")[2]
    logs = api.call("GET", f"{namespace}/pods/a/log?tailLines=5")
    assert (logs.status_code, logs.text) == (200, f"/containerLogs/{space}/a/c?tailLines=5")
    assert "no such container" in api.fails(400, "GET", f"{namespace}/pods/missing/log")["message"]
    assert "publishes no endpoint" in api.fails(501, "GET", f"{namespace}/pods/lost/log")["message"]
    api.ok("DELETE", f"/api/v1/nodes/{unique}")


@pytest.mark.embedded_only("it turns the clock of the embedded server's own controllers")
def test_old_events_and_the_pods_of_vanished_nodes_are_swept(tmp_path: Path) -> None:
    kinds = KindRegistry()
    store = Store(tmp_path, kinds.fields)
    writes = Writes(store, kinds)
    janitor = Janitor(store, writes, kinds)
    for plural, body in (
        ("namespaces", {"metadata": {"name": "n"}}),
        ("events", {"metadata": {"name": "e"}, "involvedObject": {"namespace": "n"}}),
        ("pods", pod("placed", nodeName="gone")),
        ("pods", pod("free")),
    ):
        kind = kinds.find("", "v1", plural)
        assert kind is not None
        writes.create(kind, "n" if kind.namespaced else "", body, How())
    states = []
    for later in (0, 60, 4000):
        janitor.sweep(time.time() + later)
        states.append([record.name for plural in ("/events", "/pods") for record in store.ordered(plural)])
    store.close()
    assert states == [["e", "free", "placed"], ["e", "free"], ["free"]]
