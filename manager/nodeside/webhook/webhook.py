"""The webhook as a part of the manager: its sources and its server. Every replica runs one."""

import ssl
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Gauge

from manager.nodeside.reports import PersistentProblems
from manager.nodeside.webhook import server
from manager.nodeside.webhook.configmap import ConfigAdmission
from manager.nodeside.webhook.pods import PodAdmission, Translation, WhyDenied, nobody
from manager.nodeside.webhook.server import WebhookCounters
from manager.nodeside.webhook.sources import Sources
from manager.pods import NOTHING, PodRecord
from manager.settings import ManagerSettings
from shared import web
from shared.api.core import Node
from shared.kube.client import Client
from shared.names import PriorityClass
from shared.telemetry import Loops
from shared.web.limits import Limits
from shared.web.requests import anybody

MUTATE_PODS, VALIDATE_CONFIG = "mutate-pods", "validate-config"

# API servers close an idle connection after 90 s; a server that closes first loses requests under way.
LIMITS = Limits(keep_alive_seconds=120)


class Webhook:
    """Call `start` once, and `close` once."""

    def __init__(
        self,
        settings: ManagerSettings,
        client: Client,
        registry: CollectorRegistry,
        *,
        standing: PersistentProblems,
        nodes: Callable[[], Iterable[Node]],
        pods: Callable[[], Iterable[PodRecord]],
        tls: ssl.SSLContext,
        why_denied: WhyDenied = nobody,
    ) -> None:
        self._sources = Sources(client, standing, registry)
        namespace = settings.config_namespace or settings.namespace
        becomes = Translation.of(settings)
        config = ConfigAdmission(namespace, settings.config_name, nodes)
        app = server.application(
            {MUTATE_PODS: PodAdmission(self._sources, becomes, why_denied).review, VALIDATE_CONFIG: config.review},
            WebhookCounters(registry),
        )
        # API servers do not authenticate: any client gets an answer, which contains nothing about the cluster.
        self.server = web.server(app, settings.webhook_listen, tls=tls, limits=LIMITS, gate=anybody)
        Gauge(
            "headroom_manager_webhook_untranslated_pods",
            "Pods of an offered tier on nodes that hold native requests only: they came while nobody translated them",
            registry=registry,
        ).set_function(lambda: sum(_is_untranslated(pod, becomes.classes) for pod in pods()))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the endpoints."""
        return self.server.address

    def start(self, loops: Loops) -> None:
        """Starts to serve."""
        self._sources.start(loops)
        self.server.start()

    def close(self) -> None:
        """Ends open requests, and frees the port."""
        self.server.close()


def _is_untranslated(pod: PodRecord, classes: Collection[PriorityClass]) -> bool:
    return pod.priority_class in classes and pod.active and pod.held == NOTHING and pod.requests != NOTHING
