"""Queries a Prometheus or an agent over HTTP."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from shared.errors import HeadroomError, InvalidInput, shown

MOST_ANSWER_BYTES = 1 << 30
TIMEOUT_SECONDS = 120.0

AnswerT = TypeVar("AnswerT")


class AgentServer(Protocol):
    """The HTTP access to an agent. `PrometheusServer` implements it."""

    @property
    def name(self) -> str: ...
    def asked(self, method: str, path: str, fields: Mapping[str, str] | None = None) -> tuple[int, bytes]: ...


class TooMuch(HeadroomError):
    """The agent refused the query as too large."""


def read(server: AgentServer, path: str, into: type[AnswerT], query: Mapping[str, str] | None = None) -> AnswerT:
    """The agent's answer. Raises TooMuch if one answer cannot hold it, and HeadroomError."""
    status, content = server.asked("GET", path, query)
    if status != httpx.codes.OK:
        problem = f"{server.name}{path}: {status} {shown(content[:200].decode(errors='replace'))}"
        raise TooMuch(problem) if status == httpx.codes.UNPROCESSABLE_ENTITY else HeadroomError(problem)
    try:
        return msgspec.json.decode(content, type=into)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HeadroomError(f"{server.name}{path}: no answer of an agent: {error}") from error


@dataclass(frozen=True)
class Access:
    """Options of the connection: the bearer token is read for every request, as it may be replaced meanwhile."""

    token_file: Path | None = None
    ca_file: Path | None = None

    def authorization(self) -> str:
        """The Authorization header, empty without a token. Raises InvalidInput."""
        if self.token_file is None:
            return ""
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            path = str(self.token_file)
            raise InvalidInput(source="command line", field="--token-file", value=path, problem=str(error)) from error
        if not token.isprintable() or not token or " " in token:
            problem = "expected a token on one line"
            raise InvalidInput(source=str(self.token_file), field="token", value="...", problem=problem)
        return f"Bearer {token}"


class PrometheusServer:
    """One server at the base URL of its API, `named` so on the command line. Raises InvalidInput for an invalid URL."""

    def __init__(self, url: str, access: Access, named: str = "SOURCE") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(source="command line", field=named, value=url, problem="expected http(s)://HOST[/PATH]")
        if parts.username is not None or parts.password is not None:
            shown = f"{parts.scheme}://...@{parts.hostname}"
            problem = "no credentials in a URL; name a file with --token-file"
            raise InvalidInput(source="command line", field=named, value=shown, problem=problem)
        self.name = parts.netloc + parts.path.rstrip("/")
        self._url, self._access = url.rstrip("/"), access
        try:
            is_verified = parts.scheme == "https" or access.ca_file  # over plain HTTP there is nothing to verify
            context = ssl.create_default_context(cafile=access.ca_file) if is_verified else False
        except (OSError, ssl.SSLError) as error:
            path = str(access.ca_file)
            raise InvalidInput(source="command line", field="--ca-file", value=path, problem=str(error)) from error
        self._client = httpx.Client(verify=context, timeout=TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def asked(self, method: str, path: str, fields: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and content of the answer; a redirect is not followed, so that no token goes to another server.

        `fields` are the query of a GET, and the form of a POST. Raises HeadroomError without an answer, or if it is too
        large.
        """
        content = bytearray()
        authorization = self._access.authorization()
        headers = {"Authorization": authorization} if authorization else {}
        query, form = (fields, None) if method == "GET" else (None, fields)
        try:
            with self._client.stream(method, f"{self._url}{path}", params=query, data=form, headers=headers) as answer:
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > MOST_ANSWER_BYTES:
                        problem = f"an answer of more than {MOST_ANSWER_BYTES} bytes; make --step longer"
                        raise HeadroomError(f"{self.name}: {problem}")
        except httpx.HTTPError as error:
            raise HeadroomError(f"{self.name}: {error}") from error
        return answer.status_code, bytes(content)
