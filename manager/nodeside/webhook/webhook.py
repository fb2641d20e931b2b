"""The webhook as a part of the manager: its sources and its server. Every replica runs one."""

import ssl
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry

from manager.nodeside.webhook import server
from manager.nodeside.webhook.configmap import ConfigAdmission
from manager.nodeside.webhook.pods import PodAdmission, Translation, WhyDenied, deny_none
from manager.nodeside.webhook.server import WebhookCounters
from manager.nodeside.webhook.sources import Sources
from manager.nodeside.webhook.tier_scheduler import TierScheduler
from manager.pods import NOTHING, PodRecord
from manager.settings import ManagerSettings
from shared import web
from shared.api.core import Node
from shared.metric_families import GaugeFamily
from shared.names import PriorityClass
from shared.telemetry import Loops
from shared.web.limits import Limits
from shared.web.requests import allow_all

MUTATE_PODS, VALIDATE_CONFIG = "mutate-pods", "validate-config"

# API servers close an idle connection after 90 s; a server that closes first loses requests under way.
LIMITS = Limits(keep_alive_seconds=120)

_WEBHOOK_UNTRANSLATED_PODS = GaugeFamily(
    "headroom_manager_webhook_untranslated_pods",
    "Pods of an offered tier on nodes with native requests only, because no webhook translated them.",
)


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
        scheduler: TierScheduler | None = None,
    ) -> None:
        self._sources = sources
        namespace = settings.config_namespace or settings.namespace
        self._scheduler = scheduler
        scheduler_name = str if scheduler is None else scheduler.for_new_pods
        pods = PodAdmission(sources, Translation.from_settings(settings), why_denied, scheduler_name)
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
        if self._scheduler is not None:
            self._scheduler.start(loops)
        self.server.start()

    def close(self) -> None:
        self.server.close()


def count_untranslated(
    registry: CollectorRegistry, settings: ManagerSettings, pods: Callable[[], Iterable[PodRecord]]
) -> None:
    """Adds the metric of pods that no webhook has translated."""
    classes = Translation.from_settings(settings).classes
    _WEBHOOK_UNTRANSLATED_PODS.register(registry).set_function(
        lambda: sum(_is_untranslated(pod, classes) for pod in pods())
    )


def _is_untranslated(pod: PodRecord, classes: Collection[PriorityClass]) -> bool:
    return pod.priority_class in classes and pod.active and pod.held == NOTHING and pod.requests != NOTHING
