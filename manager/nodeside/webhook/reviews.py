"""AdmissionReview, admission.k8s.io/v1: the API server's requests, and the answers."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from manager.nodeside.webhook.jsonpatch import Operation
from shared.api.meta import Wire, prepared
from shared.errors import InvalidInput

API_VERSION: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
KIND: Literal["AdmissionReview"] = "AdmissionReview"
CREATE, UPDATE = "CREATE", "UPDATE"
MAX_TEXT = 1000  # of a message or a warning


class ResourceRef(Wire, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(Wire, frozen=True):
    """One request. `object` is the one to be stored, `old_object` the stored one; both may be missing, or null."""

    uid: Annotated[str, msgspec.Meta(min_length=1)]
    operation: str
    resource: ResourceRef
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()

    def is_about(self, group: str, resource: str, operations: Sequence[str]) -> bool:
        """Whether it is one of these operations on the resource itself, not on a subresource."""
        asked = (self.resource.group, self.resource.resource, self.sub_resource)
        return asked == (group, resource, "") and self.operation in operations


@prepared
class Review(Wire, frozen=True):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


@dataclass(frozen=True)
class AdmissionAnswer:
    """Allowed with a patch, which may be empty, or denied with a message. Users see the warnings."""

    operations: list[Operation] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    denied: str | None = None

    @property
    def outcome(self) -> str:
        """The outcome as a metric's label."""
        if self.denied is not None:
            return "denied"
        return "mutated" if self.operations else "unchanged"


def decode(body: bytes) -> AdmissionRequest:
    """Raises InvalidInput for anything that is not a review with a request in it."""
    try:
        return _REVIEW.decode(body).request
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(source="webhook", field="AdmissionReview", value=body[:200], problem=str(error)) from error


def encode(uid: str, answer: AdmissionAnswer) -> bytes:
    """The review with the answer to the request of that uid."""
    response: dict[str, object] = {"uid": uid, "allowed": answer.denied is None}
    if answer.denied is not None:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": answer.denied[:MAX_TEXT]}
    elif answer.operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.operations)).decode()
    if answer.warnings:
        response["warnings"] = [" ".join(text.split())[:MAX_TEXT] for text in answer.warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


_REVIEW = msgspec.json.Decoder(Review)
