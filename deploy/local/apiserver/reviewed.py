"""Writes that admission webhooks review.

A write that matches no webhook is decided in one turn of the event loop. Otherwise the server builds the object,
sends it to the mutating webhooks in order, validates it, sends it to all validating webhooks at once, and then decides,
unless the object that it replaces has changed meanwhile: then all steps start again. While a webhook works, the server
handles other requests, including requests from that webhook.
"""

import asyncio
import base64
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from deploy.local.apiserver import patching, status
from deploy.local.apiserver.authentication import USER
from deploy.local.apiserver.bodies import How
from deploy.local.apiserver.callouts import CallFailed, Callouts
from deploy.local.apiserver.kinds import ADMISSION_GROUP, ApiKind
from deploy.local.apiserver.objects import JsonObject, decode, dig, encode
from deploy.local.apiserver.store import Store, object_key
from deploy.local.apiserver.webhooks import REVIEW_VERSION, RegisteredWebhook, RegisteredWebhooks, ReviewRequest
from deploy.local.apiserver.writes import Draft, Mutate, WriteOutcome, Writes

logger = logging.getLogger(__name__)

REVIEW_GROUP, REVIEW = "admission.k8s.io", "AdmissionReview"
_ATTEMPTS = 10  # for an object that others write while webhooks work
_FIRST_FAILURE = 400


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A webhook's response: whether it allows the request, its reasons as a metav1.Status, and its JSON patch."""

    allowed: bool
    reasons: JsonObject
    operations: Sequence[JsonObject]


class Reviewed:
    """Create and update with the review by webhooks; none reviews deletions."""

    def __init__(self, store: Store, writes: Writes, registered: RegisteredWebhooks, callouts: Callouts) -> None:
        self._store = store
        self._writes = writes
        self._registered = registered
        self._callouts = callouts

    async def create(self, kind: ApiKind, namespace: str, obj: JsonObject, how: How) -> WriteOutcome:
        """Raises StatusError as Writes.create does, and for what webhooks deny."""
        unnamed = not dig(obj, "metadata", "name")
        draft = self._writes.draft_new(kind, namespace, obj, how)
        asked = _asked("CREATE", kind, how, namespace, "" if unnamed else draft.name)
        await self._mutate(asked, draft)
        settled = self._writes.settled(draft)
        await self._validate(replace(asked, name=settled.name), settled.obj, None)
        return self._writes.commit(settled, asked.warnings)

    async def update(
        self, kind: ApiKind, namespace: str, name: str, mutate: Mutate, how: How, *, replacing: bool = False
    ) -> WriteOutcome:
        """Raises StatusError as Writes.update does, and for what webhooks deny."""
        asked = _asked("UPDATE", kind, how, namespace, name)
        for _ in range(_ATTEMPTS):
            draft = self._writes.draft_change(kind, namespace, name, mutate, how, replacing=replacing)
            await self._mutate(asked, draft)
            settled = self._writes.settled(draft)
            await self._validate(asked, settled.obj, draft.old)
            if self._store.get(kind.resource, object_key(namespace, name)) is draft.record:
                return self._writes.commit(settled, asked.warnings)
        raise status.conflict(kind.group, kind.plural, name)

    async def _mutate(self, asked: ReviewRequest, draft: Draft) -> None:
        """Applies the mutating webhooks to a draft, and after a change its own admission again. Raises StatusError."""
        if not self._registered.mutating:
            return
        obj = shown = _shown(draft, asked)
        for webhook in self._registered.mutating:
            if self._wanted(webhook, asked, obj, draft.old):
                obj = await self._mutated(webhook, asked, obj, draft)
        if draft.old is None and obj != shown:
            self._writes.admit(draft)

    async def _mutated(
        self, webhook: RegisteredWebhook, asked: ReviewRequest, obj: JsonObject, draft: Draft
    ) -> JsonObject:
        """A draft's object after one webhook. Raises StatusError."""
        verdict = await self._verdict(webhook, asked, obj, draft.old)
        if verdict is None or not verdict.operations:
            return obj
        try:
            self._writes.revise(draft, patching.apply_operations(obj, verdict.operations))
        except patching.PatchFailed as error:
            raise status.internal(f'the patch of admission webhook "{webhook.name}": {error}') from error
        return _shown(draft, asked)

    async def _validate(self, asked: ReviewRequest, obj: JsonObject, old: JsonObject | None) -> None:
        """Calls all validating webhooks at once. Raises StatusError if one denies the request."""
        wanted = [webhook for webhook in self._registered.validating if self._wanted(webhook, asked, obj, old)]
        answers = (self._verdict(webhook, asked, obj, old) for webhook in wanted)
        for answer in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def _wanted(
        self, webhook: RegisteredWebhook, asked: ReviewRequest, obj: JsonObject, old: JsonObject | None
    ) -> bool:
        """Whether a webhook matches a request; none reviews registrations of webhooks."""
        return asked.kind.group != ADMISSION_GROUP and webhook.wants(asked, obj, old, lambda: self._labels(asked, obj))

    def _labels(self, asked: ReviewRequest, obj: JsonObject) -> Mapping[str, str]:
        """The labels of the namespace that a request is on or in."""
        if asked.on_namespace:
            return dig(obj, "metadata", "labels") or {}
        record = self._store.get("/namespaces", asked.namespace)
        return record.labels if record is not None else {}

    async def _verdict(
        self, webhook: RegisteredWebhook, asked: ReviewRequest, obj: JsonObject, old: JsonObject | None
    ) -> _Verdict | None:
        """A webhook's verdict; None if it fails and its failures are ignored. Raises StatusError (500, its denial)."""
        uid = str(uuid.uuid4())
        try:
            answer = await self._callouts.post(webhook, encode(_review(asked, uid, obj, old)))
            verdict = _read(answer, uid, asked)
        except CallFailed as error:
            why = f'failed calling webhook "{webhook.name}": {error}'
            if webhook.failure_policy != "Ignore":
                raise status.internal(why) from error
            logger.warning("%s; the request goes on without it", why)
            return None
        if not verdict.allowed:
            raise _denial(webhook.name, verdict.reasons)
        return verdict


def _review(asked: ReviewRequest, uid: str, obj: JsonObject, old: JsonObject | None) -> JsonObject:
    """The AdmissionReview for a webhook."""
    kind = {"group": asked.kind.group, "version": asked.kind.version, "kind": asked.kind.kind}
    resource = {"group": asked.kind.group, "version": asked.kind.version, "resource": asked.kind.plural}
    named = {"subResource": asked.subresource, "name": asked.name, "namespace": asked.namespace}
    request = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        **{key: value for key, value in named.items() if value},
        "operation": asked.operation,
        "userInfo": USER,
        "object": obj,
        "oldObject": old,
        "dryRun": asked.dry_run,
    }
    return {"kind": REVIEW, "apiVersion": f"{REVIEW_GROUP}/{REVIEW_VERSION}", "request": request}


def _read(body: bytes, uid: str, asked: ReviewRequest) -> _Verdict:
    """The verdict in a response; adds its warnings to the request. Raises CallFailed for an invalid response."""
    try:
        answer = dig(decode(body), "response")
        if dig(answer, "uid") != uid or not isinstance(dig(answer, "allowed"), bool):
            raise CallFailed("it answers another question, or none")
        operations = decode(base64.b64decode(answer["patch"])) if answer["allowed"] and answer.get("patch") else []
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise CallFailed(f"its answer cannot be read: {error}") from error
    if not isinstance(operations, list) or answer.get("patchType") not in (None, "JSONPatch"):
        raise CallFailed("its patch is no JSONPatch")
    asked.warnings.extend(answer.get("warnings") or ())
    return _Verdict(answer["allowed"], answer.get("status") or {}, operations)


def _denial(webhook: str, reasons: JsonObject) -> status.StatusError:
    """The error for a client whose request a webhook denies."""
    message, reason = reasons.get("message") or "", reasons.get("reason") or ""
    denied = f'admission webhook "{webhook}" denied the request'
    why = f": {message or reason}" if message or reason else " without explanation"
    code = max(reasons.get("code") or 0, _FIRST_FAILURE)
    return status.StatusError(code, reason, denied + why, details=reasons.get("details"))


def _shown(draft: Draft, asked: ReviewRequest) -> JsonObject:
    """A draft's object as mutating webhooks see it: a new object has neither an identity nor a status yet."""
    if draft.old is not None:
        return draft.obj
    hidden = ["uid", "creationTimestamp", "generation"] + ["name"] * (not asked.name)
    meta = {key: value for key, value in draft.obj["metadata"].items() if key not in hidden}
    shown = draft.obj | {"metadata": meta}
    if draft.kind.status and draft.kind.kind != "Node":
        shown.pop("status", None)
    return shown


def _asked(operation: str, kind: ApiKind, how: How, namespace: str, name: str) -> ReviewRequest:
    within = name if kind.resource == "/namespaces" else namespace
    return ReviewRequest(operation, kind, how.subresource, within, name, how.dry_run)
