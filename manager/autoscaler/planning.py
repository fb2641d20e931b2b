"""One round, from what is known to what is to be done: Cluster Autoscaler's order of things.

Pure, but for what is read through `cloud`, and for `Memory`, which outlasts a round. The manager's loop, `headroom
plan` and the API ask the same function; who acts on its result is another matter.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from manager.autoscaler import assessment, capacity_quotas, cost, removal_planning, waiting
from manager.autoscaler.autoprovisioning import candidates, removal
from manager.autoscaler.cloudprovider.contract import Gpus
from manager.autoscaler.cluster_state.books import Books
from manager.autoscaler.config import Config
from manager.autoscaler.expander import priority
from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.modes import Mode
from manager.autoscaler.outlook import Cloud, Memory, OfferedBy, Outlook, nothing, or_none
from manager.autoscaler.rounds import Act, Round, What
from manager.autoscaler.scale_down.underway import Underway
from manager.autoscaler.scale_up import options, orchestrator, salvo
from manager.autoscaler.scale_up.decisions import Decision, Increase, Outcome
from manager.autoscaler.scale_up.options import TimeLimits
from manager.autoscaler.scale_up.orchestrator import Settings, Situation
from manager.autoscaler.snapshot import podclasses, templates
from manager.autoscaler.snapshot.cluster import NodeState, StateRules
from manager.autoscaler.snapshot.podclasses import PendingClass
from manager.autoscaler.waiting import Waiting
from manager.autoscaler.world import World
from shared.errors import InvalidInput

OBSCURE = "nobody can tell now what is on its way"
NO_READY_NODE = "no node is ready, and --scale-up-from-zero is off"
SETTLING = "all pending pods are new: their owners may be making more"
RECOMMENDED = "its mode is recommend"
BELOW_MINIMUM = "below its minimum"
EMPTY = "created here, and empty"


@dataclass(frozen=True)
class Planned:
    """A round of which nothing is done yet, with what doing it takes. `books` are to be kept before anything is done.

    `again_seconds` is when the next round is due, where that is known better than by the scan interval. `abandoned`
    are nodes whose marks are to be taken off, as nobody deletes them.
    """

    round: Round
    books: Books
    settings: Settings
    outlook: Outlook
    again_seconds: float | None = None
    abandoned: tuple[str, ...] = ()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return (*([self.round.decision] if self.round.decision is not None else []), *self.round.further)


def plan(
    world: World,
    cloud: Cloud,
    known: Books | None,
    config: Config,
    *,
    number: int = 1,
    chance: random.Random,
    memory: Memory | None = None,
    offered_by: OfferedBy | None = None,
    underway: Underway | None = None,
    begins: bool = False,
    dry_run: bool = False,
) -> Planned:
    """Where nothing is `known`, what groups lack is taken to be on its way. `offered_by` is asked what Mid and Batch a
    new, empty Node will offer. It `begins` with who leads from now on.

    Raises ProviderError.
    """
    memory, underway = memory or Memory(config), underway or Underway()
    gpus = or_none(cloud.gpus) or Gpus()
    node_rules = StateRules(
        world.now,
        config.start.startup_seconds,
        config.taints.startup,
        templates.STARTUP_TAINT_PREFIXES,
        gpus.label,
        GPU_RESOURCES,
    )
    rules = assessment.Rules(
        modes=config.mode_of,
        node_states=node_rules,
        health=config.health,
        backoff=config.backoff,
        max_node_provision_seconds=config.start.provision_seconds,
        force_delete_unregistered=config.deletes_below_min,
    )
    if known is None:
        known = assessment.taken_over(cloud.observed, world.nodes, rules, world.now)
    assessed = assessment.assess(cloud.observed, world.nodes, known, rules, world.now)
    priorities, unread = _priorities(world, config, memory)
    memory.capacity_limits, refused = capacity_quotas.read_all(world.capacity_quotas, memory.capacity_limits)
    pricing = config.pricing(lambda: or_none(cloud.pricing))
    settings = replace(
        config.scale_up,
        pricing=pricing,
        priorities=priorities,
        estimates=replace(config.scale_up.estimates, gpu_label=gpus.label),
    )
    outlook = Outlook(world, cloud, config, memory, assessed, offered_by or nothing, underway.draining)
    held = _held(outlook)
    there = {node.metadata.name for node in world.nodes}
    waits = waiting.sort_out(world.pods, config.pending, world.now, there, world.surroundings.claims)
    again = None
    if not held and waits.settled_at is not None:
        held, again = SETTLING, waits.settled_at - world.now
    made = Round(
        number,
        world.now,
        state=assessed.state,
        held=held,
        aside=waits.aside,
        unread={**unread, **refused, **config.unpriced(pricing)},
        cost=cost.of(outlook.priced, cloud.observed.group_of_node, settings.pricing),
        acts=assessed.corrections,
        incidents=assessed.incidents,
        dry_run=dry_run,
        leaving=underway.leaving,
        cluster=config.cluster_name,
    )
    if not held:
        made = _decided(made, waits, outlook, settings, chance, underway)
    made = replace(made, unread={**made.unread, **outlook.unread})
    memory.templates.forget(memory.templates.groups - cloud.observed.groups.keys() - cloud.observed.refused.keys())
    abandoned = removal_planning.abandoned(outlook, underway, begins=begins)
    return Planned(made, assessed.books, settings, outlook, again, abandoned)


def _decided(
    made: Round,
    waits: Waiting,
    outlook: Outlook,
    settings: Settings,
    chance: random.Random,
    underway: Underway,
) -> Round:
    """The round with its decision, or all of a salvo, and what is to be done about them.

    A round in which pods have groups grow takes no node away.
    """
    world, observed = outlook.world, outlook.cloud.observed
    classified = podclasses.classify((*waits.pods, *outlook.uprooted.values()), world.surroundings)
    groups_of = observed.group_of_node
    templates = {node: outlook.templates[group].node for node, group in groups_of.items() if group in outlook.templates}
    situation = Situation(
        outlook.current,
        classified.classes,
        outlook.states(),
        cluster_nodes=len(world.nodes),
        quotas=tuple(
            each.left(outlook.current.nodes, templates, settings.usage)
            for each in outlook.memory.capacity_limits.values()
        ),
        expected=world.expected,
        templates_of_nodes=templates,
    )
    if outlook.config.autoprovisioning.enabled:
        creatable = outlook.candidates(_unplaced(situation))
        situation = replace(
            situation,
            groups=[*situation.groups, *creatable],
            new_groups=candidates.creations(outlook.groups_left, creatable),
        )
    decisions = _followed(situation, outlook, settings, chance)
    acts = [*made.acts, *_creations(decisions, outlook.config), *increases(decisions, outlook.config)]
    acts += _deletions(outlook, {act.group for act in acts})
    scale_down = None
    if outlook.config.scales_down and not any(_is_growth(decision) for decision in decisions):
        scale_down = removal_planning.decide(outlook, situation, underway, settings.estimates.gpu_label)
        acts += removal_planning.acts(scale_down, outlook)
    return replace(
        made,
        scale_down=scale_down,
        decision=decisions[0],
        further=tuple(decisions[1:]),
        acts=tuple(acts),
        unread={**made.unread, **classified.refused},
    )


def _is_growth(decision: Decision) -> bool:
    return decision.outcome is Outcome.GROW and not decision.advice


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
    decisions = [orchestrator.decide(situation, settings, chance)]
    is_late = options.never
    if config.salvo_seconds and config.clock is not None:
        is_late = TimeLimits(config.clock).deadline(config.salvo_seconds)
    while config.salvo_seconds and decisions[-1].outcome is Outcome.GROW and not is_late():
        situation = salvo.after(situation, decisions[-1])
        following = orchestrator.decide(situation, settings, chance)
        if following.outcome is not Outcome.GROW:
            break
        decisions.append(following)
    return decisions


def _unplaced(situation: Situation) -> list[PendingClass]:
    """The pods that nothing in the cluster has room for, now or within a reporting interval."""
    ordered = sorted(situation.classes, key=lambda each: each.pods)
    left: list[int] = orchestrator.settled(situation, ordered).left.pending.tolist()
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


def _held(outlook: Outlook) -> str:
    assessed = outlook.assessed
    if assessed.held:
        return assessed.held
    ready = any(state is NodeState.READY for state in assessed.node_states.values())
    if not ready and not outlook.config.scales_from_zero:
        return NO_READY_NODE
    obscure = outlook.obscure
    return f"{OBSCURE}: {'; '.join(obscure.values())}" if obscure else ""


def _priorities(world: World, config: Config, memory: Memory) -> tuple[Priorities, dict[str, InvalidInput]]:
    """What the priority expander goes by: nothing where there is none, the last good one where this cannot be read."""
    if not config.uses_priorities:
        return Priorities(), {}
    try:
        memory.priorities = priority.parse(world.priorities, source=priority.SOURCE)
    except InvalidInput as refused:
        if not (world.priorities or "").strip():
            memory.priorities = Priorities()
        return memory.priorities, {priority.SOURCE: refused}
    return memory.priorities, {}
