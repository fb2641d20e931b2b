"""An OpenID Connect provider (https://openid.net/specs/openid-connect-core-1_0.html): the authorization code flow."""

import base64
import json
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.http_server import HttpServer, Request

ALGORITHM, KEY_ID = "RS256", "1"


class IdentityProvider(HttpServer):
    """Whoever is sent here is signed in as `person`, a member of `groups`, without being asked.

    `refreshed` counts the ID tokens that it has issued for a refresh token.
    """

    def __init__(self, certificate: tuple[Path, Path], client_id: str) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._client_id = client_id
        self._claims: dict[str, dict[str, Any]] = {}  # by the code or the refresh token that stands for them
        self.person = ""
        self.groups: tuple[str, ...] = ()
        self.lifetime_seconds = 3600
        self.refreshed = 0
        super().__init__(certificate)

    def answer(self, request: Request) -> tuple[int, bytes]:
        url = urlsplit(request.path)
        given = dict(parse_qsl(url.query or request.body.decode()))
        match url.path:
            case "/.well-known/openid-configuration":
                return 200, json.dumps(self._configuration()).encode()
            case "/keys":
                return 200, json.dumps({"keys": [self._public_key()]}).encode()
            case "/authorize":
                return 302, self._authorized(given).encode()
            case "/token":
                return self._tokens(given)
        return 404, b""

    def _configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }

    def _public_key(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        parts = {"n": _encoded(_bytes(numbers.n)), "e": _encoded(_bytes(numbers.e))}
        return {"kty": "RSA", "use": "sig", "alg": ALGORITHM, "kid": KEY_ID, **parts}

    def _authorized(self, given: dict[str, str]) -> str:
        """Where the browser goes on."""
        claims = {"sub": self.person, "email": self.person, "email_verified": True, "groups": self.groups}
        code = self._remembered(claims | {"nonce": given.get("nonce", "")})
        return f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}"

    def _remembered(self, claims: dict[str, Any]) -> str:
        code = secrets.token_urlsafe()
        self._claims[code] = claims
        return code

    def _tokens(self, given: dict[str, str]) -> tuple[int, bytes]:
        refreshes = given["grant_type"] == "refresh_token"
        claims = self._claims.get(given["refresh_token" if refreshes else "code"])
        if claims is None:
            return 400, b'{"error":"invalid_grant"}'
        self.refreshed += refreshes
        now = int(time.time())
        times = {"iat": now, "exp": now + self.lifetime_seconds}
        answer = {
            "token_type": "Bearer",
            "access_token": "opaque",
            "expires_in": self.lifetime_seconds,
            "refresh_token": self._remembered(claims),
            "id_token": self._signed(claims | times | {"iss": self.url, "aud": self._client_id}),
        }
        return 200, json.dumps(answer).encode()

    def _signed(self, claims: dict[str, Any]) -> str:
        """A JSON Web Token, RFC 7519."""
        parts = ({"alg": ALGORITHM, "kid": KEY_ID, "typ": "JWT"}, claims)
        text = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_encoded(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
