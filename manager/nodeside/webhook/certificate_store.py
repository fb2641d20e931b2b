"""Keeps the certificate of the manager's ports valid: in a Secret that replicas share, or in files of another tool."""

import base64
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from manager.nodeside.webhook import certificates
from manager.nodeside.webhook.certificate_secret import CertificateSecret
from manager.nodeside.webhook.certificates import Material, Rotation
from shared import names
from shared.api.core import ConfigMap
from shared.certificates import ends_at
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS, MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS, Resource
from shared.web.tls import Tls

logger = logging.getLogger(__name__)


class CertificateStore(Protocol):
    """The source of the certificate."""

    def renew(self) -> None:
        """Does what is due, and serves what is new.

        Raises HeadroomError; the last good certificate stays.
        """
        ...


class Files:
    """`tls.crt` and `tls.key` of a directory, as cert-manager and others maintain them; read again after a change."""

    def __init__(self, directory: Path, ports: "Ports", publish: Callable[[str], None]) -> None:
        self._paths = (directory / certificates.CERTIFICATE, directory / certificates.KEY)
        self._authorities = directory / certificates.BUNDLE
        self._ports = ports
        self._publish = publish
        self._installed: tuple[bytes, bytes] | None = None

    def renew(self) -> None:
        chain, key = (_content(path) for path in self._paths)
        if (chain, key) != self._installed:
            self._ports.install(chain, key, source=str(self._paths[0]))
            self._installed = (chain, key)
            logger.info("serving certificate read", extra={"file": str(self._paths[0])})
        if self._authorities.exists():
            self._publish(_content(self._authorities).decode())


class SharedSecret:
    """The Secret, which must exist. Only the leader writes it, and only on the version that it has read."""

    def __init__(
        self,
        registration: "Registration",
        name: str,
        ports: "Ports",
        *,
        hosts: tuple[str, ...],
        rotation: Rotation,
        is_leader: Callable[[], bool],
    ) -> None:
        self._secret = CertificateSecret(registration.client, registration.namespace, name)
        self._clock = registration.client.clock
        self._ports = ports
        self._hosts = hosts
        self._rotation = rotation
        self._registration = registration
        self._is_leader = is_leader
        self._installed: tuple[str, str] | None = None

    def renew(self) -> None:
        version, material = self._secret.read()
        if material is not None:
            self._install(material)
        if self._is_leader():
            self._lead(version, material)

    def _lead(self, version: str, material: Material | None) -> None:
        """Publishes the present bundle, and does what is due. Raises HeadroomError, after all has been tried."""
        published, trouble = False, None
        try:
            published = material is not None and self._registration.publish(material.bundle)
        except HeadroomError as error:
            trouble = error
        now = self._clock.now()
        due = certificates.advanced(material, self._hosts, now, self._rotation, published=published)
        if due is not material:
            self._secret.write(version, due)
            logger.info(
                "serving certificates written", extra={"secret": self._secret.key, "upcoming": bool(due.upcoming)}
            )
            self._install(due)
            self._registration.publish(due.bundle)
        if trouble is not None:
            raise trouble

    def _install(self, material: Material) -> None:
        pair = material.serving
        if (pair.chain, pair.key) != self._installed:
            self._ports.install(pair.chain.encode(), pair.key.encode(), source=f"Secret {self._secret.key}")
            self._installed = (pair.chain, pair.key)
            logger.info("serving certificate in use", extra={"secret": self._secret.key})


class Ports:
    """The ports that serve the certificate, and its end of validity."""

    def __init__(self, *ports: Tls) -> None:
        self._ports = ports
        self.expires_at: float | None = None

    def install(self, chain: bytes, key: bytes, *, source: str) -> None:
        """Raises InvalidInput, and then the previous certificate stays."""
        for port in self._ports:
            port.install(chain, key, source=source)
        self.expires_at = ends_at(chain)


class Registration:
    """Where the authorities are published: two webhook configurations of one name, for the API server, and a ConfigMap,
    for all other clients.
    """

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._name = name

    def publish(self, bundle: str) -> bool:
        """Publishes the bundle wherever a place exists; True if there is any, and all had it before.

        Raises HeadroomError, including Conflict if another writer changes a configuration at the same time.
        """
        encoded = base64.b64encode(bundle.encode()).decode()
        told = [self._publish(resource, encoded) for resource in (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS)]
        told.append(self.publish_to_clients(bundle))
        return True in told and False not in told

    def publish_to_clients(self, bundle: str) -> bool | None:
        """Whether the ConfigMap already had the bundle; None without a ConfigMap."""
        try:
            found = self.client.get(CONFIGMAPS, names.CA_CONFIG_MAP, self.namespace, into=ConfigMap)
        except NotFound:
            return None
        if (found.data or {}).get(certificates.BUNDLE) == bundle:
            return True
        metadata = {"resourceVersion": found.metadata.resource_version}
        patch = {"metadata": metadata, "data": {certificates.BUNDLE: bundle}}
        self.client.patch(CONFIGMAPS, names.CA_CONFIG_MAP, patch, self.namespace)
        return False

    def _publish(self, resource: Resource, encoded: str) -> bool | None:
        """Whether the configuration already had the bundle; None without a configuration."""
        try:
            configuration = self.client.get(resource, self._name)
        except NotFound:
            return None
        operations = _operations(configuration, encoded)
        if operations:
            self.client.patch(resource, self._name, operations, kind=Patch.JSON)
            logger.info("webhook configuration updated", extra={"resource": str(resource)})
        return not operations


def _operations(configuration: Mapping[str, Any], encoded: str) -> list[dict[str, object]]:
    """A JSON patch that gives every webhook the bundle, if the configuration is unchanged since it was read."""
    operations: list[dict[str, object]] = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if webhook["clientConfig"].get("caBundle") != encoded
    ]
    version = configuration["metadata"]["resourceVersion"]
    same = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}  # Conflict if it has changed
    return [same, *operations] if operations else []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(source=str(path), field="file", value=path.name, problem=str(error.strerror)) from error


class LoggedStore:
    """Logs a problem once, and not at each try."""

    def __init__(self, store: CertificateStore, about: str = "serving certificates") -> None:
        self._store = store
        self._about = about
        self._said = ""

    def renew(self) -> None:
        """A failure is logged, and the next call tries again."""
        try:
            self._store.renew()
        except HeadroomError as error:
            if str(error) != self._said:
                logger.warning("%s: %s", self._about, error)
            self._said = str(error)
        else:
            self._said = ""
