"""Authentication and access reviews: a client with the token may do everything, others may ask for the health only."""

import hmac
from dataclasses import replace

from starlette.responses import Response

from deploy.local.apiserver import bodies, kubectl, status
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import json_response

USER: JsonObject = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
_AUDIENCE = "https://kubernetes.default.svc"
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class Authentication:
    """One token: a client sends it as bearer token, or as the first segment of every path."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def admitted(self, request: Request) -> Request:
        """The request, without the token where its path begins with it, as kubectl's does: it sends no bearer token
        over plain http. Raises StatusError: 401 for wrong credentials, 403 for none.
        """
        first, _, rest = request.path.removeprefix("/").partition("/")
        if hmac.compare_digest(first.encode(), self._token):
            return replace(request, path=f"/{rest}")
        given = request.headers.get(b"authorization", b"")
        if given and not hmac.compare_digest(given, b"Bearer " + self._token):
            raise status.StatusError(401, "Unauthorized", "the credentials are not those of this cluster")
        if not given and request.path.rstrip("/") not in _OPEN_PATHS:
            refused = f"system:anonymous may not {request.method} {request.path}{kubectl.anonymous_hint(request)}"
            raise status.StatusError(403, "Forbidden", refused, details={})
        return request

    def review(self, request: Request, target: Target, kind: ApiKind) -> Response:
        """Whom a token belongs to, or what a user may do: the only user may do everything. Raises StatusError."""
        if request.method != "POST" or target.name:
            raise status.method_not_allowed()
        posted = bodies.check_object(bodies.parse_written(request), kind, "")
        review, _, _ = bodies.take(kind, posted, bodies.how_of(request, target))
        return json_response(review | {"status": self._verdict(kind, review.get("spec") or {})}, 201)

    def _verdict(self, kind: ApiKind, spec: JsonObject) -> JsonObject:
        if kind.kind == "TokenReview":
            if hmac.compare_digest(str(spec.get("token")).encode(), self._token):
                return {"authenticated": True, "user": USER, "audiences": [_AUDIENCE]}
            return {"user": {}, "error": "invalid bearer token"}
        if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
            error = status.required("spec.resourceAttributes", "exactly one kind of attributes")
            raise status.invalid(kind.group, kind.kind, "", [error])
        if kind.kind == "SelfSubjectAccessReview":
            return {"allowed": True}
        return {"allowed": spec.get("user") == USER["username"] or "system:masters" in (spec.get("groups") or ())}
