"""What is remembered from one iteration to the next, and may be lost."""

from collections.abc import Mapping
from dataclasses import dataclass

from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.expander.priority import PriorityReading
from manager.autoscaler.pod_injection.buffer_reading import BufferChunks
from manager.autoscaler.pod_injection.request_planning import RequestMemory
from manager.autoscaler.scale_down.pods_on_nodes import PodReadings
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits
from manager.autoscaler.scale_up.disagreements import SchedulerMemory
from manager.autoscaler.snapshot.templates import TemplateCache
from manager.autoscaler.utilization.observation import GroupObservers


@dataclass(frozen=True)
class LastSearch:
    """A search for replacements that found none to begin: it stands for a while, unless `seen` changes."""

    until: float
    seen: object
    decision: ConsolidationDecision


class AutoscalerCache:
    """Caches that outlive an iteration and may be lost: templates of groups, and the last valid priorities and
    CapacityQuotas (by name) and CapacityBuffers (by key), the memory of ProvisioningRequests, the last searches for
    replacements, by method, the scheduler's answers, the pods on nodes as last read, and the observers of groups that
    scale by utilization.
    """

    def __init__(self, settings: DecisionSettings) -> None:
        self.templates = TemplateCache(settings.taints, force_daemons=settings.force_ds)
        self.priorities: PriorityReading | None = None
        self.capacity_limits: Mapping[str, CapacityLimits] = {}
        self.buffers: Mapping[str, BufferChunks] = {}
        self.requests = RequestMemory()
        self.scheduler = SchedulerMemory()
        self.pods = PodReadings()
        self.searches: dict[type, LastSearch] = {}
        self.observers = GroupObservers()

    def for_question(self, settings: DecisionSettings) -> "AutoscalerCache":
        """A copy that a plan request under this configuration may change; for any thread."""
        cache = AutoscalerCache(settings)
        cache.priorities, cache.capacity_limits, cache.buffers = self.priorities, self.capacity_limits, self.buffers
        cache.requests, cache.pods, cache.scheduler = self.requests, self.pods.copy(), self.scheduler
        return cache
