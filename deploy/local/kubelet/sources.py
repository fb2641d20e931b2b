"""What pods take from the API server: ConfigMaps, Secrets and tokens of their service account."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from deploy.local.kubelet.wire import RunnablePod
from shared import durations
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS, Resource

SECRETS = Resource("", "v1", "secrets", namespaced=True)

DEFAULT_SERVICE_ACCOUNT = "default"


class Missing(HeadroomError):
    """The object a pod refers to, or a key in it, is not there (yet)."""


@dataclass(frozen=True)
class Token:
    """A bearer token. Times are Unix seconds, on the clock of whoever asked for it."""

    text: str
    issued_at: float
    expires_at: float


class Sources(Protocol):
    """Where a pod's files and variables come from."""

    def config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Text and binary keys alike. Raises Missing, HeadroomError."""
        ...

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Decoded. Raises Missing, HeadroomError."""
        ...

    def token(self, pod: RunnablePod, audience: str, seconds: int, now: float) -> Token:
        """A new one, which ends with the pod at the latest. Raises HeadroomError."""
        ...


@prepared
class _ConfigMap(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


@prepared
class _Secret(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class ApiSources:
    """Asks the API server, every time."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        try:
            found = self._client.get(CONFIGMAPS, name, namespace, into=_ConfigMap)
        except NotFound as error:
            raise Missing(f'configmap "{name}" not found') from error
        text = {key: value.encode() for key, value in (found.data or {}).items()}
        return text | _decoded(f"ConfigMap {namespace}/{name}", found.binary_data)

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        try:
            found = self._client.get(SECRETS, name, namespace, into=_Secret)
        except NotFound as error:
            raise Missing(f'secret "{name}" not found') from error
        return _decoded(f"Secret {namespace}/{name}", found.data)

    def token(self, pod: RunnablePod, audience: str, seconds: int, now: float) -> Token:
        meta = pod.metadata
        issued = self._client.request_token(
            meta.namespace,
            pod.spec.service_account_name or DEFAULT_SERVICE_ACCOUNT,
            bound_to={"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
            audiences=(audience,) if audience else (),
            expiration_seconds=seconds,
        )
        return Token(issued.token, now, durations.instant(issued.expiration_timestamp))


def _decoded(source: str, data: Mapping[str, str] | None) -> dict[str, bytes]:
    """Raises InvalidInput. The value is not shown: it may be a secret."""
    try:
        return {key: base64.b64decode(value, validate=True) for key, value in (data or {}).items()}
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(source=source, field="data", value="", problem=f"not base64: {error}") from error
