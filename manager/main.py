"""Wiring and life of the manager process."""

import importlib.metadata
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from manager import answers, http
from manager.answers import Status
from manager.caches import Caches
from manager.controller import Controller
from manager.metrics import Counters, StateCollector
from manager.reports import Reporter
from manager.settings import ManagerSettings
from manager.workqueue import WorkQueue
from shared import settings as settings_module
from shared import telemetry, termination, web
from shared.clock import Clock, SystemClock
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.kube.events import Recorder
from shared.kube.lease import LeaderElector, LeaseTimes
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

LEASE_NAME = "headroom-manager"

# Longer than a write with all its conflicts may take when every answer comes at the last moment.
MAX_SILENCE_SECONDS = 120.0


class Manager:
    """All of the manager on one client: caches, worker, election, HTTP. `start` once, `close` once."""

    def __init__(self, settings: ManagerSettings, client: Client, clock: Clock, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._loops = Loops(registry, clock)
        identity = settings.identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._elector = _elector(settings, client, clock, identity)
        self._recorder = None if settings.dry_run else Recorder(client, "headroom-manager", identity)
        reporter = Reporter(self._recorder)
        queue = WorkQueue(clock)
        self._caches = Caches(client, settings, changed=queue.add, configured=reporter.configured)
        self._controller = Controller(
            client,
            self._caches,
            queue,
            settings,
            clock,
            reporter=reporter,
            counters=Counters(registry),
            is_leader=self.is_leader,
        )
        registry.register(
            StateCollector(
                nodes=lambda: [(state.node, state.decision) for state in self._controller.states()],
                configuration=lambda: self._caches.configuration,
                pending=self._controller.pending,
                is_leader=self.is_leader,
                now=clock.now,
            )
        )
        app = http.application(
            reader=self._controller,
            registry=registry,
            status=self._status,
            unhealthy=self._silent,
            version=importlib.metadata.version("headroom"),
        )
        self._server = web.server(app, settings.listen or _default_listen())

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the HTTP endpoints."""
        return self._server.address

    def is_leader(self) -> bool:
        """Whether this process may write."""
        return self._elector is None or self._elector.is_leader()

    def start(self) -> None:
        """Serves and works from now on, in threads of its own."""
        self._server.start()
        if self._recorder is not None:
            self._loops.start("events", self._recorder.run)
        self._caches.start(self._loops)
        self._loops.start("worker", self._controller.run)
        self._loops.every("check", lambda: self._settings.check_interval_seconds, self._controller.check)
        if self._elector is not None:
            self._loops.start("election", self._elect)
        logger.info("manager started", extra={"url": self._server.url})

    def close(self) -> None:
        """Stops working, gives the lease up, stops serving."""
        self._loops.close()
        self._server.close()

    def _silent(self) -> dict[str, float]:
        """Loops that have not come round for too long, with that time in seconds."""
        silent = self._loops.overdue()
        worker = self._controller.silent_seconds()
        return silent | ({"worker": worker} if worker > MAX_SILENCE_SECONDS else {})

    def _elect(self, stop: threading.Event) -> None:
        if self._elector is not None:
            self._elector.run(stop, self._controller.look_at_all, lambda: None)

    def _status(self) -> Status:
        return answers.status(
            self._caches.configuration,
            config_map=self._settings.config_map_key,
            leader=self.is_leader(),
            dry_run=self._settings.dry_run,
            waiting_for=self._caches.unsynced(),
        )


def main(argv: Sequence[str]) -> int:
    """The daemon: 0 after SIGTERM or SIGINT, 2 for settings that mean nothing."""
    try:
        settings = settings_module.load(
            ManagerSettings,
            program="headroom manager",
            description="Turns NodeMetrics into Mid-tier capacity on Node status.",
            argv=argv,
            environment=os.environ,
        )
        telemetry.configure_logging(level=settings.log_level, style=settings.log_format)
        logger.info("effective settings", extra={"settings": settings_module.shown(settings)})
        clock, registry = SystemClock(), CollectorRegistry()
        stop = termination.event()
        client = Client(
            config.discover(settings.kubeconfig or None), "headroom-manager", clock=clock, registry=registry, stop=stop
        )
        manager = Manager(settings, client, clock, registry)
    except InvalidInput as error:
        print(f"headroom manager: {error}", file=sys.stderr)
        return 2
    manager.start()
    stop.wait()
    manager.close()
    client.close()
    return 0


def _elector(settings: ManagerSettings, client: Client, clock: Clock, identity: str) -> LeaderElector | None:
    """None where nobody needs to be elected: without rivals, and without writes."""
    if not settings.leader_elect or settings.dry_run:
        return None
    try:
        times = LeaseTimes(
            lease_seconds=settings.lease_duration_seconds,
            renew_deadline_seconds=settings.renew_deadline_seconds,
            retry_seconds=settings.retry_period_seconds,
        )
    except ValueError as error:
        raise InvalidInput(
            source="settings", field="leaseDuration", value=settings.lease_duration_seconds, problem=str(error)
        ) from error
    return LeaderElector(client, settings.namespace, LEASE_NAME, identity, clock, times=times)


def _default_listen() -> str:
    return "0.0.0.0:8080" if "KUBERNETES_SERVICE_HOST" in os.environ else "127.0.0.1:8080"
