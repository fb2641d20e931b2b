import threading
import weakref
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from shared.api.core import Node
from shared.kube import errors
from shared.kube.client import Client, Patch
from shared.kube.config import Connection
from shared.kube.resources import CONFIGMAPS, LEASES, NODEMETRICS, NODES, PODS, SELFSUBJECTACCESSREVIEWS, Resource
from shared.kube.retry import Jitter, Retry
from tests.unit.kube.scripted import Hurried, ScriptedServer, answer, node, page, reset, status, stream


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (NODES, {}, "/api/v1/nodes"),
        (NODES, {"name": "n1", "subresource": "status"}, "/api/v1/nodes/n1/status"),
        (PODS, {}, "/api/v1/pods"),
        (PODS, {"namespace": "a", "name": "p"}, "/api/v1/namespaces/a/pods/p"),
        (NODEMETRICS, {"name": "n"}, "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n"),
        (LEASES, {"namespace": "a"}, "/apis/coordination.k8s.io/v1/namespaces/a/leases"),
        (NODES, {"name": "../pods?x=1"}, "/api/v1/nodes/..%2Fpods%3Fx%3D1"),
    ],
)
def test_a_resource_knows_its_path(resource: Resource, arguments: dict[str, str], path: str) -> None:
    assert resource.path(**arguments) == path


def test_a_cluster_scoped_resource_has_no_namespace() -> None:
    with pytest.raises(ValueError, match="cluster-scoped"):
        NODES.path(namespace="default")


def test_a_list_walks_all_pages_at_one_version(server: ScriptedServer, client: Client) -> None:
    server.then(
        page(node("a", 1), node("b", 2), version=10, token="t1"),
        page(node("c", 3), version=10, token="t2"),
        page(node("d", 4), version=10),
    )
    listing = client.list(NODES, into=Node, label_selector="x=y", limit=2)
    assert [item.metadata.name for item in listing.items] == ["a", "b", "c", "d"]
    assert listing.resource_version == "10"
    assert [request.query.get("continue") for request in server.requests] == [None, "t1", "t2"]
    assert all(request.query["limit"] == "2" for request in server.requests)
    assert all(request.query["labelSelector"] == "x=y" for request in server.requests)


class Tracked(Node, frozen=True, weakref=True):
    """A node that can be seen to go."""


def test_of_objects_that_are_not_kept_there_is_never_more_than_a_page(server: ScriptedServer, client: Client) -> None:
    server.then(
        *(page(node(f"a{i}", 1), node(f"b{i}", 1), version=10, token=f"t{i}") for i in range(5)),
        page(version=10),
    )
    alive: weakref.WeakSet[Tracked] = weakref.WeakSet()
    most = 0

    def keep(item: Tracked) -> str:
        nonlocal most
        alive.add(item)
        most = max(most, len(alive))
        return item.metadata.name

    listing = client.list(NODES, into=Tracked, keep=keep)
    assert listing.items == [f"{name}{i}" for i in range(5) for name in "ab"]
    assert most == 2
    assert len(alive) == 0


def test_a_list_whose_token_expires_starts_again_from_scratch(server: ScriptedServer, client: Client) -> None:
    server.then(
        page(node("old", 1), version=10, token="t1"),
        status(410, "Expired"),
        page(node("new", 2), version=20),
    )
    listing = client.list(NODES)
    assert [item["metadata"]["name"] for item in listing.items] == ["new"]
    assert listing.resource_version == "20"


def test_a_list_that_keeps_expiring_says_so(server: ScriptedServer, client: Client) -> None:
    server.then(*[page(version=1, token="t"), status(410, "Expired")] * 2)
    with pytest.raises(errors.Gone):
        client.list(NODES)


@pytest.mark.parametrize("fault", [reset(), status(500, "InternalError"), status(503, "ServiceUnavailable")])
def test_reads_outlast_passing_faults(server: ScriptedServer, client: Client, fault: Callable[..., None]) -> None:
    server.then(fault, fault, answer(node("a", 1)))
    assert client.get(NODES, "a", into=Node).metadata.name == "a"


def test_429_is_waited_out_for_as_long_as_the_server_asks(server: ScriptedServer) -> None:
    clock = Hurried()
    client = Client(Connection(server.url), "test", clock=clock, retry=Retry(jitter=Jitter(0.5, 0.5)))
    server.then(
        status(429, "TooManyRequests", retry_after="3"),
        status(429, "TooManyRequests", details={"retryAfterSeconds": 2}),
        answer(node("a", 1), 201),
    )
    assert client.create(NODES, {}).name == "a"  # nothing was done yet, so even a create may be sent again
    assert 3 <= clock.waits[0] <= 3.5
    assert 2 <= clock.waits[1] <= 2.5


def test_a_retry_after_beyond_the_deadline_is_not_sat_out(server: ScriptedServer, client: Client) -> None:
    server.then(status(429, "TooManyRequests", retry_after="3600"))
    with pytest.raises(errors.TooManyRequests) as caught:
        client.get(NODES, "a")
    assert "gave up on GET /api/v1/nodes/a after 1 attempts" in caught.value.__notes__[0]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create(CONFIGMAPS, {}, "ns"),
        lambda client: client.patch(NODES, "a", [{"op": "add", "path": "/x/-", "value": 1}], kind=Patch.JSON),
        lambda client: client.bind("ns", "p", "n"),
        lambda client: client.evict("ns", "p"),
    ],
    ids=["create", "json patch", "bind", "evict"],
)
@pytest.mark.parametrize("fault", [reset(), status(500, "InternalError")], ids=["reset", "500"])
def test_a_write_that_would_happen_twice_is_never_repeated(
    server: ScriptedServer,
    client: Client,
    write: Callable[[Client], object],
    fault: Callable[..., None],
) -> None:
    server.then(fault)
    with pytest.raises((errors.Unreachable, errors.ServerError)):
        write(client)
    assert len(server.requests) == 1


def test_an_eviction_held_by_a_budget_is_the_callers_business_at_once(server: ScriptedServer, client: Client) -> None:
    server.then(status(429, "TooManyRequests", retry_after="0"))
    with pytest.raises(errors.TooManyRequests):
        client.evict("ns", "p")
    assert len(server.requests) == 1


def test_a_conflict_is_the_callers_business_at_once(server: ScriptedServer, client: Client) -> None:
    server.then(status(409, "Conflict"))
    with pytest.raises(errors.Conflict):
        client.replace(NODES, "a", node("a", 1))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create(CONFIGMAPS, {}, "ns"),
        lambda client: client.replace(NODES, "a", node("a", 1)),
        lambda client: client.patch(NODES, "a", {}),
        lambda client: client.delete(NODES, "a"),
        lambda client: client.evict("ns", "p"),
        lambda client: client.bind("ns", "p", "n"),
        lambda client: client.single_attempt().patch(NODES, "a", {}),
    ],
    ids=["create", "replace", "patch", "delete", "evict", "bind", "single attempt"],
)
def test_a_fenced_client_sends_no_write_of_a_process_that_does_not_lead(
    server: ScriptedServer, client: Client, write: Callable[[Client], object]
) -> None:
    with pytest.raises(errors.LeadershipLost):
        write(client.fenced(lambda: False))
    assert server.requests == []


def test_a_fenced_client_asks_before_each_attempt(server: ScriptedServer, client: Client) -> None:
    leads = iter((True, False))
    server.then(status(503, "ServiceUnavailable"))
    with pytest.raises(errors.LeadershipLost):
        client.fenced(lambda: next(leads)).patch(NODES, "a", {})
    assert len(server.requests) == 1


def test_a_process_that_does_not_lead_reads_and_asks_for_reviews(server: ScriptedServer, client: Client) -> None:
    fenced = client.fenced(lambda: False)
    server.then(answer(node("a", 1)), answer({"status": {"allowed": True}}))
    assert fenced.get(NODES, "a")["metadata"]["name"] == "a"
    assert fenced.review(SELFSUBJECTACCESSREVIEWS, "SelfSubjectAccessReview", {}, into=dict)["status"]["allowed"]


def test_a_stop_ends_the_wait_between_attempts(server: ScriptedServer) -> None:
    stop = threading.Event()
    stop.set()
    patient = Retry(deadline_seconds=3600, jitter=Jitter(600, 600))
    server.then(status(503, "ServiceUnavailable"))
    with pytest.raises(errors.ServerError):
        Client(Connection(server.url), "test", retry=patient, stop=stop).get(NODES, "a")


def test_a_single_attempt_is_one_attempt(server: ScriptedServer, client: Client) -> None:
    server.then(status(503, "ServiceUnavailable"))
    with pytest.raises(errors.ServerError):
        client.single_attempt().get(NODES, "a")
    assert len(server.requests) == 1


def test_nobody_listening_is_unreachable(server: ScriptedServer) -> None:
    client = Client(Connection(server.url), "test", retry=Retry(deadline_seconds=-1))
    server.close()
    with pytest.raises(errors.Unreachable, match="GET /api/v1/nodes/a"):
        client.get(NODES, "a")


def test_a_silent_server_is_unreachable(server: ScriptedServer, client: Client) -> None:
    server.then(lambda exchange: (exchange.server.closing.wait(), None)[1])
    with pytest.raises(errors.Unreachable, match=r"[Tt]imed out"):
        client.single_attempt(0.1).get(NODES, "a")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": 5}', b'{"metadata":{"name":"\xff"}}'])
def test_an_answer_of_another_shape_is_an_invalid_response(server: ScriptedServer, client: Client, body: bytes) -> None:
    server.then(answer(body))
    with pytest.raises(errors.InvalidResponse):
        client.get(NODES, "a", into=Node)


def test_a_redirect_is_not_followed_with_our_token(server: ScriptedServer, client: Client) -> None:
    server.then(answer(b"", 302, Location=server.url + "/elsewhere"))
    with pytest.raises(errors.ApiError) as caught:
        client.get(NODES, "a")
    assert caught.value.status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        (Patch.MERGE, "application/merge-patch+json"),
        (Patch.JSON, "application/json-patch+json"),
        (Patch.STRATEGIC, "application/strategic-merge-patch+json"),
    ],
)
def test_each_kind_of_patch_has_its_content_type(
    server: ScriptedServer, client: Client, kind: Patch, content_type: str
) -> None:
    server.then(answer(node("a", 5)))
    written = client.patch(NODES, "a", {"status": {}}, kind=kind, subresource="status")
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/a/status")
    assert request.headers["Content-Type"] == content_type
    assert request.body == {"status": {}}
    assert written.resource_version == "5"


def test_deletion_can_be_bound_to_one_very_object(server: ScriptedServer, client: Client) -> None:
    server.then(answer({"kind": "Status"}))
    client.delete(PODS, "p", "ns", uid="u1", grace_period_seconds=0)
    assert server.requests[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1"},
        "gracePeriodSeconds": 0,
    }


def test_binding_and_eviction_go_to_their_subresources(server: ScriptedServer, client: Client) -> None:
    server.then(answer({"kind": "Status"}, 201), answer({"kind": "Status"}, 201))
    client.bind("ns", "p", "n1")
    client.evict("ns", "p", uid="u1", grace_period_seconds=0)
    binding, eviction = server.requests
    assert binding.path == "/api/v1/namespaces/ns/pods/p/binding"
    assert binding.body["target"]["name"] == "n1"
    assert eviction.path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert eviction.body["metadata"] == {"name": "p", "namespace": "ns"}
    assert eviction.body["deleteOptions"] == {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0}


def test_a_server_behind_a_path_keeps_its_prefix(server: ScriptedServer) -> None:
    server.then(answer(node("a", 1)))
    Client(Connection(server.url + "/k8s/clusters/c-1/"), "agent/1").get(NODES, "a")
    assert server.requests[0].path == "/k8s/clusters/c-1/api/v1/nodes/a"
    assert server.requests[0].headers["User-Agent"] == "agent/1"


def test_threads_share_the_client_and_its_connections(server: ScriptedServer, client: Client) -> None:
    server.then(*[answer(node(f"n{i}", i)) for i in range(64)])
    names: list[str] = []
    workers = [
        threading.Thread(target=lambda: names.extend(client.get(NODES, "x", into=Node).metadata.name for _ in range(8)))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(names) == sorted(f"n{i}" for i in range(64))


def test_requests_are_counted_by_verb_and_code(server: ScriptedServer) -> None:
    registry = CollectorRegistry()
    once = Retry(deadline_seconds=-1)
    client = Client(Connection(server.url), "test", registry=registry, retry=once)
    Client(Connection(server.url), "another in the same process", registry=registry)
    server.then(answer(node("a", 1)), status(409, "Conflict"), reset(), stream(end="close"))
    client.get(NODES, "a")
    with pytest.raises(errors.Conflict):
        client.replace(NODES, "a", {})
    with pytest.raises(errors.Unreachable):
        client.list(NODES)
    client.watch(NODES, resource_version="1", timeout_seconds=1, idle_seconds=1).close()

    def count(verb: str, code: str) -> float | None:
        return registry.get_sample_value("headroom_kube_requests_total", {"verb": verb, "code": code})

    assert (count("get", "200"), count("update", "409")) == (1, 1)
    assert (count("list", "error"), count("watch", "200")) == (1, 1)
