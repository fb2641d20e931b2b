"""Maintains the certificate that the manager's ports serve, and the authorities of client certificates."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from manager.nodeside.webhook.certificate_secret import ClientSecret
from manager.nodeside.webhook.certificate_store import (
    CertificateStore,
    Files,
    LoggedStore,
    Ports,
    Registration,
    SharedSecret,
)
from manager.nodeside.webhook.certificates import Rotation
from manager.nodeside.webhook.scheduler_pods import SchedulerPods
from manager.settings import ManagerSettings
from shared import names
from shared.api.core import ConfigMap
from shared.certificates import VALID_SECONDS, issued
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import CONFIGMAPS
from shared.metric_families import GaugeFamily
from shared.telemetry import Loops
from shared.web.tls import Tls

logger = logging.getLogger(__name__)

WAITING_SECONDS = 1.0  # between two checks, before there is a certificate
# One turn is a few requests, and silence of more than three turns is a reason to end the process.
REQUEST_SECONDS = 5.0
AUTHORITIES_SECONDS = 60.0

# Where every API server publishes the authority of its clients' certificates.
AUTHENTICATION_NAMESPACE, AUTHENTICATION = "kube-system", "extension-apiserver-authentication"
CLIENT_CA = "client-ca-file"

_WEBHOOK_CERTIFICATE_EXPIRY_SECONDS = GaugeFamily(
    "headroom_manager_webhook_certificate_expiry_seconds",
    "Seconds until the serving certificate expires; 0 without a certificate.",
)


class WebhookCertificate:
    """`webhook` and `api` are the TLS of the two ports. Call `start` once."""

    def __init__(
        self,
        settings: ManagerSettings,
        client: Client,
        registry: CollectorRegistry,
        *,
        is_leader: Callable[[], bool],
        rotation: Rotation | None = None,
    ) -> None:
        self.webhook = Tls()
        self.api = Tls(asks_clients=True)
        self._serves_api = settings.tls
        self._client = client.single_attempt(REQUEST_SECONDS)  # the next turn is the next attempt
        self._rotation = rotation or Rotation()
        self._ports = Ports(self.webhook, self.api)
        self._store = LoggedStore(_store(settings, self._client, self._ports, is_leader, self._rotation))
        self._said = ""
        self._authorities: dict[str, str] = {}  # of clients, by their source
        self._trusting = threading.Lock()
        self._of_scheduler = _of_scheduler(settings, self._client, self._trust, is_leader, self._rotation)
        if self._serves_api:  # probes do not verify it, and health is answered before the real one exists
            temporary = issued([names.MANAGER_SERVER_NAME], time.time(), VALID_SECONDS)
            self.api.install(temporary.chain.encode(), temporary.key.encode(), source="temporary")
        _WEBHOOK_CERTIFICATE_EXPIRY_SECONDS.register(registry).set_function(self._until_expiry_seconds)

    def start(self, loops: Loops) -> None:
        """Maintains the certificate from now on."""
        loops.every("webhook-certificates", self._pause_seconds, self._store.renew)
        if self._serves_api:
            loops.every("client-authorities", lambda: AUTHORITIES_SECONDS, self._trust_clients)
        for name, store in self._of_scheduler.items():
            loops.every(name, lambda: self._rotation.turn_seconds, store.renew)

    def _trust_clients(self) -> None:
        try:
            found = self._client.get(CONFIGMAPS, AUTHENTICATION, AUTHENTICATION_NAMESPACE, into=ConfigMap)
            source = f"ConfigMap {AUTHENTICATION_NAMESPACE}/{AUTHENTICATION}"
            self._trust((found.data or {}).get(CLIENT_CA, ""), source)
            self._said = ""
        except HeadroomError as error:
            if str(error) != self._said:
                logger.warning("the client CA was not updated, the earlier one stays in effect: %s", error)
            self._said = str(error)

    def _trust(self, authorities: str, source: str) -> None:
        """Trusts these authorities beside those of other sources. Raises InvalidInput."""
        with self._trusting:
            known = self._authorities | {source: authorities}
            self.api.trust("\n".join(known.values()), source=source)
            self._authorities = known

    def _pause_seconds(self) -> float:
        turn = self._rotation.turn_seconds
        return min(WAITING_SECONDS, turn) if self._ports.expires_at is None else turn

    def _until_expiry_seconds(self) -> float:
        return 0.0 if self._ports.expires_at is None else self._ports.expires_at - time.time()


def _store(
    settings: ManagerSettings, client: Client, ports: Ports, is_leader: Callable[[], bool], rotation: Rotation
) -> CertificateStore:
    registration = Registration(client, settings.webhook_configuration, settings.namespace)
    if settings.webhook_certificate_directory:

        def publish(authorities: str) -> None:
            if settings.tls and is_leader():
                registration.publish_to_clients(authorities)

        return Files(Path(settings.webhook_certificate_directory), ports, publish)
    return SharedSecret(
        registration,
        settings.webhook_secret,
        ports,
        hosts=settings.webhook_hosts or (f"headroom-webhook.{settings.namespace}.svc", names.MANAGER_SERVER_NAME),
        rotation=rotation,
        is_leader=is_leader,
    )


def _of_scheduler(
    settings: ManagerSettings,
    client: Client,
    trust: Callable[[str, str], None],
    is_leader: Callable[[], bool],
    rotation: Rotation,
) -> dict[str, CertificateStore]:
    """What is maintained for the second scheduler, by the names of the loops."""
    account = settings.scheduler_account
    if not (settings.tls and account):
        return {}
    source = f"Secret {settings.namespace}/{account}"
    own = ClientSecret(
        client,
        settings.namespace,
        account,
        lambda bundle: trust(bundle, source),
        rotation=rotation,
        is_leader=is_leader,
    )
    pods = SchedulerPods(client, settings.namespace, settings.webhook_secret, is_leader)
    return {
        "scheduler-certificate": LoggedStore(own, "the scheduler's certificate"),
        "scheduler-authority": LoggedStore(pods, "the scheduler's authority"),
    }
