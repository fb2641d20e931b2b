"""How many new nodes of one group pending pods need, and how many of the pods fit (Cluster Autoscaler's bin-packing
estimator).

Classes come largest first. The pods of a class go to new nodes that are already added, then to the last one, then to
further ones while these are permitted. A class whose next pod does not fit on an empty new node is given up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from manager.autoscaler.estimator.limits import UNLIMITED
from manager.autoscaler.estimator.packing import PackedPods, Packing, refusals
from manager.autoscaler.estimator.problem import NewNodeKind, PackingProblem
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, Flags, Integers, NodeTemplate
from shared.cached_property import cached_property
from shared.quantity import Amounts

NOT_PERMITTED = "no more nodes may be added"
OUT_OF_TIME = "the time for its estimate is over"
_NONE = -1


class Permissions:
    """The number of nodes that one estimate may still add: `most` in all (0: no limit, negative: none), while there is
    time.
    """

    def __init__(self, most: int = UNLIMITED, out_of_time: Callable[[], bool] | None = None) -> None:
        self._most = most
        self._out_of_time = out_of_time
        self.nodes = 0
        self.refusal = NOT_PERMITTED

    def take(self, wanted: int) -> int:
        """Asks for up to `wanted` further nodes; returns how many are granted."""
        if self._most < 0:
            return 0
        if self._out_of_time is not None and self._out_of_time():
            self.refusal = OUT_OF_TIME
            return 0
        granted = min(wanted, self._most - self.nodes) if self._most else wanted
        self.nodes += granted
        return granted


@dataclass(frozen=True)
class Fit:
    """The classes that fit on a new node of a template, by position, and why the others do not."""

    flags: Flags
    _problem: PackingProblem
    _template: NodeTemplate
    _after: Packing | None

    @property
    def positions(self) -> Integers:
        return self.flags.nonzero()[0]

    @cached_property
    def _probe(self) -> Packing:
        return _probe(self._problem, self._template, self._after)

    def reasons(self, position: int) -> tuple[str, ...]:
        """Reasons in kube-scheduler's words; empty for a class that fits."""
        return tuple(refusals(self._probe, position, self._probe.known))


@dataclass(frozen=True)
class Estimate:
    """`placed` counts pods by the position of their class; `reasons` says why the rest of a class does not fit.

    `existing_used` counts present nodes that took pods after all, once new nodes had evened out their spread. New nodes
    with at least `same_from` free, by resource, and otherwise alike, make the same estimate in the same order of
    classes; None if amounts limited it.
    """

    group: str
    node_count: int
    placed: Mapping[int, int] = field(default_factory=dict)
    reasons: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    existing_used: int = 0
    placements: tuple[PackedPods, ...] = ()
    same_from: Integers | None = field(default=None, repr=False, compare=False)

    @property
    def pod_count(self) -> int:
        return sum(self.placed.values())


def pack_on_existing_nodes(problem: PackingProblem) -> Packing:
    """The cluster with every pending pod that fits placed on it, highest priority first, then largest first.

    Empty nodes, present or upcoming, come last and are filled one after another, as in the estimate that bought them,
    so that pods find the nodes that were bought for them. `pending` is what remains of each class.
    """
    packing = Packing(problem)
    nodes = problem.snapshot.nodes
    cpu, memory = problem.cpu_and_memory
    largest = {name: max((node.allocatable.get(name, 0) for node in nodes), default=0) for name in ("cpu", "memory")}
    sizes = scores(cpu, memory, largest).tolist()
    priorities = [each.facts.priority for each in problem.classes]
    empty = problem.snapshot.is_empty
    for position in sorted(range(len(priorities)), key=lambda each: (-priorities[each], -sizes[each])):
        left = int(packing.pending[position])
        rules = problem.bonds.rules.get(position)
        if rules is not None and not rules.only_attach:
            left -= packing.fill(position, left, 0)
        else:
            left -= packing.fill(position, left, 0, among=~empty)
            left -= packing.fill_up(position, left, empty) if left else 0
        packing.pending[position] = left
        empty &= ~packing.used[: packing.known]
    return packing


def fit_on_new_node(problem: PackingProblem, template: NodeTemplate, after: Packing | None = None) -> Fit:
    """The classes that the first new node of a template would take."""
    return fits_on_new_nodes(problem, [template], after)[0]


def fits_on_new_nodes(
    problem: PackingProblem, templates: Iterable[NodeTemplate], after: Packing | None = None
) -> list[Fit]:
    """The same for each template. New nodes of one kind are checked once for admission."""
    open_to: dict[NewNodeKind, Flags] = {}
    columns = np.ascontiguousarray(problem.requests.T)
    found = []
    for template in templates:
        fresh = problem.new_node(template)
        flags = open_to.get(fresh.kind)
        if flags is None:
            probe = _probe(problem, template, after)
            flags = open_to[fresh.kind] = fresh.kind.admits.copy()
            for position in problem.bonds.rules:
                if flags[position]:
                    flags[position] = probe.is_open(position, probe.known)
        enough: Flags = np.logical_and.reduce(columns <= fresh.free[:, None])
        found.append(Fit(enough & flags, problem, template, after))
    return found


def _probe(problem: PackingProblem, template: NodeTemplate, after: Packing | None) -> Packing:
    probe = Packing(problem, template, after)
    probe.add_nodes(1)
    return probe


def estimate(
    problem: PackingProblem,
    template: NodeTemplate,
    positions: Sequence[int] | Integers,
    permissions: Permissions,
    *,
    after: Packing | None = None,
    fast_path: bool = False,
) -> Estimate:
    """Estimates how many nodes of the template these classes need.

    `after` is the cluster holding the pods that need no new node. With `fast_path`, the class that saves most by
    counting comes last, as with Cluster Autoscaler's option of that name.
    """
    packing = Packing(problem, template, after)
    order = in_order(problem, template, positions)
    if fast_path:
        order = _last(order, problem, template)
    placed: dict[int, int] = {}
    reasons: dict[int, tuple[str, ...]] = {}
    permitted = True
    pending = packing.pending.tolist()
    for position in order:
        wanted = left = pending[position]
        if packing.new_count:
            left -= packing.fill(position, left, packing.known)
        if left and permitted:
            left, permitted = _on_new_nodes(packing, position, left, permissions)
            if left and permitted:
                reasons[position] = tuple(refusals(packing, position, packing.size - 1))
        if left:
            reasons.setdefault(position, (permissions.refusal,))
        if left < wanted:
            placed[position] = wanted - left
    used = packing.used
    # Nodes with room for all pods of any class at the end never lacked room for a pod that the rules allowed there.
    largest: Integers = (problem.requests[order] * packing.pending[order, None]).max(axis=0, initial=0)
    return Estimate(
        group=template.group,
        node_count=int(used[packing.known : packing.size].sum()),
        placed=placed,
        reasons=reasons,
        existing_used=int(used[: packing.known].sum()),
        placements=tuple(packing.placements),
        same_from=packing.room.sufficient(largest) if order else largest,
    )


def zero_or_max(found: Estimate, max_size: int, *, all_or_nothing: bool = False) -> int:
    """The nodes to add to a group that is either empty or full."""
    if found.node_count <= 0 or (all_or_nothing and found.node_count > max_size):
        return 0
    return max_size


def scores(
    cpu: Integers, memory: Integers, allocatable: Amounts
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """The size score of pods: the sum of their shares of a node's cpu and memory."""
    found = np.zeros(len(cpu))
    for requested, name in ((cpu, "cpu"), (memory, "memory")):
        if allocatable.get(name, 0) > 0:
            found += requested / allocatable[name]
    return found


def in_order(problem: PackingProblem, template: NodeTemplate, positions: Sequence[int] | Integers) -> list[int]:
    """The classes largest first; equal ones in the order of their pods' names."""
    chosen = np.sort(np.asarray(positions, np.int64))
    cpu, memory = problem.cpu_and_memory
    found = scores(cpu[chosen], memory[chosen], template.node.allocatable)
    order: list[int] = chosen[np.argsort(-found, kind="stable")].tolist()
    return order


@dataclass(frozen=True, slots=True)
class FastPathCase:
    """The facts of a class that decide how much counting saves: requests, number, and inter-pod rules."""

    cpu: int
    memory: int
    pods: int
    spreads: bool = False
    excludes_beyond_node: bool = False
    excludes_itself_on_node: bool = False


def fast_path_index(cases: Sequence[FastPathCase], capacity: Amounts) -> int:
    """The class for which simulating one node and dividing saves the most simulations; -1 if no class allows it.

    That class has the largest pods - floor(pods / nodes); of equal classes the last one counts.
    """
    best, most_saved = _NONE, 0
    for index, case in enumerate(cases):
        nodes = case.pods if case.excludes_itself_on_node else 0
        for requested, name in ((case.cpu, "cpu"), (case.memory, "memory")):
            if capacity.get(name, 0) > 0:
                nodes = max(nodes, -(-case.pods * requested // capacity[name]))
        saved = case.pods - case.pods // nodes if nodes else 0
        if saved >= most_saved and not (case.spreads or case.excludes_beyond_node):
            best, most_saved = index, saved
    return best


def _last(order: list[int], problem: PackingProblem, template: NodeTemplate) -> list[int]:
    cpu, memory = problem.cpu_and_memory
    cases = []
    for position in order:
        facts = problem.classes[position].facts
        of_node = [term.key == LABEL_HOSTNAME for term in facts.anti_affinity]
        cases.append(
            FastPathCase(
                int(cpu[position]),
                int(memory[position]),
                int(problem.pending[position]),
                bool(facts.spread),
                not all(of_node),
                any(local and term.matches(facts) for local, term in zip(of_node, facts.anti_affinity, strict=True)),
            )
        )
    index = fast_path_index(cases, template.node.capacity)
    return order if index == _NONE else [*order[:index], *order[index + 1 :], order[index]]


def _on_new_nodes(packing: Packing, position: int, left: int, permissions: Permissions) -> tuple[int, bool]:
    """The rest of a class, and whether more nodes may be added for the next class."""
    rules = packing.problem.bonds.rules.get(position)
    if rules is None or rules.of_one_node:
        return _by_counting(packing, position, left, permissions)
    moves_others = packing.uses_hostname_spread(position)
    while left:
        last = packing.size - 1
        if packing.new_count:
            placed = packing.fill_one(position, last, left)
            if not placed and moves_others and refusals(packing, position, last) == [predicates.SPREAD]:
                placed = packing.fill(position, 1, 0, skip=last)
            if placed:
                left -= placed
                continue
            if not packing.used[last]:
                return left, True
        if not permissions.take(1):
            return left, False
        packing.add_nodes(1)
        placed = packing.fill_one(position, packing.size - 1, left)
        if not placed:
            return left, True
        left -= placed
    return 0, True


def _by_counting(packing: Packing, position: int, left: int, permissions: Permissions) -> tuple[int, bool]:
    """The same if every new node takes equally many pods, and the present nodes are full."""
    if packing.new_count and not packing.used[packing.size - 1]:
        return left, True
    each = packing.room_on_fresh(position)
    if each <= 0:
        if not permissions.take(1):
            return left, False
        packing.add_nodes(1)
        return left, True
    wanted = -(-left // each)
    granted = permissions.take(wanted)
    if granted:
        left -= packing.fill_new(position, left, granted, each)
    return left, granted == wanted
