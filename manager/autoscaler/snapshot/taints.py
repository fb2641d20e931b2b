"""The taints of nodes to remove, and the patches that add them to a Node or take them off.

| taint | added by | meaning |
|---|---|---|
| `ToBeDeletedByClusterAutoscaler` | scale-down | the node is being deleted: pods stay away |
| `DeletionCandidateOfClusterAutoscaler` | scale-down | the node may be deleted soon: pods prefer other nodes |
| `atlassian.com/escalator` | the scan of its group | the node is deleted once it is empty, or old enough |
| `atlassian.com/escalator-force` | a person | the node is deleted as soon as it is empty |

The value of each is the Unix time of its addition. All functions are pure, and return None for "no change".
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from manager.autoscaler.snapshot import templates
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeInfo
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from shared.api.core import Node, Taint
from shared.errors import InvalidInput

TO_BE_REMOVED = templates.TAINT_ESCALATOR
FORCE = templates.TAINT_ESCALATOR_FORCE
DEFAULT_EFFECT = "NoSchedule"  # of the scan's taint, as in Escalator
ANNOTATION_NO_DELETE = "atlassian.com/no-delete"
# Marks a node that scale-down cordoned; a node that a person cordoned stays cordoned.
ANNOTATION_CORDONED = "headroom.io/cordoned-for-scale-down"

_WHOLE_SECONDS = re.compile(r"[+-]?[0-9]{1,63}")
_MOST_SECONDS = 2**63 - 1

Taints = tuple[Taint, ...]
NodePatch = dict[str, dict[str, object]]  # a merge patch


def has_taint(taints: Iterable[Taint], key: str) -> bool:
    """Whether a taint with this key is present, with any value and effect."""
    return any(taint.key == key for taint in taints)


def with_taint(taints: Taints, taint: Taint) -> Taints | None:
    """The taints with one more; a taint with the same key stays unchanged, with its time."""
    return None if has_taint(taints, taint.key) else (*taints, taint)


def without_taints(taints: Taints, *keys: str) -> Taints | None:
    rest = tuple(taint for taint in taints if taint.key not in keys)
    return None if len(rest) == len(taints) else rest


def with_scan_taint(taints: Taints, *, now: float, effect: str = "") -> Taints | None:
    """The taints of a node that a scan wants to remove."""
    return with_taint(taints, Taint(TO_BE_REMOVED, str(int(now)), effect or DEFAULT_EFFECT))


def without_scan_taint(taints: Taints) -> Taints | None:
    """The taints of a node that stays after all."""
    return without_taints(taints, TO_BE_REMOVED)


def with_scan_time(taints: Taints, *, at: float) -> Taints:
    """The same taints with the scan's taint at this time, rounded up."""
    value = str(math.ceil(at))
    return tuple(
        msgspec.structs.replace(taint, value=value) if taint.key == TO_BE_REMOVED else taint for taint in taints
    )


def tainted_at(taints: Iterable[Taint], *, node: str = "") -> float | None:
    """Unix seconds of the scan's taint, None without one. Raises InvalidInput."""
    for taint in taints:
        if taint.key == TO_BE_REMOVED:
            seconds = int(taint.value) if _WHOLE_SECONDS.fullmatch(taint.value) else None
            if seconds is None or not -_MOST_SECONDS - 1 <= seconds <= _MOST_SECONDS:
                problem = "expected the whole seconds of a Unix time"
                raise InvalidInput(source=f"Node {node}", field=TO_BE_REMOVED, value=taint.value, problem=problem)
            return float(seconds)
    return None


def is_being_deleted(node: Node) -> bool:
    return has_taint(node.spec.taints or (), TAINT_TO_BE_DELETED)


def deletion_patch(node: Node, now: float, *, cordons: bool) -> NodePatch | None:
    """Taints a node under deletion, so that it gets no further pods."""
    spec: dict[str, object] = {}
    annotations: NodePatch = {}
    taints = with_taint(node.spec.taints or (), Taint(TAINT_TO_BE_DELETED, str(int(now)), "NoSchedule"))
    if taints is not None:
        spec["taints"] = taints
    if cordons and not node.spec.unschedulable:
        spec["unschedulable"] = True
        annotations = {"metadata": {"annotations": {ANNOTATION_CORDONED: "true"}}}
    return {**annotations, "spec": spec} if spec else None


def retention_patch(node: Node) -> NodePatch | None:
    """For a node that stays: takes off both taints of scale-down, as the next pass decides again whether it is a
    candidate.
    """
    spec: dict[str, object] = {}
    annotations: NodePatch = {}
    taints = without_taints(node.spec.taints or (), TAINT_TO_BE_DELETED, TAINT_DELETION_CANDIDATE)
    if taints is not None:
        spec["taints"] = taints
    if node.metadata.annotation(ANNOTATION_CORDONED) is not None:
        spec["unschedulable"] = None
        annotations = {"metadata": {"annotations": {ANNOTATION_CORDONED: None}}}
    return {**annotations, "spec": spec} if spec else None


def candidate_patch(node: Node, now: float) -> NodePatch | None:
    """Taints a node that is likely to be deleted."""
    taint = Taint(TAINT_DELETION_CANDIDATE, str(int(now)), "PreferNoSchedule")
    return taints_patch(with_taint(node.spec.taints or (), taint))


def needed_patch(node: Node) -> NodePatch | None:
    """Untaints a node that is no longer likely to be deleted."""
    return taints_patch(without_taints(node.spec.taints or (), TAINT_DELETION_CANDIDATE))


def taints_patch(taints: Taints | None) -> NodePatch | None:
    return None if taints is None else {"spec": {"taints": taints}}


@dataclass(frozen=True, slots=True)
class SoftTaints:
    """Nodes that get the taint `DeletionCandidateOfClusterAutoscaler`, and those that lose it."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def soft_taints(nodes: Iterable[NodeInfo], unneeded: Iterable[str], at_once: int) -> SoftTaints:
    """At most `at_once` changes. Nodes that are needed again come first."""
    wanted = list(unneeded)
    tainted = {node.name for node in nodes if has_taint(node.taints, TAINT_DELETION_CANDIDATE)}
    remove = sorted(tainted - set(wanted))[:at_once]
    add = [name for name in wanted if name not in tainted][: at_once - len(remove)]
    return SoftTaints(tuple(add), tuple(remove))
