"""The cloud's announcements for a node, in the taints and conditions that other components write into the Node.

aws-node-termination-handler, GKE and Karpenter write taints, whose values and effects differ by their settings and do
not matter here; the node-problem-detector of AKS writes conditions, which name an event of Azure in their message.
"""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shared import durations
from shared.api.core import Condition, Node


class InterruptionKind(enum.StrEnum):
    """The most urgent first. The first two take the node away within minutes, regardless of its pods."""

    SPOT = "SpotInterruption"
    TERMINATION = "InstanceTermination"
    MAINTENANCE = "ScheduledMaintenance"
    REBALANCE = "RebalanceRecommendation"

    @property
    def is_imminent(self) -> bool:
        return self in (InterruptionKind.SPOT, InterruptionKind.TERMINATION)


_ORDER = {kind: number for number, kind in enumerate(InterruptionKind)}


@dataclass(frozen=True, slots=True)
class Interruption:
    """`source` is the taint or condition that reports it; `since` is its time in Unix seconds, None if unknown."""

    kind: InterruptionKind
    source: str
    since: float | None = None

    @property
    def is_imminent(self) -> bool:
        return self.kind.is_imminent

    def __str__(self) -> str:
        return f"{self.kind} ({self.source})"


TAINTS = {
    "aws-node-termination-handler/spot-itn": InterruptionKind.SPOT,
    "aws-node-termination-handler/asg-lifecycle-termination": InterruptionKind.TERMINATION,
    "aws-node-termination-handler/scheduled-maintenance": InterruptionKind.MAINTENANCE,
    "aws-node-termination-handler/rebalance-recommendation": InterruptionKind.REBALANCE,
    "cloud.google.com/impending-node-termination": InterruptionKind.TERMINATION,
    "karpenter.sh/disrupted": InterruptionKind.TERMINATION,
}
# AKS conditions by type: the announcement if the message does not begin with an event.
CONDITIONS: dict[str, InterruptionKind | None] = {
    "PreemptionScheduled": InterruptionKind.SPOT,
    "PreemptScheduled": InterruptionKind.SPOT,
    "TerminateScheduled": InterruptionKind.TERMINATION,
    "RedeployScheduled": InterruptionKind.MAINTENANCE,
    "RebootScheduled": InterruptionKind.MAINTENANCE,
    "VMEventScheduled": None,
}
# Azure's scheduled events. After a freeze of seconds, the node goes on as before.
_EVENTS: dict[str, InterruptionKind | None] = {
    "Preempt": InterruptionKind.SPOT,
    "Terminate": InterruptionKind.TERMINATION,
    "Redeploy": InterruptionKind.MAINTENANCE,
    "Reboot": InterruptionKind.MAINTENANCE,
    "SpotRebalanceRecommendation": InterruptionKind.REBALANCE,
    "Freeze": None,
}
_FIRST_WORD = re.compile(r"\s*([A-Za-z]*)")


def read_interruption(node: Node) -> Interruption | None:
    """The most urgent announcement for the node."""
    return min(_announced(node), key=lambda each: _ORDER[each.kind], default=None)


def _announced(node: Node) -> Iterator[Interruption]:
    for taint in node.spec.taints or ():
        if taint.key in TAINTS:
            yield Interruption(TAINTS[taint.key], f"taint {taint.key}", _instant(taint.time_added))
    for condition in node.status.conditions or ():
        if condition.type in CONDITIONS and condition.status == "True":
            kind = _kind(condition)
            if kind is not None:
                yield Interruption(kind, f"condition {condition.type}", _instant(condition.last_transition_time))


def _kind(condition: Condition) -> InterruptionKind | None:
    found = _FIRST_WORD.match(condition.message)
    return _EVENTS.get(found[1] if found else "", CONDITIONS[condition.type])


def _instant(text: str | None) -> float | None:
    try:
        return durations.instant(text) if text else None
    except (ValueError, OverflowError):
        return None
