"""Calls from the server to webhooks: a POST over verified TLS that does not block other requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl

import httpx

from deploy.local.apiserver import selectors
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.store import Store, object_key
from deploy.local.apiserver.webhooks import Client

_HEADERS = {"User-Agent": "kube-apiserver-admission", "Content-Type": "application/json"}
_LOOPBACK = "127.0.0.1"


class CallFailed(Exception):
    """A call without a usable response; the text says why."""


class Callouts:
    """A client for the webhooks of one store; it keeps its connections open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clients: dict[str, httpx.AsyncClient] = {}  # by the CA bundle that they trust

    async def post(self, client: Client, body: bytes, timeout_seconds: int) -> bytes:
        """The body of the webhook's response. Raises CallFailed."""
        url = client.url
        try:
            headers, extensions = _HEADERS, {}
            if client.service is not None:
                namespace, name, port = client.service
                host = f"{name}.{namespace}.svc"
                # The certificate names the service; its pods use the host's network.
                url = f"https://{self._behind(namespace, name, port)}/{client.path.lstrip('/')}"
                headers, extensions = _HEADERS | {"Host": f"{host}:{port}"}, {"sni_hostname": host}
            async with asyncio.timeout(timeout_seconds):
                answer = await self._client(client.ca_bundle).post(
                    url, content=body, params={"timeout": f"{timeout_seconds}s"}, headers=headers, extensions=extensions
                )
        except TimeoutError:
            raise CallFailed(f"POST {url}: no answer within {timeout_seconds} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError, OSError) as error:
            raise CallFailed(f"POST {url}: {error or type(error).__name__}") from error
        if answer.status_code != 200:
            raise CallFailed(f"POST {url}: status {answer.status_code}: {answer.text[:200]}")
        return answer.content

    def _client(self, ca_bundle: str) -> httpx.AsyncClient:
        """The client that trusts a bundle's certificates, or, if empty, the system's. Raises ValueError."""
        found = self._clients.get(ca_bundle)
        if found is None:
            try:
                authorities = base64.b64decode(ca_bundle).decode()
                context = ssl.create_default_context(cadata=authorities or None)
            except (binascii.Error, ssl.SSLError) as error:
                raise ValueError(f"its caBundle is unusable: {error}") from error
            found = self._clients[ca_bundle] = httpx.AsyncClient(verify=context, timeout=None, trust_env=False)
        return found

    def _behind(self, namespace: str, name: str, port: int) -> str:
        """The address at which a service's pods listen. Raises LookupError."""
        record = self._store.get("/services", object_key(namespace, name))
        if record is None:
            raise LookupError(f'service "{name}" not found')
        spec: JsonObject = record.load()["spec"]
        if spec["type"] == "ExternalName":
            return f"{spec.get('externalName') or ''}:{port}"
        target = next((item["targetPort"] for item in spec.get("ports") or () if item["port"] == port), None)
        if target is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        return f"{_LOOPBACK}:{target if isinstance(target, int) else self._named(namespace, name, spec, target)}"

    def _named(self, namespace: str, name: str, spec: JsonObject, port: str) -> int:
        """The number of a named port of a service's pods. Raises LookupError."""
        wanted = selectors.from_object({"matchLabels": spec.get("selector") or {}})
        for record in self._store.ordered("/pods"):
            if record.namespace == namespace and wanted and wanted.matches(record.labels):
                for container in record.load()["spec"]["containers"]:
                    for item in container.get("ports") or ():
                        if item.get("name") == port:
                            return int(item["containerPort"])
        raise LookupError(f'no endpoints available for service "{name}"')

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
