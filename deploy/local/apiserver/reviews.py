"""Answers to access reviews: whom a token belongs to, and what a user may do. The only user may do everything."""

from __future__ import annotations

import hmac

from deploy.local.apiserver import bodies, status
from deploy.local.apiserver.authentication import USER
from deploy.local.apiserver.decoding import take
from deploy.local.apiserver.handlers import how_of
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import Response, json_response

_AUDIENCE = "https://kubernetes.default.svc"


class Reviews:
    """Answers that the server computes and does not store."""

    def __init__(self, token: str) -> None:
        self._token = token

    def review(self, request: Request, target: Target, kind: Kind) -> Response:
        """Raises StatusError."""
        if request.method != "POST" or target.name:
            raise status.method_not_allowed()
        review = take(kind, bodies.parse_object(request, kind, target.namespace), how_of(request, target)).obj
        return json_response(review | {"status": self._verdict(kind, review.get("spec") or {})}, 201)

    def _verdict(self, kind: Kind, spec: JsonObject) -> JsonObject:
        if kind.kind == "TokenReview":
            if hmac.compare_digest(str(spec.get("token")).encode(), self._token.encode()):
                return {"authenticated": True, "user": USER, "audiences": [_AUDIENCE]}
            return {"user": {}, "error": "invalid bearer token"}
        if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
            error = status.required("spec.resourceAttributes", "exactly one kind of attributes")
            raise status.invalid(kind.group, kind.kind, "", [error])
        return {"allowed": spec.get("user") == USER["username"] or "system:masters" in (spec.get("groups") or ())}
