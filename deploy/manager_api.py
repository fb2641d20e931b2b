"""A running manager, asked with the user's own rights.

Over https the user of the kubeconfig speaks, by token, exec plugin or client certificate, to a manager that proves who
it is: the cluster says whom to trust (ConfigMap headroom-ca), and the address, which may be a forwarded port, does not
matter. Over plain http nothing of the user is sent.
"""

import ssl
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
PLAN_SECONDS = 60.0  # of a large cluster, behind the plans of others
MOST_REASON = 500  # characters
AUTHORITIES = "ca.crt"

T = TypeVar("T")


class _Refused(msgspec.Struct, frozen=True):
    detail: str


class ManagerApi:
    """The HTTP endpoints at `url`; `namespace` is the manager's. Raises HeadroomError."""

    def __init__(
        self,
        url: str,
        access: ClusterContext = CURRENT,
        namespace: str = names.INSTALL_NAMESPACE,
    ) -> None:
        self._url = url.rstrip("/")
        self._user: Connection | None = None
        verify: ssl.SSLContext | bool = False  # over plain HTTP there is nothing to verify
        if self._url.startswith("https:"):
            self._user = access.connection()
            verify = _trusting(self._user, namespace)
        self._http = httpx.Client(verify=verify, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        """Whatever is answered, refusals too. Raises HeadroomError where nothing is."""
        return self._asked(path, REQUEST_SECONDS)

    def read(self, path: str, kind: type[T]) -> T:
        """What is answered. Raises HeadroomError where that is a refusal, or nothing of this kind."""
        return _decoded(self.get(path), kind)

    def plan(self, question: object, kind: type[T]) -> T:
        """What is answered to a plan request. Raises HeadroomError."""
        response = self._asked("/api/v1/plan", PLAN_SECONDS, msgspec.json.encode(question))
        if response.status_code == httpx.codes.NOT_FOUND:
            raise HeadroomError(f"{response.url}: there is no plan, as that manager runs no autoscaler")
        return _decoded(response, kind)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _asked(self, path: str, timeout_seconds: float, body: bytes | None = None) -> httpx.Response:
        url = f"{self._url}{path}"
        try:
            response = self._send(url, timeout_seconds, body)
            if response.status_code == httpx.codes.UNAUTHORIZED and self._user is not None:
                self._user.credentials.renew()
                response = self._send(url, timeout_seconds, body)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise HeadroomError(f"no answer of a manager from {url}: {error}") from error
        return response

    def _send(self, url: str, timeout_seconds: float, body: bytes | None) -> httpx.Response:
        headers = {} if body is None else {"Content-Type": "application/json"}
        authorization = None if self._user is None else self._user.credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return self._http.request(
            "GET" if body is None else "POST",
            url,
            headers=headers,
            content=body,
            timeout=timeout_seconds,
            # The name that its certificate bears, whatever the address.
            extensions={"sni_hostname": names.MANAGER_SERVER_NAME},
        )


def _decoded(response: httpx.Response, kind: type[T]) -> T:
    if not response.is_success:
        raise HeadroomError(f"{response.url}: status {response.status_code}: {_reason(response)}")
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HeadroomError(f"{response.url}: not the answer of a manager: {error}") from error


def _reason(response: httpx.Response) -> str:
    """The words of a refusal, which come as JSON; whatever else answers there may say anything."""
    try:
        return msgspec.json.decode(response.content, type=_Refused).detail[:MOST_REASON]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return response.text[:MOST_REASON]


def _trusting(user: Connection, namespace: str) -> ssl.SSLContext:
    """TLS that believes the manager's authorities, and has the user's client certificate."""
    client = Client(user, "headroom").single_attempt(REQUEST_SECONDS)
    try:
        found = client.get(CONFIGMAPS, names.CA_CONFIG_MAP, namespace)
    finally:
        client.close()
    where = f"ConfigMap {namespace}/{names.CA_CONFIG_MAP}"
    authorities = (found.get("data") or {}).get(AUTHORITIES, "")
    try:
        context = ssl.create_default_context(cadata=authorities or "none")
        if user.client_cert_file:
            context.load_cert_chain(user.client_cert_file, user.client_key_file)
    except (ssl.SSLError, OSError) as error:
        raise HeadroomError(f"{where}, key {AUTHORITIES}: no certificates to trust yet: {error}") from error
    return context
