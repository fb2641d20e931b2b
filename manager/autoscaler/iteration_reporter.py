"""Reports the iterations: metrics, the log of decisions, its history, Events, the status ConfigMap, quotas' status."""

from collections.abc import Callable

from manager.autoscaler.cluster_objects import ClusterObjects
from manager.autoscaler.config import Config
from manager.autoscaler.configmap_store import ConfigMapStore
from manager.autoscaler.environment import ClusterAccess, ProcessParts
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.planning import PlannedIteration
from manager.autoscaler.reporting import decision_history, metrics, status
from manager.autoscaler.reporting.announcer import Announcer
from manager.autoscaler.reporting.decision_history import DecisionHistory
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.reporting.metrics_cluster_autoscaler import ClusterAutoscalerOptions
from manager.autoscaler.reporting.metrics_escalator import EscalatorNames
from manager.autoscaler.reporting.quota_status import QuotaStatus
from manager.autoscaler.settings import AutoscalerSettings
from shared import names
from shared.kube.events import ObjectRef


class IterationReporter:
    """For the loop's thread; other threads read the `decision_log`, and scrape the `metrics`."""

    def __init__(
        self,
        settings: AutoscalerSettings,
        config: Config,
        access: ClusterAccess,
        process: ProcessParts,
        *,
        overdue_seconds: Callable[[], float],
    ) -> None:
        """Raises InvalidInput for an unusable name of the status ConfigMap."""
        name = status.checked_name(settings.status_config_map_name, others=(names.BOOKS_CONFIG_MAP,))
        self.decision_log = DecisionLog(settings.decisions_log, capacity=settings.decisions_kept)
        self.metrics = _metrics(settings, config, process, overdue_seconds)
        self._quota_status = QuotaStatus(access.client, access.may_write, process.clock)
        decisions = ConfigMapStore(access.client, access.namespace, names.DECISIONS_CONFIG_MAP, decision_history.KEY)
        kept = ConfigMapStore(access.client, access.namespace, name, status.KEY)
        self._announcer = Announcer(
            self.decision_log,
            DecisionHistory(decisions),
            access.recorder,
            kept if settings.write_status_configmap else None,
            ObjectRef("v1", "ConfigMap", name, access.namespace),
            access.may_write,
            clock=process.clock,
            max_nodes_total=settings.max_nodes_total,
        )

    def report_quotas(self, objects: ClusterObjects, planned: PlannedIteration) -> None:
        """The status of the CapacityQuotas that were held to."""
        context = planned.context
        self._quota_status.tell(
            objects.capacity_quotas,
            context.cache.capacity_limits,
            planned.iteration.invalid_objects,
            context.current.nodes,
            planned.settings.usage,
        )

    def count(
        self, iteration: Iteration, planned: PlannedIteration | None, failure: Exception | None, seconds: float
    ) -> None:
        """Counts an iteration of a leader, which took so long."""
        self.metrics.note(iteration, () if planned is None else planned.context.current.nodes, failure)
        self.metrics.took(metrics.MAIN, seconds)

    def announce(self, iteration: Iteration, planned: PlannedIteration | None) -> None:
        """Writes it to the log, and on the leader to the history, the status ConfigMap and Events."""
        self._announcer.announce(iteration, {} if planned is None else planned.context.pending_uids)


def _metrics(
    settings: AutoscalerSettings, config: Config, process: ProcessParts, overdue_seconds: Callable[[], float]
) -> AutoscalerMetrics:
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
    return AutoscalerMetrics(
        process.registry,
        cluster_autoscaler if settings.cluster_autoscaler_metrics else None,
        escalators if settings.escalator_metrics else None,
        overdue_seconds=overdue_seconds,
    )
