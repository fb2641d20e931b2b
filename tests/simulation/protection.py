"""What becomes of pods whose nodes go: they are evicted, which respects their disruption budgets, and nothing else."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deploy.local.apiserver.store import ObjectChange
from manager.autoscaler.cloudprovider.simulated.cloud_state import DELETING, GroupEntry
from shared import durations
from tests.simulation.cloud import CloudRequest
from tests.simulation.faults import MANAGER
from tests.simulation.network import AcceptedWrite
from tests.simulation.virtual import EPOCH, WORLD

EVICTS = "A pod leaves its node by the eviction API alone (Kubernetes' PodDisruptionBudget)."
DRAINED = "A machine is deleted once the pods that it had have ended, or had their grace (Cluster Autoscaler's drain)."
PROTECTED = "After an eviction as many pods are healthy as their budget demands (Kubernetes' PodDisruptionBudget)."

# What a disruption controller may not have counted yet: pods that ended otherwise.
UNCOUNTED_SECONDS = 1.0


@dataclass
class ProtectionChecks:
    """`report` takes a rule and how it is broken, `objects` gives all objects of a resource in the API server."""

    report: Callable[[str, str], None]
    objects: Callable[[str], list[Any]]
    _before: dict[str, set[str]] = field(default_factory=dict)  # by node with a deletion taint: pods when it got it

    def written(self, write: AcceptedWrite) -> None:
        if write.process.name.startswith(MANAGER) and write.method == "DELETE" and "/pods/" in write.path:
            self.report(EVICTS, f"{write.process.name} deletes {write.path}")

    def marked(self, node: str) -> None:
        """The node got its deletion taint: pods that come later may be unknown to the process that deletes it."""
        self._before[node] = {pod["metadata"]["uid"] for pod in self._pods_on(node)}

    def unmarked(self, node: str) -> None:
        self._before.pop(node, None)

    def asked(self, asked: CloudRequest) -> None:
        for node in sorted(_leaving(asked.after) - _leaving(asked.before)):
            for pod in self._pods_on(node):
                if pod["metadata"]["uid"] in self._before.get(node, ()):
                    self.report(DRAINED, f"{node} is deleted with pod {pod['metadata']['name']}")

    def _pods_on(self, node: str) -> list[Any]:
        """Its pods that run, but for those whose grace period is over."""
        return [
            pod
            for pod in self.objects("/pods")
            if pod["spec"].get("nodeName") == node
            and (pod.get("status") or {}).get("phase") == "Running"
            and not _is_overdue(pod["metadata"].get("deletionTimestamp"))
        ]


@dataclass
class BudgetChecks:
    """Counts healthy pods itself, at each change in the API server's store. Arguments as above."""

    report: Callable[[str, str], None]
    objects: Callable[[str], list[Any]]
    _lost: deque[tuple[float, Any]] = field(default_factory=deque)  # healthy pods that ended without an eviction

    def changed(self, change: ObjectChange) -> None:
        if change.record.resource != "/pods" or change.previous is None or not _is_healthy(change.previous.load()):
            return
        pod = change.record.load()
        if _is_healthy(pod) and not change.deleted:
            return
        while self._lost and self._lost[0][0] < WORLD.now - UNCOUNTED_SECONDS:
            self._lost.popleft()
        if not _is_evicted(pod):
            self._lost.append((WORLD.now, pod))
            return
        healthy = [*filter(_is_healthy, self.objects("/pods")), *(each for _, each in self._lost)]
        for budget in self.objects("policy/poddisruptionbudgets"):
            found = sum(_covers(budget, each) for each in healthy)
            if _covers(budget, pod) and found < budget["spec"]["minAvailable"]:
                name, least = budget["metadata"]["name"], budget["spec"]["minAvailable"]
                self.report(PROTECTED, f"pod {pod['metadata']['name']} is evicted, and {name} has {found} of {least}")


def _is_healthy(pod: Any) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _is_evicted(pod: Any) -> bool:
    return any(each["type"] == "DisruptionTarget" for each in (pod.get("status") or {}).get("conditions") or ())


def _covers(budget: Any, pod: Any) -> bool:
    """For budgets as the simulation's users make them."""
    meta, wanted = pod["metadata"], budget["spec"]["selector"]["matchLabels"]
    return bool(
        meta["namespace"] == budget["metadata"]["namespace"] and wanted.items() <= (meta.get("labels") or {}).items()
    )


def _is_overdue(deleted_by: str | None) -> bool:
    return deleted_by is not None and durations.instant(deleted_by) <= EPOCH + WORLD.now


def _leaving(entry: GroupEntry) -> set[str]:
    return {each.name for each in entry.instances if each.phase == DELETING}
