"""A manager as it is in a pod: over TLS, and for those alone whom the API server lets."""

import contextlib
from typing import Any

import httpx

from manager.main import Manager
from shared import names
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists
from shared.kube.resources import CONFIGMAPS, Resource
from tests.support.apiserver import ApiServer

SECRET = "headroom-webhook"


class Guarded:
    """A manager over TLS that the API server tells who may ask."""

    def __init__(self, server: ApiServer, manager: Manager) -> None:
        self.server = server
        self.manager = manager
        self.url = "https://{}:{}".format(*manager.address)

    def status(self, path: str, token: str = "", method: str = "GET", **options: Any) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(verify=False, timeout=60) as http:
            return http.request(method, f"{self.url}{path}", headers=headers, **options).status_code

    def answer(self, path: str) -> Any:
        """As an administrator gets it."""
        with httpx.Client(verify=False, timeout=60) as http:
            headers = {"Authorization": f"Bearer {self.server.token}"}
            return http.get(f"{self.url}{path}", headers=headers).raise_for_status().json()

    def authorities(self) -> str:
        found = self.server.client().get(CONFIGMAPS, names.CA_CONFIG_MAP, names.INSTALL_NAMESPACE)
        return str((found.get("data") or {}).get("ca.crt", ""))


def ensure(client: Client, resource: Resource, kind: str, name: str, namespace: str | None = None, **rest: Any) -> None:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    with contextlib.suppress(AlreadyExists):
        client.create(
            resource, {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, **rest}, namespace
        )
