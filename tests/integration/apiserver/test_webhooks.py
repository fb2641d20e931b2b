"""Admission webhooks: which requests they see, what they may do to them, and what becomes of one that fails."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.apiserver.conftest import JSON_PATCH, Api, Connect, config_map, pod
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.webhooks import Raw, WebhookServer, allow, deny, patch

GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
CONFIG_MAPS = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
PODS = CONFIG_MAPS | {"resources": ["pods"]}
Register = Callable[..., str]


def reviewed(review: dict[str, Any]) -> dict[str, Any]:
    """A whole answer that allows a request."""
    response = {"uid": review["uid"], "allowed": True}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[WebhookServer]:
    server = WebhookServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def register(api: Api, namespace: str, hooks: WebhookServer, unique: str) -> Iterator[Register]:
    """Registers a webhook at a path for what happens in the test's namespace, and waits until it is called."""
    made: list[tuple[str, str]] = []

    def registered(kind: str, path: str, rule: dict[str, Any], name: str = "", **fields: Any) -> str:
        number = len(made)
        selected = {"matchLabels": {"kubernetes.io/metadata.name": namespace.rpartition("/")[2]}}
        probed = {"matchLabels": {"probe": f"p{number}"}}
        common = {"sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": selected}
        unprobed = {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]}
        webhook = {"name": "w.example.com", "clientConfig": hooks.client(path), "rules": [rule]}
        probe = {"name": "probe.example.com", "clientConfig": hooks.client(f"/probe{number}"), "rules": [CONFIG_MAPS]}
        webhooks = [webhook | common | {"objectSelector": unprobed} | fields]
        webhooks.append(probe | common | {"objectSelector": probed})
        name = f"{name or 'w'}{number}-{unique}"
        api.ok("POST", f"{GROUP}/{kind}", {"metadata": {"name": name}, "webhooks": webhooks})
        made.append((kind, name))

        def effective() -> bool:
            body = {"metadata": {"generateName": "probe-", "labels": {"probe": f"p{number}"}}}
            api.ok("POST", f"{namespace}/configmaps?dryRun=All", body)
            return bool(hooks.reviews(f"/probe{number}"))

        eventually(effective)
        return name

    yield registered
    for kind, name in made:
        with contextlib.suppress(AssertionError):
            api.ok("DELETE", f"{GROUP}/{kind}/{name}")


def test_a_mutating_webhook_changes_what_is_stored(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    hooks.answers["/label"] = patch({"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}})
    register(MUTATING, "/label", CONFIG_MAPS)
    made = api.ok("POST", f"{namespace}/configmaps", config_map("a", k="v"))
    assert made["metadata"]["labels"] == {"seen": "yes"}
    assert api.ok("GET", f"{namespace}/configmaps/a") == made
    hooks.answers["/label"] = patch({"op": "replace", "path": "/data/k", "value": "w"})
    assert api.patch(f"{namespace}/configmaps/a", {"data": {"k": "x"}})["data"] == {"k": "w"}


def test_a_review_says_what_the_request_is(api: Api, namespace: str, hooks: WebhookServer, register: Register) -> None:
    register(MUTATING, "/m", CONFIG_MAPS)
    register(VALIDATING, "/v", CONFIG_MAPS)
    created = api.ok("POST", f"{namespace}/configmaps?fieldManager=me", {"metadata": {"generateName": "a-"}})
    name = created["metadata"]["name"]
    (first,), (second,) = hooks.reviews("/m"), hooks.reviews("/v")
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    for review in (first, second):
        assert (review["kind"], review["resource"]) == (kind, resource)
        assert (review["operation"], review["dryRun"]) == ("CREATE", False)
        assert review["namespace"] == namespace.rpartition("/")[2]
        assert review["oldObject"] is None
        assert "subResource" not in review
        assert "system:masters" in review["userInfo"]["groups"]
        assert (review["object"]["kind"], review["object"]["apiVersion"]) == ("ConfigMap", "v1")
    assert "name" not in first
    assert not {"name", "uid"} & first["object"]["metadata"].keys()
    assert (second["name"], second["object"]["metadata"]["uid"]) == (name, created["metadata"]["uid"])
    assert hooks.envelopes("/m")[0]["apiVersion"] == "admission.k8s.io/v1"
    assert first["uid"] != second["uid"]

    before = api.ok("GET", f"{namespace}/configmaps/{name}")
    after = api.patch(f"{namespace}/configmaps/{name}?dryRun=All", {"data": {"k": "v"}})
    update = hooks.reviews("/v")[1]
    assert (update["operation"], update["name"], update["dryRun"]) == ("UPDATE", name, True)
    assert update["oldObject"] == before | {"kind": "ConfigMap", "apiVersion": "v1"}
    assert update["object"]["data"] == after["data"]


def test_a_denial_is_told_as_the_webhook_words_it(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    register(VALIDATING, "/v", CONFIG_MAPS)
    configmaps = f"{namespace}/configmaps"
    prefix = 'admission webhook "w.example.com" denied the request'
    hooks.answers["/v"] = deny()
    refused = api.fails(400, "POST", configmaps, config_map("a"))
    assert refused["message"] == f"{prefix} without explanation"
    assert (refused["kind"], refused["status"], refused["code"]) == ("Status", "Failure", 400)
    assert "reason" not in refused
    hooks.answers["/v"] = deny("no room", 403, "Forbidden", details={"name": "a", "kind": "configmaps"})
    refused = api.fails(403, "POST", configmaps, config_map("a"))
    assert (refused["message"], refused["reason"]) == (f"{prefix}: no room", "Forbidden")
    assert refused["details"] == {"name": "a", "kind": "configmaps"}
    hooks.answers["/v"] = deny(reason="TooMuch", code=200)
    assert api.fails(400, "POST", configmaps, config_map("a"))["message"] == f"{prefix}: TooMuch"
    assert api.gone(f"{configmaps}/a")
    hooks.answers["/v"] = allow
    api.ok("POST", configmaps, config_map("a"))
    hooks.answers["/v"] = deny("stay")
    denied = api.fails(400, "PATCH", f"{configmaps}/a", {"data": {"a": "b"}}, "application/merge-patch+json")
    assert denied["message"] == f"{prefix}: stay"
    assert not api.ok("GET", f"{configmaps}/a").get("data")


def test_webhooks_that_do_not_answer_keep_requests_out_unless_they_may_be_ignored(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    waited_for = {"late": "yes"}  # only the answer that never comes is awaited for so short a time
    register(VALIDATING, "/late", CONFIG_MAPS, name="a", timeoutSeconds=1, objectSelector={"matchLabels": waited_for})
    register(VALIDATING, "/v", CONFIG_MAPS, name="b")
    register(MUTATING, "/m", CONFIG_MAPS, name="c", failurePolicy="Ignore")
    released = threading.Event()
    hooks.answers["/late"] = lambda _: {"allowed": released.wait(20)}
    late = api.fails(500, "POST", f"{namespace}/configmaps", {"metadata": {"name": "a", "labels": waited_for}})
    released.set()
    assert late["message"].startswith('Internal error occurred: failed calling webhook "w.example.com": ')
    hooks.answers["/v"] = lambda _: Raw("boom\n", 500, "text/plain")
    broken = api.fails(500, "POST", f"{namespace}/configmaps", config_map("a"))
    assert "boom" in broken["message"]
    hooks.answers["/v"] = lambda _: {"allowed": True, "uid": "another"}
    api.fails(500, "POST", f"{namespace}/configmaps", config_map("a"))
    hooks.answers["/v"] = allow
    hooks.answers["/m"] = lambda _: Raw("", 503)
    assert api.ok("POST", f"{namespace}/configmaps", config_map("a"))


def test_a_webhook_that_is_not_there_is_named_with_its_address(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    register(VALIDATING, "/v", CONFIG_MAPS, clientConfig={"url": "https://127.0.0.1:1/v", "caBundle": hooks.ca_bundle})
    refused = api.fails(500, "POST", f"{namespace}/configmaps", config_map("a"))
    assert "https://127.0.0.1:1/v" in refused["message"]


def test_a_webhook_is_not_asked_whose_certificate_is_not_the_registered_ones(
    api: Api, namespace: str, hooks: WebhookServer, register: Register, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with contextlib.closing(WebhookServer(tmp_path / "other")) as other:
        client = {"url": hooks.url("/v"), "caBundle": other.ca_bundle}
        register(VALIDATING, "/v", CONFIG_MAPS, clientConfig=client)
    refused = api.fails(500, "POST", f"{namespace}/configmaps", config_map("a"))
    assert "certificate" in refused["message"]
    assert not hooks.reviews("/v")


def test_a_webhook_sees_what_its_rules_and_selectors_name(
    api: Api, server: ApiServer, namespace: str, hooks: WebhookServer, register: Register, unique: str
) -> None:
    labelled = {"matchLabels": {"mine": "yes"}}
    register(VALIDATING, "/some", CONFIG_MAPS | {"operations": ["UPDATE"]}, objectSelector=labelled)
    register(VALIDATING, "/status", PODS | {"resources": ["pods/status"]})
    register(VALIDATING, "/all", EVERYTHING)
    configmaps = f"{namespace}/configmaps"
    api.ok("POST", configmaps, config_map("a"))
    api.patch(f"{configmaps}/a", {"data": {"k": "1"}})
    assert not hooks.reviews("/some")
    api.patch(f"{configmaps}/a", {"metadata": {"labels": {"mine": "yes"}}})
    api.patch(f"{configmaps}/a", {"metadata": {"labels": {"mine": None}}})
    assert len(hooks.reviews("/some")) == 2  # the label is on the old object or on the new one
    elsewhere = server.add_namespace()
    api.ok("POST", f"/api/v1/namespaces/{elsewhere}/configmaps", config_map("a"))
    api.ok("POST", f"{namespace}/pods", pod("p"))
    api.ok("PATCH", f"{namespace}/pods/p/status", {"status": {"message": "m"}}, "application/merge-patch+json")
    (status,) = hooks.reviews("/status")
    assert (status["operation"], status["subResource"], status["kind"]["kind"]) == ("UPDATE", "status", "Pod")
    assert status["object"]["status"]["message"] == "m"
    seen = [(r["operation"], r["resource"]["resource"], r.get("subResource", "")) for r in hooks.reviews("/all")]
    assert seen == [
        ("CREATE", "configmaps", ""), ("UPDATE", "configmaps", ""), ("UPDATE", "configmaps", ""),
        ("UPDATE", "configmaps", ""), ("CREATE", "pods", ""), ("UPDATE", "pods", "status"),
    ]  # fmt: skip


def test_nobody_reviews_the_registrations_themselves(
    api: Api, namespace: str, hooks: WebhookServer, register: Register, unique: str
) -> None:
    register(VALIDATING, "/all", EVERYTHING, namespaceSelector={}, objectSelector={"matchLabels": {"only": unique}})
    body = {"metadata": {"name": unique, "labels": {"only": unique}}}
    api.ok("POST", f"{GROUP}/{VALIDATING}", body)
    api.ok("DELETE", f"{GROUP}/{VALIDATING}/{unique}")
    assert not hooks.reviews("/all")
    api.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body | {"value": 1})
    assert [review["operation"] for review in hooks.reviews("/all")] == ["CREATE"]
    api.ok("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{unique}")


def test_a_changed_pod_is_completed_and_checked_like_one_that_was_sent_so(
    api: Api, namespace: str, hooks: WebhookServer, register: Register, unique: str
) -> None:
    register(MUTATING, "/m", PODS)
    hooks.answers["/m"] = patch(
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {"cpu": "1500m", "memory": "1Gi"}},
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "d", "image": "i"}},
        {"op": "add", "path": "/metadata/nothing", "value": "dropped"},
    )
    made = api.ok("POST", f"{namespace}/pods", pod("a"))
    assert made["status"]["qosClass"] == "Burstable"
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
    assert made["spec"]["containers"][1]["imagePullPolicy"] == "Always"
    assert "nothing" not in made["metadata"]
    (review,) = hooks.reviews("/m")
    assert review["object"]["spec"]["restartPolicy"] == "Always"

    hooks.answers["/m"] = patch({"op": "replace", "path": "/spec/restartPolicy", "value": "Sometimes"})
    refused = api.fails(422, "POST", f"{namespace}/pods", pod("b"))
    assert 'spec.restartPolicy: Unsupported value: "Sometimes"' in refused["message"]
    hooks.answers["/m"] = patch({"op": "remove", "path": "/spec/nothing"})
    api.fails(500, "POST", f"{namespace}/pods", pod("b"))

    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.ok("POST", classes, {"metadata": {"name": unique}, "value": 7000})
    hooks.answers["/m"] = patch({"op": "add", "path": "/spec/priorityClassName", "value": unique})
    assert "computed 7000" in api.fails(403, "POST", f"{namespace}/pods", pod("b"))["message"]
    hooks.answers["/m"] = patch(
        {"op": "add", "path": "/spec/priorityClassName", "value": unique},
        {"op": "replace", "path": "/spec/priority", "value": 7000},
    )
    assert api.ok("POST", f"{namespace}/pods", pod("b"))["spec"]["priority"] == 7000
    api.ok("DELETE", f"{classes}/{unique}")


def test_webhooks_come_in_the_order_of_their_names(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    register(MUTATING, "/second", CONFIG_MAPS, name="b")
    register(MUTATING, "/first", CONFIG_MAPS, name="a")
    hooks.calls.clear()
    hooks.answers["/first"] = patch({"op": "add", "path": "/data", "value": {"k": "v"}})
    api.ok("POST", f"{namespace}/configmaps", config_map("b"))
    assert hooks.calls == ["/first", "/second"]
    assert [review["object"]["data"] for review in hooks.reviews("/second")] == [{"k": "v"}]


def test_the_cluster_completes_what_a_webhook_took_away(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    register(MUTATING, "/m", PODS)
    hooks.answers["/m"] = patch({"op": "remove", "path": "/spec/priority"})
    assert api.ok("POST", f"{namespace}/pods", pod("a"))["spec"]["priority"] == 0


def test_a_slow_webhook_keeps_only_its_own_request_waiting(
    api: Api, namespace: str, hooks: WebhookServer, register: Register, server: ApiServer, connect: Connect
) -> None:
    register(VALIDATING, "/v", PODS)
    released, asked = threading.Event(), threading.Event()

    def wait(_: Any) -> Any:
        asked.set()
        return {"allowed": released.wait(10)}

    hooks.answers["/v"] = wait
    other = connect(server)
    slow = threading.Thread(target=lambda: other.ok("POST", f"{namespace}/pods", pod("slow")))
    slow.start()
    assert asked.wait(10)
    api.ok("POST", f"{namespace}/configmaps", config_map("quick"))
    assert api.gone(f"{namespace}/pods/slow")
    released.set()
    slow.join(10)
    assert not api.gone(f"{namespace}/pods/slow")


def test_a_webhook_may_call_the_server_that_calls_it(
    api: Api, namespace: str, hooks: WebhookServer, register: Register, server: ApiServer, connect: Connect
) -> None:
    back = connect(server)
    hooks.answers["/m"] = lambda review: {
        "allowed": back.call("POST", f"{namespace}/configmaps", config_map(review["name"])).is_success
    }
    register(MUTATING, "/m", PODS)
    register(VALIDATING, "/v", CONFIG_MAPS)
    assert api.ok("POST", f"{namespace}/pods", pod("a"))
    assert [review["name"] for review in hooks.reviews("/v")] == ["a"]


def test_an_object_that_changes_while_a_webhook_thinks_is_looked_at_anew(
    api: Api, namespace: str, hooks: WebhookServer, register: Register, server: ApiServer, connect: Connect
) -> None:
    made = api.ok("POST", f"{namespace}/configmaps", config_map("a", k="1"))
    register(VALIDATING, "/v", CONFIG_MAPS | {"operations": ["UPDATE"]})
    back = connect(server)

    def interfere(review: Any) -> Any:
        if review["userInfo"] and "late" not in review["object"].get("data", {}):
            hooks.answers["/v"] = allow
            back.patch(f"{namespace}/configmaps/a", {"data": {"late": str(time.time())}})
        return {"allowed": True}

    hooks.answers["/v"] = interfere
    after = api.patch(f"{namespace}/configmaps/a", {"data": {"mine": "1"}})
    assert after["data"].keys() == {"k", "late", "mine"}
    hooks.answers["/v"] = interfere
    conflicting = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "y"}}
    api.fails(409, "PATCH", f"{namespace}/configmaps/a", conflicting, "application/merge-patch+json")


@pytest.mark.embedded_only("how a real one holds connections is its own affair")
def test_calls_share_a_connection_and_do_without_one_that_ends(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    register(VALIDATING, "/v", CONFIG_MAPS)
    for name in ("a", "b", "c"):
        api.ok("POST", f"{namespace}/configmaps", config_map(name))
    assert hooks.connections == 1
    hooks.answers["/v"] = lambda review: Raw(json.dumps(reviewed(review)), Connection="close")
    for name in ("d", "e", "f"):
        api.ok("POST", f"{namespace}/configmaps", config_map(name))
    assert hooks.connections == 3


@pytest.mark.embedded_only("kills the process that all tests share")
def test_registrations_outlive_the_server(
    api: Api, server: ApiServer, namespace: str, hooks: WebhookServer, register: Register, connect: Connect
) -> None:
    register(VALIDATING, "/v", CONFIG_MAPS)
    server.kill()
    server.start()
    hooks.answers["/v"] = deny("still here")
    after = connect(server)
    assert after.fails(400, "POST", f"{namespace}/configmaps", config_map("a"))["message"].endswith("still here")


def test_a_json_patch_of_a_client_is_reviewed_as_an_update(
    api: Api, namespace: str, hooks: WebhookServer, register: Register
) -> None:
    api.ok("POST", f"{namespace}/configmaps", config_map("a"))
    register(VALIDATING, "/v", CONFIG_MAPS)
    api.ok("PATCH", f"{namespace}/configmaps/a", [{"op": "add", "path": "/data", "value": {"k": "v"}}], JSON_PATCH)
    seen = [(review["operation"], review["object"]["metadata"]["name"]) for review in hooks.reviews("/v")]
    assert seen == [("UPDATE", "a")]
