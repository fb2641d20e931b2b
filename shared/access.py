"""Access control: the API server authenticates a caller (TokenReview) and authorizes it (SubjectAccessReview).

A request is authorized as its method on a non-resource URL: `/metrics` keeps that name, because roles for Prometheus
use it; everything else gets our prefix. Without the prefix it would be `/api/...`, which every service account may
read.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import SUBJECTACCESSREVIEWS, TOKENREVIEWS
from shared.telemetry import OncePerMinute
from shared.web.requests import Gate, Headers, Refusal, allow_all, own_machine
from shared.web.server import is_loopback

if TYPE_CHECKING:
    from starlette.types import Scope

logger = logging.getLogger(__name__)
logger.addFilter(OncePerMinute())

KNOWN_SECONDS = 60.0  # for how long a positive answer is believed
REFUSED_SECONDS = 10.0  # and a negative one
MOST_ANSWERS = 1024  # remembered answers of each kind
REVIEW_SECONDS = 5.0  # for one review
MOST_REVIEWS = 32  # at a time
REVIEWERS = 4
SEGMENTS = 3  # path segments that are distinguished: /api/v1/nodes
LONGEST_TOKEN = 16 << 10  # characters
AUTHENTICATED = "system:authenticated"
# In place of `Authorization`, which an API server drops where it passes a request on to a pod.
PASSED_ON_HEADER = "x-headroom-authorization"

T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True):
    """A caller, as the API server knows it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    @property
    def key(self) -> Hashable:
        return (self.username, self.uid, self.groups, tuple(sorted(self.extra.items())))


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: Identity = Identity()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _TooMany(Exception):
    """Callers ask for more reviews than the limit allows."""


class PeerRate:
    """A rate per second for each of the latest `MOST_PEERS` peers, with bursts of up to `burst`."""

    MOST_PEERS = 1024

    def __init__(self, per_second: float, burst: float, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when

    def take(self, peer: str) -> bool:
        now = self._monotonic()
        left, at = self._left.pop(peer, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        allowed = left >= 1
        self._left[peer] = (left - allowed, now)
        if len(self._left) > self.MOST_PEERS:
            self._left.popitem(last=False)
        return allowed


class BelievedAnswers(Generic[T]):
    """Answers of the API server, each believed for a while; for one event loop. None is a refusal."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[Hashable, tuple[float, T | None]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[T | None]] = {}

    async def get(self, key: Hashable, ask: Callable[[bool], "asyncio.Future[T | None]"]) -> T | None:
        """`ask` gets whether the previous answer was positive. Concurrent callers with one key share the result."""
        until, value = self._known.get(key, (0.0, None))
        if self._monotonic() < until:
            return value
        asked = self._asked.get(key)
        if asked is None:
            asked = asyncio.ensure_future(self._learn(key, ask(value is not None)))
            self._asked[key] = asked
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(asked)

    async def _learn(self, key: Hashable, answer: "asyncio.Future[T | None]") -> T | None:
        value = await answer
        self._known.pop(key, None)
        self._known[key] = (self._monotonic() + (REFUSED_SECONDS if value is None else KNOWN_SECONDS), value)
        if len(self._known) > MOST_ANSWERS:
            self._known.popitem(last=False)
        return value


class Delegated:
    """A gate that asks the API server, and refuses every request while the server does not answer.

    Reviews are limited for each peer: a peer that tries many tokens waits, and others do not. The limit does not apply
    when the previous answer was positive.
    """

    def __init__(self, client: Client, prefix: str, *, per_second: float = 5.0, burst: float = 20.0) -> None:
        self._client = client.single_attempt(REVIEW_SECONDS)
        self._prefix = prefix
        self._rate = PeerRate(per_second, burst, client.clock.monotonic)
        self._identities: BelievedAnswers[Identity] = BelievedAnswers(client.clock.monotonic)
        self._rights: BelievedAnswers[bool] = BelievedAnswers(client.clock.monotonic)
        self._reviewers = ThreadPoolExecutor(REVIEWERS, thread_name_prefix="access")
        self._under_review = 0

    async def __call__(self, scope: "Scope", headers: Headers) -> Refusal | None:
        peer = (scope.get("client") or ("",))[0]
        try:
            identity = await self._identity(scope, headers, peer)
            if identity is None:
                return Refusal(401, "no valid token or client certificate", {"WWW-Authenticate": "Bearer"})
            path, verb = self.attribute(scope["path"]), scope["method"].lower()
            verb = "get" if verb == "head" else verb
            if await self._rights.get((identity.key, path, verb), self._asking(peer, self._may, identity, path, verb)):
                return None
        except _TooMany:
            return Refusal(429, "too many unknown credentials", {"Retry-After": "5"})
        except HeadroomError as error:
            logger.warning("no client can be authorized: %s", error)
            return Refusal(503, "the API server, which says who may ask, does not answer", {"Retry-After": "5"})
        return Refusal(403, f"{identity.username} may not {verb} {path}")

    def attribute(self, path: str) -> str:
        """The non-resource URL that a role has to allow."""
        return path if path == "/metrics" else self._prefix + "/".join(path.split("/")[: SEGMENTS + 1])

    async def _identity(self, scope: "Scope", headers: Headers, peer: str) -> Identity | None:
        given = headers.get(PASSED_ON_HEADER) or headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            connection = scope["state"].get("connection")
            return None if connection is None else of_certificate(connection.certificate)
        if len(token) > LONGEST_TOKEN:
            return None
        return await self._identities.get(hashlib.sha256(token.encode()).digest(), self._asking(peer, self._who, token))

    def _asking(self, peer: str, review: Callable[..., T | None], *about: Any) -> Callable[[bool], Any]:
        def ask(was_yes: bool) -> "asyncio.Future[T | None]":
            if self._under_review >= MOST_REVIEWS or not (was_yes or self._rate.take(peer)):
                logger.warning("too many credentials to review: some are refused", extra={"peer": peer})
                raise _TooMany
            self._under_review += 1
            future = asyncio.get_running_loop().run_in_executor(self._reviewers, review, *about)
            future.add_done_callback(self._reviewed)
            return future

        return ask

    def _reviewed(self, _: object) -> None:
        self._under_review -= 1

    def _who(self, token: str) -> Identity | None:
        status = self._client.review(TOKENREVIEWS, "TokenReview", {"token": token}, into=_TokenReview).status
        return status.user if status.authenticated else None

    def _may(self, identity: Identity, path: str, verb: str) -> bool | None:
        spec = {
            "user": identity.username,
            "uid": identity.uid,
            "groups": identity.groups,
            "extra": identity.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        review = self._client.review(SUBJECTACCESSREVIEWS, "SubjectAccessReview", spec, into=_AccessReview)
        return review.status.allowed or None


def gate(authorization: Literal["auto", "delegated", "off"], listen: str, client: Client, prefix: str) -> Gate:
    """The gate for the address `listen`. Raises InvalidInput."""
    local = is_loopback(listen)
    if authorization == "delegated" or (authorization == "auto" and not local):
        return Delegated(client, prefix)
    return own_machine if local else allow_all


def of_certificate(certificate: dict[str, Any] | None) -> Identity | None:
    """The identity in a verified certificate, as Kubernetes reads it: the common name, and organizations as groups."""
    if not certificate:
        return None
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in subject if key == "commonName"), "")
    groups = tuple(value for key, value in subject if key == "organizationName")
    return Identity(username=name, groups=(*groups, AUTHENTICATED)) if name else None
