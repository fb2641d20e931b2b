"""Who the caller is, what it may do, and tokens for service accounts.

There is one user, who holds the one token and may do everything: whoever asks for a service account's token gets it.
"""

from __future__ import annotations

import hmac
import time
from dataclasses import replace

from deploy.local.apiserver import bodies, status
from deploy.local.apiserver.authentication import USER
from deploy.local.apiserver.decoding import decode
from deploy.local.apiserver.handlers import how_of
from deploy.local.apiserver.kinds import TOKEN_REQUEST, Kind
from deploy.local.apiserver.objects import JsonObject, dig, timestamp
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import Response, json_response, warning_headers
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.store import Store, object_key

_EVERYTHING: JsonObject = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
_ONE_OF_BOTH = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_BINDABLE = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}
_AUDIENCE = "https://kubernetes.default.svc"
_SHORTEST_SECONDS, _USUAL_SECONDS, _LONGEST_SECONDS = 600, 3600, 2**32


class Reviews:
    """Answers that are made, not stored."""

    def __init__(self, store: Store, reviewed: Reviewed, token: str) -> None:
        self._store = store
        self._reviewed = reviewed
        self._token = token

    async def review(self, request: Request, target: Target, kind: Kind) -> Response:
        """Raises StatusError."""
        if request.method != "POST" or target.name:
            raise status.method_not_allowed()
        given, repeated = bodies.parse_object(request, kind, target.namespace)
        how = how_of(request, target, repeated)
        review, _, complaints = decode(kind, given, how)
        review, warnings = await self._reviewed.sent(request, kind, kind, how, target.namespace, "", review)
        review["status"] = self._verdict(kind, review.get("spec") or {})
        if kind.kind == "SelfSubjectReview":
            review["metadata"] = {"creationTimestamp": timestamp(time.time())}
        return replace(json_response(review, 201), headers=warning_headers([*complaints, *warnings]))

    def _verdict(self, kind: Kind, spec: JsonObject) -> JsonObject:
        match kind.kind:
            case "SelfSubjectReview":
                return {"userInfo": USER}
            case "TokenReview":
                if hmac.compare_digest(str(spec.get("token")).encode(), self._token.encode()):
                    return {"authenticated": True, "user": USER, "audiences": [_AUDIENCE]}
                return {"user": {}, "error": "invalid bearer token"}
            case "SelfSubjectRulesReview":
                return _EVERYTHING
        if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
            error = status.invalid_value("spec.resourceAttributes", None, _ONE_OF_BOTH)
            raise status.invalid("authorization.k8s.io", "", "", [error])
        own = kind.kind == "SelfSubjectAccessReview" or spec.get("user") == USER["username"]
        return {"allowed": own or "system:masters" in (spec.get("groups") or ())}

    async def token(self, request: Request, target: Target, accounts: Kind) -> Response:
        """The token of a service account. Raises StatusError."""
        if request.method != "POST":
            raise status.method_not_allowed()
        given, repeated = bodies.parse_object(request, TOKEN_REQUEST, target.namespace)
        how = how_of(request, target, repeated)
        asked, _, complaints = decode(TOKEN_REQUEST, given, how)
        where = (target.namespace, target.name)
        asked, warnings = await self._reviewed.sent(request, TOKEN_REQUEST, accounts, how, *where, asked)
        if self._store.latest("/serviceaccounts", object_key(target.namespace, target.name)) is None:
            raise status.not_found("", "serviceaccounts", target.name)
        spec, name = asked["spec"], asked["metadata"].get("name")
        if name not in (None, target.name):
            detail = "must match the service account name if specified"
            raise _refused(target.name, status.invalid_value("metadata.name", name, detail))
        seconds = _USUAL_SECONDS if spec["expirationSeconds"] is None else spec["expirationSeconds"]
        if seconds < _SHORTEST_SECONDS:
            detail = "may not specify a duration less than 10 minutes"
            raise _refused("", status.invalid_value("spec.expirationSeconds", seconds, detail))
        if seconds > _LONGEST_SECONDS:
            detail = "may not specify a duration larger than 2^32 seconds"
            raise _refused("", status.invalid_value("spec.expirationSeconds", seconds, detail))
        self._check_bound(spec["boundObjectRef"] or {}, target.namespace)
        now = time.time()
        spec |= {"audiences": spec.get("audiences") or [_AUDIENCE], "expirationSeconds": seconds}
        asked["metadata"] = {
            "name": target.name, "namespace": target.namespace, "creationTimestamp": timestamp(now)
        }  # fmt: skip
        asked["status"] = {"token": self._token, "expirationTimestamp": timestamp(now + seconds)}
        return replace(json_response(asked, 201), headers=warning_headers([*complaints, *warnings]))

    def _check_bound(self, bound: JsonObject, namespace: str) -> None:
        """Raises StatusError (400, 404, 409) when the object a token is to live as long as is not there."""
        if not bound:
            return
        kind, name, uid = (bound.get(key) or "" for key in ("kind", "name", "uid"))
        if kind not in _BINDABLE or bound.get("apiVersion") != "v1":
            group, _, version = str(bound.get("apiVersion") or "").rpartition("/")
            raise status.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        plural = _BINDABLE[kind]
        record = self._store.latest(f"/{plural}", object_key("" if kind == "Node" else namespace, name))
        if record is None:
            raise status.not_found("", plural, name)
        if uid and uid != dig(record.load(), "metadata", "uid"):
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            raise status.conflict("", kind, name, why + "The object might have been deleted and then recreated")


def _refused(name: str, error: status.FieldError) -> status.StatusError:
    return status.invalid(TOKEN_REQUEST.group, TOKEN_REQUEST.kind, name, [error])
