"""The verbs of the Kubernetes API over raw JSON.

Reads decode into the caller's own structs; writes take anything msgspec can encode (or ready bytes) and return the
metadata the server answered with. The client retries transient failures where a second attempt is harmless. It never
retries conflicts: only the caller can decide again.
"""

import copy
import enum
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, overload

import msgspec
from prometheus_client import CollectorRegistry

from shared.api.meta import ObjectMeta
from shared.clock import Clock, SystemClock
from shared.kube import bodies, objects
from shared.kube.config import Connection
from shared.kube.errors import Gone
from shared.kube.http import SocketTransport, Stream, Transport
from shared.kube.objects import RefusedObject
from shared.kube.requester import ApiCall, Requester
from shared.kube.resources import PODS, SERVICEACCOUNTS, Resource
from shared.kube.retry import Retry

T = TypeVar("T")
R = TypeVar("R")

PAGE_SIZE = 500  # what client-go and kubectl ask for


class Patch(enum.StrEnum):
    """The kinds of patches; the value is the content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Listing(Generic[T]):
    """All objects at `resource_version`, except the `refused` ones, which do not fit the struct."""

    items: list[T]
    resource_version: str
    refused: list[RefusedObject]


class _Written(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class IssuedToken(msgspec.Struct, frozen=True, rename="camel"):
    """A bearer token, and when it expires (RFC 3339)."""

    token: str
    expiration_timestamp: str


class _TokenRequest(msgspec.Struct, frozen=True):
    status: IssuedToken


class Client:
    """Talks to one API server as one identity; all threads of a process share it.

    Raises ApiError (by kind), Unreachable and InvalidResponse from every verb, and LeadershipLost from the writes of a
    fenced one. `stop` ends waits between attempts.
    """

    def __init__(
        self,
        connection: Connection,
        user_agent: str,
        *,
        clock: Clock | None = None,
        registry: CollectorRegistry | None = None,
        retry: Retry | None = None,
        stop: threading.Event | None = None,
        transport: Transport | None = None,
    ) -> None:
        """`transport` replaces the sockets to the connection's server."""
        self._requester = Requester(
            transport or SocketTransport(connection, user_agent),
            clock or SystemClock(),
            registry,
            retry or Retry(),
            stop or threading.Event(),
        )
        self.clock = self._requester.clock
        self.metrics = self._requester.metrics
        self.answers = self._requester.answers

    def single_attempt(self, timeout_seconds: float | None = None) -> "Client":
        """The same client, on the same connections, for callers that retry by themselves."""
        other = copy.copy(self)
        other._requester = self._requester.single_attempt(timeout_seconds)
        return other

    def fenced(self, may_write: Callable[[], bool]) -> "Client":
        """The same client, on the same connections, whose writes raise LeadershipLost unless `may_write`.

        Each attempt asks right before it is sent. The process may still be stopped between the two, so a write also
        carries the version that it rests on, and the server refuses it once another leader has written.
        """
        other = copy.copy(self)
        other._requester = self._requester.fenced(may_write)
        return other

    @overload
    def get(self, resource: Resource, name: str, namespace: str | None = None, *, into: type[T]) -> T: ...
    @overload
    def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]: ...
    def get(self, resource: Resource, name: str, namespace: str | None = None, *, into: type[Any] = dict) -> Any:
        """One object."""
        response = self._requester.send(ApiCall("get", "GET", resource.path(name, namespace)))
        return objects.decode(response.body, into)

    def read(self, path: str, *, into: type[T], headers: Mapping[str, str] | None = None) -> T:
        """The answer at a path without an object: the versions of a group, or a pod's answer through the proxy."""
        return objects.decode(self._requester.send(ApiCall("get", "GET", path, headers=headers or {})).body, into)

    @overload
    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        into: type[T],
        keep: Callable[[T], R],
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> Listing[R]: ...
    @overload
    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        into: type[T],
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> Listing[T]: ...
    @overload
    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> Listing[dict[str, Any]]: ...
    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        into: type[Any] = dict,
        keep: Callable[[Any], Any] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> Listing[Any]:
        """All objects, read page by page at one resourceVersion; it starts over, once, if that version expires.

        With `keep`, the result holds `keep(object)` for each object, and memory never holds more than one page of the
        objects themselves.
        """
        call = ApiCall(
            "list",
            "GET",
            resource.path(namespace=namespace),
            {"limit": str(limit)} | _selectors(label_selector, field_selector),
        )
        try:
            return self._walk(call, into, keep)
        except Gone:
            return self._walk(call, into, keep)

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        timeout_seconds: int,
        idle_seconds: float,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Stream:
        """The raw stream of changes since `resource_version`, opened in one attempt; see `shared.kube.watch`."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        } | _selectors(label_selector, field_selector)
        return self._requester.stream("watch", resource.path(namespace=namespace), query, idle_seconds)

    def create(
        self, resource: Resource, body: object, namespace: str | None = None, *, repeatable: bool = False
    ) -> ObjectMeta:
        """Raises AlreadyExists. Not retried when its outcome is unknown, unless `repeatable` says that only the caller
        uses the name, so that AlreadyExists means success.
        """
        path = resource.path(namespace=namespace)
        return self._write(ApiCall("create", "POST", path, body=_encoded(body), repeatable=repeatable))

    def try_create(self, resource: Resource, body: object, namespace: str | None = None, *, into: type[T]) -> T:
        """The object as it would be stored, after admission (a dry run)."""
        path = resource.path(namespace=namespace)
        call = ApiCall("create", "POST", path, {"dryRun": "All"}, body=_encoded(body), stores=False)
        return objects.decode(self._requester.send(call).body, into)

    def replace(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> ObjectMeta:
        """Raises Conflict when `body` carries a resourceVersion that is not the current one."""
        path = resource.path(name, namespace, subresource)
        return self._write(ApiCall("update", "PUT", path, body=_encoded(body)))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        namespace: str | None = None,
        *,
        kind: Patch = Patch.MERGE,
        subresource: str | None = None,
    ) -> ObjectMeta:
        """Changes the fields `patch` names. Raises Conflict when it carries a stale resourceVersion.

        A JSON patch may append to a list, so it is not retried when its outcome is unknown.
        """
        call = ApiCall(
            "patch",
            "PATCH",
            resource.path(name, namespace, subresource),
            body=_encoded(patch),
            content_type=kind.value,
            repeatable=kind is not Patch.JSON,
        )
        return self._write(call)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        """Deletes the object, and with `uid` only that instance, with `resource_version` only as it was then (else
        Conflict). Raises NotFound.
        """
        limits = bodies.delete_options(uid, grace_period_seconds, resource_version)
        options = {"apiVersion": "v1", "kind": "DeleteOptions"} | limits
        self._requester.send(ApiCall("delete", "DELETE", resource.path(name, namespace), body=_encoded(options)))

    def evict(
        self, namespace: str, name: str, *, uid: str | None = None, grace_period_seconds: int | None = None
    ) -> None:
        """Evicts the pod, and with `uid` only that instance (else Conflict).

        Raises TooManyRequests at once when a disruption budget does not allow it now.
        """
        body = bodies.eviction(namespace, name, bodies.delete_options(uid, grace_period_seconds))
        path = PODS.path(name, namespace, "eviction")
        self._requester.send(
            ApiCall("evict", "POST", path, body=_encoded(body), repeatable=False, repeat_throttled=False)
        )

    def bind(self, namespace: str, pod: str, node: str) -> None:
        """Binds the pod to the node. Raises Conflict when it has a node already."""
        body = bodies.binding(namespace, pod, node)
        path = PODS.path(pod, namespace, "binding")
        self._requester.send(ApiCall("bind", "POST", path, body=_encoded(body), repeatable=False))

    def request_token(
        self,
        namespace: str,
        service_account: str,
        *,
        bound_to: Mapping[str, str] | None = None,
        audiences: Sequence[str] = (),
        expiration_seconds: int = 3600,
    ) -> IssuedToken:
        """A token for the service account; with `bound_to` (kind, apiVersion, name, uid of a Pod, Node or Secret) it is
        valid only while that object exists.
        """
        body = bodies.token_request(bound_to, audiences, expiration_seconds)
        path = SERVICEACCOUNTS.path(service_account, namespace, "token")
        answer = self._requester.send(ApiCall("create", "POST", path, body=_encoded(body), repeatable=True))
        return objects.decode(answer.body, _TokenRequest).status

    def review(self, resource: Resource, kind: str, spec: Mapping[str, object], *, into: type[T]) -> T:
        """The server's answer to `spec`, of a review kind that it does not store."""
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {}, "spec": spec}
        call = ApiCall("create", "POST", resource.path(), body=_encoded(body), stores=False)
        answer = self._requester.send(call)
        return objects.decode(answer.body, into)

    def close(self) -> None:
        """Closes idle connections."""
        self._requester.close()

    def _walk(self, call: ApiCall, into: type[T], keep: Callable[[T], Any] | None) -> Listing[Any]:
        kept: list[Any] = []
        refused: list[RefusedObject] = []
        following = call
        while True:
            page = objects.decode_page(self._requester.send(following).body, into)
            kept += page.items if keep is None else map(keep, page.items)
            refused += page.refused
            if not page.continue_token:
                return Listing(kept, page.resource_version, refused)
            following = replace(call, query=call.query | {"continue": page.continue_token})

    def _write(self, call: ApiCall) -> ObjectMeta:
        return objects.decode(self._requester.send(call).body, _Written).metadata


def _encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    chosen = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in chosen.items() if value}
