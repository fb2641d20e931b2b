"""Authentication: a client with the token may do everything, any other may only request the server's health."""

from __future__ import annotations

import base64
import hmac

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.requests import Request

USER: JsonObject = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


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
            raise status.StatusError(
                403, "Forbidden", f"system:anonymous may not {request.method} {request.path}", details={}
            )


def _basic_as_bearer(header: bytes) -> bytes:
    """The password of Basic credentials as a bearer token.

    kubectl sends a kubeconfig's token over TLS only. Over loopback HTTP it sends the credentials in the server's URL,
    http://kubectl:TOKEN@127.0.0.1:PORT, as Basic credentials.
    """
    try:
        return b"Bearer " + base64.b64decode(header[6:], validate=True).partition(b":")[2]
    except ValueError:
        return b""
