"""Certificates in Secrets that replicas share: how they are read and written, and those of a client of the manager."""

import base64
import logging
from collections.abc import Callable

from manager.nodeside.webhook import certificates
from manager.nodeside.webhook.certificates import Material, Rotation
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.resources import SECRETS

logger = logging.getLogger(__name__)


@prepared
class Secret(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class CertificateSecret:
    """One Secret, which must exist."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    @property
    def key(self) -> str:
        return f"{self._namespace}/{self._name}"

    def read(self) -> tuple[str, Material | None]:
        """The Secret's version and content; None for an empty or an invalid one. Raises HeadroomError."""
        secret = self._client.get(SECRETS, self._name, self._namespace, into=Secret)
        version = secret.metadata.resource_version
        try:
            data = {key: base64.b64decode(value, validate=True).decode() for key, value in (secret.data or {}).items()}
            return version, certificates.read(data, source=f"Secret {self.key}")
        except InvalidInput as problem:
            logger.error("certificates rejected: %s", problem)
        except ValueError as error:
            logger.error("certificates rejected: Secret %s: %s", self.key, error)
        return version, None

    def write(self, version: str, material: Material) -> None:
        """Replaces the content, if the Secret still has that version. Raises HeadroomError."""
        data = {
            key: None if text is None else base64.b64encode(text.encode()).decode()
            for key, text in material.data().items()
        }
        patch = {"metadata": {"resourceVersion": version}, "data": data}
        self._client.patch(SECRETS, self._name, patch, self._namespace)


class ClientSecret:
    """The certificate by which the ServiceAccount `account` authenticates to the manager, in the Secret of that name.

    The leader issues and renews it. Every replica trusts its authorities, of which each has signed this certificate
    only.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        account: str,
        trust: Callable[[str], None],
        *,
        rotation: Rotation,
        is_leader: Callable[[], bool],
    ) -> None:
        self._secret = CertificateSecret(client, namespace, account)
        self._clock = client.clock
        self._user = f"system:serviceaccount:{namespace}:{account}"
        self._hosts = (account,)
        self._trust = trust
        self._rotation = rotation
        self._is_leader = is_leader

    def renew(self) -> None:
        """Raises HeadroomError."""
        version, material = self._secret.read()
        if self._is_leader():
            now = self._clock.now()
            due = certificates.advanced(material, self._hosts, now, self._rotation, published=True, user=self._user)
            if due is not material:
                self._secret.write(version, due)
                logger.info("client certificate written", extra={"secret": self._secret.key})
            material = due
        if material is not None:
            self._trust(material.bundle)
