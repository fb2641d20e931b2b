"""One round, from what is known to what is to be done: Cluster Autoscaler's order of things.

Pure, but for what is read through `cloud`, and for `Memory`, which outlasts a round. The manager's loop, `headroom
plan` and the API ask the same function; who acts on its result is another matter.
"""

import functools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeVar

from manager.autoscaler import (
    assessment,
    books,
    cluster,
    cost,
    options,
    podclasses,
    reclaim,
    salvo,
    scale_up,
    templates,
    waiting,
)
from manager.autoscaler.assessment import Assessment
from manager.autoscaler.autoprovisioning import candidates, removal
from manager.autoscaler.books import Books
from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupSpec, Theoretical
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, ProviderError, Refused, Unsupported
from manager.autoscaler.cloudprovider.guard import Observed
from manager.autoscaler.cluster import NodeFacts, NodeState, NodeTemplate, Snapshot, StateRules
from manager.autoscaler.config import Config
from manager.autoscaler.decisions import Decision, Increase, Outcome
from manager.autoscaler.expander import priority
from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.groups import GroupState
from manager.autoscaler.modes import Mode
from manager.autoscaler.options import TimeLimits
from manager.autoscaler.podclasses import PendingClass
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.rounds import Act, Round, What
from manager.autoscaler.scale_up import Settings, Situation
from manager.autoscaler.templates import Daemon, LiveNode, Templates
from manager.autoscaler.waiting import Waiting
from manager.autoscaler.world import World
from shared import durations, quantity
from shared.api import pods
from shared.api.core import Node, NodeSpec, NodeStatus, Pod
from shared.api.meta import ObjectMeta
from shared.errors import InvalidInput
from shared.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from shared.quantity import Amounts

NO_READY_NODE = "no node is ready, and --scale-up-from-zero is off"
SETTLING = "all pending pods are new: their owners may be making more"
OBSERVED = "its mode is observe"
RECOMMENDED = "its mode is recommend"
CORRECTED = "its size is being put right first"
UNTOLD = "the cloud does not yet tell the size it was given last"
BELOW_MINIMUM = "below its minimum"
EMPTY = "created here, and empty"

LENDING_SECONDS = 600.0  # after which a node offers Mid and Batch, or nobody is there to report what it could

_NATIVE_OF = {BATCH_CPU: CPU, BATCH_MEMORY: MEMORY}

OfferedBy = Callable[[Node], Amounts]
T = TypeVar("T")


class Cloud(Protocol):
    """What of a cloud is read, after it was observed. `Guard` is one. Every call raises ProviderError."""

    @property
    def observed(self) -> Observed: ...
    def template(self, group: str) -> Node: ...
    def gpus(self) -> Gpus: ...
    def pricing(self) -> PricingModel | None: ...
    def machine_types(self) -> Sequence[str]: ...
    def theoretical(self, spec: GroupSpec) -> Theoretical: ...


class Memory:
    """What is better remembered from round to round, and lost without harm: templates of groups, and the last
    priorities that could be read.
    """

    def __init__(self, config: Config) -> None:
        self.templates = Templates(
            config.taints, force_daemons=config.forces_daemons, ttl_seconds=config.template_seconds
        )
        self.priorities = Priorities()


@dataclass(frozen=True)
class Planned:
    """A round of which nothing is done yet, with what doing it takes. `books` are to be kept before anything is done.

    `again_seconds` is when the next round is due, where that is known better than by the scan interval.
    """

    round: Round
    books: Books
    settings: Settings
    outlook: "Outlook"
    again_seconds: float | None = None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return (*([self.round.decision] if self.round.decision is not None else []), *self.round.further)


def plan(
    world: World,
    cloud: Cloud,
    known: Books,
    config: Config,
    *,
    number: int = 1,
    chance: random.Random,
    memory: Memory | None = None,
    offered_by: OfferedBy | None = None,
    dry_run: bool = False,
) -> Planned:
    """`offered_by` is asked what Mid and Batch a new, empty Node will offer. Raises ProviderError."""
    memory = memory or Memory(config)
    gpus = _or_none(cloud.gpus) or Gpus()
    startup = (*templates.STARTUP_TAINT_PREFIXES, *sorted(config.taints.startup))
    node_rules = StateRules(world.now, config.start.startup_seconds, startup, gpus.label, GPU_RESOURCES)
    rules = assessment.Rules(
        modes=config.mode_of,
        node_states=node_rules,
        health=config.health,
        backoff=config.backoff,
        max_node_provision_seconds=config.start.provision_seconds,
        force_delete_unregistered=config.deletes_below_min,
    )
    assessed = assessment.assess(cloud.observed, world.nodes, known, rules, world.now)
    priorities, unread = _priorities(world, config, memory)
    settings = replace(
        config.scale_up,
        pricing=config.pricing(lambda: _or_none(cloud.pricing)),
        priorities=priorities,
        estimates=replace(config.scale_up.estimates, gpu_label=gpus.label),
    )
    outlook = Outlook(world, cloud, config, memory, assessed, offered_by or _nothing)
    held = _held(assessed, world, config)
    waits = waiting.sort_out(world.pods, config.pending, world.now)
    again = None
    if not held and waits.settles:
        held, again = SETTLING, _settled_in(waits, config, world.now)
    made = Round(
        number,
        world.now,
        state=assessed.state,
        held=held,
        aside=waits.aside,
        unread=unread,
        cost=cost.of(outlook.priced, cloud.observed.group_of_node, settings.pricing),
        acts=assessed.corrections,
        incidents=assessed.incidents,
        dry_run=dry_run,
    )
    if not held:
        made = _decided(made, waits, outlook, settings, chance)
    made = replace(made, unread={**made.unread, **outlook.unread})
    memory.templates.forget(memory.templates.groups - cloud.observed.groups.keys() - cloud.observed.refused.keys())
    return Planned(made, assessed.books, settings, outlook, again)


def stable_since(node: Node) -> float:
    """When the node's readiness last changed, as far as it says."""
    ready = next((each for each in node.status.conditions or () if each.type == "Ready"), None)
    turned = durations.instant(ready.last_transition_time) if ready and ready.last_transition_time else 0.0
    return max(turned, node.metadata.created_at)


@dataclass(frozen=True, eq=False)
class Outlook:
    """The cluster as it is and as it will be: nodes there and on their way, and what new ones will be like."""

    world: World
    cloud: Cloud
    config: Config
    memory: Memory
    assessed: Assessment
    offered_by: OfferedBy
    unread: dict[str, InvalidInput] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # why a group's template is none

    @cached_property
    def daemons(self) -> tuple[Daemon, ...]:
        found, refused = templates.read_daemons(self.world.daemon_sets, self.world.surroundings)
        self.unread.update(refused)
        return found

    @cached_property
    def placed(self) -> tuple[Pod, ...]:
        """Pods that hold what they request on a node, those that were nominated for one included."""
        cutoff = self.config.pending.expendable_below
        return tuple(
            pod
            for pod in self.world.pods
            if (pod.spec.node_name or pod.status.nominated_node_name)
            and pods.is_active(pod)
            and not podclasses.is_expendable(pod, cutoff)
        )

    @cached_property
    def templates(self) -> dict[str, NodeTemplate]:
        """Of every group that has one, by id."""
        observed = self.cloud.observed
        on_node: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.world.pods:
            if pod.spec.node_name in observed.group_of_node:
                on_node[pod.spec.node_name].append(pod)
        live: defaultdict[str, list[LiveNode]] = defaultdict(list)
        for node in self.world.nodes:
            name = node.metadata.name
            if name in observed.group_of_node:
                since = self.world.stable_since.get(name)
                live[observed.group_of_node[name]].append(
                    LiveNode(
                        node,
                        self.assessed.node_states[name],
                        tuple(on_node[name]),
                        stable_since(node) if since is None else since,
                    )
                )
        found = {}
        for group in sorted(self.assessed.state.groups):
            provided = functools.partial(self._provided, group)
            try:
                template = self.memory.templates.of_group(group, live[group], provided, self.daemons, self.world.now)
            except InvalidInput as refused:
                self.unread[f"template of {group}"] = refused
                self.problems[group] = str(refused)
                continue
            if template is not None:
                self.problems.pop(group, None)  # what its provider does not say, its nodes do
                lends = self._lends(live[group])
                found[group] = self.offering(template) if lends else reclaim.without_reclaimed(template)
        return found

    def _lends(self, live: Sequence[LiveNode]) -> bool:
        """Whether a new node will offer Mid and Batch: not where nodes of the group have had time to, and do not."""
        ready = [each.node for each in live if each.state is NodeState.READY]
        old = [each for each in ready if self.world.now - each.metadata.created_at > LENDING_SECONDS]
        offers = [
            {**(each.status.allocatable or {}), **self.world.expected.get(each.metadata.name, {})} for each in old
        ]
        return not old or any(reclaim.RECLAIMED & each.keys() for each in offers)

    def new_template(self, group: str) -> NodeTemplate:
        """Of a group that was created just now. Raises ProviderError and InvalidInput."""
        node = cluster.node_facts(self.cloud.template(group), NodeState.READY)
        return self.offering(templates.from_provider(group, node, self.daemons, self.config.taints))

    def offering(self, template: NodeTemplate) -> NodeTemplate:
        """With the Mid and Batch that a new node will offer, in place of what one of its kind offers now.

        Pods that come with the node take of Batch what they request, so that nothing is bought for what will not be.
        """
        template = reclaim.without_reclaimed(template)
        taken = template.overhead
        offered = {
            name: max(0, amount - taken.get(_NATIVE_OF.get(name, ""), 0))
            for name, amount in self.offered_by(_as_node(template.node)).items()
        }
        return reclaim.offering(template, offered) if offered else template

    @cached_property
    def upcoming(self) -> dict[str, int]:
        """How many nodes of each group are on their way."""
        return {group: each.upcoming for group, each in self.assessed.state.groups.items() if each.upcoming}

    @property
    def pending_uids(self) -> dict[str, str]:
        """Of pods without a node, by "namespace/name"."""
        return {pod.metadata.key: pod.metadata.uid for pod in self.world.pods if not pod.spec.node_name}

    @cached_property
    def current(self) -> Snapshot:
        """Nodes there and on their way."""
        upcoming = {group: count for group, count in self.upcoming.items() if group in self.templates}
        found = cluster.snapshot(
            self._nodes(upcoming),
            self.placed,
            surroundings=self.world.surroundings,
            upcoming=[(self.templates[group], count) for group, count in upcoming.items()],
        )
        self.unread.update(found.refused)
        return found

    def _nodes(self, upcoming: Mapping[str, int]) -> list[tuple[Node, NodeState]]:
        """Those there are; one that has not started and that nothing upcoming stands for counts towards limits, too."""
        stood_for = Counter(upcoming)
        found = []
        for node in self.world.nodes:
            name = node.metadata.name
            state, group = self.assessed.node_states[name], self.cloud.observed.group_of_node.get(name, "")
            if state is NodeState.NOT_STARTED:
                stood_for[group] -= 1
                state = state if stood_for[group] >= 0 else NodeState.UNREADY
            found.append((node, state))
        return found

    @property
    def priced(self) -> Snapshot:
        """The same, with nodes that cost what their group's template does: a cloud is not asked about each of them."""
        found = self.current
        group_of_node = self.cloud.observed.group_of_node
        templates = {node: self.templates.get(group) for node, group in group_of_node.items()}
        return replace(found, nodes=tuple(_costing_as(node, templates.get(node.name)) for node in found.nodes))

    def states(self) -> list[GroupState]:
        """Every group there is, the reasons of those that are not to grow with them."""
        state = self.assessed.state
        corrected = {act.group for act in self.assessed.corrections if act.mode is Mode.ENFORCE}
        found = []
        for group, status in state.groups.items():
            barred = self.problems.get(group, "")
            if status.mode is Mode.OBSERVE:
                barred = OBSERVED
            elif group in corrected:
                barred = CORRECTED
            elif status.untold:
                barred = UNTOLD
            found.append(
                GroupState(
                    status.group,
                    self.templates.get(group),
                    healthy=status.healthy,
                    backed_off=status.backoff is not None and status.backoff.holds(self.world.now),
                    zero_or_max=bool(status.options.zero_or_max_node_scaling),
                    barred=barred,
                )
            )
        return found + [GroupState(Group(group, 0, 0, 0), None, barred=why) for group, why in state.refused.items()]

    def candidates(self, classes: Sequence[PendingClass]) -> list[GroupState]:
        """The groups that could be created for these pods."""
        rules = self.config.autoprovisioning
        if not classes or self.config.mode is Mode.OBSERVE:
            return []
        machines = {}
        types = _or_none(self.cloud.machine_types) or ()
        for name in sorted(rules.machine_types.difference(types)):
            self.unread[f"machine type {name}"] = InvalidInput(
                source="--machine-types", field="machineTypes", value=name, problem="the cloud has none of this name"
            )
        for name in types:
            plain = self._theoretical(GroupSpec(name, rules.prefix))
            if plain is not None and plain.template is not None:
                machines[name] = plain.template
        found = (self._theoretical(spec) for spec in candidates.specs(classes, machines, rules))
        return [each for each in found if each is not None]

    @property
    def new_groups(self) -> int:
        """How many groups may still be created; those of others and those nobody can judge are groups, too."""
        observed = self.cloud.observed
        others = (Group(each, 0, 0, 0) for each in (*observed.foreign, *observed.refused))
        return candidates.groups_left(
            (*(each.group for each in observed.groups.values()), *others), self.config.autoprovisioning
        )

    def _theoretical(self, spec: GroupSpec) -> GroupState | None:
        """None for what cannot be made."""
        try:
            made = candidates.state(self.cloud.theoretical(spec), self.daemons, self.config.taints)
        except (Refused, Unsupported, InvalidAnswer, InvalidInput):
            return None
        backed_off = books.backoff_of(self.assessed.books, made.id, self.world.now) is not None
        template = None if made.template is None else self.offering(made.template)
        return replace(made, template=template, backed_off=backed_off)

    def _provided(self, group: str) -> Node | None:
        try:
            return self.cloud.template(group)
        except ProviderError as error:
            self.problems[group] = str(error)
            return None


def _decided(made: Round, waits: Waiting, outlook: Outlook, settings: Settings, chance: random.Random) -> Round:
    """The round with its decision, or all of a salvo, and what is to be done about them."""
    world, observed = outlook.world, outlook.cloud.observed
    classified = podclasses.classify(waits.pods, world.surroundings)
    groups_of = observed.group_of_node
    situation = Situation(
        outlook.current,
        classified.classes,
        outlook.states(),
        cluster_nodes=len(world.nodes),
        expected=world.expected,
        new_groups=outlook.new_groups,
        templates_of_nodes={
            node: outlook.templates[group].node for node, group in groups_of.items() if group in outlook.templates
        },
    )
    if outlook.config.autoprovisioning.enabled:
        situation = replace(situation, groups=[*situation.groups, *outlook.candidates(_unplaced(situation))])
    decisions = _followed(situation, outlook, settings, chance)
    acts = [*made.acts, *_creations(decisions, outlook.config), *increases(decisions, outlook.config)]
    acts += _deletions(outlook, {act.group for act in acts})
    return replace(
        made,
        decision=decisions[0],
        further=tuple(decisions[1:]),
        acts=tuple(acts),
        unread={**made.unread, **classified.refused},
    )


def _followed(situation: Situation, outlook: Outlook, settings: Settings, chance: random.Random) -> list[Decision]:
    """What is decided; where that would have groups grow that are only recommended, it is advice, and followed by what
    is done without them.
    """
    mode_of = outlook.config.mode_of
    decisions = _salvo(situation, outlook, settings, chance)
    grown = [group for decision in decisions if decision.outcome is Outcome.GROW for group in decision.nodes]
    if all(mode_of(group) is Mode.ENFORCE for group in grown):
        return decisions
    if all(mode_of(state.id) is not Mode.ENFORCE for state in situation.groups):
        return [replace(decision, advice=True) for decision in decisions]
    enforced = [
        replace(state, barred=state.barred or RECOMMENDED) if mode_of(state.id) is Mode.RECOMMEND else state
        for state in situation.groups
    ]
    done = _salvo(replace(situation, groups=enforced), outlook, settings, chance)
    return [
        *(replace(decision, advice=True) for decision in decisions),
        *(decision for decision in done if decision.outcome is Outcome.GROW or decision.increases),
    ]


def _salvo(situation: Situation, outlook: Outlook, settings: Settings, chance: random.Random) -> list[Decision]:
    """The decision; in a salvo those that follow, with the nodes of all before them on their way."""
    config = outlook.config
    decisions = [scale_up.decide(situation, settings, chance)]
    is_late = options.never
    if config.salvo_seconds and config.clock is not None:
        is_late = TimeLimits(config.clock).deadline(config.salvo_seconds)
    while config.salvo_seconds and decisions[-1].outcome is Outcome.GROW and not is_late():
        situation = salvo.after(situation, decisions[-1])
        following = scale_up.decide(situation, settings, chance)
        if following.outcome is not Outcome.GROW:
            break
        decisions.append(following)
    return decisions


def _unplaced(situation: Situation) -> list[PendingClass]:
    """The pods that nothing in the cluster has room for, now or within a reporting interval."""
    ordered = sorted(situation.classes, key=lambda each: each.pods)
    left: list[int] = scale_up.settled(situation, ordered).left.pending.tolist()
    return [
        each._replace(pods=each.pods[len(each.pods) - count :])
        for each, count in zip(ordered, left, strict=True)
        if count
    ]


def increases(decisions: Iterable[Decision], config: Config) -> list[Act]:
    """What raises the targets; one act for each group, whatever number of decisions it is in, and one of advice."""
    known = list(decisions)
    return [
        Act(
            What.INCREASE,
            each.group,
            Mode.RECOMMEND if advice else config.mode_of(each.group),
            each.from_size,
            each.to_size,
            each.max_size,
            reason=reason,
        )
        for advice in (True, False)
        for each, reason in _merged(decision for decision in known if decision.advice is advice)
    ]


def _merged(decisions: Iterable[Decision]) -> list[tuple[Increase, str]]:
    """Each group's increases as one, with its reason."""
    found: dict[str, tuple[Increase, str]] = {}
    for decision in decisions:
        grows = decision.outcome is Outcome.GROW
        reason = _for_pods(decision) if grows else BELOW_MINIMUM
        for each in decision.increases:
            if each.group in found:
                first, why = found[each.group]
                found[each.group] = replace(first, to_size=each.to_size), f"{why}, {reason}"
            else:
                found[each.group] = each, reason
    return list(found.values())


def _for_pods(decision: Decision) -> str:
    count = len(decision.triggered)
    return "1 pending pod" if count == 1 else f"{count} pending pods"


def _creations(decisions: Iterable[Decision], config: Config) -> list[Act]:
    return [
        Act(
            What.CREATE_GROUP,
            each.group,
            Mode.RECOMMEND if decision.advice else config.mode_of(each.group),
            to_size=each.nodes,
            max_size=each.max_size,
            reason=_for_pods(decision),
        )
        for decision in decisions
        for each in decision.creations
    ]


def _deletions(outlook: Outlook, busy: set[str]) -> list[Act]:
    """Groups that were created here and have nothing any more, nor get anything now."""
    observed, state = outlook.cloud.observed, outlook.assessed.state
    idle = [
        each.group
        for name, each in observed.groups.items()
        if name not in busy and name in state.groups and state.groups[name].request is None
    ]
    instances = {name: len(each.instances) for name, each in observed.groups.items()}
    modes = outlook.config.mode_of
    return [
        Act(What.DELETE_GROUP, group, modes(group), reason=EMPTY)
        for group in removal.unneeded(idle, instances, outlook.config.ownership)
        if modes(group) is not Mode.OBSERVE
    ]


def _held(assessed: Assessment, world: World, config: Config) -> str:
    if assessed.held:
        return assessed.held
    ready = any(state is NodeState.READY for state in assessed.node_states.values())
    return "" if ready or config.scales_from_zero else NO_READY_NODE


def _settled_in(waits: Waiting, config: Config, now: float) -> float:
    """When the oldest of the pods is old enough, in seconds."""
    oldest = min(pod.metadata.created_at for pod in waits.pods)
    return max(0.0, oldest + config.pending.settling_seconds - now)


def _priorities(world: World, config: Config, memory: Memory) -> tuple[Priorities, dict[str, InvalidInput]]:
    """What the priority expander goes by; of what cannot be read, the last that could."""
    if not config.uses_priorities or world.priorities is None:
        return Priorities(), {}
    source = f"ConfigMap {priority.CONFIG_MAP}"
    try:
        memory.priorities = priority.parse(world.priorities, source=source)
    except InvalidInput as refused:
        return memory.priorities, {source: refused}
    return memory.priorities, {}


def _or_none(ask: Callable[[], T]) -> T | None:
    """None where the cloud does not offer it."""
    try:
        return ask()
    except Unsupported:
        return None


def _nothing(_: Node) -> Amounts:
    return {}


def _costing_as(node: NodeFacts, template: NodeTemplate | None) -> NodeFacts:
    if template is None:
        return node
    like = template.node
    return replace(node, capacity=like.capacity, labels=like.labels, annotations=like.annotations)


def _as_node(facts: NodeFacts) -> Node:
    """In wire form, for who decides what a Node offers."""

    def quantities(amounts: Amounts) -> dict[str, str | int | float]:
        return {name: quantity.format_milli(amount) if name == CPU else str(amount) for name, amount in amounts.items()}

    return Node(
        metadata=ObjectMeta(name=facts.name, labels=dict(facts.labels), annotations=dict(facts.annotations)),
        spec=NodeSpec(taints=facts.taints),
        status=NodeStatus(capacity=quantities(facts.capacity), allocatable=quantities(facts.allocatable)),
    )
