"""What the metrics under all names are made of."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from prometheus_client.core import GaugeMetricFamily, Metric

from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.state import GroupStatus, Readiness
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.scale_down.removal_status import DeletionProgress, ScaleDownDecision
from manager.autoscaler.utilization.decisions import ScanDecision

Labels: TypeAlias = str | tuple[str, ...]
Values: TypeAlias = Iterable[tuple[Labels, float]] | float  # a number has no labels


def gauge(name: str, about: str, values: Values, *labels: str) -> Metric:
    metric = GaugeMetricFamily(name, about, labels=labels)
    for each, value in (((), values),) if isinstance(values, int | float) else values:
        metric.add_metric((each,) if isinstance(each, str) else each, value)
    return metric


def states(of: Readiness) -> dict[str, int]:
    """The number of nodes by the state's label."""
    return {
        "ready": of.ready,
        "unready": of.unready,
        "notStarted": of.not_started,
        "beingDeleted": of.being_deleted,
        "suspended": of.suspended,
        "unregistered": of.unregistered,
        "longUnregistered": of.long_unregistered,
    }


@dataclass(frozen=True)
class Latest:
    """The last iteration, and what was known with it; `scale_down` and `scans` are the last available ones.

    `active` says when something was last done, in Unix seconds, `usage` what the present nodes have.
    """

    iteration: Iteration
    active: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    scale_down: ScaleDownDecision | None = None
    scans: tuple[ScanDecision, ...] = ()

    @property
    def groups(self) -> Sequence[tuple[str, GroupStatus]]:
        return sorted(self.iteration.state.groups.items())

    @property
    def backoffs(self) -> Values:
        return [((name, group.backoff.code), 1) for name, group in self.groups if group.backoff is not None]


def unremovable(decided: ScaleDownDecision) -> Values:
    """How many nodes stay for each reason."""
    reasons = Tally(each.reason for each in decided.statuses.values() if each.reason is not None)
    return sorted((reason.value, count) for reason, count in reasons.items())


class EndedDeletions:
    """The nodes under deletion that have been counted: each ended deletion counts once."""

    def __init__(self) -> None:
        self._evicted: dict[str, int] = {}

    def count(self, made: Iteration) -> Iterator[tuple[DeletionProgress, int]]:
        """The ended deletions, with the number of pods evicted from each node."""
        if made.scale_down is not None:
            self._evicted |= {each.node: len(each.evicted) for each in made.scale_down.removals}
        for each in made.leaving:
            if each.stage.is_over:
                pods = self._evicted.pop(each.node, 0)
                yield each, max(0, pods - len(each.waits_for))
        begun = (each.nodes for each in made.actions if each.kind is ActionKind.REMOVE_NODES and each.done)
        known = {each.node for each in made.leaving if not each.stage.is_over}.union(*begun)
        self._evicted = {node: pods for node, pods in self._evicted.items() if node in known}
