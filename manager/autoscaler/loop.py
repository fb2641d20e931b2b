"""The autoscaler's loop: observe, plan, store the registry, act, report.

Only the leader observes the cloud and acts; every write checks leadership again. Each request is stored in the cluster
before it goes out, so that after a crash the next leader knows which nodes may be upcoming.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from manager.autoscaler.actuation import scanning
from manager.autoscaler.actuation.iteration_executor import IterationExecutor
from manager.autoscaler.actuation.scale_down_controller import ScaleDownController
from manager.autoscaler.actuation.scanning import Scans
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry_store import NOT_LEADING, RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import ClusterAccess, NodeForecasts, ProcessParts, open_cloud
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.iteration_timer import IterationTimer
from manager.autoscaler.listers import Listers, WatchedKinds
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.context import AutoscalerCache
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.reporting import metrics
from manager.autoscaler.reporting.cost_trend import CostTrend
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.iteration_reporter import IterationReporter
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import names
from shared.api.core import Pod
from shared.errors import HeadroomError
from shared.kube.configmap_store import ConfigMapStore

logger = logging.getLogger(__name__)

OBSERVE = "cloudProviderRefresh"  # Cluster Autoscaler's label for the duration of this function


class Autoscaler:
    """The autoscaler, in one thread of its own. Call `start` once; `run_once` is for that thread, and for tests."""

    def __init__(
        self,
        settings: AutoscalerSettings,
        decision_settings: DecisionSettings,
        access: ClusterAccess,
        forecasts: NodeForecasts,
        process: ProcessParts,
    ) -> None:
        """Raises InvalidInput for an invalid cloud configuration."""
        clock = process.clock
        self._decision_settings = decision_settings
        self._access = access
        self._node_side = forecasts
        self._process = process
        self._clock = clock
        self._timer = IterationTimer(clock, settings.scan_interval_seconds, wakes=settings.frequent_loops_enabled)
        self._reporter = IterationReporter(
            settings, decision_settings, access, process, overdue_seconds=self._timer.overdue_seconds
        )
        self._listers = Listers(
            access.client,
            access.informers,
            WatchedKinds(
                access.namespace if decision_settings.uses_priorities else "",
                controllers=decision_settings.scales_down,
                quotas=decision_settings.minds_capacity_quotas,
                buffers=decision_settings.minds_capacity_buffers,
                requests=decision_settings.minds_provisioning_requests,
            ),
            expected=forecasts.expected,
            peaks=forecasts.peaks,
            pending=self._timer.wake,
        )
        self._cloud = open_cloud(settings, decision_settings, access, process)
        self._scans = Scans(
            decision_settings, interval_seconds=settings.utilization_scan_interval_seconds, dry_run=access.dry_run
        )
        self._removals = ScaleDownController(decision_settings, access, self._cloud, self._listers, clock)
        self._cache = AutoscalerCache(decision_settings)
        self._registry = RegistryStore(
            ConfigMapStore(access.client, access.namespace, names.BOOKS_CONFIG_MAP, registry_store.KEY),
            access.may_write,
        )
        self._executor = IterationExecutor(decision_settings, access, self._cloud, self._listers, self._registry, clock)
        self._number = 0
        self._is_blind = False  # the last iteration was blocked because informers were not current
        self._seen = Iteration(0, 0.0)
        self._asking = threading.Lock()  # one plan at a time: each keeps a processor busy
        self._leads = False
        self._closed = False

    @property
    def decision_log(self) -> DecisionLog:
        return self._reporter.decision_log

    @property
    def cost_trend(self) -> CostTrend:
        return self._reporter.cost_trend

    def plan_question(self, more: Sequence[Pod], settings: DecisionSettings) -> Iteration:
        """The iteration that would run now with `more` pods and under this configuration, on the last observation of
        the cloud.

        Acts on nothing and remembers nothing; for any thread. It does not wait for the loop, nor the loop for it.
        Raises ProviderError, also where this process does not observe the cloud.
        """
        if missing := self.unsynced():
            raise Unavailable(self._cloud.guard.name, "", f"not all has been seen yet: {', '.join(missing)}")
        if not self._leads:  # any observation of this process is stale
            raise Unavailable(self._cloud.guard.name, "", NOT_LEADING)
        with self._asking:
            cloud = self._cloud.for_questions
            cloud.begin()
            objects = self._listers.objects(self._clock.now())
            objects = replace(objects, pods=(*objects.pods, *more))
            iteration = iteration_plan.plan(
                objects,
                cloud,
                self._registry.known,
                settings,
                chance=self._process.chance,
                cache=self._cache.for_question(settings),
                offered_by=self._node_side.offered_by,
                underway=self._removals.underway,
                dry_run=True,
            ).iteration
            return replace(iteration, scans=scanning.preview_scans(settings, objects, cloud.observed))

    def start(self) -> None:
        """Starts the threads."""
        self._listers.start(self._process.loops)
        if not self._access.dry_run:
            self._removals.start(self._process.loops)
        self._process.loops.start("autoscaler", self.run)

    def close(self) -> None:
        """Closes the cloud provider, once the threads have ended. A process that has not acted skips the cleanup."""
        if not self._closed:
            self._closed = True
            self._cloud.close(cleanup=self._leads and not self._access.dry_run)

    def unsynced(self) -> list[str]:
        """The informers that have not synced yet."""
        return self._listers.unsynced()

    def silent_seconds(self) -> float:
        """The time that the current iteration has been running; next to zero between iterations."""
        return self._timer.silent_seconds()

    def overdue_seconds(self) -> float:
        """The same once it is too long; 0 before."""
        return self._timer.overdue_seconds()

    def run(self, stop: threading.Event) -> None:
        """Runs iteration after iteration, until `stop`."""
        while not stop.is_set():
            self._timer.begin()
            productive = False
            try:
                # The cloud must show a correction first: an immediate next iteration would make it twice.
                productive = any(
                    action.done and action.kind is ActionKind.INCREASE for action in self.run_once().actions
                )
            except Exception:
                logger.exception("the iteration could not be reported")
            self._timer.rest(stop, productive=productive, is_wanted=self._sees_again)

    def run_once(self) -> Iteration:
        """One complete iteration. An error of the cluster or the cloud blocks it, and becomes its reason."""
        self._number += 1
        self._is_blind = False
        now, begun = self._clock.now(), self._clock.monotonic()
        planned: PlannedIteration | None = None
        failure: Exception | None = None
        led, self._leads = self._leads, self._access.is_leader()
        leaving = self._removals.begin(now)
        self._registry.shift_times(self._removals.jumped_seconds)
        self._scans.shift(self._removals.jumped_seconds)
        try:
            if not self._leads:
                self._registry.forget()
                self._scans.forget()
                self._removals.forget()
                self._seen = Iteration(0, 0.0)
                iteration = self._blocked(now, NOT_LEADING)
            elif unseen := self._unseen():
                self._is_blind = True
                iteration = self._blocked(now, unseen)
            else:
                planned = self._plan(now)
                iteration = (
                    planned.iteration if self._access.dry_run else self._executor.carry_out(planned, self._removals)
                )
                iteration = self._scan(iteration, planned)
        except HeadroomError as error:
            logger.warning("nothing is decided: %s", error)
            iteration, failure = self._blocked(now, str(error)), error
        except Exception as error:  # report a bug of ours where every other error is reported, too
            logger.exception("the round broke down")
            iteration, failure = self._blocked(now, f"the round broke down: {error!r}"), error
        self._seen = iteration
        if iteration.blocked_reason:
            iteration = replace(iteration, leaving=leaving)
        self._removals.remember(iteration)
        if self._leads or led:
            self._reporter.count(iteration, planned, failure, self._clock.monotonic() - begun)
        self._reporter.announce(iteration, planned)
        return iteration

    def _blocked(self, now: float, why: str) -> Iteration:
        """An iteration that decided nothing; earlier results stay."""
        state, cost = self._seen.state, self._seen.cost
        cluster, dry_run = self._decision_settings.cluster_name, self._access.dry_run
        return Iteration(
            self._number, now, state=state, blocked_reason=why, cost=cost, dry_run=dry_run, cluster=cluster
        )

    def _plan(self, now: float) -> PlannedIteration:
        known = self._registry.read(now)
        if known is not None:
            known = self._removals.put_right(known)
        objects = self._listers.objects(now)
        begun = self._clock.monotonic()
        with self._cloud.lock:
            observed = self._cloud.guard.observe([NodeRef.from_node(node) for node in objects.nodes])
            self._removals.observed(observed)
        looked = self._clock.monotonic()
        self._reporter.metrics.took(OBSERVE, looked - begun)
        with self._cloud.lock:
            planned = iteration_plan.plan(
                objects,
                self._cloud.guard,
                known,
                self._decision_settings,
                number=self._number,
                chance=self._process.chance,
                cache=self._cache,
                offered_by=self._node_side.offered_by,
                underway=self._removals.underway,
                begins=self._removals.begins,
                dry_run=self._access.dry_run,
            )
        planned = planned.with_problems(self._cloud.rights.problems())
        self._reporter.metrics.took(metrics.SCALE_UP, self._clock.monotonic() - looked)
        self._reporter.report_objects(objects, planned)
        self._timer.shorten(planned.again_seconds)
        return planned

    def _scan(self, iteration: Iteration, planned: PlannedIteration) -> Iteration:
        """The iteration with the results of the scans of groups that scale by utilization, if one is due."""
        if not self._scans.due_in(iteration.time):
            requests = self._registry.known.requests
            found = self._scans.scan(
                planned.context.objects,
                self._executor.scan_clients,
                iteration.time,
                upcoming={name: requests[name].nodes for name in requests},
            )
            if not self._access.dry_run:
                self._reporter.metrics.scanned(found)
            iteration = replace(iteration, scans=found.decisions, actions=(*iteration.actions, *found.actions))
        self._timer.shorten(self._scans.due_in(iteration.time))
        return iteration

    def _sees_again(self) -> bool:
        """Whether the informers that were not current have become so."""
        return self._is_blind and not self._unseen()

    def _unseen(self) -> str:
        """The informers that are not current, in words; empty when all are."""
        if missing := self._listers.unsynced():
            return f"not all has been seen yet: {', '.join(missing)}"
        if stale := self._listers.stale():
            return f"what there is may have changed unseen: {', '.join(stale)}"
        return ""
