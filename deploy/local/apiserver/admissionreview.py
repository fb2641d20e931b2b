"""AdmissionReview documents: the question that a webhook is sent, and what to make of its answer."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.local.apiserver import bodies, status, structs
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject, encode
from deploy.local.apiserver.registrations import REVIEW_VERSIONS
from deploy.local.apiserver.webhooks import Asked

GROUP, KIND = "admission.k8s.io", "AdmissionReview"
_STRUCT = "admission/v1.AdmissionReview"
_SCHEME = "pkg/runtime/scheme.go:111"
_JSON_PATCH = "JSONPatch"
_FIRST_FAILURE = 400


class InvalidAnswer(Exception):
    """An answer that a webhook must not give; the text says why."""


class Unreadable(Exception):
    """An answer that is none; the text says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a webhook said: whether it allows the request, its reasons as a metav1.Status, its JSON patch if any."""

    allowed: bool
    reasons: JsonObject
    patch: bytes
    patch_type: str
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class Question:
    """A review to be sent."""

    uid: str
    version: str
    body: bytes


def question(asked: Asked, version: str, obj: JsonObject | None, old: JsonObject | None) -> Question:
    """The review of a request in a version of AdmissionReview."""
    uid = str(uuid.uuid4())
    kind = {"group": asked.kind.group, "version": asked.kind.version, "kind": asked.kind.kind}
    resource = {
        "group": asked.resource.group, "version": asked.resource.version, "resource": asked.resource.plural
    }  # fmt: skip
    below = {"subResource": asked.subresource, "requestSubResource": asked.subresource} if asked.subresource else {}
    request = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        **below,
        **({"name": asked.name} if asked.name else {}),
        **({"namespace": asked.namespace} if asked.namespace else {}),
        "operation": asked.operation,
        "userInfo": asked.user,
        "object": _typed(asked.kind, obj),
        "oldObject": _typed(asked.kind, old),
        "dryRun": asked.dry_run,
        "options": asked.options,
    }
    return Question(uid, version, encode({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": request}))


def _typed(kind: Kind, obj: JsonObject | None) -> JsonObject | None:
    return None if obj is None else {"kind": kind.kind, "apiVersion": kind.api_version} | obj


def verdict(about: Question, body: bytes, *, mutating: bool) -> Verdict:
    """What an answer says. Raises Unreadable for what is no review, InvalidAnswer for one that says nothing valid."""
    review = _review(about, body)
    answer: JsonObject | None = review.get("response")
    if answer is None:
        raise InvalidAnswer("webhook response was absent")
    if about.version == "v1":
        _check_v1(about, review, answer, mutating=mutating)
    patch = base64.b64decode(answer.get("patch") or "") if mutating else b""
    patch_type = answer.get("patchType") or _JSON_PATCH
    return Verdict(answer["allowed"], answer.get("status") or {}, patch, patch_type, answer.get("warnings") or ())


def _review(about: Question, body: bytes) -> JsonObject:
    """Raises Unreadable."""
    try:
        found = bodies.unmarshalled(body)
    except bodies.Unreadable as error:
        raise Unreadable(error.why) from None
    said, kind = found.get("apiVersion"), found.get("kind")
    if said and kind and (said, kind) != (f"{GROUP}/{about.version}", KIND):
        version = str(said).rpartition("/")[2]
        if (said, kind) in ((f"{GROUP}/{known}", KIND) for known in REVIEW_VERSIONS):
            raise Unreadable(f"converting ({version}.{KIND}) to ({about.version}.{KIND}): unknown conversion")
        raise Unreadable(f'no kind "{kind}" is registered for version "{said}" in scheme "{_SCHEME}"')
    decoded = structs.decode(_STRUCT, {"metadata": {}} | found)
    if decoded.problem:
        raise Unreadable(decoded.problem)
    return decoded.obj


def _check_v1(about: Question, review: JsonObject, answer: JsonObject, *, mutating: bool) -> None:
    """Raises InvalidAnswer."""
    uid = answer.get("uid") or ""
    if uid != about.uid:
        raise InvalidAnswer(f'expected response.uid="{about.uid}", got "{uid}"')
    group, _, version = (review.get("apiVersion") or "").rpartition("/")
    if (group, version, review.get("kind")) != (GROUP, about.version, KIND):
        found = f"{group}/{version}, Kind={review.get('kind') or ''}"
        raise InvalidAnswer(f"expected webhook response of {GROUP}/{about.version}, Kind={KIND}, got {found}")
    patch, patch_type = answer.get("patch"), answer.get("patchType")
    if not mutating:
        for field, said in (("patch", patch or None), ("patchType", patch_type)):
            if said is not None:
                raise InvalidAnswer(f"validating webhook may not return response.{field}")
        return
    if patch and patch_type is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidAnswer('webhook returned invalid response.patchType of ""')


def denial(webhook: str, reasons: JsonObject) -> status.StatusError:
    """What the caller is told whose request a webhook does not allow."""
    message, reason = reasons.get("message") or "", reasons.get("reason") or ""
    code = reasons.get("code") or 0
    denied = f'admission webhook "{webhook}" denied the request'
    why = f": {message or reason}" if message or reason else " without explanation"
    details = reasons.get("details")
    return status.StatusError(max(code, _FIRST_FAILURE), reason, denied + why, details=details)
