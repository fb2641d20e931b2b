"""The options of one group as the scan reads them, and where it departs from Escalator."""

import dataclasses
from dataclasses import dataclass

from manager.autoscaler import node_groups
from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.modes import Mode
from manager.autoscaler.node_groups import Compat, NodeGroup, PredictedPeaks
from shared.errors import InvalidInput
from shared.quantity import Resources

DEFAULT_GROUP = "default"  # the group of this name takes the pods that ask for no nodes in particular
SCALE_UP_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Fixes:
    """What is done otherwise than by Escalator."""

    keeps_max_nodes: bool = True  # scale-up ends at the group's own maximum, too, and not at the cloud's alone
    locks_below_min: bool = True  # what is below its minimum grows once in a cool-down, and not at every scan
    reaps_while_locked: bool = True  # nodes that may go do so while a scale-up is under way
    bound_pods_do_not_starve: bool = True  # a pod that has its node and pulls its image is not waiting for one
    all_pods_keep_nodes: bool = True  # a node is empty when no pod at all is left, not only none of the group's
    counts_sidecars: bool = True  # init containers that stay are added to what runs with them
    ignores_pod_affinity: bool = True  # pods with affinity to pods alone are the default group's
    reaps_while_growing: bool = True  # nodes that may go, and cannot come back, do so while others are added
    clamps_deletions: bool = True  # as many nodes are deleted as the cloud's minimum lets, in place of none
    counts_deletions: bool = True  # what was deleted in a scan is off the target that the rest of it goes by
    excludes_unavailable: bool = True  # pods on nodes that are on their way out are no demand on the others
    taints_what_others_hold: bool = True  # no node is tainted whose pods, once back, would fill the others
    marks_once: bool = True  # in dry mode an unhealthy node is marked once, and not at every scan again
    locks_in_doubt: bool = True  # a cloud that has not answered may have done it, which is waited for like an answer
    keeps_min_nodes: bool = True  # what is deleted leaves the group its own minimum, too, and not the cloud's alone
    grows_below_min: bool = True  # what has lost nodes is brought back to its minimum, which its cloud may not know
    counts_ordered: bool = True  # what is on its way already is not asked for once more
    renews_with_room: bool = True  # what is as large as it may get is not told to grow since a node is too old
    takes_over: bool = True  # what is on its way when a process begins is waited for as if it had asked for it


AS_ESCALATOR = Fixes(**{field.name: False for field in dataclasses.fields(Fixes)})


@dataclass(frozen=True, slots=True)
class ScanRules:
    """A group with its durations in seconds; what is no duration is 0, as in Escalator.

    `dry`: nothing is written. A breaker of 0 failures is none.
    """

    group: NodeGroup
    fixes: Fixes = Fixes()
    dry: bool = False
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

    @property
    def discovers_bounds(self) -> bool:
        """Whether the bounds are the cloud's, at every scan."""
        return self.group.bounds is None

    def peak(self, *, prod: Resources | None, mid: Resources) -> Resources | None:
        """The predicted use that counts, None where none does or none is known."""
        peaks = self.group.predicted_peaks
        if peaks is PredictedPeaks.OFF or prod is None:
            return None
        return prod.plus(mid) if peaks is PredictedPeaks.PROD_AND_MID else prod

    def bounds(self, cloud: SizeBounds) -> SizeBounds:
        return self.group.bounds or cloud


def scan_rules(group: NodeGroup, *, dry: bool = False) -> ScanRules:
    """The rules of a group as it is, valid or not; `dry` is that of all groups."""
    ours = group.compat is Compat.HEADROOM
    fixes = Fixes() if ours else AS_ESCALATOR
    if group.exclude_unavailable_node_pods is not None:
        fixes = dataclasses.replace(fixes, excludes_unavailable=group.exclude_unavailable_node_pods)
    cool_down = node_groups.seconds(group.scale_up_cool_down_period)
    usual = cool_down if ours else 0.0
    failures = group.scale_up_failure_threshold
    if failures is None:
        failures = SCALE_UP_FAILURES if ours else 0
    return ScanRules(
        group,
        fixes,
        dry=dry or group.effective_mode is not Mode.ENFORCE,
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
    """The rules of a group that has what they need. Raises InvalidInput with all that it lacks."""
    found = node_groups.problems(group)
    if found:
        raise InvalidInput(source=source, field=f"group {group.name}", value=group.name, problem="; ".join(found))
    return scan_rules(group, dry=dry)


def _seconds_or(text: str, usual: float) -> float:
    return node_groups.seconds(text) if text else usual
