"""Sends reports: one patch each, the newest state always, again until one arrives."""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.predict_server.server import PredictServer
from agent.reporter import patch, policy, report
from agent.reporter.report import Observed
from agent.reporter.schedule import Claim, Reason, Schedule
from agent.settings import AgentSettings
from agent.states_informer.informer import StatesInformer
from shared.api.core import Condition
from shared.api.nodemetric import NodeMetricStatus
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import NODEMETRICS
from shared.kube.retry import Backoff, Jitter

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # how soon a change of spec, or the end of a wait, is noticed
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Sent:
    """The last report that arrived: when (Unix seconds), why, what."""

    time: float
    reason: Reason
    status: NodeMetricStatus


class Reporter:
    """`second` tells the metric cache's present second."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        states: StatesInformer,
        cache: MetricCache,
        predict_server: PredictServer,
        clock: Clock,
        *,
        second: Callable[[], int],
        registry: CollectorRegistry,
    ) -> None:
        self.last: Sent | None = None
        self._node_name = settings.node_name
        # One attempt each: a retry must carry the state of its own time, not of the first attempt's.
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._states = states
        self._cache = cache
        self._predict_server = predict_server
        self._clock = clock
        self._second = second
        self._base = self._policy = policy.from_settings(settings)
        self._policy_problem = ""
        self._conditions: tuple[Condition, ...] = ()
        self._backoff = Backoff(clock, Jitter(base_seconds=1.0))
        self._waiting = False
        self._reports = Counter("headroom_agent_reports", "Reports by reason", ["reason"], registry=registry)
        self._failures = Counter("headroom_agent_report_failures", "Reports that did not arrive", registry=registry)
        self._refused = Counter("headroom_agent_refused_report_policies", "Report policies refused", registry=registry)

    def apply(self, spec: dict[str, object] | None) -> None:
        """Puts a NodeMetric's intervals in force; bad ones are refused and the last good ones stay."""
        try:
            self._policy = policy.overridden(self._base, (spec or {}).get("metricCollectPolicy"))
            self._policy_problem = ""
        except InvalidInput as error:
            self._refused.inc()
            self._policy_problem = str(error)
            logger.error("policy refused: %s", error)

    def run(self, stop: threading.Event) -> None:
        """Reports until `stop`; the first one at a random time within an interval, so that a fleet does not march."""
        schedule = Schedule(self._clock.monotonic(), random.uniform(0, self._policy.intervals.report))
        while not self._clock.wait(stop, LOOK_SECONDS):
            self.look(schedule)

    def look(self, schedule: Schedule) -> None:
        """Sends a report if one is due."""
        if not self._states.synced or schedule.idle(self._clock.monotonic(), self._policy.intervals):
            return
        if not self._states.has_node_metric:
            self._note_missing()
            return
        averages = self._cache.aggregate(Aggregation.AVG, self._policy.aggregate_seconds, until=self._second())
        if series.NODE not in averages:
            return  # a node that cannot be read must go stale in the manager's eyes
        pods = self._states.pods()
        prediction = self._predict_server.predict(pods, self._states.node())
        claim = Claim.of(prediction)
        threshold = self._predict_server.policy.resource_diff_threshold_percent
        reason = schedule.due(self._clock.monotonic(), self._policy.intervals, claim, threshold)
        if reason is None:
            return
        now = self._clock.now()
        conditions = report.conditions(prediction, self._conditions, now, report_problem=self._policy_problem)
        status = report.status(Observed(averages, pods, prediction, conditions), reason, now)
        failure = self._send(status)
        if failure is None:
            self._waiting = False
            self._conditions = conditions
            self.last = Sent(now, reason, status)
            self._reports.labels(reason).inc()
            schedule.succeeded(self._clock.monotonic(), claim)
        else:
            schedule.failed(self._clock.monotonic(), reason, self._backoff.delay_seconds(failure))

    def _send(self, status: NodeMetricStatus) -> HeadroomError | None:
        """Why the report did not arrive; None when it did."""
        try:
            self._client.patch(NODEMETRICS, self._node_name, patch.body(status), subresource="status")
        except NotFound as error:
            self._note_missing()
            return error
        except HeadroomError as error:
            self._failures.inc()
            logger.warning("report did not arrive: %s", error)
            return error
        return None

    def _note_missing(self) -> None:
        if not self._waiting:
            logger.warning("NodeMetric does not exist yet; reports wait for it", extra={"node": self._node_name})
        self._waiting = True
