"""Reports the iterations: metrics, the log of decisions, its history, Events, the status ConfigMap, and
the status of CapacityQuotas, CapacityBuffers and ProvisioningRequests.
"""

import logging
from collections.abc import Callable

from manager.autoscaler.environment import ClusterAccess, ProcessParts
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.reporting import decision_log, events, metrics, object_status, status
from manager.autoscaler.reporting.cost_trend import CostTrend
from manager.autoscaler.reporting.decision_log import DecisionHistory, DecisionLog
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.reporting.object_status import ObjectStatusWriter
from manager.autoscaler.reporting.status import AutoscalerStatus
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import names
from shared.errors import HeadroomError
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.events import ObjectRef
from shared.kube.resources import CAPACITYBUFFERS, CAPACITYQUOTAS, PROVISIONINGREQUESTS

logger = logging.getLogger(__name__)


class IterationReporter:
    """For the loop's thread; other threads read the `decision_log` and the `cost_trend`, and scrape the `metrics`.

    A report that fails now is written with the next iteration, and never blocks one.
    """

    def __init__(
        self,
        settings: AutoscalerSettings,
        access: ClusterAccess,
        process: ProcessParts,
        *,
        overdue_seconds: Callable[[], float],
    ) -> None:
        """Raises InvalidInput for an unusable name of the status ConfigMap."""
        name = status.checked_name(settings.status_config_map_name, others=(names.REGISTRY_CONFIG_MAP,))
        self.decision_log = DecisionLog(settings.decisions_log)
        self.cost_trend = CostTrend(process.clock)
        self.metrics = AutoscalerMetrics(process.registry, overdue_seconds=overdue_seconds)
        self._quotas, self._buffers, self._requests = (
            ObjectStatusWriter(access.client, resource, seconds, access.may_write, process.clock)
            for resource, seconds in (
                (CAPACITYQUOTAS, object_status.QUOTA_SECONDS),
                (CAPACITYBUFFERS, object_status.BUFFER_SECONDS),
                (PROVISIONINGREQUESTS, object_status.REQUEST_SECONDS),
            )
        )
        self._access = access
        self._clock = process.clock
        self._max_nodes_total = settings.max_nodes_total
        self._history = DecisionHistory(
            ConfigMapStore(access.client, access.namespace, names.DECISIONS_CONFIG_MAP, decision_log.KEY)
        )
        self._regarding = ObjectRef("v1", "ConfigMap", name, access.namespace)
        self._status: ConfigMapStore | None = None
        if settings.write_status_configmap:
            self._status = ConfigMapStore(access.client, access.namespace, name, status.KEY)
        self._written: AutoscalerStatus | None = None  # None: unknown, to be read from the ConfigMap
        self._last: Iteration | None = None  # the last one with Events

    def report_objects(self, objects: ClusterObjects, planned: PlannedIteration) -> None:
        """The status of the custom resources that were planned with, and the conditions that are news."""
        view, iteration = planned.view, planned.iteration
        limits, refused = view.cache.capacity_limits, iteration.invalid_objects
        nodes, usage = view.current.nodes, view.settings.scale_up.usage
        buffers, known, requests = objects.capacity_buffers, view.cache.buffers, objects.provisioning_requests
        self._quotas.write(object_status.quota_patches(objects.capacity_quotas, limits, refused, nodes, usage))
        self._buffers.write(object_status.buffer_patches(buffers, known, refused, iteration.buffers))
        if iteration.requests is not None:
            self._requests.write(object_status.request_patches(requests, iteration.requests))

    def count(self, iteration: Iteration, seconds: float) -> None:
        """Counts an iteration of a leader, which took so long."""
        self.metrics.note(iteration)
        self.metrics.took(metrics.MAIN, seconds)

    def announce(self, iteration: Iteration, planned: PlannedIteration | None) -> None:
        """Writes it to the log, and on the leader to the history, the status ConfigMap and Events."""
        self.decision_log.note(iteration)
        self.cost_trend.note(iteration)
        if not self._access.may_write():
            self._written = self._last = None
            self._history.forget()
            return
        self._history.store(self.decision_log.iterations(brief=True), self._clock.monotonic())
        self.decision_log.earlier = self._history.earlier
        if self._access.recorder is not None:
            uids = {} if planned is None else planned.view.pending_uids
            for each in events.events(
                iteration, self._regarding, uids=uids, max_nodes_total=self._max_nodes_total, before=self._last
            ):
                self._access.recorder.event(*each)
            self._last = iteration
        if self._status is not None:
            self._write_status(self._status, iteration)

    def _write_status(self, store: ConfigMapStore, iteration: Iteration) -> None:
        try:
            if self._written is None:
                text, _ = store.read()
                self._written = None if text is None else status.read_status(text)
            said = status.autoscaler_status(iteration, self._written)
            store.write(status.document(said), {status.ANNOTATION_LAST_UPDATED: status.go_time(iteration.time)})
            self._written = said
        except HeadroomError as error:
            self._written = None
            logger.warning("the status was not written: %s", error)
