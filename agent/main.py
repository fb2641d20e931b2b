"""Puts the agent's rooms together and runs them; the daemon around it."""

import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from agent import http
from agent.metric_cache import series
from agent.metric_cache.cache import MetricCache
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.metrics_advisor.local import LocalSource
from agent.metrics_advisor.source import UsageSource
from agent.predict_server.server import PredictServer
from agent.reporter.reporter import Reporter
from agent.settings import AgentSettings
from agent.states_informer.informer import StatesInformer
from agent.telemetry import AgentCollector, Scrape
from shared import settings as settings_loader
from shared import telemetry, termination, web
from shared.clock import Clock, SystemClock
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

LOOPBACK_LISTEN = "127.0.0.1:9316"
IN_POD_LISTEN = "0.0.0.0:9316"


class Agent:
    """One node's agent; several can live in one process. Raises InvalidInput when it cannot be built as set."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        source: UsageSource,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        self._settings = settings
        self._loops = Loops(registry, clock)
        self._cache = MetricCache(settings.metric_retention_seconds)
        self._predict_server = PredictServer(settings, self._cache, clock, registry=registry)
        self._states = StatesInformer(client, settings.node_name, registry=registry, on_spec=self._apply)
        self._advisor = MetricsAdvisor(source, self._states, self._cache, clock, registry=registry)
        self._reporter = Reporter(
            settings,
            client,
            self._states,
            self._cache,
            self._predict_server,
            clock,
            second=lambda: self._advisor.second,
            registry=registry,
        )
        rooms = http.Rooms(
            node_name=settings.node_name,
            clock=clock,
            registry=registry,
            loops=self._loops,
            states=self._states,
            cache=self._cache,
            advisor=self._advisor,
            predict_server=self._predict_server,
            reporter=self._reporter,
        )
        self._rooms = rooms
        self._web = web.server(http.application(rooms), settings.listen)
        registry.register(AgentCollector(self._scrape))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port actually bound."""
        return self._web.address

    def start(self) -> None:
        """Restores the models and starts every loop; returns at once."""
        self._predict_server.restore()
        self._states.start(self._loops)
        self._loops.every("sampling", lambda: self._settings.collect_interval_seconds, self._advisor.collect)
        self._loops.every(
            "training",
            lambda: self._settings.histogram_update_interval_seconds,
            lambda: self._predict_server.train(self._states.pods() if self._states.synced else None),
        )
        self._loops.start("reporting", self._reporter.run)
        self._web.start()

    def close(self) -> None:
        """Ends every loop, then saves the models."""
        self._loops.close()
        self._web.close()
        self._predict_server.save()

    def _apply(self, spec: dict[str, object] | None) -> None:
        self._predict_server.apply(spec)
        self._reporter.apply(spec)

    def _scrape(self) -> Scrape:
        usages, pods = self._rooms.usages(), self._states.pods()
        return Scrape(
            node=usages.get(series.NODE),
            system=usages.get(series.SYSTEM),
            prediction=self._predict_server.predict(pods, self._states.node()),
            pods=len(pods),
            pods_measured=sum(pod.uid in usages for pod in pods),
            models=self._predict_server.model_count,
            series=self._cache.series_count,
            metric_cache_bytes=self._cache.memory_bytes,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """The daemon; runs until SIGTERM or SIGINT. Exit status 2 for bad settings."""
    try:
        settings = _settings(sys.argv[1:] if argv is None else argv)
        telemetry.configure_logging(level=settings.log_level, style=settings.log_format)
        logger.info("settings", extra=settings_loader.shown(settings))
        stop = termination.event()
        registry = CollectorRegistry()
        connection = config.discover(settings.kubeconfig or None)
        client = Client(connection, "headroom-agent", registry=registry, stop=stop)
        source = LocalSource(
            cgroup_root=Path(settings.cgroup_root),
            cgroup_parent=settings.cgroup_parent,
            proc_root=Path(settings.proc_root),
        )
        agent = Agent(settings, client, source, SystemClock(), registry)
    except InvalidInput as error:
        print(f"headroom agent: {error}", file=sys.stderr)
        return 2
    agent.start()
    logger.info("listening", extra=dict(zip(("host", "port"), agent.address, strict=True)))
    stop.wait()
    agent.close()
    source.close()
    client.close()
    return 0


def _settings(argv: Sequence[str]) -> AgentSettings:
    """The settings as given, with what only this machine can say filled in. Raises InvalidInput."""
    given = settings_loader.load(
        AgentSettings,
        program="headroom agent",
        description="Watches one node's usage and reports what it can lend.",
        argv=argv,
        environment=os.environ,
    )
    in_pod = config.in_cluster() is not None
    return msgspec.structs.replace(
        given,
        node_name=given.node_name or os.environ.get("NODE_NAME") or platform.node(),
        listen=given.listen or (IN_POD_LISTEN if in_pod else LOOPBACK_LISTEN),
    )
