"""The inputs of a scale-up decision, and its options: how every group that may grow could take the pods that need a new
node.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking, limits
from manager.autoscaler.estimator.binpacking import Estimate, Fit, Permissions
from manager.autoscaler.estimator.limits import UNLIMITED, Exceeded, Quota, ResourceBounds
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.estimator.problem import NewNodeKind
from manager.autoscaler.expander import chain
from manager.autoscaler.expander.chain import ExpanderPlugins
from manager.autoscaler.expander.option import Option, PodClass, has_gpu
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.expander.ranking import SEED, Preset
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.scale_up import balancing
from manager.autoscaler.scale_up.groups import (
    AT_MAXIMUM,
    CANNOT_RANK_FIRST,
    MAX_NODES_TOTAL,
    OUT_OF_TIME,
    Headroom,
    QuotaUsage,
    Skipped,
    not_all_fit,
)
from manager.autoscaler.scale_up.rank_bounds import LeastCost, RankBounds, RankContest
from manager.autoscaler.settings.estimates import SimilarityRules
from manager.autoscaler.snapshot import templates
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, Integers, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.quantity import Amounts

MOST_NODES_AT_ONCE = 1000


@dataclass(frozen=True)
class TimeLimits:
    """Time limits: one estimate ends after `group_seconds`, all of them after `all_seconds` of `clock`."""

    clock: Callable[[], float]
    all_seconds: float = 300.0
    group_seconds: float = 10.0

    def deadline(self, seconds: float) -> Callable[[], bool]:
        """Whether `seconds` from now have passed."""
        end = self.clock() + seconds
        return lambda: self.clock() >= end


@dataclass(frozen=True)
class EstimateRules:
    """How options are computed. Without `time` there is no time limit.

    Up to `all_estimated` groups all get an estimate, and a visible rank; of more groups, only those that may rank first
    do.
    """

    balance_similar_node_groups: bool = False
    scale_up_all_or_nothing: bool = False
    fastpath_binpacking_enabled: bool = False
    max_nodes_per_scaleup: int = MOST_NODES_AT_ONCE
    similarity: SimilarityRules = field(default_factory=SimilarityRules)
    gpu_label: str | None = None
    time: TimeLimits | None = None
    all_estimated: int = 24


@dataclass(frozen=True)
class GroupEstimate:
    """The estimate for one group. `option` is None if the group takes no pod. `limit` is what limited its nodes, or
    would have.
    """

    state: GroupStatus
    fit: Fit
    estimate: Estimate
    similar: tuple[GroupStatus, ...]
    option: Option | None
    limit: str = ""


class Unestimated(NamedTuple):
    """A group that may grow and was not estimated, with the classes that fit on its new nodes."""

    state: GroupStatus
    fit: Fit


class GroupEstimates(NamedTuple):
    """The estimates in the order of the groups, and the groups that were skipped, `unestimated` ones among them."""

    estimated: list[GroupEstimate]
    skipped: list[Skipped]
    unestimated: list[Unestimated]


def compute_options(
    left: Packing,
    states: Sequence[GroupStatus],
    headroom: Headroom,
    rules: EstimateRules,
    bounds: RankBounds | None = None,
) -> GroupEstimates:
    """An estimate of each group for the pods `left`; with `bounds` and many groups, only of possible winners."""
    able = [(state, state.template) for state in states if state.template is not None]
    found_fits = binpacking.fits_on_new_nodes(left.problem, [template for _, template in able], left)
    fits = [(state, fit) for (state, _), fit in zip(able, found_fits, strict=True)]
    alike = _similar_groups(fits, rules)
    maker = _OptionMaker(left, headroom, rules, alike)
    if bounds is None or len(fits) <= rules.all_estimated:
        least = [LeastCost()] * len(fits)
        contest = None
    else:
        least = [bounds.least(state, fit, maker.most_nodes(state)) for state, fit in fits]
        contest = RankContest(bounds, [state for state, _ in fits])
    wanted = int(left.pending.sum())
    is_late = rules.time.deadline(rules.time.all_seconds) if rules.time else no_deadline
    skipped: list[Skipped] = []
    found: dict[int, GroupEstimate] = {}
    unestimated: list[Unestimated] = []
    for index in sorted(range(len(fits)), key=lambda each: least[each]):
        state, fit = fits[index]
        if contest is not None and contest.is_lost(least[index]):
            unestimated.append(Unestimated(state, fit))
            skipped.append(Skipped(state.id, CANNOT_RANK_FIRST))
            continue
        if is_late():
            unestimated.append(Unestimated(state, fit))
            skipped.append(Skipped(state.id, OUT_OF_TIME))
            continue
        each = maker.make(state, fit)
        if rules.scale_up_all_or_nothing and each.option is not None and each.option.pod_count < wanted:
            is_limited = (binpacking.NOT_PERMITTED,) in each.estimate.reasons.values()
            skipped.append(Skipped(state.id, not_all_fit([each.limit] if is_limited else [])))
            continue
        found[index] = each
        if contest is not None and each.option is not None:
            contest.add(state, each.option)
    return GroupEstimates([found[index] for index in sorted(found)], skipped, unestimated)


def most_nodes(states: Iterable[GroupStatus], headroom: Headroom, rules: EstimateRules) -> int:
    """The limit on an estimate's nodes of a group and its similar groups; see `limits.lowest_limit`."""
    sizes = [(each.group.max_size, each.group.target_size) for each in states]
    most = limits.lowest_limit(rules.max_nodes_per_scaleup, limits.group_capacity(sizes))
    return limits.lowest_limit(most, headroom.most_nodes)


def limit_on_nodes(states: Sequence[GroupStatus], headroom: Headroom, rules: EstimateRules) -> str:
    """The limit that `most_nodes` comes from, in words."""
    most = most_nodes(states, headroom, rules)
    if headroom.nodes is not None and most == headroom.most_nodes:
        return str(Exceeded(MAX_NODES_TOTAL, (limits.NODES,)))
    if most == limits.group_capacity((each.group.max_size, each.group.target_size) for each in states):
        return AT_MAXIMUM
    return f"--max-nodes-per-scaleup allows {rules.max_nodes_per_scaleup} at once"


@dataclass(frozen=True)
class _OptionMaker:
    """Makes the options of one decision. New nodes that are alike for the pods share one estimate."""

    left: Packing
    headroom: Headroom
    rules: EstimateRules
    alike: Mapping[str, tuple[GroupStatus, ...]]
    _known: dict[Hashable, "_KnownEstimates"] = field(default_factory=dict)
    _alike_kinds: dict[NewNodeKind, Hashable] = field(default_factory=dict)
    _placed: dict[int, tuple[Mapping[int, int], tuple[PodClass, ...]]] = field(default_factory=dict)

    def most_nodes(self, state: GroupStatus) -> int:
        return most_nodes((state, *self.alike.get(state.id, ())), self.headroom, self.rules)

    def make(self, state: GroupStatus, fit: Fit) -> GroupEstimate:
        rules, template = self.rules, state.template
        assert template is not None
        found = self._estimate(template, fit, self.most_nodes(state))
        count = found.node_count
        if state.zero_or_max:
            count = binpacking.zero_or_max(found, state.group.max_size, all_or_nothing=rules.scale_up_all_or_nothing)
        option = None
        if count > 0 and found.placed:
            option = Option(
                group=state.id,
                node_count=count,
                machine=template.machine,
                classes=self._classes(found),
                exists=state.exists,
                has_gpu=has_gpu(template.node.labels, template.node.allocatable, rules.gpu_label),
                allocatable=template.node.allocatable,
                taints=template.node.taints,
            )
        similar = self.alike.get(state.id, ())
        limit = limit_on_nodes((state, *similar), self.headroom, rules)
        return GroupEstimate(state, fit, found, similar, option, limit)

    def _classes(self, found: Estimate) -> tuple[PodClass, ...]:
        """The placed pods; one object for all groups that share an estimate, and so its `placed`."""
        known = self._placed.get(id(found.placed))
        if known is None:
            pending = self.left.pending.tolist()
            classes = tuple(
                _pod_class(self.left.problem.classes[position], pending[position], pods)
                for position, pods in found.placed.items()
            )
            known = self._placed[id(found.placed)] = found.placed, classes
        return known[1]

    def _likeness(self, kind: NewNodeKind) -> Hashable:
        if kind not in self._alike_kinds:
            self._alike_kinds[kind] = self.left.likeness(kind)
        return self._alike_kinds[kind]

    def _estimate(self, template: NodeTemplate, fit: Fit, most: int) -> Estimate:
        asked, rules = self.left.problem, self.rules
        fresh = asked.new_node(template)
        capacity = tuple(sorted(template.node.capacity.items())) if rules.fastpath_binpacking_enabled else None
        order = tuple(binpacking.in_order(asked, template, fit.positions))
        known = self._known.setdefault((self._likeness(fresh.kind), order, most, capacity), _KnownEstimates())
        found = known.get(fresh.free)
        if found is None:
            permissions = Permissions(most, rules.time.deadline(rules.time.group_seconds) if rules.time else None)
            found = binpacking.estimate(
                asked,
                template,
                fit.positions,
                permissions,
                after=self.left,
                fast_path=rules.fastpath_binpacking_enabled,
            )
            known.add(fresh.free, found)
        return replace(found, group=template.group)


class _KnownEstimates:
    """Estimates for new nodes that differ only in free amounts."""

    def __init__(self) -> None:
        self._exact: dict[bytes, Estimate] = {}
        self._from: list[tuple[Integers, Estimate]] = []

    def get(self, free: Integers) -> Estimate | None:
        found = self._exact.get(free.tobytes())
        if found is None:
            found = next((each for least, each in self._from if (least <= free).all()), None)
        return found

    def add(self, free: Integers, found: Estimate) -> None:
        self._exact[free.tobytes()] = found
        if found.same_from is not None:
            self._from.append((found.same_from, found))


def _pod_class(group: EquivalenceGroup, pending: int, placed: int) -> PodClass:
    """The first `placed` of the last `pending` pods; earlier pods have a place."""
    facts = group.facts
    return PodClass(
        requests=facts.requests,
        pods=placed,
        members=group.pods,
        first=len(group.pods) - pending,
        labels=facts.labels,
        node_selector=facts.demands.selector,
        tolerations=facts.demands.tolerations,
        priority=facts.priority,
    )


def limit_nodes(
    left: Packing, each: GroupEstimate, nodes: int, why: Sequence[str], *, fast_path: bool
) -> GroupEstimate:
    """The same estimate limited to `nodes` nodes, and to the pods on them; `why` says what limits it.

    It takes the classes in the same order, so it adds the same nodes up to the limit.
    """
    template, found = each.state.template, each.estimate
    assert template is not None
    if nodes >= found.node_count:
        return each
    found = binpacking.estimate(
        left.problem, template, each.fit.positions, Permissions(nodes), after=left, fast_path=fast_path
    )
    return replace(each, estimate=found, limit="; ".join(dict.fromkeys(why)) or each.limit)


def _similar_groups(fits: list[tuple[GroupStatus, Fit]], rules: EstimateRules) -> dict[str, tuple[GroupStatus, ...]]:
    """The groups that would share each group's nodes."""
    if not rules.balance_similar_node_groups:
        return {}
    by_id = {state.id: state for state, _ in fits}
    machines = {state.id: templates.without_reclaimed(state.template) for state, _ in fits if state.template}
    taken = {state.id: frozenset(fit.positions.tolist()) for state, fit in fits}
    like: dict[str, dict[str, frozenset[int]]] = {group: {} for group in by_id}
    real = [group for group, state in by_id.items() if state.exists and not state.zero_or_max]
    for one, other in itertools.combinations(real, 2):
        if balancing.are_similar(machines[one], machines[other], rules.similarity):
            like[one][other] = taken[other]
            like[other][one] = taken[one]
    return {
        group: tuple(by_id[each] for each in balancing.similar_for_option(taken[group], like[group])) for group in by_id
    }


def no_deadline() -> bool:
    """A deadline that never passes."""
    return False


class PendingGang(NamedTuple):
    """Pending pods that are scheduled together or not at all: `missing` of them have to get a place at once."""

    name: str
    min_count: int
    missing: int
    pods: frozenset[str]


@dataclass(frozen=True)
class ScaleUpInput:
    """The observations of one iteration.

    `groups` holds existing groups and theoretical ones. `snapshot` includes upcoming nodes; `cluster_nodes` counts all
    Nodes of the API server, ready or not. `quotas` are those besides the bounds of the whole cluster. `expected` is
    what reclaiming adds within one reporting interval, by node. At most `new_groups` may be created.
    `templates_of_nodes` gives, by node, a node of its group that is completely ready. `buffers` are the chunks of
    CapacityBuffers, by class; a decision about the pods does not consider them.
    """

    snapshot: ClusterSnapshot
    classes: Sequence[EquivalenceGroup] = ()
    groups: Sequence[GroupStatus] = ()
    cluster_nodes: int = 0
    quotas: tuple[Quota, ...] = ()
    expected: Mapping[str, Amounts] = field(default_factory=dict)
    new_groups: int = 1
    templates_of_nodes: Mapping[str, NodeInfo] = field(default_factory=dict)
    buffers: Sequence[EquivalenceGroup] = ()
    gangs: Sequence[PendingGang] = ()


@dataclass(frozen=True)
class ScaleUpSettings:
    """The settings of a decision. `plugins` load the `expanders`. `bounds` and `max_nodes_total` are those of the whole
    cluster.

    With `least_cost_mix`, several groups at once replace the group chosen by price, where that is cheaper.
    """

    ownership: Ownership
    pricing: PricingModel | None = None
    preset: Preset = SEED
    expanders: tuple[str, ...] = (chain.DEFAULT,)
    plugins: ExpanderPlugins = field(default_factory=ExpanderPlugins)
    priorities: Priorities = field(default_factory=Priorities)
    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    max_nodes_total: int = UNLIMITED
    estimates: EstimateRules = field(default_factory=EstimateRules)
    enforce_node_group_min_size: bool = False
    least_cost_mix: bool = True

    @property
    def usage(self) -> QuotaUsage:
        return QuotaUsage(self.estimates.gpu_label)
