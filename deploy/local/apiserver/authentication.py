"""Who calls: whoever has the token may do everything, everybody else nothing but ask how the server is."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from deploy.local.apiserver import requests, status
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.requests import Request, Target

USER: JsonObject = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
_VERBS: Mapping[str, tuple[str, str]] = {  # on an object, and on a collection
    "GET": ("get", "list"), "POST": ("create", "create"), "PUT": ("update", "update"), "PATCH": ("patch", "patch"),
    "DELETE": ("delete", "deletecollection"),
}  # fmt: skip


class Authentication:
    """One bearer token."""

    def __init__(self, token: str) -> None:
        self._expected = b"Bearer " + token.encode()

    def check(self, request: Request) -> None:
        """Raises StatusError: 401 for wrong credentials, 403 for none."""
        given = request.headers.get(b"authorization", b"")
        if given.startswith(b"Basic "):
            given = _basic_as_bearer(given)
        if hmac.compare_digest(given, self._expected):
            return
        if given:
            raise status.unauthorized()
        if request.path.rstrip("/") not in _OPEN_PATHS:
            raise _forbidden(request)


def _basic_as_bearer(header: bytes) -> bytes:
    """The password of Basic credentials as a bearer token.

    kubectl sends a kubeconfig's token over TLS only. Over loopback HTTP it sends what the server's URL holds,
    http://kubectl:TOKEN@127.0.0.1:PORT, and that as Basic credentials.
    """
    try:
        return b"Bearer " + base64.b64decode(header[6:], validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _forbidden(request: Request) -> status.StatusError:
    """What those are told who say nothing of themselves."""
    target = requests.parse_path(request.path)
    user = 'User "system:anonymous"'
    if target is None:
        why = f'forbidden: {user} cannot {request.method.lower()} path "{request.path}"'
        return status.StatusError(403, "Forbidden", why, details={})
    resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    why = f'{user} cannot {_verb(request, target)} resource "{resource}" in API group "{target.group}" '
    namespace = target.name if (target.group, target.resource) == ("", "namespaces") else target.namespace
    why += f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    return status.forbidden(target.group, target.resource, target.name, why)


def _verb(request: Request, target: Target) -> str:
    if request.method == "GET" and not target.name and request.flag("watch"):
        return "watch"
    return _VERBS.get(request.method, ("", ""))[0 if target.name else 1]
