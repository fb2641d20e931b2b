"""The webhook as a part of the manager: its sources and its server. Every replica runs one."""

import ssl
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Gauge

from manager.nodeside.webhook import server
from manager.nodeside.webhook.configmap import ConfigAdmission
from manager.nodeside.webhook.pods import PodAdmission, Translation, WhyDenied, deny_none
from manager.nodeside.webhook.server import WebhookCounters
from manager.nodeside.webhook.sources import Sources
from manager.pods import NOTHING, PodRecord
from manager.settings import ManagerSettings
from shared import web
from shared.api.core import Node
from shared.names import PriorityClass
from shared.telemetry import Loops
from shared.web.limits import Limits
from shared.web.requests import allow_all

MUTATE_PODS, VALIDATE_CONFIG = "mutate-pods", "validate-config"

# API servers close an idle connection after 90 s; a server that closes first loses requests under way.
LIMITS = Limits(keep_alive_seconds=120)


class Webhook:
    """Call `start` once, and `close` once."""

    def __init__(
        self,
        settings: ManagerSettings,
        sources: Sources,
        registry: CollectorRegistry,
        *,
        nodes: Callable[[], Iterable[Node]],
        tls: ssl.SSLContext,
        why_denied: WhyDenied = deny_none,
    ) -> None:
        self._sources = sources
        namespace = settings.config_namespace or settings.namespace
        pods = PodAdmission(sources, Translation.from_settings(settings), why_denied)
        config = ConfigAdmission(namespace, settings.config_name, nodes)
        app = server.application({MUTATE_PODS: pods.review, VALIDATE_CONFIG: config.review}, WebhookCounters(registry))
        # API servers do not authenticate: any client gets an answer, which contains nothing about the cluster.
        self.server = web.server(app, settings.webhook_listen, tls=tls, limits=LIMITS, gate=allow_all)

    @property
    def address(self) -> tuple[str, int]:
        return self.server.address

    def start(self, loops: Loops) -> None:
        """Starts to serve."""
        self._sources.start(loops)
        self.server.start()

    def close(self) -> None:
        self.server.close()


def count_untranslated(
    registry: CollectorRegistry, settings: ManagerSettings, pods: Callable[[], Iterable[PodRecord]]
) -> None:
    """Adds the metric of pods that no webhook has translated."""
    classes = Translation.from_settings(settings).classes
    Gauge(
        "headroom_manager_webhook_untranslated_pods",
        "Pods of an offered tier on nodes that hold native requests only: no webhook translated them",
        registry=registry,
    ).set_function(lambda: sum(_is_untranslated(pod, classes) for pod in pods()))


def _is_untranslated(pod: PodRecord, classes: Collection[PriorityClass]) -> bool:
    return pod.priority_class in classes and pod.active and pod.held == NOTHING and pod.requests != NOTHING
