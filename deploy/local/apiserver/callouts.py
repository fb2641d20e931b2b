"""Calls from the server to webhooks: a POST over verified TLS that does not block other requests."""

import asyncio
import base64
import binascii
import ssl

import httpx

from deploy.local.apiserver.webhooks import RegisteredWebhook

_HEADERS = {"User-Agent": "kube-apiserver-admission", "Content-Type": "application/json"}


class CallFailed(Exception):
    """A call without a usable response; the text says why."""


class Callouts:
    """A client for webhooks; it keeps its connections open."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx.AsyncClient] = {}  # by the CA bundle that they trust

    async def post(self, webhook: RegisteredWebhook, body: bytes) -> bytes:
        """The body of the webhook's response. Raises CallFailed."""
        url, timeout_seconds = webhook.client_config.url, webhook.timeout_seconds
        if not url:
            raise CallFailed("it is behind a Service, and no network carries Services here")
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._client(webhook.client_config.ca_bundle).post(
                    url, content=body, params={"timeout": f"{timeout_seconds}s"}, headers=_HEADERS
                )
        except TimeoutError:
            raise CallFailed(f"POST {url}: no answer within {timeout_seconds} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
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

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
