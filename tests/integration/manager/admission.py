"""An API server that knows of the webhook, and replicas of it without the rest of the manager."""

import base64
import contextlib
import itertools
import socket
import ssl
from typing import Any

from prometheus_client import CollectorRegistry

from deploy.local import webhook as registration
from manager.nodeside.reports import PersistentProblems
from manager.nodeside.webhook.certificates import Rotation
from manager.nodeside.webhook.serving import WebhookCertificate
from manager.nodeside.webhook.sources import Sources
from manager.nodeside.webhook.webhook import Webhook
from manager.settings import ManagerSettings
from shared import names
from shared.api.core import Namespace
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound
from shared.kube.informer import Informer
from shared.kube.resources import MUTATINGWEBHOOKS, NAMESPACES, PODS, SECRETS, VALIDATINGWEBHOOKS
from shared.telemetry import Loops
from tests.support.apiserver import ApiServer

LOOPBACK = "127.0.0.1"
NATIVE = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
NOTHING = {"cpu": "0", "memory": "0"}
MID = {
    "requests": {"kubernetes.io/mid-cpu": "500", "kubernetes.io/mid-memory": "64Mi"} | NOTHING,
    "limits": {"cpu": "1", "memory": "64Mi"},
}
MID_LABELS = {names.LABEL_PRIORITY_CLASS: "koord-mid"}


class Site:
    """A cluster whose API server knows of the webhook, with a namespace for pods."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.client = server.client()
        self.namespace = server.add_namespace()
        self._numbers = itertools.count()
        registration.create_priority_classes(self.client)

    def register(self, address: tuple[str, int] | None) -> None:
        assert address is not None
        registration.register(self.client, f"https://{LOOPBACK}:{address[1]}")
        # On a machine that runs a test suite, one that answers late has not failed.
        patient = [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]
        for resource in (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS):
            self.client.patch(resource, registration.NAME, patient, kind=Patch.JSON)

    def unregister(self) -> None:
        for resource in (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS):
            with contextlib.suppress(NotFound):
                self.client.delete(resource, registration.NAME)
        with contextlib.suppress(NotFound):
            self.client.delete(SECRETS, registration.SECRET, names.INSTALL_NAMESPACE)

    def create(self, labels: dict[str, str] | None = None, resources: object = NATIVE, **spec: Any) -> dict[str, Any]:
        """A new pod, as it was stored."""
        name = f"p{next(self._numbers)}"
        container = {"name": "c", "image": "example.com/image:1", "resources": resources}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"containers": [container], **spec},
        }
        self.client.create(PODS, body, self.namespace)
        return self.client.get(PODS, name, self.namespace)

    def is_called(self) -> bool:
        """Whether a Mid pod comes in as one now."""
        return bool(asked_by(self.create(MID_LABELS)) == MID)

    def authorities(self) -> str:
        """What the API server was told to trust."""
        webhooks = self.client.get(MUTATINGWEBHOOKS, registration.NAME)["webhooks"]
        return base64.b64decode(webhooks[0]["clientConfig"].get("caBundle", "")).decode()


def asked_by(pod: dict[str, Any]) -> Any:
    return pod["spec"]["containers"][0]["resources"]


class Replica:
    """One replica's webhook, without the rest of the manager."""

    def __init__(self, server: ApiServer, rotation: Rotation, *, leads: bool = True, **settings: Any) -> None:
        self.registry = CollectorRegistry()
        self._loops = Loops()
        self._client = Client(server.manager_connection(), "manager")
        chosen = ManagerSettings(
            webhook_listen=f"{LOOPBACK}:0", webhook_hosts=(LOOPBACK,), config_namespace="", **settings
        )
        certificate = WebhookCertificate(
            chosen, self._client, self.registry, is_leader=lambda: leads, rotation=rotation
        )
        namespaces = Informer(self._client, NAMESPACES, Namespace)
        self.webhook = Webhook(
            chosen,
            Sources(self._client, namespaces, PersistentProblems(None, lambda: leads), self.registry),
            self.registry,
            nodes=lambda: [],
            tls=certificate.webhook.context,
        )
        certificate.start(self._loops)
        self._loops.start("namespaces", namespaces.run)
        self.webhook.start(self._loops)

    def served(self, authorities: str) -> bytes:
        """The certificate that a client gets who trusts these authorities. Raises ssl.SSLError."""
        context = ssl.create_default_context(cadata=authorities)
        with (
            socket.create_connection(self.webhook.address, timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=LOOPBACK) as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    def counted(self, outcome: str, webhook: str = "mutate-pods") -> float:
        labels = {"webhook": webhook, "outcome": outcome}
        return self.registry.get_sample_value("headroom_manager_webhook_reviews_total", labels) or 0.0

    def close(self) -> None:
        self._loops.close()
        self.webhook.close()
        self._client.close()
