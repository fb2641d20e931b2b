"""The webhook as a part of the manager: its sources, its certificate, its server. Every replica has one."""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from manager.pods import NOTHING, PodRecord
from manager.reports import Standing
from manager.settings import ManagerSettings
from manager.webhook import server, translation
from manager.webhook.certificates import Rotation
from manager.webhook.configmap import ConfigAdmission
from manager.webhook.keeping import Diary, Files, Keeper, Registration, SharedSecret
from manager.webhook.pods import PodAdmission
from manager.webhook.server import Counters
from manager.webhook.sources import Sources
from manager.webhook.tls import Tls
from shared import web
from shared.api.core import Node
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.names import PriorityClass
from shared.telemetry import Loops

MUTATE_PODS, VALIDATE_CONFIG = "mutate-pods", "validate-config"

WAITING_SECONDS = 1.0  # between two looks for a certificate, before there is one
# One turn is a few requests, and silence of more than three turns is a reason to end the process.
REQUEST_SECONDS = 5.0
# API servers close an idle connection after 90 s; who closes it first loses requests that are on their way.
KEEP_ALIVE_SECONDS = 120


class Webhook:
    """`start` once, `close` once."""

    def __init__(
        self,
        settings: ManagerSettings,
        client: Client,
        registry: CollectorRegistry,
        *,
        standing: Standing,
        nodes: Callable[[], Iterable[Node]],
        pods: Callable[[], Iterable[PodRecord]],
        is_leader: Callable[[], bool],
        rotation: Rotation | None = None,
    ) -> None:
        self._rotation = rotation or Rotation()
        self._tls = Tls()
        self._sources = Sources(client, standing, registry)
        self._keeper = Diary(_keeper(settings, client, self._tls, is_leader, self._rotation))
        namespace = settings.config_namespace or settings.namespace
        classes = frozenset(translation.CLASSES[tier] for tier in settings.tiers)
        config = ConfigAdmission(namespace, settings.config_name, nodes)
        app = server.application(
            {MUTATE_PODS: PodAdmission(self._sources, classes).review, VALIDATE_CONFIG: config.review},
            Counters(registry),
        )
        self._server = web.server(
            app, settings.webhook_listen, tls=self._tls.context, keep_alive_seconds=KEEP_ALIVE_SECONDS
        )
        Gauge(
            "headroom_manager_webhook_untranslated_pods",
            "Pods of an offered tier on nodes that hold native requests only: they came while nobody translated them",
            registry=registry,
        ).set_function(lambda: sum(_is_untranslated(pod, classes) for pod in pods()))
        Gauge(
            "headroom_manager_webhook_certificate_expiry_seconds",
            "Until the serving certificate expires; 0 while there is none",
            registry=registry,
        ).set_function(self._until_expiry_seconds)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the endpoints."""
        return self._server.address

    def start(self, loops: Loops) -> None:
        """Serves from now on."""
        self._sources.start(loops)
        loops.every("webhook-certificates", self._pause_seconds, self._keeper.turn)
        self._server.start()

    def close(self) -> None:
        """Ends open requests, and frees the port."""
        self._server.close()

    def _pause_seconds(self) -> float:
        turn = self._rotation.turn_seconds
        return min(WAITING_SECONDS, turn) if self._tls.expires_at is None else turn

    def _until_expiry_seconds(self) -> float:
        return 0.0 if self._tls.expires_at is None else self._tls.expires_at - time.time()


def _is_untranslated(pod: PodRecord, classes: Collection[PriorityClass]) -> bool:
    return pod.priority_class in classes and pod.active and pod.held == NOTHING and pod.requests != NOTHING


def _keeper(
    settings: ManagerSettings, client: Client, tls: Tls, is_leader: Callable[[], bool], rotation: Rotation
) -> Keeper:
    if settings.webhook_certificates == "files":
        if not settings.webhook_certificate_directory:
            problem = "has to be set with webhookCertificates: files"
            raise InvalidInput(source="settings", field="webhookCertificateDirectory", value="", problem=problem)
        return Files(Path(settings.webhook_certificate_directory), tls)
    client = client.single_attempt(REQUEST_SECONDS)  # the next turn is the next attempt
    return SharedSecret(
        client,
        settings.namespace,
        settings.webhook_secret,
        tls,
        hosts=settings.webhook_hosts or (f"headroom-webhook.{settings.namespace}.svc",),
        rotation=rotation,
        registration=Registration(client, settings.webhook_configuration),
        is_leader=is_leader,
    )
