"""The options of one group as the scan reads them."""

from dataclasses import dataclass

from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.utilization import node_groups
from manager.autoscaler.utilization.node_groups import Compat, NodeGroup, PredictedPeaks
from shared.errors import InvalidInput
from shared.quantity import Resources

DEFAULT_GROUP = "default"  # the group of this name takes pods that select no particular nodes
SCALE_UP_FAILURES = 3


@dataclass(frozen=True, slots=True)
class ScanRules:
    """A group with its durations in seconds; an invalid duration is 0, as in Escalator.

    `dry`: nothing is written. `excludes_unavailable`: pods on nodes that are being removed are no demand on the others.
    A breaker of 0 failures is disabled.
    """

    group: NodeGroup
    dry: bool = False
    excludes_unavailable: bool = True
    soft_seconds: float = 0.0
    hard_seconds: float = 0.0
    cool_down_seconds: float = 0.0
    scale_down_cool_down_seconds: float = 0.0
    untaint_grace_seconds: float = 0.0
    max_node_age_seconds: float = 0.0
    unhealthy_grace_seconds: float = 0.0
    breaker_failures: int = 0

    @property
    def checks_health(self) -> bool:
        return self.unhealthy_grace_seconds != 0

    def peak(self, *, prod: Resources | None, mid: Resources) -> Resources | None:
        """The predicted usage that counts, None if none counts or none is known."""
        peaks = self.group.predicted_peaks
        if peaks is PredictedPeaks.OFF or prod is None:
            return None
        return prod.plus(mid) if peaks is PredictedPeaks.PROD_AND_MID else prod

    def bounds(self, cloud: SizeBounds) -> SizeBounds:
        return self.group.bounds or cloud


def scan_rules(group: NodeGroup, *, dry: bool = False) -> ScanRules:
    """The rules of a group, valid or not; `dry` applies to all groups."""
    ours = group.compat is Compat.HEADROOM
    excludes = group.exclude_unavailable_node_pods
    cool_down = node_groups.seconds(group.scale_up_cool_down_period)
    usual = cool_down if ours else 0.0
    failures = group.scale_up_failure_threshold
    if failures is None:
        failures = SCALE_UP_FAILURES if ours else 0
    return ScanRules(
        group,
        dry=dry or group.effective_mode is not Mode.ENFORCE,
        excludes_unavailable=ours if excludes is None else excludes,
        soft_seconds=node_groups.seconds(group.soft_delete_grace_period),
        hard_seconds=node_groups.seconds(group.hard_delete_grace_period),
        cool_down_seconds=cool_down,
        scale_down_cool_down_seconds=_seconds_or(group.scale_down_cool_down_period, usual),
        untaint_grace_seconds=_seconds_or(group.untaint_grace_period, usual),
        max_node_age_seconds=node_groups.seconds(group.max_node_age),
        unhealthy_grace_seconds=node_groups.seconds(group.unhealthy_node_grace_period),
        breaker_failures=failures,
    )


def check_rules(group: NodeGroup, *, dry: bool = False, source: str) -> ScanRules:
    """The rules of a group with all required fields. Raises InvalidInput that lists the missing ones."""
    found = node_groups.problems(group)
    if found:
        raise InvalidInput(source=source, field=f"group {group.name}", value=group.name, problem="; ".join(found))
    return scan_rules(group, dry=dry)


def _seconds_or(text: str, usual: float) -> float:
    return node_groups.seconds(text) if text else usual
