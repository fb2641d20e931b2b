"""Wiring and lifecycle of the manager process."""

import gc
import importlib.metadata
import itertools
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from manager import http, trends
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.daemon_settings import DaemonSettings
from manager.informers import SharedInformers
from manager.liveness import Liveness
from manager.nodeside import evictions, fleet, fleet_answers, workload_trends, workloads
from manager.nodeside.answers import Status
from manager.nodeside.caches import Caches
from manager.nodeside.controller import NodeResourceController
from manager.nodeside.decisions import NodeDecisions
from manager.nodeside.eviction.eviction_client import EvictionClient
from manager.nodeside.eviction.tracker import Tracker
from manager.nodeside.evictions import Evictions
from manager.nodeside.fleet import FleetOverview
from manager.nodeside.lending import Lending
from manager.nodeside.metrics import FleetCollector, ManagerCounters, StateCollector
from manager.nodeside.node_plans import NodePlanner
from manager.nodeside.node_trends import NodeAmounts, NodeTrends
from manager.nodeside.node_writes import NodeWrites
from manager.nodeside.pod_peaks import PodPeaks
from manager.nodeside.reports import EventReporter, PersistentProblems
from manager.nodeside.scheduling import args as scheduling_args
from manager.nodeside.scheduling import explained, extender
from manager.nodeside.scheduling.advice import Advisor
from manager.nodeside.tenants import NamespaceTenants
from manager.nodeside.workload_trends import WorkloadTrends
from manager.nodeside.workloads import WorkloadTable
from manager.nodeside.workqueue import WorkQueue
from manager.pods import PodRecord
from manager.settings import ManagerSettings
from shared import access, descriptors, memory, names, plugins, telemetry, termination, web
from shared import settings as settings_module
from shared.clock import Clock, SystemClock
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.kube.events import NORMAL, EventReason, Recorder
from shared.kube.lease import LeaderElector, LeaseTimes
from shared.telemetry import Loops
from shared.web.metrics import HttpCollector

if TYPE_CHECKING:
    from manager.autoscaler.loop import Autoscaler
    from manager.nodeside.webhook.serving import WebhookCertificate
    from manager.nodeside.webhook.webhook import Webhook

logger = logging.getLogger(__name__)

FORGOTTEN = EventReason("PredictionForgotten", NORMAL, "the agent has forgotten {what}")
ACCESS_PREFIX = "/headroom/manager"  # the prefix of the paths of this process in a role's rules

# The number of writes that wait for answers at a time; with an API server that takes 20 ms each, 400 a second.
WRITERS = 8


class Manager:
    """The manager on one client: caches, worker, election, HTTP. Call `start` once, and `close` once."""

    def __init__(
        self,
        given: DaemonSettings,
        client: Client,
        clock: Clock,
        registry: CollectorRegistry,
        *,
        serve: web.ServerFactory = web.server,
    ) -> None:
        """`serve` makes the server of the HTTP endpoints."""
        settings = given.manager
        self._settings = settings
        self._cluster_name = given.autoscaler.cluster_name
        self._loops = Loops(registry, clock)
        identity = settings.identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._elector = _elector(settings, client, clock, identity)
        leaders = client.fenced(self.is_leader)  # for what only the leader writes
        self._recorder = None if settings.dry_run else Recorder(client, "headroom-manager", identity)
        self._standing = PersistentProblems(self._recorder, self.is_leader)
        reporter = EventReporter(self._recorder, self._standing)
        queue = WorkQueue(clock)
        self._informers = SharedInformers(client, with_autoscaler=bool(given.autoscaler.cloud_provider))
        self._caches = Caches(client, self._informers, settings, changed=queue.add, configured=reporter.configured)
        tracker = Tracker(clock)
        self._fleet = FleetOverview(
            self._caches,
            clock,
            is_leader=self.is_leader,
            standing=self._standing,
            changed=queue.add,
            forgot=lambda name, what: self._report_forgotten(reporter, name, what),
        )
        self._controller = self._made_controller(leaders, clock, registry, queue, tracker, reporter)
        self._autoscaler = self._made_autoscaler(given.autoscaler, leaders, clock, registry)
        pods = EvictionClient(
            leaders, clock, reporter, per_minute=settings.evictions_per_minute, is_leader=self.is_leader
        )
        self._evictions = Evictions(
            settings, self._caches, tracker, pods, registry, is_settled=self._controller.is_settled
        )
        self._trends = NodeTrends(self._node_amounts, clock)
        self._workload_trends = WorkloadTrends(self._caches, clock)
        self._tenants = NamespaceTenants(
            self._informers.namespaces.get, self._caches.holders.pods_of, self._caches.assumed
        )
        self._liveness = Liveness(self._loops, self._controller, self._autoscaler)
        app = self._made_application(given, client, clock, registry)
        self._certificate = self._made_certificate(leaders, registry)
        listen = settings.listen or _default_listen()
        self._server = serve(
            app,
            listen,
            tls=self._certificate.api.context if self._certificate is not None and settings.tls else None,
            gate=access.gate(settings.authorization, listen, client, ACCESS_PREFIX),
        )
        self._webhook = self._made_webhook(client, registry)
        self._register_collectors(registry, clock)

    def _made_controller(
        self,
        client: Client,
        clock: Clock,
        registry: CollectorRegistry,
        queue: WorkQueue,
        tracker: Tracker,
        reporter: EventReporter,
    ) -> NodeResourceController:
        counters = ManagerCounters(registry)
        decisions = NodeDecisions(self._caches, self._settings, clock, reporter, self._caches.unheard_seconds)
        planner = NodePlanner(self._caches, decisions, tracker, counters, self._fleet.wire)
        return NodeResourceController(
            self._caches,
            queue,
            NodeWrites(client, planner, reporter, counters, self.is_leader),
            self._settings,
            clock,
            pressed=lambda name: self._evictions.pressed(name),
        )

    def _report_forgotten(self, reporter: EventReporter, name: str, what: str) -> None:
        node = self._caches.node(name)
        if node is not None:
            reporter.node_event(node, *FORGOTTEN.say(what=what))

    def _register_collectors(self, registry: CollectorRegistry, clock: Clock) -> None:
        registry.register(FleetCollector(self._fleet))
        registry.register(
            StateCollector(
                nodes=lambda: [(state.node, state.decision) for state in self._controller.states()],
                policy=lambda: self._caches.policy,
                pending=self._controller.pending,
                oldest_seconds=self._controller.oldest_seconds,
                is_leader=self.is_leader,
                now=clock.now,
            )
        )
        webhook = {} if self._webhook is None else {"webhook": self._webhook.server}
        registry.register(HttpCollector({"api": self._server} | webhook))

    def _made_application(
        self, given: DaemonSettings, client: Client, clock: Clock, registry: CollectorRegistry
    ) -> FastAPI:
        app = http.application(
            reader=self._controller,
            trends=self._trends,
            registry=registry,
            status=self._status,
            fleet=lambda: fleet_answers.fleet(self._fleet),
            loops=self._liveness,
            version=importlib.metadata.version(plugins.DISTRIBUTION),
            now=clock.now,
        )
        load_aware_args = scheduling_args.load(given.manager.load_aware_args)
        advisor = Advisor(
            self._caches,
            self._controller.decision,
            load_aware_args,
            clock,
            assumed=self._caches.assumed,
            why_refused=self._tenants.why_refused,
        )
        app.include_router(extender.router(advisor, registry))
        app.include_router(explained.router(advisor))
        app.include_router(workloads.router(WorkloadTable(self._caches, clock, PodPeaks(client, clock).read)))
        app.include_router(workload_trends.router(self._workload_trends))
        if self._autoscaler is not None:
            from manager.autoscaler.http import router

            app.include_router(router.router(self._autoscaler, given.autoscaler))
        return app

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the HTTP endpoints."""
        return self._server.address

    @property
    def webhook_address(self) -> tuple[str, int] | None:
        """Host and port of the admission webhook."""
        return None if self._webhook is None else self._webhook.address

    def is_leader(self) -> bool:
        """Whether this process may write."""
        return self._elector is None or self._elector.is_leader()

    def start(self) -> None:
        """Starts to serve and work, in threads of its own."""
        self._server.start()
        if self._recorder is not None:
            self._loops.start("events", self._recorder.run)
        self._informers.start(self._loops)
        self._caches.start(self._loops)
        self._loops.start("worker", self._controller.run)
        for number in range(WRITERS):
            self._loops.start(f"writer-{number}", self._controller.write)
        self._loops.every("check", lambda: self._settings.check_interval_seconds, self._controller.check)
        self._loops.every("history", lambda: trends.FIRST_INTERVAL_SECONDS, self._record_trends)
        self._loops.every("fleet", lambda: fleet.TURN_SECONDS, self._fleet.refresh)
        self._loops.every("eviction", lambda: evictions.INTERVAL_SECONDS, self._evictions.run_once)
        if self._elector is not None:
            self._loops.start("election", self._elect)
        if self._certificate is not None:
            self._certificate.start(self._loops)
        if self._webhook is not None:
            self._webhook.start(self._loops)
        if self._autoscaler is not None:
            self._autoscaler.start()
        logger.info("manager started", extra={"url": self._server.url})

    def _node_amounts(self) -> dict[str, NodeAmounts]:
        caches = self._caches
        nodes = {node.metadata.name: node for node in caches.nodes()}
        return {
            name: NodeAmounts.read(node, caches.requested(name), caches.report(name)) for name, node in nodes.items()
        }

    def _record_trends(self) -> None:
        self._trends.record()
        self._workload_trends.record()

    def close(self) -> None:
        """Stops working, releases the lease, stops serving."""
        self._loops.close()
        if self._webhook is not None:
            self._webhook.close()
        if self._autoscaler is not None:
            self._autoscaler.close()
        self._server.close()

    def _made_autoscaler(
        self, chosen: AutoscalerSettings, client: Client, clock: Clock, registry: CollectorRegistry
    ) -> "Autoscaler | None":
        settings = self._settings
        if not chosen.cloud_provider:
            if chosen.nodes or chosen.node_groups or chosen.node_autoprovisioning or chosen.cloud_config:
                logger.warning("the autoscaler does not run: --cloud-provider is not set")
            return None
        from manager.autoscaler import (
            decision_settings,
            loop,  # here, because most managers do not need them
        )
        from manager.autoscaler.environment import ClusterAccess, NodeForecasts, ProcessParts

        chosen = msgspec.structs.replace(chosen, pending=chosen.pending.allowing(settings.scheduler_name))
        lending = Lending(self._caches, self._controller.decision, settings, clock)
        return loop.Autoscaler(
            chosen,
            decision_settings.load(chosen, clock.monotonic),
            ClusterAccess(
                client, self._informers, settings.namespace, self._recorder, self.is_leader, settings.dry_run
            ),
            NodeForecasts(lending.expected, lending.offered_by, lending.peaks),
            ProcessParts(clock, self._loops, registry),
        )

    def _made_certificate(self, client: Client, registry: CollectorRegistry) -> "WebhookCertificate | None":
        if not (self._settings.tls or self._serves_webhook):
            return None
        from manager.nodeside.webhook.serving import WebhookCertificate  # here, because it loads OpenSSL's bindings

        # In a dry run a replica reads the certificate, but writes none.
        leads = (lambda: False) if self._settings.dry_run else self.is_leader
        return WebhookCertificate(self._settings, client, registry, is_leader=leads)

    @property
    def _serves_webhook(self) -> bool:
        return bool(self._settings.webhook_listen) and not self._settings.dry_run  # a patch of a pod would be a write

    def _made_webhook(self, client: Client, registry: CollectorRegistry) -> "Webhook | None":
        if self._certificate is None or not self._serves_webhook:
            return None
        from manager.nodeside.webhook.sources import Sources
        from manager.nodeside.webhook.tier_scheduler import TierScheduler, renewal_of
        from manager.nodeside.webhook.webhook import Webhook, count_untranslated

        def pods() -> Iterable[PodRecord]:
            return itertools.chain.from_iterable(map(self._caches.pods, self._caches.names()))

        settings = self._settings
        count_untranslated(registry, settings, pods)
        scheduler = None
        if settings.scheduler_name:
            scheduler = TierScheduler(
                settings.namespace,
                settings.scheduler_name,
                lambda: renewal_of(client, settings.namespace, settings.scheduler_name),
                client.clock,
                fallback_seconds=settings.scheduler_fallback_seconds,
                standing=self._standing,
                registry=registry,
            )
        return Webhook(
            settings,
            Sources(client, self._informers.namespaces, self._standing, registry),
            registry,
            nodes=self._caches.nodes,
            tls=self._certificate.webhook.context,
            why_denied=self._tenants.why_denied,
            scheduler=scheduler,
        )

    def _elect(self, stop: threading.Event) -> None:
        if self._elector is not None:
            self._elector.run(stop, self._lead, lambda: None)

    def _lead(self) -> None:
        self._standing.say_all()
        self._controller.reconcile_all()

    def _status(self) -> Status:
        policy, autoscaler = self._caches.policy, self._autoscaler
        unsynced = [*self._caches.unsynced(), *(autoscaler.unsynced() if autoscaler else ())]
        return Status(
            cluster=self._cluster_name,
            leader=self.is_leader(),
            dry_run=self._settings.dry_run,
            waiting_for=list(dict.fromkeys(unsynced)),
            colocation_enabled=policy.enabled,
            config_map=self._settings.config_map_key,
            config_problem="; ".join(map(str, policy.problems)) or None,
            overdue_loops=self._liveness.overdue(),
            autoscaler=autoscaler is not None,
        )


def collect_seldom() -> None:
    """Reduces garbage collections: millions of objects stay, and almost none of the released ones are in cycles.

    With Python's own thresholds, walking over them takes half of a cold start.
    """
    gc.set_threshold(50_000, 20, 100)


def main(argv: Sequence[str]) -> int:
    """The daemon: 0 after SIGTERM or SIGINT, 2 for invalid settings."""
    try:
        settings = settings_module.load(
            DaemonSettings,
            program="headroom manager",
            description="Turns NodeMetrics into Mid-tier capacity on Node status.",
            argv=argv,
            environment=os.environ,
        )
        collect_seldom()
        memory.return_large_blocks()
        descriptors.raise_limit()
        telemetry.configure_logging(level=settings.manager.log_level, style=settings.manager.log_format)
        logger.info("effective settings", extra={"settings": settings_module.shown(settings)})
        clock, registry = SystemClock(), CollectorRegistry()
        stop = termination.event()
        connection = config.discover(settings.manager.kubeconfig or None)
        cluster_name = settings.autoscaler.cluster_name or connection.cluster_name or connection.server
        autoscaler = msgspec.structs.replace(settings.autoscaler, cluster_name=cluster_name)
        settings = msgspec.structs.replace(settings, autoscaler=autoscaler)
        client = Client(connection, "headroom-manager", clock=clock, registry=registry, stop=stop)
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
    """None if no election is needed: without other replicas, and without writes."""
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
    return LeaderElector(client, settings.namespace, names.MANAGER_LEASE, identity, clock, times=times)


def _default_listen() -> str:
    return "0.0.0.0:8080" if "KUBERNETES_SERVICE_HOST" in os.environ else "127.0.0.1:8080"
