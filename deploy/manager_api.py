"""A running manager, asked with the user's own rights.

Over https the user of the kubeconfig speaks, by token, exec plugin or client certificate, to a manager that proves who
it is: the cluster says whom to trust (ConfigMap headroom-ca), and the address, which may be a forwarded port, does not
matter. Over plain http nothing of the user is sent.
"""

import ssl
from pathlib import Path

import httpx

from shared import names
from shared.errors import HeadroomError
from shared.kube import config
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.resources import CONFIGMAPS

REQUEST_SECONDS = 10.0
AUTHORITIES = "ca.crt"


class ManagerApi:
    """The HTTP endpoints at `url`; `namespace` is the manager's. Raises HeadroomError."""

    def __init__(self, url: str, kubeconfig: Path | None = None, namespace: str = names.INSTALL_NAMESPACE) -> None:
        self._url = url.rstrip("/")
        self._user: Connection | None = None
        verify: ssl.SSLContext | bool = True
        if self._url.startswith("https:"):
            self._user = config.discover(str(kubeconfig) if kubeconfig else None)
            verify = _trusting(self._user, namespace)
        self._http = httpx.Client(timeout=REQUEST_SECONDS, verify=verify, trust_env=False)

    def get(self, path: str, accept: str = "*/*") -> httpx.Response:
        """Whatever is answered, refusals too. Raises HeadroomError where nothing is."""
        asked = f"{self._url}{path}"
        try:
            response = self._get(asked, accept)
            if response.status_code == httpx.codes.UNAUTHORIZED and self._user is not None:
                self._user.credentials.renew()
                response = self._get(asked, accept)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise HeadroomError(f"no answer of a manager from {asked}: {error}") from error
        return response

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _get(self, url: str, accept: str) -> httpx.Response:
        headers = {"Accept": accept}
        authorization = None if self._user is None else self._user.credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        # The name that its certificate bears, whatever the address.
        return self._http.get(url, headers=headers, extensions={"sni_hostname": names.MANAGER_SERVER_NAME})


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
