"""Queries a running manager with the user's own rights.

Over https the client authenticates as the kubeconfig's user, by token, exec plugin or client certificate. The manager
proves its identity by an authority that the cluster publishes (ConfigMap headroom-ca); its address may be a forwarded
port. Over plain http no credentials are sent.
"""

import contextlib
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from typing import TypeVar

import httpx
import msgspec

from deploy.access import CURRENT, ClusterContext
from shared import names
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.resources import CONFIGMAPS

REQUEST_SECONDS = 10.0
FORWARD_SECONDS = 20.0
PLAN_SECONDS = 60.0  # a plan of a large cluster, queued behind other plans
MOST_REASON = 500  # characters
AUTHORITIES = "ca.crt"
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")

T = TypeVar("T")


class _Refused(msgspec.Struct, frozen=True):
    detail: str


class ManagerApi:
    """The HTTP endpoints at `url`; `namespace` is the manager's. Raises HeadroomError."""

    def __init__(self, url: str, access: ClusterContext = CURRENT, namespace: str = names.INSTALL_NAMESPACE) -> None:
        self.url = url.rstrip("/")
        self._user: Connection | None = None
        verify: ssl.SSLContext | bool = False  # over plain HTTP there is nothing to verify
        if self.url.startswith("https:"):
            self._user = access.connection()
            verify = _trusting(self._user, namespace)
        self._http = httpx.Client(verify=verify, trust_env=False)

    def get(self, path: str, known: str = "") -> httpx.Response:
        """The answer, refusals included; 304 if its ETag is `known`. Raises HeadroomError without an answer."""
        return self._asked(path, REQUEST_SECONDS, known=known)

    def read(self, path: str, kind: type[T]) -> T:
        """The answer. Raises HeadroomError for a refusal, or for another kind of answer."""
        return _decoded(self.get(path), kind)

    def plan(self, question: object, kind: type[T]) -> T:
        """The answer to a plan request. Raises HeadroomError."""
        response = self._asked("/api/v1/plan", PLAN_SECONDS, msgspec.json.encode(question))
        if response.status_code == httpx.codes.NOT_FOUND:
            raise HeadroomError(f"{response.url}: this manager runs no autoscaler, so it has no plan")
        return _decoded(response, kind)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _asked(self, path: str, timeout_seconds: float, body: bytes | None = None, known: str = "") -> httpx.Response:
        url = f"{self.url}{path}"
        try:
            response = self._send(url, timeout_seconds, body, known)
            if response.status_code == httpx.codes.UNAUTHORIZED and self._user is not None:
                self._user.credentials.renew()
                response = self._send(url, timeout_seconds, body, known)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise HeadroomError(f"no answer of a manager from {url}: {error}") from error
        return response

    def _send(self, url: str, timeout_seconds: float, body: bytes | None, known: str) -> httpx.Response:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if known:
            headers["If-None-Match"] = known
        authorization = None if self._user is None else self._user.credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return self._http.request(
            "GET" if body is None else "POST",
            url,
            headers=headers,
            content=body,
            timeout=timeout_seconds,
            # The name in its certificate, regardless of the address.
            extensions={"sni_hostname": names.MANAGER_SERVER_NAME},
        )


@contextlib.contextmanager
def connected(url: str, access: ClusterContext, namespace: str, service: str) -> Iterator[ManagerApi]:
    """The manager at `url`, or without one the manager behind its service. Raises HeadroomError."""
    with contextlib.ExitStack() as open_things:
        found = url or open_things.enter_context(_forwarded(access, namespace, service))
        yield open_things.enter_context(contextlib.closing(ManagerApi(found, access, namespace)))


@contextlib.contextmanager
def _forwarded(access: ClusterContext, namespace: str, service: str) -> Iterator[str]:
    """The manager's URL while `kubectl port-forward` runs. Raises HeadroomError."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise HeadroomError("kubectl is not on PATH: forward the manager's port yourself, and give --manager URL")
    with contextlib.closing(Client(access.connection(), "headroom").single_attempt(REQUEST_SECONDS)) as client:
        client.read("/version", into=dict)  # a cluster that is not there is better named than by kubectl's log
    flags = [*access.kubectl_flags(), "--namespace", namespace]
    command = [kubectl, *flags, "port-forward", f"service/{service}", ":8080"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        impatience = threading.Timer(FORWARD_SECONDS, process.kill)
        impatience.start()
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            impatience.cancel()
            found = _FORWARDED.search(said)
            if found is None:
                raise HeadroomError(f"kubectl port-forward: {said.strip() or 'no answer'}")
            threading.Thread(target=process.stdout.read, daemon=True).start()  # the pipe must not fill up
            yield f"https://127.0.0.1:{found[1]}"
        finally:
            impatience.cancel()
            process.terminate()


def _decoded(response: httpx.Response, kind: type[T]) -> T:
    if not response.is_success:
        raise HeadroomError(f"{response.url}: status {response.status_code}: {_reason(response)}")
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HeadroomError(f"{response.url}: not the answer of a manager: {error}") from error


def _reason(response: httpx.Response) -> str:
    """The message of a refusal, which is JSON; another server may answer anything."""
    try:
        return msgspec.json.decode(response.content, type=_Refused).detail[:MOST_REASON]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return response.text[:MOST_REASON]


def _trusting(user: Connection, namespace: str) -> ssl.SSLContext:
    """TLS that trusts the manager's authorities, and presents the user's client certificate."""
    with contextlib.closing(Client(user, "headroom").single_attempt(REQUEST_SECONDS)) as client:
        found = client.get(CONFIGMAPS, names.CA_CONFIG_MAP, namespace)
    where = f"ConfigMap {namespace}/{names.CA_CONFIG_MAP}"
    authorities = (found.get("data") or {}).get(AUTHORITIES, "")
    try:
        context = ssl.create_default_context(cadata=authorities or "none")
        if user.client_cert_file:
            context.load_cert_chain(user.client_cert_file, user.client_key_file)
    except (ssl.SSLError, OSError) as error:
        raise HeadroomError(f"{where}, key {AUTHORITIES}: no certificates to trust yet: {error}") from error
    return context
