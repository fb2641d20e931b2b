"""Sends reports, each as one patch with the newest state, and retries until one arrives."""

import logging
import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import msgspec
from prometheus_client import CollectorRegistry

from agent.metric_cache.cache import MetricCache
from agent.metrics_advisor.local import PROCESS_TREES
from agent.predict_server.prediction import NodePrediction
from agent.predict_server.server import PredictServer
from agent.reporter import interference, measurements, policy, pressure, report
from agent.reporter.conditions import Circumstances, Means, ReportedNodeMetric, conditions
from agent.reporter.limiter import Limiter
from agent.reporter.prod_waits import ProdWaits
from agent.reporter.report import ReportInputs
from agent.reporter.schedule import ReportedValues, ReportReason, Schedule
from agent.settings import AgentSettings
from agent.states_informer.informer import StatesInformer
from agent.states_informer.pods import NodePod
from shared.api import thresholds
from shared.api.core import Condition
from shared.api.nodemetric import NodeMetricReport, Pressure
from shared.api.nodemetric_spec import ResourceThresholds
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound, Unreachable
from shared.kube.resources import NODEMETRICS
from shared.kube.retry import Backoff, Jitter
from shared.metric_families import CounterFamily, GaugeFamily

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # within which a change of spec, or the end of a wait, takes effect
TIMEOUT_SECONDS = 10.0
BURST = 2
PODS_SECONDS = 45.0  # after an outage: by then every watch has tried again, and managers still accept the last report
SECONDS_EACH = 10.0  # between two attempts in the long run, unless the intervals are shorter

_REPORTS = CounterFamily("headroom_agent_reports", "Reports, by reason.", ("reason",))
_REPORT_FAILURES = CounterFamily("headroom_agent_report_failures", "Reports that the API server did not accept.")
_REFUSED_REPORT_POLICIES = CounterFamily(
    "headroom_agent_refused_report_policies", "Report policies that the agent rejected."
)
_LAST_REPORT_TIMESTAMP_SECONDS = GaugeFamily(
    "headroom_agent_last_report_timestamp_seconds", "Unix time of the last report that the API server accepted."
)
_REPORT_BYTES = GaugeFamily("headroom_agent_report_bytes", "Size of the last report in bytes.")


@dataclass(frozen=True)
class Sent:
    """The last report that arrived: when (Unix seconds), why, what."""

    time: float
    reason: ReportReason
    status: NodeMetricReport


class Reporter:
    """Reports when it is due, and keeps what it said last."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        states: StatesInformer,
        cache: MetricCache,
        predict_server: PredictServer,
        clock: Clock,
        *,
        registry: CollectorRegistry,
        means: Callable[[], Means] = Means,
    ) -> None:
        self.last: Sent | None = None
        self._node_name = settings.node_name
        self._size_bytes = settings.report_size_bytes
        # One attempt each: a retry must carry the state of its own time, not that of the first attempt.
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._states = states
        self._cache = cache
        self._predict_server = predict_server
        self._clock = clock
        self._means = means
        self.prod_waits = ProdWaits(cache, clock, registry)
        self._base = self._policy = policy.from_settings(settings)
        self._policy_problem = ""
        self._thresholds, self._thresholds_problem = thresholds.OFF, ""
        self._conditions: tuple[Condition, ...] | None = None  # of the last report, once loaded
        self._began = False  # whether the pods have been known
        self._backoff = Backoff(clock, Jitter(base_seconds=1.0))
        self._limiter = Limiter(BURST)
        self._waiting = False
        self._is_away = False  # whether the API server was unreachable at the last report
        self._pods_by = 0.0  # monotonic; until then a report without pods is delayed
        self._reports = _REPORTS.register(registry)
        self._failures = _REPORT_FAILURES.register(registry)
        self._refused = _REFUSED_REPORT_POLICIES.register(registry)
        self._arrived = _LAST_REPORT_TIMESTAMP_SECONDS.register(registry)
        self._size = _REPORT_BYTES.register(registry)

    def apply(self, spec: dict[str, object] | None) -> None:
        """Applies a NodeMetric's intervals and thresholds; invalid ones are refused and the last good ones stay."""
        try:
            self._policy = policy.overridden(self._base, (spec or {}).get("metricCollectPolicy"))
            self._policy_problem = ""
        except InvalidInput as error:
            self._refused.inc()
            self._policy_problem = str(error)
            logger.error("policy refused: %s", error)
        try:
            given = (spec or {}).get("resourceUsedThresholdWithBE")
            self._thresholds, self._thresholds_problem = thresholds.delivered(given, source="NodeMetric spec"), ""
        except InvalidInput as error:
            self._refused.inc()
            self._thresholds_problem = str(error)
            logger.error("thresholds refused: %s", error)

    @property
    def thresholds(self) -> ResourceThresholds:
        """The use from which pods of Mid and Batch are throttled or evicted."""
        return self._thresholds

    def run(self, stop: threading.Event) -> None:
        """Reports until `stop`; the first report is at a random time within an interval, to spread a fleet."""
        schedule = Schedule(self._clock.monotonic(), random.uniform(0, self._policy.intervals.report))
        while not self._clock.wait(stop, LOOK_SECONDS):
            self.look(schedule)

    def look(self, schedule: Schedule) -> None:
        """Sends a report if one is due, but not before the pods are known. If they become unknown, it claims
        nothing.
        """
        now, current = self._clock.monotonic(), self._policy
        synced = self._states.synced
        self._began = self._began or synced
        waits = self.prod_waits.judge(self._states.pods(), self._thresholds) if synced else None
        slowed = waits.slowed if waits is not None else ()
        pressed = self._pressure(self._cache.second(), slowed) if synced else None
        is_urgent = pressed is not None or bool(slowed)
        if not self._began or schedule.idle(now, current.intervals, pressed=is_urgent):
            return
        if not self._states.has_node_metric:
            self._note_missing()
            return
        if not self._limiter.ready(now, min(SECONDS_EACH, current.intervals.report, current.intervals.check)):
            return
        second = self._cache.second()
        if not measurements.is_node_readable(self._cache, second):
            return  # the manager must see an unreadable node go stale
        pods = self._states.pods()
        prediction = self._predict_server.predict(pods if synced else None, self._states.node())
        claim = ReportedValues.of(prediction)
        threshold = self._predict_server.policy.resource_diff_threshold_percent
        reason = schedule.due(now, current.intervals, claim, threshold, pressed=is_urgent)
        if reason is None:
            return
        if not synced and (seconds := self._held_back_seconds(now)) > 0:
            schedule.failed(now, reason, seconds)
            return
        status, body = self._made(pods, prediction, reason, second, pressed)
        self._limiter.take()
        failure = self._send(body)
        self._is_away = isinstance(failure, Unreachable)
        if failure is None:
            self._arrived_well(Sent(self._clock.now(), reason, status))
            schedule.succeeded(self._clock.monotonic(), claim, pressed=is_urgent)
        else:
            schedule.failed(self._clock.monotonic(), reason, self._backoff.delay_seconds(failure))

    def _held_back_seconds(self, now: float) -> float:
        """The delay of a report without a claim while the pods are unknown; 0 for none.

        After an outage the pods are known again in a moment, but such a report would withdraw the whole claim for much
        longer.
        """
        if self._is_away:
            try:
                self._listed()
            except Unreachable as error:
                return self._backoff.delay_seconds(error)
            except HeadroomError as error:
                logger.info("the API server can be reached again: %s", error)
            self._is_away, self._pods_by = False, now + PODS_SECONDS
        return LOOK_SECONDS if now < self._pods_by else 0.0

    def _pressure(self, second: int, slowed: Collection[str]) -> Pressure | None:
        node = self._states.node()
        if node is None or not self._thresholds.evicts:
            return None
        return pressure.seen(self._cache, self._states.pods(), node.capacity, self._thresholds, second, slowed=slowed)

    def _made(
        self,
        pods: list[NodePod],
        prediction: NodePrediction,
        reason: ReportReason,
        second: int,
        pressed: Pressure | None,
    ) -> tuple[NodeMetricReport, bytes]:
        """The report and its patch, without the pods if they make it too large."""
        now = self._clock.now()
        if self._conditions is None:
            self._conditions = self._conditions_before()
        before = self._conditions or ()
        measured = measurements.measure(self._cache, self._policy, second)
        means = self._means()
        problem = "; ".join(filter(None, (self._policy_problem, self._thresholds_problem)))
        circumstances = Circumstances(
            report_problem=problem,
            source=means.source,
            by_cgroups=means.source != PROCESS_TREES,
            enforcer=means.enforcer,
            prod_waits=self.prod_waits.is_measured(pods),
        )
        waits = self.prod_waits.last

        def made(reported: list[NodePod], under: Circumstances) -> tuple[NodeMetricReport, bytes]:
            told = conditions(prediction, under, before, now)
            found = None if waits is None else interference.report(waits)
            observed = ReportInputs(measured, reported, prediction, told, pressed, found)
            status = report.status(observed, reason, now)
            return status, msgspec.json.encode(report.patch(status))

        status, body = made(pods, circumstances)
        if len(body) > self._size_bytes:
            problem = f"{len(pods)} pods make it {len(body)} bytes, of which {self._size_bytes} are allowed"
            status, body = made([], replace(circumstances, pods_problem=problem))
        self._size.set(len(body))
        return status, body

    def _conditions_before(self) -> tuple[Condition, ...] | None:
        """The conditions of the last report before this process; None while they are unavailable."""
        try:
            listed = self._listed()
        except HeadroomError as error:
            logger.warning("the last report cannot be read: %s", error)
            return None
        if listed:
            self.prod_waits.restore(listed[0].interference)
        return listed[0].conditions if listed else ()

    def _listed(self) -> list[ReportedNodeMetric]:
        """This node's NodeMetric, if there is one."""
        own = f"metadata.name={self._node_name}"
        return self._client.list(NODEMETRICS, into=ReportedNodeMetric, field_selector=own).items

    def _send(self, body: bytes) -> HeadroomError | None:
        """The reason why the report did not arrive; None when it did."""
        try:
            self._client.patch(NODEMETRICS, self._node_name, body, kind=Patch.JSON, subresource="status")
        except NotFound as error:
            self._note_missing()
            return error
        except HeadroomError as error:
            self._failures.inc()
            logger.warning("the report was not accepted by the API server: %s", error)
            return error
        return None

    def _arrived_well(self, sent: Sent) -> None:
        self._waiting = False
        self._conditions = (sent.status.prediction.conditions if sent.status.prediction else None) or ()
        self.last = sent
        self._reports.labels(sent.reason).inc()
        self._arrived.set(sent.time)

    def _note_missing(self) -> None:
        if not self._waiting:
            logger.warning("NodeMetric does not exist yet; reports wait for it", extra={"node": self._node_name})
        self._waiting = True
