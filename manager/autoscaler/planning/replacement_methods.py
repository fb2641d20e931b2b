"""The methods that launch new nodes and then remove old ones: for nodes that must be replaced, and by price.

`ReplacementMethod` has what they share: which groups take part, what is limited, protected or delayed, how long a
search may take and its result stands. No node is replaced while targets rise, because scale-down removes nodes at no
cost; one replacement at a time is under way.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from manager.autoscaler.cluster_state import cost
from manager.autoscaler.cluster_state.replacement import DisruptionReason, Replacement, ReplacementPhase
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.disruption import due_nodes, replacement_search
from manager.autoscaler.disruption.candidates import UNKNOWN_PRICE, LaunchTarget, eviction_costs
from manager.autoscaler.disruption.disruption_limits import allowance
from manager.autoscaler.disruption.due_nodes import DueNode, DuePurpose
from manager.autoscaler.disruption.price_purpose import PricePurpose, Prices
from manager.autoscaler.disruption.replacement_search import Purpose, SearchInputs
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.disruption.verdicts import (
    ConsolidationDecision,
    ConsolidationReason,
    Denied,
    ReplacementVerdict,
)
from manager.autoscaler.planning import candidate_groups, replacement_planning
from manager.autoscaler.planning.autoscaler_cache import LastSearch
from manager.autoscaler.planning.removal_view import RemovalCommands, RemovalMethod
from manager.autoscaler.planning.replacement_planning import ReplacementFollower
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.scale_down.removal_status import ScaleDownDecision, UnremovableReason
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext
from manager.autoscaler.scale_up import groups, orchestrator
from manager.autoscaler.scale_up.groups import Headroom
from manager.autoscaler.scale_up.options import ScaleUpSettings, TimeLimits, no_deadline
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.replacement import ConsolidationRules
from manager.autoscaler.snapshot import equivalence_groups
from shared import durations
from shared.api import pods
from shared.cached_property import cached_property
from shared.errors import InvalidInput

NO_PRICES = "there are no prices"
TAKEN = "the cloud takes a node of it now"
NOT_DUE = "it is not needed any more"
SWITCHED_OFF = "consolidation is off"


class ReplacementMethod(RemovalMethod):
    """Replaces nodes for any of `reasons`. After `grace_seconds` of drain a node goes whatever protects its pods; None
    waits for them.
    """

    reasons: ClassVar[frozenset[DisruptionReason]]

    @property
    @abstractmethod
    def is_on(self) -> bool:
        """Whether there is anything to search for."""

    @property
    def grace_seconds(self) -> float | None:
        return None

    @property
    def due(self) -> Sequence[DueNode]:
        """The nodes that have to go, in their order; none where it is the search that finds out which could."""
        return ()

    @property
    def problems(self) -> Mapping[str, InvalidInput]:
        """What its rules name that does not exist."""
        return {}

    @abstractmethod
    def pause(self) -> tuple[float, str]:
        """Until when, in Unix seconds, nothing is begun, and why."""

    @abstractmethod
    def purpose(self, inputs: SearchInputs) -> Purpose:
        """What a search is for."""

    @abstractmethod
    def unwanted(self, known: Replacement) -> str:
        """Why a replacement of its own that is under way is not to go on; empty if it is."""

    def candidates(self, decided: RemovalCommands) -> RemovalCommands:
        """Takes a replacement of its own further, or begins one where none is under way or begins already."""
        scale_down, known = decided.scale_down, self.view.cluster.reconciled.registry.replacing
        if scale_down is None or self.view.raises_targets:
            return decided
        decided = decided.with_problems(self.problems)
        if known is not None:
            return self._follow(known, scale_down, decided)
        begins = decided.consolidation is not None and decided.consolidation.acts
        if not self.is_on or begins:
            return decided
        return replacement_planning.begin(self._search(scale_down), self.view, decided)

    def _follow(self, known: Replacement, scale_down: ScaleDownDecision, decided: RemovalCommands) -> RemovalCommands:
        if waiting := self._waiting(known):
            decided = decided.with_consolidation(ConsolidationDecision(waiting))
        if known.reason not in self.reasons:
            return decided
        is_taken = not self.view.cluster.interrupted.isdisjoint(each.name for each in known.removed)
        taken = TAKEN if is_taken and known.phase is not ReplacementPhase.DRAINING else ""
        unwanted = taken or self.unwanted(known)
        return ReplacementFollower(self.view, scale_down, unwanted, self.grace_seconds).follow(known, decided)

    def _waiting(self, known: Replacement) -> dict[str, ReplacementVerdict]:
        """The verdicts on nodes that have to go while a replacement is under way."""
        names = {each.name for each in known.removed}
        other = ConsolidationReason.NOT_ITS_TURN, "another replacement is under way"
        return {
            each.name: each.verdict(
                *((None, str(known)) if each.name in names and each.reason is known.reason else other)
            )
            for each in self.due
        }

    def _search(self, scale_down: ScaleDownDecision) -> ConsolidationDecision:
        """A search among the groups in enforce mode; where the method has none, advice about those in recommend mode.
        One that finds nothing to begin stands for a while, unless what it has seen changes.
        """
        view, kind = self.view, type(self)
        cluster, context = view.cluster, view.context
        config, searches, now = cluster.settings, cluster.cache.searches, cluster.objects.now
        enforced = {name: each for name, each in context.groups.items() if config.mode_of(name) is Mode.ENFORCE}
        advice = enforced.keys().isdisjoint({each.group for each in self.due} or context.groups)
        over = context if advice else replace(context, groups=enforced)
        reasons = sorted({each.reason for each in self.due} or self.reasons)
        allowed = {reason: allowance(over, config.disruption.limits, reason) for reason in reasons}
        blocked = self._blocked_reason(scale_down)
        named = tuple((each.name, each.reason) for each in self.due)
        seen = frozenset(node.name for node in context.nodes), named, blocked and blocked[0], allowed
        last = searches.get(kind)
        if (
            last is not None
            and last.seen == seen
            and now < last.until <= now + config.scale_down.removal.unremovable_node_recheck_timeout_seconds
        ):
            return last.decision
        remaining, before = (
            orchestrator.headroom(view.scale_up, config.scale_up),
            last.decision.verdicts if last else {},
        )
        existing = [state for state in view.scale_up.groups if state.exists and state.id in over.groups]
        search = SearchInputs(
            context=over,
            advice=advice,
            targets=launch_targets(existing, remaining, config.scale_up),
            remaining=remaining,
            protected=replacement_planning.undisturbed_nodes(cluster, minds_pods=self.grace_seconds is None),
            unneeded=[each for each in scale_down.unneeded if over.group_of.get(each) in over.groups],
            untried={name for name, each in before.items() if each.reason is ConsolidationReason.OUT_OF_TIME},
            allowed=allowed,
            blocked=blocked,
            is_late=TimeLimits(config.clock).deadline(config.replacement_search_seconds)
            if config.clock
            else no_deadline,
        )
        found = replace(replacement_search.search(self.purpose(search)), advice=advice)
        if found.option is not None and not advice:
            searches.pop(kind, None)
        else:
            searches[kind] = LastSearch(
                now + config.scale_down.removal.unremovable_node_recheck_timeout_seconds, seen, found
            )
        return found

    def _blocked_reason(self, scale_down: ScaleDownDecision) -> Denied | None:
        """What delays every replacement of this method: nodes that come or go now, or its own pause."""
        cluster, going = self.view.cluster, self.view.context.in_progress
        if cluster.upcoming or cluster.reconciled.registry.requests:
            return Denied(ConsolidationReason.COOLDOWN, "nodes are on their way")
        if scale_down.removals or going.empty or going.drained:
            return Denied(ConsolidationReason.NOT_ITS_TURN, "scale-down removes nodes now")
        until, why = self.pause()
        left = until - cluster.objects.now
        if left <= 0:
            return None
        return Denied(ConsolidationReason.COOLDOWN, f"{why}; it waits {durations.render(round(left))}")


def launch_targets(states: Iterable[GroupStatus], remaining: Headroom, settings: ScaleUpSettings) -> list[LaunchTarget]:
    """Those that may not grow say why."""
    found = []
    for state in states:
        if state.zero_or_max or state.template is None:
            continue
        closed = groups.skip_reason(state, remaining, settings.usage, settings.ownership)
        machine, pricing = state.template.machine, settings.pricing
        price, unpriced = cost.price_of(pricing, machine) if pricing else (None, NO_PRICES)
        price, is_spot = UNKNOWN_PRICE if price is None else price, list_prices.is_spot_machine(machine)
        found.append(LaunchTarget(state, state.template, price, is_spot, closed, unpriced))
    return found


class DueNodeMethod(ReplacementMethod):
    """Replaces nodes that must be replaced: unhealthy, interrupted, expired and drifted ones, in this order."""

    reasons: ClassVar = frozenset(DisruptionReason) - {DisruptionReason.UNDERUTILIZED}

    @property
    def is_on(self) -> bool:
        return bool(self.due)

    @property
    def grace_seconds(self) -> float | None:
        return self.rules.grace_seconds

    @cached_property
    def due(self) -> list[DueNode]:
        cluster, rules, context = self.view.cluster, self.rules, self.view.context
        observed, nodes = cluster.cloud.observed, cluster.objects.nodes
        lifetimes = {
            name: rules.lifetime_of(name, observed.groups[name].options.max_node_lifetime_seconds)
            for name in context.groups
        }
        if not any(rules.of_group(name).is_any_on(seconds) for name, seconds in lifetimes.items()):
            return []
        drifts = {
            each.provider_id: each.drift for name in lifetimes for each in observed.groups[name].instances if each.drift
        }
        drifted = {node.metadata.name: drifts.get(node.spec.provider_id, "") for node in nodes} if drifts else {}
        return due_nodes.find_due(nodes, observed.group_of_node, lifetimes, drifted, rules, cluster.objects.now)

    @property
    def problems(self) -> dict[str, InvalidInput]:
        return {
            f"condition {condition}": InvalidInput(
                source="--node-repair-conditions", field="type", value=condition, problem="no node has such a condition"
            )
            for condition in due_nodes.unknown_conditions(self.view.cluster.objects.nodes, self.rules.all_repairs)
        }

    def pause(self) -> tuple[float, str]:
        ended = self.view.cluster.reconciled.registry.replaced_at
        until = ended + self.rules.pause_seconds if isinstance(ended, float) else -math.inf
        return until, "another node was replaced just now"

    def purpose(self, inputs: SearchInputs) -> DuePurpose:
        down, rules = self.view.context, self.rules
        repaired = [node for node in self.view.cluster.objects.nodes if node.metadata.name in down.group_of]
        return DuePurpose(
            # The order in which they are due stays.
            replace(inputs, protected={**_failed(down), **inputs.protected}, untried=()),
            [each for each in self.due if each.group in inputs.context.groups],
            due_nodes.too_many_unhealthy(repaired, down.group_of, rules),
            is_forced=rules.grace_seconds is not None,
        )

    def unwanted(self, known: Replacement) -> str:
        names = {each.name for each in known.removed}
        is_due = any(each.name in names for each in self.due)
        return "" if is_due or known.phase is ReplacementPhase.DRAINING else NOT_DUE

    @property
    def rules(self) -> DisruptionRules:
        return self.view.cluster.settings.disruption


def _failed(context: ScaleDownContext) -> dict[str, str]:
    """The nodes whose deletion failed a short while ago."""
    return {
        name: f"its deletion failed a short while ago: {each.detail}"
        for name, each in context.memory.unremovable.items()
        if each.reason is UnremovableReason.UNEXPECTED and context.now < each.until
    }


class PriceMethod(ReplacementMethod):
    """Replaces nodes by cheaper ones. An estimated price does not count."""

    reasons: ClassVar = frozenset({DisruptionReason.UNDERUTILIZED})

    @property
    def is_on(self) -> bool:
        return self.view.cluster.settings.consolidation is not None

    @property
    def problems(self) -> dict[str, InvalidInput]:
        cluster = self.view.cluster
        return candidate_groups.problems(cluster) if self.is_on and cluster.groups_left > 0 else {}

    def pause(self) -> tuple[float, str]:
        happened, ended = self.view.context.happened, self.view.cluster.reconciled.registry.replaced_at
        ends = ended if isinstance(ended, float) else None
        moments = [each for each in (happened.added, happened.deleted, happened.failed, ends) if each is not None]
        until = max(moments, default=-math.inf) + self.rules.consolidation_cooldown_seconds
        return until, "nodes were added or deleted recently"

    def purpose(self, inputs: SearchInputs) -> PricePurpose:
        cluster, cost = self.view.cluster, self.view.iteration.cost
        creatable, new_groups = self._creatable(inputs)
        created = launch_targets(creatable, inputs.remaining, cluster.settings.scale_up)
        targets = [*inputs.targets, *created]
        return PricePurpose(
            replace(inputs, targets=[each for each in targets if not each.unpriced], new_groups=new_groups),
            Prices(
                cost.known_by_node,
                unknown=cost.unknown,
                unpriced={each.id: each.unpriced for each in targets if each.unpriced and not each.closed},
                created_at={node.metadata.name: node.metadata.created_at for node in cluster.objects.nodes},
                disruptions=eviction_costs(cluster.objects.pods),
            ),
            self.rules,
        )

    def unwanted(self, known: Replacement) -> str:
        return "" if self.is_on else SWITCHED_OFF

    @property
    def rules(self) -> ConsolidationRules:
        return self.view.cluster.settings.consolidation or ConsolidationRules()

    def _creatable(self, search: SearchInputs) -> tuple[list[GroupStatus], int]:
        """The groups that could be created for the pods of all priced nodes, and how many may be."""
        cluster, context = self.view.cluster, search.context
        if cluster.groups_left <= 0:
            return [], 0
        prices = self.view.iteration.cost.known_by_node
        going = {name for name, group in context.group_of.items() if group in context.groups and name in prices}
        moving = [
            pod
            for pod in cluster.objects.pods
            if pod.spec.node_name in going and pods.is_active(pod) and not equivalence_groups.is_of_node(pod)
        ]
        classes = equivalence_groups.build_equivalence_groups(moving, cluster.objects.surroundings).classes
        wanted = Mode.RECOMMEND if search.advice else Mode.ENFORCE
        creatable = candidate_groups.states(cluster, classes)
        return [each for each in creatable if cluster.settings.mode_of(each.id) is wanted], cluster.groups_left
