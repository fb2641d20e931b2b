"""The groups that may grow, and why the others may not, in Cluster Autoscaler's words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import limits
from manager.autoscaler.estimator.limits import NODES, Allowance, Quota, ResourceBounds
from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.snapshot.cluster import NodeInfo
from shared.api.selectors import LabelSelector

NOT_READY = "not ready for scale-up"
BACKED_OFF = "in backoff after failed scale-up"
AT_MAXIMUM = "max node group size reached"
ATOMIC_BEYOND_NODES = "atomic scale-up exceeds cluster node count limit"
NOT_ALL_FIT = "not all pods would fit and scale-up is using all-or-nothing strategy"
NOT_CONSIDERED = "expansion options filtered out and no longer considered"
# Reasons that Cluster Autoscaler does not have.
NOT_OURS = "neither listed nor named with the auto-provisioning prefix"
NO_TEMPLATE = "no node to learn from, and no template from its provider"
OUT_OF_TIME = "the time limit was reached before its estimate"
CANNOT_RANK_FIRST = "not estimated: at best its nodes would cost more for their pods than those of other groups"
AT_MOST_GROUPS = "no more node groups may be created"

MAX_NODES_TOTAL = "max-nodes-total"
LABEL_VIRTUAL = ("type", "virtual-kubelet")  # nodes without a machine


@dataclass(frozen=True)
class Headroom:
    """The remaining capacity of the whole cluster: `quotas`, and `nodes` up to the cluster's maximum (None: any)."""

    quotas: tuple[Quota, ...] = ()
    nodes: int | None = None

    @property
    def most_nodes(self) -> int:
        """The same number as a limit of one estimate, where 0 means unlimited and a negative value denies all."""
        return limits.UNLIMITED if self.nodes is None else self.nodes or limits.DENIED

    @property
    def all_quotas(self) -> list[Quota]:
        """The quotas and the limit on nodes."""
        return [*self.quotas, *([] if self.nodes is None else [Quota(MAX_NODES_TOTAL, {NODES: self.nodes})])]

    def check(self, usage: Mapping[str, int], count: int) -> Allowance:
        """The number of nodes, up to `count`, that fit, including the limit on all nodes."""
        return limits.check_quotas(self.all_quotas, usage, count)

    def less(self, usage: Mapping[str, int], count: int) -> "Headroom":
        """The headroom after nodes that were checked."""
        _, quotas = limits.consume_quotas(self.quotas, usage, count)
        return Headroom(tuple(quotas), None if self.nodes is None else max(0, self.nodes - count))


@dataclass(frozen=True)
class QuotaUsage:
    """The usage of quotas by nodes. `gpu_label` is the provider's; its values are the GPU types that quotas name."""

    gpu_label: str | None = None

    def node_usage(self, node: NodeInfo, template: NodeInfo | None = None) -> dict[str, int]:
        """The usage of one node; until its GPU driver is ready it uses the GPUs of its group's template."""
        label, value = LABEL_VIRTUAL
        if node.labels.get(label) == value:
            return {}
        kind = node.labels.get(self.gpu_label) if self.gpu_label else None
        if kind is None:
            return limits.usage_of(node.capacity)
        ready = template if template is not None and not _gpus(node) else node
        gpus = {name: ready.allocatable[name] for name in GPU_RESOURCES if name in ready.allocatable}
        return limits.usage_of(node.capacity, {**gpus, kind: _gpus(ready)})

    def cluster_wide(
        self, bounds: Mapping[str, ResourceBounds], nodes: Sequence[NodeInfo], templates: Mapping[str, NodeInfo]
    ) -> Quota:
        """The remainder under the whole cluster's bounds beside these nodes; `templates` are those of their groups, by
        the node's name.
        """
        return limits.cluster_wide(bounds, [self.node_usage(node, templates.get(node.name)) for node in nodes])

    def selected_quota(
        self, selector: LabelSelector | None, nodes: Iterable[NodeInfo], templates: Mapping[str, NodeInfo]
    ) -> list[dict[str, int]]:
        """The usage of each of these nodes that the selector selects, or of all without one; `templates` as above."""
        return [
            self.node_usage(node, templates.get(node.name))
            for node in nodes
            if selector is None or selector.matches(node.labels)
        ]


@dataclass(frozen=True)
class Skipped:
    """A group that was not considered."""

    group: str
    reason: str


@dataclass(frozen=True)
class Validity:
    """The groups worth an estimate, in the order of their ids, and the others."""

    valid: tuple[GroupStatus, ...]
    skipped: tuple[Skipped, ...] = field(default=())


def validate_groups(
    states: Sequence[GroupStatus], headroom: Headroom, usage: QuotaUsage, ownership: Ownership
) -> Validity:
    """Checks each group by itself; their order does not matter."""
    valid: list[GroupStatus] = []
    skipped: list[Skipped] = []
    for state in sorted(states, key=lambda each: each.id):
        reason = skip_reason(state, headroom, usage, ownership)
        if reason:
            skipped.append(Skipped(state.id, reason))
        else:
            valid.append(state)
    return Validity(tuple(valid), tuple(skipped))


def skip_reason(state: GroupStatus, headroom: Headroom, usage: QuotaUsage, ownership: Ownership) -> str:
    """Why a group cannot grow; empty when it can."""
    if not ownership.owns(state.id):
        return NOT_OURS
    if state.blocked_reason:
        return state.blocked_reason
    if state.exists and not state.healthy:
        return NOT_READY
    if state.backoff is not None:
        return BACKED_OFF
    if not state.room:
        return AT_MAXIMUM
    if state.zero_or_max and headroom.nodes is not None and state.room > headroom.nodes:
        return ATOMIC_BEYOND_NODES
    if state.template is None:
        return NO_TEMPLATE
    limiting = [quota for quota in quotas_for(headroom.quotas, state) if quota.left]
    if not limiting:
        return ""
    exceeded = limits.check_quotas(limiting, usage.node_usage(state.template.node), state.least_step).exceeded
    return "; ".join(map(str, exceeded))


def allowance(state: GroupStatus, headroom: Headroom, usage: QuotaUsage, count: int) -> Allowance:
    """The number of further nodes of a group, up to `count`, that the cluster's limits allow."""
    assert state.template is not None
    of_group = Headroom(tuple(quotas_for(headroom.quotas, state)), headroom.nodes)
    return of_group.check(usage.node_usage(state.template.node), count)


def headroom_after(state: GroupStatus, headroom: Headroom, usage: QuotaUsage, count: int) -> Headroom:
    """The headroom after `count` allowed nodes of a group."""
    assert state.template is not None
    labels = state.template.node.labels
    after = Headroom(tuple(quotas_for(headroom.quotas, state)), headroom.nodes).less(
        usage.node_usage(state.template.node), count
    )
    matching = iter(after.quotas)
    return Headroom(tuple(next(matching) if quota.matches(labels) else quota for quota in headroom.quotas), after.nodes)


def not_all_fit(limits_on_nodes: Iterable[str]) -> str:
    """Why all-or-nothing takes nothing, with the limits that are to blame."""
    return "; ".join(dict.fromkeys((NOT_ALL_FIT, *limits_on_nodes)))


def quotas_for(quotas: Sequence[Quota], state: GroupStatus) -> list[Quota]:
    """The quotas that cover the group's nodes."""
    labels = state.template.node.labels if state.template else {}
    return [quota for quota in quotas if quota.matches(labels)]


def _gpus(node: NodeInfo) -> int:
    return max((node.allocatable.get(name, 0) for name in GPU_RESOURCES), default=0)
