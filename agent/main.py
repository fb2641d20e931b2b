"""Builds the agent from its parts and runs it; the daemon around it."""

import gc
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from agent import serving
from agent.enforcer import status
from agent.enforcer.publisher import PUBLISH_SECONDS, EnforcerCollector, Publisher
from agent.enforcer.status import EnforcerState
from agent.http.face import Face
from agent.http.rooms import Rooms
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.storage import Disk
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.metrics_advisor.local import LocalSource
from agent.metrics_advisor.source import UsageSource
from agent.predict_server.server import PredictServer
from agent.reporter.conditions import Means
from agent.reporter.reporter import Reporter
from agent.settings import AgentSettings
from agent.states_informer import kubelet
from agent.states_informer.informer import StatesInformer
from agent.telemetry import node
from agent.telemetry.cost import CostCollector
from agent.telemetry.scrape import Scrape, ScrapeCollector
from shared import access, memory, names, telemetry, termination, web
from shared import settings as settings_loader
from shared.clock import Clock, SystemClock
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.telemetry import Loops
from shared.web.limits import Limits
from shared.web.metrics import HttpCollector

logger = logging.getLogger(__name__)

LOOPBACK_LISTEN = "127.0.0.1:9316"
IN_POD_LISTEN = "0.0.0.0:9316"
SETTLED_SECONDS = 60.0  # by then pods and models are known
YOUNG_OBJECTS = 50_000  # new objects before the garbage collector runs: those of some ten ticks of 250 pods
ACCESS_PREFIX = "/headroom/agent"  # of the path that a role must allow for a path of this process
# Clients send it no bodies, and its own answers are small: it must not use up the resources that it measures.
LIMITS = Limits(connections=128, answering=16, held_bytes=16 << 20)
METRIC_CACHE_DIRECTORY = "metrics"  # below the state directory


class Agent:
    """One node's agent; several can live in one process. Raises InvalidInput when the settings do not work."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        source: UsageSource,
        clock: Clock,
        registry: CollectorRegistry,
        *,
        serve: web.ServerFactory = web.server,
    ) -> None:
        """`serve` makes the server of the HTTP endpoints."""
        self._settings = settings
        self._loops = Loops(registry, clock)
        self._cache = _metric_cache(settings, clock, registry)
        self._predict_server = PredictServer(settings, self._cache, clock, registry=registry)
        self._states = StatesInformer(
            client,
            settings.node_name,
            registry=registry,
            on_spec=self._apply,
            kubelet=kubelet.access(settings),
            on_annotations=self._predict_server.heed,
        )
        self._advisor = MetricsAdvisor(source, self._states, self._cache, registry=registry)
        self._reporter = Reporter(
            settings,
            client,
            self._states,
            self._cache,
            self._predict_server,
            clock,
            registry=registry,
            means=lambda: Means(self._advisor.source, _enforcer(settings, clock)),
        )
        self._publisher = self._made_publisher(clock, registry)
        self._rooms = Rooms(
            node_name=settings.node_name,
            clock=clock,
            registry=registry,
            loops=self._loops,
            states=self._states,
            cache=self._cache,
            advisor=self._advisor,
            predict_server=self._predict_server,
            reporter=self._reporter,
            enforcer_status=None if self._publisher is None else Path(settings.enforcer_status_dir),
        )
        self._certificate = None if settings.tls == "off" else serving.AgentCertificate(settings, clock)
        self._web = serve(
            Face(self._rooms),
            settings.listen,
            tls=None if self._certificate is None else self._certificate.tls.context,
            limits=LIMITS,
            gate=access.gate(settings.authorization, settings.listen, client, ACCESS_PREFIX),
        )
        registry.register(HttpCollector({"api": self._web}))
        registry.register(ScrapeCollector(self._scrape, node.families))

    @property
    def address(self) -> tuple[str, int]:
        """The host and port actually bound."""
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
        if self._publisher is not None:
            self._loops.every("orders", lambda: PUBLISH_SECONDS, self._publisher.publish)
        if self._certificate is not None:
            self._loops.every("certificate", lambda: serving.LOOK_SECONDS, self._certificate.turn)
        self._web.start()

    def close(self) -> None:
        """Ends every loop, saves the models, and releases files and port; takes less than 10 s."""
        self._loops.close()
        self._predict_server.save()
        self._cache.close()
        self._web.close()

    def _apply(self, spec: dict[str, object] | None) -> None:
        self._predict_server.apply(spec)
        self._reporter.apply(spec)

    def _made_publisher(self, clock: Clock, registry: CollectorRegistry) -> Publisher | None:
        settings = self._settings
        if not settings.enforcer_orders_dir:
            return None
        publisher = Publisher(
            Path(settings.enforcer_orders_dir),
            self._states,
            self._cache,
            clock,
            second=lambda: self._advisor.second,
            thresholds=lambda: self._reporter.thresholds,
            waited_seconds=lambda: self._reporter.prod_waits.waited_seconds(names.CPU),
        )
        registry.register(EnforcerCollector(publisher, Path(settings.enforcer_status_dir), clock))
        return publisher

    def _scrape(self) -> Scrape:
        synced = self._states.synced  # read first: an earlier list of pods may be incomplete
        usages, pods, state = self._rooms.usages(), self._states.pods(), self._states.node()
        return Scrape(
            usages=usages,
            pods=pods,
            prediction=self._predict_server.predict(pods if synced else None, state),
            allocatable=state.allocatable if state else None,
            models=self._predict_server.model_count,
            series=self._cache.series_count,
            metric_cache_bytes=self._cache.memory_bytes,
        )


def _enforcer(settings: AgentSettings, clock: Clock) -> EnforcerState | None:
    """None without one, or where it does not report."""
    if not settings.enforcer_orders_dir or not settings.enforcer_status_dir:
        return None
    return status.state(status.read(Path(settings.enforcer_status_dir)), clock.monotonic())


def _metric_cache(settings: AgentSettings, clock: Clock, registry: CollectorRegistry) -> MetricCache:
    directory = Path(settings.state_dir) / METRIC_CACHE_DIRECTORY
    return MetricCache(
        settings.metric_retention_seconds,
        Disk(directory, settings.node_name) if settings.metric_cache_on_disk else None,
        clock=clock,
        limit_bytes=settings.metric_cache_bytes,
        registry=registry,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The daemon; runs until SIGTERM or SIGINT. Exit status 2 for bad settings."""
    try:
        settings = _settings(sys.argv[1:] if argv is None else argv)
        telemetry.configure_logging(level=settings.log_level, style=settings.log_format)
        logger.info("settings", extra=settings_loader.shown(settings))
        return run(settings, config.discover(settings.kubeconfig or None))
    except InvalidInput as error:
        print(f"headroom agent: {error}", file=sys.stderr)
        return 2


def run(settings: AgentSettings, connection: Connection) -> int:
    """This machine's agent, until SIGTERM or SIGINT. Raises InvalidInput when the settings do not work."""
    spare_the_garbage_collector()
    memory.return_large_blocks()
    stop = termination.event()
    registry = CollectorRegistry()
    registry.register(CostCollector())
    client = Client(connection, "headroom-agent", registry=registry, stop=stop)
    source = LocalSource(
        cgroup_root=Path(settings.cgroup_root),
        cgroup_parent=settings.cgroup_parent,
        proc_root=Path(settings.proc_root),
        state_dir=Path(settings.state_dir),
    )
    agent = Agent(settings, client, source, SystemClock(), registry)
    agent.start()
    logger.info("listening", extra=dict(zip(("host", "port"), agent.address, strict=True)))
    if not stop.wait(SETTLED_SECONDS):
        spare_the_garbage_collector()
        stop.wait()
    agent.close()
    source.close()
    client.close()
    return 0


def spare_the_garbage_collector() -> None:
    """Freezes the existing objects, which are permanent; reference counts free the thousands of tuples of a tick.

    Scanning both again and again took a fifth of a tick.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()


def _settings(argv: Sequence[str]) -> AgentSettings:
    """The settings, completed by values that only this machine knows. Raises InvalidInput."""
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
