"""Controllers that replace pods, and budgets that protect them: the wanted pods, and the allowed disruptions."""

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.selectors import LabelSelector


class ReplicasSpec(Wire, frozen=True):
    replicas: int | None = None


@prepared
class ReplicationController(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicasSpec = ReplicasSpec()


@prepared
class ReplicaSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicasSpec = ReplicasSpec()


@prepared
class StatefulSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


@prepared
class Job(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    observed_generation: int = 0


@prepared
class PodDisruptionBudget(Wire, frozen=True):
    """Without a selector it covers no pod; with an empty one all of its namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

    @property
    def allowed(self) -> int:
        """The evictions of its pods that the API server grants now: 0 until it has seen a changed budget."""
        return self.status.disruptions_allowed if self.status.observed_generation >= self.metadata.generation else 0
