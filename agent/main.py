"""Builds the agent from its parts and runs it; the daemon around it."""

import contextlib
import ctypes
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
from agent.enforcer.publisher import PUBLISH_SECONDS, EnforcerCollector, Publisher
from agent.http.face import Face
from agent.http.rooms import FRESH_SECONDS, Rooms
from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metric_cache.storage import Disk
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.metrics_advisor.local import LocalSource
from agent.metrics_advisor.source import UsageSource
from agent.predict_server.server import PredictServer
from agent.reporter import measurements
from agent.reporter.reporter import Reporter
from agent.settings import AgentSettings
from agent.states_informer import host_applications, kubelet
from agent.states_informer.informer import StatesInformer
from agent.telemetry import koordinator, node
from agent.telemetry.cost import CostCollector
from agent.telemetry.scrape import Scrape, ScrapeCollector
from shared import access, telemetry, termination, web
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
MMAP_THRESHOLD, MAPPED_BYTES = -3, 128 << 10  # the parameter of mallopt, and glibc's first value of it
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
    ) -> None:
        self._settings = settings
        self._loops = Loops(registry, clock)
        self._cache = MetricCache(
            settings.metric_retention_seconds,
            _disk(settings),
            clock=clock,
            limit_bytes=settings.metric_cache_bytes,
            registry=registry,
        )
        self._predict_server = PredictServer(settings, self._cache, clock, registry=registry)
        local = source if isinstance(source, LocalSource) else None
        self._states = StatesInformer(
            client,
            settings.node_name,
            registry=registry,
            on_spec=self._apply,
            kubelet=kubelet.access(settings),
            on_host_applications=local.set_host_applications if local else None,
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
            second=lambda: self._advisor.second,
            registry=registry,
            source=lambda: self._advisor.source,
            host_applications=lambda: local.host_applications if local else (),
        )
        self._local = local
        self._publisher = self._made_publisher(clock, registry)
        self._started_at = clock.now()
        self._rooms = rooms = Rooms(
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
        self._web = web.server(
            Face(rooms),
            settings.listen,
            tls=None if self._certificate is None else self._certificate.tls.context,
            limits=LIMITS,
            gate=access.gate(settings.authorization, settings.listen, client, ACCESS_PREFIX),
        )
        registry.register(HttpCollector({"api": self._web}))
        registry.register(ScrapeCollector(self._scrape, node.families))
        if settings.koordinator_metrics:
            registry.register(ScrapeCollector(self._scrape, koordinator.Koordinator().families))

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
        settings, local = self._settings, self._local
        if not settings.enforcer_orders_dir:
            return None
        publisher = Publisher(
            Path(settings.enforcer_orders_dir),
            self._states,
            self._cache,
            clock,
            second=lambda: self._advisor.second,
            thresholds=lambda: self._reporter.thresholds,
            host_applications=lambda: local.host_applications if local else (),
        )
        registry.register(EnforcerCollector(publisher, Path(settings.enforcer_status_dir), clock))
        return publisher

    def _scrape(self) -> Scrape:
        synced = self._states.synced  # read first: an earlier list of pods may be incomplete
        usages, pods, state = self._rooms.usages(), self._states.pods(), self._states.node()

        def last(kind: Kind) -> dict[SeriesKey, float]:
            return self._cache.aggregate(Aggregation.LAST, FRESH_SECONDS, kind=kind, until=self._advisor.second)

        of_applications = measurements.application_usages(last(Kind.HOST_APPLICATION), Metric.MEMORY)
        applications = self._local.host_applications if self._local else ()
        return Scrape(
            node_name=self._settings.node_name,
            started_at=self._started_at,
            usages=usages,
            numa=measurements.numa_usages(last(Kind.NUMA), usages.get(series.SYSTEM)),
            host_applications=[(one, of_applications[one.name]) for one in applications if one.name in of_applications],
            readings=self._rooms.readings,
            pods=pods,
            prediction=self._predict_server.predict(pods if synced else None, state),
            allocatable=state.allocatable if state else None,
            models=self._predict_server.model_count,
            series=self._cache.series_count,
            metric_cache_bytes=self._cache.memory_bytes,
        )


def _disk(settings: AgentSettings) -> Disk | None:
    if not settings.metric_cache_on_disk:
        return None
    directory = Path(settings.state_dir) / METRIC_CACHE_DIRECTORY
    return Disk(directory, settings.node_name, settings.metric_cache_disk_free_percent)


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
    return_large_arrays()
    stop = termination.event()
    registry = CollectorRegistry()
    registry.register(CostCollector())
    client = Client(connection, "headroom-agent", registry=registry, stop=stop)
    listed = settings.host_applications
    source = LocalSource(
        cgroup_root=Path(settings.cgroup_root),
        cgroup_parent=settings.cgroup_parent,
        proc_root=Path(settings.proc_root),
        state_dir=Path(settings.state_dir),
        host_applications=host_applications.load(Path(listed)) if listed else (),
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


def return_large_arrays() -> None:
    """Makes glibc return each large array to the kernel as soon as it is freed.

    Otherwise glibc raises the threshold to the largest array ever freed, and keeps up to twice as much of each thread's
    heap: 11 MB after an aggregate over an hour.
    """
    with contextlib.suppress(AttributeError):  # other C libraries
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, MAPPED_BYTES)


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
