"""The autoscaler's loop: observe, plan, store the registry, act, report.

Only the leader observes the cloud and acts; every write checks leadership again. Each request is stored in the cluster
before it goes out, so that after a crash the next leader knows which nodes may be upcoming.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from manager.autoscaler.actuation.iteration_executor import IterationExecutor, ScaleDownController
from manager.autoscaler.actuation.scans import Scans
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import ClusterAccess, NodeForecasts, ProcessParts, open_cloud
from manager.autoscaler.listers import Listers, WatchedKinds
from manager.autoscaler.planning import cluster_view, iteration_plan
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.reporting import metrics
from manager.autoscaler.reporting.cost_trend import CostTrend
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.iteration_reporter import IterationReporter
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.utilization.scan import DueScans
from shared.api.core import Pod
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.errors import NOT_LEADING
from shared.stop import Stop

logger = logging.getLogger(__name__)

OVERDUE_INTERVALS = 3  # scan intervals that an iteration may take before an alert is due
PAUSE_SECONDS = 0.5  # minimum between two iterations, unless the scan interval is shorter
_LOOK_SECONDS = 0.1  # between two looks for what a blind loop waits for
OBSERVE = "cloudProviderRefresh"  # Cluster Autoscaler's label for the duration of this function


class IterationTimer:
    """`begin`, `shorten` and `rest` are for the loop's thread, the rest for any.

    The next iteration begins a scan interval after the last one began, but sooner after `wake`, and at once after an
    iteration that did something.
    """

    def __init__(self, clock: Clock, scan_interval_seconds: float) -> None:
        self._clock = clock
        self._scan_interval_seconds = self._pause_seconds = scan_interval_seconds
        self._woken = threading.Event()
        self._begun = clock.monotonic()
        self._rests = True

    def begin(self) -> None:
        """An iteration begins."""
        self._begun = self._clock.monotonic()
        self._rests = False
        self._pause_seconds = self._scan_interval_seconds
        self._woken.clear()

    def wake(self) -> None:
        """Wakes the loop, because a pod turned unschedulable."""
        self._woken.set()

    def shorten(self, seconds: float | None) -> None:
        """Makes the next iteration due at most this long after the beginning of this one."""
        if seconds is not None:
            self._pause_seconds = min(self._pause_seconds, seconds)

    def silent_seconds(self) -> float:
        """The time that the current iteration has been running; 0 between iterations."""
        return 0.0 if self._rests else self._clock.monotonic() - self._begun

    def overdue_seconds(self) -> float:
        """The same once it exceeds `OVERDUE_INTERVALS`; 0 before."""
        seconds = self.silent_seconds()
        return seconds if seconds > OVERDUE_INTERVALS * self._scan_interval_seconds else 0.0

    def rest(self, stop: Stop, *, productive: bool, is_wanted: Callable[[], bool] | None = None) -> None:
        """Waits until the next iteration is due or woken, or until `is_wanted`, which is asked again and again.
        `productive`: the last one did something.
        """
        self._rests = True
        pause = 0.0 if productive else self._pause_seconds
        shortest = min(PAUSE_SECONDS, self._scan_interval_seconds)
        due = max(self._begun + pause, self._clock.monotonic() + shortest)
        hurries = False
        with stop.calling(self._woken.set):
            while not stop.is_set() and (left := due - self._clock.monotonic()) > 0:
                if hurries:
                    self._clock.wait(stop, left)
                    continue
                wait_seconds = left if is_wanted is None else min(left, _LOOK_SECONDS)
                hurries = self._clock.wait(self._woken, wait_seconds) or (is_wanted is not None and is_wanted())
                if hurries:
                    due = min(due, self._clock.monotonic() + shortest)


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
        self._interval_seconds = settings.scan_interval_seconds
        self._timer = IterationTimer(clock, settings.scan_interval_seconds)
        self._reporter = IterationReporter(settings, access, process, overdue_seconds=self._timer.overdue_seconds)
        self._listers = Listers(
            access.client,
            access.informers,
            WatchedKinds(
                access.namespace if decision_settings.uses_priorities else "",
                controllers=decision_settings.scale_down_enabled,
                quotas=decision_settings.capacity_quotas_enabled,
                buffers=decision_settings.capacity_buffer_pod_injection_enabled,
                requests=decision_settings.pending.enable_provisioning_requests,
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
        kept = registry_store.config_map_store(access.client, access.namespace)
        self._registry = RegistryStore(kept, access.may_write)
        self._executor = IterationExecutor(decision_settings, access, self._cloud, self._registry, clock)
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
            view = cluster_view.open_view(
                objects,
                cloud,
                self._registry.known,
                settings,
                chance=self._process.chance,
                cache=self._cache.for_question(settings),
                offered_by=self._node_side.offered_by,
                underway=self._removals.underway,
            )
            return iteration_plan.plan(view, scans=DueScans(), dry_run=True).iteration

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

    def run(self, stop: Stop) -> None:
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
            self._timer.rest(stop, productive=productive, is_wanted=self._sees_again if self._is_blind else None)

    def run_once(self) -> Iteration:
        """One complete iteration. An error of the cluster or the cloud blocks it, and becomes its reason."""
        self._number += 1
        self._is_blind = False
        now, begun = self._clock.now(), self._clock.monotonic()
        planned: PlannedIteration | None = None
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
            logger.warning("iteration failed: %s; the next one starts in %g s", error, self._interval_seconds)
            iteration = self._blocked(now, str(error))
        except Exception as error:  # report a bug of ours where every other error is reported, too
            logger.exception("iteration failed; the next one starts in %g s", self._interval_seconds)
            iteration = self._blocked(now, f"iteration failed: {error!r}")
        self._seen = iteration
        if iteration.blocked_reason:
            iteration = replace(iteration, leaving=leaving)
        self._removals.remember(iteration)
        if self._leads or led:
            self._reporter.count(iteration, self._clock.monotonic() - begun)
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
            view = cluster_view.open_view(
                objects,
                self._cloud.guard,
                known,
                self._decision_settings,
                chance=self._process.chance,
                cache=self._cache,
                offered_by=self._node_side.offered_by,
                underway=self._removals.underway,
            )
            planned = iteration_plan.plan(
                view,
                number=self._number,
                scans=None if self._scans.due_in(now) else self._scans.request(),
                begins=self._removals.begins,
                dry_run=self._access.dry_run,
            )
        planned = planned.with_problems(self._cloud.rights.problems())
        self._reporter.metrics.took(metrics.SCALE_UP, self._clock.monotonic() - looked)
        self._reporter.report_objects(objects, planned)
        self._timer.shorten(planned.again_seconds)
        return planned

    def _scan(self, iteration: Iteration, planned: PlannedIteration) -> Iteration:
        """The iteration with the results of the scans of groups that scale by utilization, if they were due."""
        if planned.scans:
            access, nodes = self._executor.scan_access(self._removals), planned.view.objects.nodes
            found = self._scans.carry_out(planned.scans, access, nodes, iteration.time)
            iteration = replace(iteration, scans=found.decisions, actions=(*iteration.actions, *found.actions))
        self._timer.shorten(self._scans.due_in(iteration.time))
        return iteration

    def _sees_again(self) -> bool:
        """Whether the informers that were not current have become so."""
        return not self._unseen()

    def _unseen(self) -> str:
        """The informers that are not current, in words; empty when all are."""
        if missing := self._listers.unsynced():
            return f"not all has been seen yet: {', '.join(missing)}"
        if stale := self._listers.stale():
            return f"the cluster may have changed unseen: {', '.join(stale)}"
        return ""
