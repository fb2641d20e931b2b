"""The autoscaler's loop: observe, plan, store the registry, act, report.

Only the leader observes the cloud and acts; every write checks leadership again. Each request is stored in the cluster
before it goes out, so that after a crash the next leader knows which nodes may be upcoming.
"""

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from prometheus_client import CollectorRegistry

from manager.autoscaler import planning, scanning
from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.actuation.scale_up_executor import ScaleUpExecutor
from manager.autoscaler.actuation.scan_actuator import ScanClients
from manager.autoscaler.cloudprovider import build
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.registry_store import NOT_LEADING, RegistryStore
from manager.autoscaler.config import Config
from manager.autoscaler.configmap_store import ConfigMapStore
from manager.autoscaler.context import AutoscalerCache, OfferedBy
from manager.autoscaler.group_writes import GroupWrites
from manager.autoscaler.iteration import ActionKind, Iteration
from manager.autoscaler.listers import Expected, Listers, Peaks
from manager.autoscaler.modes import Mode
from manager.autoscaler.plan_cloud import PlanCloud
from manager.autoscaler.planning import PlannedIteration
from manager.autoscaler.reporting import decision_history, metrics, status
from manager.autoscaler.reporting.announcer import Announcer
from manager.autoscaler.reporting.decision_history import DecisionHistory
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.reporting.metrics_cluster_autoscaler import ClusterAutoscalerOptions
from manager.autoscaler.reporting.metrics_escalator import EscalatorNames
from manager.autoscaler.reporting.quota_status import QuotaStatus
from manager.autoscaler.scale_down_controller import ScaleDownController
from manager.autoscaler.scanning import Scans
from manager.autoscaler.settings import AutoscalerSettings
from manager.informers import SharedInformers
from shared import names
from shared.api.core import Pod
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.events import ObjectRef, Recorder
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

OBSERVE = "cloudProviderRefresh"  # Cluster Autoscaler's label for the duration of this function

OVERDUE_INTERVALS = 3  # scan intervals that an iteration may take before an alert is due
PAUSE_SECONDS = 0.5  # minimum between two iterations, unless the scan interval is shorter
_POLL_SECONDS = 0.1  # how soon a pending pod, or the stop, is noticed


@dataclass(frozen=True)
class Place:
    """Where the autoscaler runs: `namespace` is the manager's own. A dry run writes nothing at all."""

    namespace: str
    dry_run: bool = False


class Autoscaler:
    """The autoscaler, in one thread of its own. Call `start` once; `run_once` is for that thread, and for tests."""

    def __init__(
        self,
        client: Client,
        settings: AutoscalerSettings,
        config: Config,
        informers: SharedInformers,
        place: Place,
        *,
        clock: Clock,
        loops: Loops,
        registry: CollectorRegistry,
        recorder: Recorder | None,
        is_leader: Callable[[], bool],
        expected: Expected,
        offered_by: OfferedBy,
        peaks: Peaks,
        chance: random.Random | None = None,
    ) -> None:
        """`expected`, `offered_by` and `peaks` come from the node side, see `ClusterObjects` and `planning.plan`.

        Raises InvalidInput for an invalid cloud configuration.
        """
        name = status.checked_name(settings.status_config_map_name, others=(names.BOOKS_CONFIG_MAP,))
        self._settings = settings
        self._config = config
        self._place = place
        self._clock = clock
        self._loops = loops
        self._is_leader = is_leader
        self._offered_by = offered_by
        self._chance = chance or random.Random()
        self._woken = threading.Event()
        self._listers = Listers(
            client,
            informers,
            place.namespace,
            expected=expected,
            peaks=peaks,
            pending=self._woken.set,
            reads_priorities=config.uses_priorities,
            reads_controllers=config.scales_down,
            reads_quotas=config.minds_capacity_quotas,
        )
        named = settings.cloud_provider, settings.cloud_config
        by_id = {each.cloud_provider_group_name: each for each in config.groups}
        ours = build.ManagedGroups(
            config.ownership.listed,
            enforced=[name for name, each in by_id.items() if config.scan_mode_of(each) is Mode.ENFORCE],
            fleets={name: each.aws for name, each in by_id.items()},
            options=config.group_options,
        )
        make = build.read_only if place.dry_run else partial(build.build, loops=loops)
        provider = make(*named, client=client, namespace=place.namespace, clock=clock, ours=ours)
        self._guard = Guard(provider, config.ownership, deadline_seconds=settings.cloud_provider_timeout_seconds)
        # The guard serves one thread at a time, so this lock is held during cloud calls. The loop and the node
        # deletions take it before any other lock; a plan request never takes it (see `plan_cloud`).
        self._cloud_lock = threading.Lock()
        self._plan_cloud = PlanCloud(provider, self._guard, deadline_seconds=settings.cloud_provider_timeout_seconds)
        self._scans = Scans(config, interval_seconds=settings.utilization_scan_interval_seconds, dry_run=place.dry_run)
        self._removals = ScaleDownController(
            client,
            config,
            self._listers,
            self._guard,
            self._cloud_lock,
            clock=clock,
            may_write=self._may_write,
        )
        self._cache = AutoscalerCache(config)
        self._registry = RegistryStore(
            ConfigMapStore(client, place.namespace, names.BOOKS_CONFIG_MAP, registry_store.KEY), self._may_write
        )
        self._scale_up_executor = ScaleUpExecutor(
            config, self._guard, self._cloud_lock, self._registry, self._may_write, clock
        )
        writer = NodeWriter(client, self._guard, self._cloud_lock, self._may_write)
        self._hands = ScanClients(writer, self._scale_up_executor.execute_for_scan)
        self._group_writes = GroupWrites(
            config, self._listers, self._guard, self._cloud_lock, self._scale_up_executor, self._may_write
        )
        self._quota_status = QuotaStatus(client, self._may_write, clock)
        self._number = 0
        self._again_seconds: float | None = None
        self._is_blind = False  # the last iteration was blocked because informers were not current
        self._turned_at = clock.monotonic()
        self._seen = Iteration(0, 0.0)
        self._asking = threading.Lock()  # one plan at a time: each keeps a processor busy
        self._leads = False
        self._closed = False
        self.decision_log = DecisionLog(settings.decisions_log, capacity=settings.decisions_kept)
        cluster_autoscaler = ClusterAutoscalerOptions(
            config.scale_up.bounds,
            settings.max_nodes_total,
            settings.node_autoprovisioning,
            settings.emit_per_nodegroup_metrics,
        )
        escalators = EscalatorNames(
            settings.cloud_provider,
            {each.group.name: each.group.cloud_provider_group_name for each in config.scanned},
        )
        self._metrics = AutoscalerMetrics(
            registry,
            cluster_autoscaler if settings.cluster_autoscaler_metrics else None,
            escalators if settings.escalator_metrics else None,
            overdue_seconds=self.overdue_seconds,
        )
        self._announcer = Announcer(
            self.decision_log,
            DecisionHistory(ConfigMapStore(client, place.namespace, names.DECISIONS_CONFIG_MAP, decision_history.KEY)),
            recorder,
            ConfigMapStore(client, place.namespace, name, status.KEY) if settings.write_status_configmap else None,
            ObjectRef("v1", "ConfigMap", name, place.namespace),
            self._may_write,
            clock=clock,
            max_nodes_total=settings.max_nodes_total,
        )

    @property
    def latest(self) -> Iteration | None:
        """The last completed iteration."""
        return self.decision_log.latest

    def plan_question(self, more: Sequence[Pod], config: Config) -> Iteration:
        """The iteration that would run now with `more` pods and under this configuration, on the last observation of
        the cloud.

        Acts on nothing and remembers nothing; for any thread. It does not wait for the loop, nor the loop for it.
        Raises ProviderError, also where this process does not observe the cloud.
        """
        if missing := self.unsynced():
            raise Unavailable(self._guard.name, "", f"not all has been seen yet: {', '.join(missing)}")
        if not self._leads:  # any observation of this process is stale
            raise Unavailable(self._guard.name, "", NOT_LEADING)
        with self._asking:
            cloud = self._plan_cloud
            cloud.begin()
            objects = self._listers.objects(self._clock.now())
            objects = replace(objects, pods=(*objects.pods, *more))
            iteration = planning.plan(
                objects,
                cloud,
                self._registry.known,
                config,
                chance=self._chance,
                cache=self._cache.for_question(config),
                offered_by=self._offered_by,
                underway=self._removals.underway,
                dry_run=True,
            ).iteration
            return replace(iteration, scans=scanning.preview_scans(config, objects, cloud.observed))

    def start(self) -> None:
        """Starts the threads."""
        self._listers.start(self._loops)
        if not self._place.dry_run:
            self._removals.start(self._loops)
        self._loops.start("autoscaler", self.run)

    def close(self) -> None:
        """Closes the cloud provider, once the threads have ended. A process that has not acted skips the cleanup."""
        if not self._closed:
            self._closed = True
            self._plan_cloud.close()
            self._guard.close(cleanup=self._leads and not self._place.dry_run)

    def unsynced(self) -> list[str]:
        """The informers that have not synced yet."""
        return self._listers.unsynced()

    def silent_seconds(self) -> float:
        """How long the current iteration has been running; next to zero between iterations."""
        return self._clock.monotonic() - self._turned_at

    def overdue_seconds(self) -> float:
        """The same once it exceeds `OVERDUE_INTERVALS`; 0 before."""
        seconds = self.silent_seconds()
        return seconds if seconds > OVERDUE_INTERVALS * self._settings.scan_interval_seconds else 0.0

    def run(self, stop: threading.Event) -> None:
        """Runs iteration after iteration, until `stop`."""
        while not stop.is_set():
            self._turned_at = begun = self._clock.monotonic()
            self._woken.clear()
            productive = False
            try:
                # The cloud must show a correction first: an immediate next iteration would make it twice.
                productive = any(
                    action.done and action.kind is ActionKind.INCREASE for action in self.run_once().actions
                )
            except Exception:
                logger.exception("the round could not be told of")
            pause = self._settings.scan_interval_seconds
            if self._again_seconds is not None:
                pause = min(pause, self._again_seconds)
            if productive and self._settings.frequent_loops_enabled:
                pause = 0.0
            self._rest(begun, pause, stop)

    def run_once(self) -> Iteration:
        """One complete iteration. An error of the cluster or the cloud blocks it, and becomes its reason."""
        self._number += 1
        self._again_seconds = None
        self._is_blind = False
        now, begun = self._clock.now(), self._clock.monotonic()
        planned: PlannedIteration | None = None
        failure: Exception | None = None
        led, self._leads = self._leads, self._is_leader()
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
                iteration = planned.iteration if self._place.dry_run else self._carry_out(planned)
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
            self._metrics.note(iteration, () if planned is None else planned.context.current.nodes, failure)
            self._metrics.took(metrics.MAIN, self._clock.monotonic() - begun)
        self._announcer.announce(iteration, {} if planned is None else planned.context.pending_uids)
        return iteration

    def _blocked(self, now: float, why: str) -> Iteration:
        """An iteration that decided nothing; earlier results stay."""
        state, cost = self._seen.state, self._seen.cost
        cluster, dry_run = self._config.cluster_name, self._place.dry_run
        return Iteration(
            self._number, now, state=state, blocked_reason=why, cost=cost, dry_run=dry_run, cluster=cluster
        )

    def _plan(self, now: float) -> PlannedIteration:
        known = self._registry.read(now)
        if known is not None:
            known = self._removals.put_right(known)
        objects = self._listers.objects(now)
        begun = self._clock.monotonic()
        with self._cloud_lock:
            observed = self._guard.observe([NodeRef.from_node(node) for node in objects.nodes])
            self._removals.observed(observed)
        looked = self._clock.monotonic()
        self._metrics.took(OBSERVE, looked - begun)
        with self._cloud_lock:
            planned = planning.plan(
                objects,
                self._guard,
                known,
                self._config,
                number=self._number,
                chance=self._chance,
                cache=self._cache,
                offered_by=self._offered_by,
                underway=self._removals.underway,
                begins=self._removals.begins,
                dry_run=self._place.dry_run,
            )
        self._metrics.took(metrics.SCALE_UP, self._clock.monotonic() - looked)
        context = planned.context
        self._quota_status.tell(
            objects.capacity_quotas,
            context.cache.capacity_limits,
            planned.iteration.invalid_objects,
            context.current.nodes,
            planned.settings.usage,
        )
        self._again_seconds = planned.again_seconds
        return planned

    def _carry_out(self, planned: PlannedIteration) -> Iteration:
        """The iteration with the result of every action."""
        iteration = planned.iteration
        kept = planned.registry
        self._registry.write(kept)
        done = [
            self._group_writes.correct(action)
            for action in iteration.actions
            if action.kind in (ActionKind.DELETE_NODES, ActionKind.DECREASE_TARGET)
        ]
        decisions = list(planned.decisions)
        creations = {
            (action.group, action.mode is Mode.RECOMMEND): action
            for action in iteration.actions
            if action.kind is ActionKind.CREATE_GROUP
        }
        for number, decision in enumerate(decisions):
            for creation in decision.creations:
                action = creations[creation.group, decision.advice]
                action, decisions[number], kept = self._group_writes.create_group(
                    action, creation, decisions[number], kept, planned
                )
                done.append(action)
        increased, kept = self._group_writes.increase_groups(decisions, kept, iteration.time)
        done += increased
        done += [
            self._group_writes.delete_group(action)
            for action in iteration.actions
            if action.kind is ActionKind.DELETE_GROUP
        ]
        self._removals.note(done)
        done += self._removals.execute(planned)
        try:
            self._registry.write(kept)
        except HeadroomError as error:
            logger.error("the books are kept in mind: %s", error)
        return replace(
            iteration,
            decision=decisions[0] if decisions else None,
            further=tuple(decisions[1:]),
            actions=tuple(done),
        )

    def _scan(self, iteration: Iteration, planned: PlannedIteration) -> Iteration:
        """The iteration with the results of the scans of groups that scale by utilization, if one is due."""
        if not self._scans.due_in(iteration.time):
            requests = self._registry.known.requests
            found = self._scans.scan(
                planned.context.objects,
                self._hands,
                iteration.time,
                upcoming={name: requests[name].nodes for name in requests},
            )
            if not self._place.dry_run:
                self._metrics.scanned(found)
            iteration = replace(iteration, scans=found.decisions, actions=(*iteration.actions, *found.actions))
        due = self._scans.due_in(iteration.time)
        self._again_seconds = due if self._again_seconds is None else min(self._again_seconds, due)
        return iteration

    def _may_write(self) -> bool:
        return not self._place.dry_run and self._is_leader()

    def _rest(self, begun: float, pause: float, stop: threading.Event) -> None:
        """Waits until the next iteration is due, or is wanted sooner."""
        shortest = min(PAUSE_SECONDS, self._settings.scan_interval_seconds)
        due = max(begun + pause, self._clock.monotonic() + shortest)
        hurries = False
        while not stop.is_set():
            self._turned_at = self._clock.monotonic()
            left = due - self._turned_at
            if left <= 0:
                return
            if not hurries and self._is_wanted():
                due = min(due, self._clock.monotonic() + shortest)
                hurries = True
            self._clock.wait(stop, min(left, _POLL_SECONDS))

    def _is_wanted(self) -> bool:
        """Whether a pod wants the next iteration, or the informers that were not current have become so."""
        if self._is_blind and not self._unseen():
            return True
        return self._settings.frequent_loops_enabled and self._woken.is_set()

    def _unseen(self) -> str:
        """Which informers are not current, in words; empty when all are."""
        if missing := self._listers.unsynced():
            return f"not all has been seen yet: {', '.join(missing)}"
        if stale := self._listers.stale():
            return f"what there is may have changed unseen: {', '.join(stale)}"
        return ""
