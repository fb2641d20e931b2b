"""Several decisions from one observation, each with the nodes of all before it as upcoming."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking, packing, problem
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.pricing.remembered_prices import RememberedPrices
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings, TimeLimits, no_deadline
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import Holding, NodeInfo, NodeState, NodeTemplate


def decide(
    scale_up_input: ScaleUpInput,
    settings: ScaleUpSettings,
    chance: random.Random,
    *,
    seconds: float | None,
    clock: Callable[[], float] | None,
) -> list[ScaleUpDecision]:
    """The decision and, for `seconds` after it, further ones, until one buys nothing; None for no salvo."""
    if settings.pricing is not None:
        settings = replace(settings, pricing=RememberedPrices.around(settings.pricing))
    decisions = [orchestrator.decide(scale_up_input, settings, chance)]
    if not seconds:
        return decisions
    is_over = TimeLimits(clock).deadline(seconds) if clock is not None else no_deadline
    for _ in range(sum(len(each.pods) for each in scale_up_input.classes)):  # each decision is for at least one pod
        if decisions[-1].outcome is not ScaleUpOutcome.GROW or is_over():
            break
        scale_up_input = apply_decision(scale_up_input, decisions[-1])
        following = orchestrator.decide(scale_up_input, settings, chance)
        if following.outcome is not ScaleUpOutcome.GROW:
            decisions[-1] = _without_placed(decisions[-1], following)
            break
        decisions.append(following)
    return decisions


def _without_placed(decision: ScaleUpDecision, following: ScaleUpDecision) -> ScaleUpDecision:
    """The decision without those `left` pods that its successor found room for on the upcoming nodes: a spread over
    zones may let a pod onto the nodes of one zone only once those of another have taken theirs.
    """
    still = {pod for each in following.left for pod in each.pods}
    left = (replace(each, pods=tuple(pod for pod in each.pods if pod in still)) for each in decision.left)
    return replace(decision, left=tuple(each for each in left if each.pods))


def apply_decisions(scale_up_input: ScaleUpInput, decisions: Iterable[ScaleUpDecision]) -> ScaleUpInput:
    """The input after all of these consecutive decisions."""
    for decision in decisions:
        if scale_up_input.classes or decision.nodes:
            scale_up_input = apply_decision(scale_up_input, decision)
    return scale_up_input


def apply_decision(scale_up_input: ScaleUpInput, decision: ScaleUpDecision) -> ScaleUpInput:
    """The input with a decision's nodes as upcoming ones, and on them the pods that they were chosen for.

    These pods, and pods that fit without new nodes, are no longer pending. A group to be created is no longer an
    option, as its name is not yet known.
    """
    states = {state.id: state for state in scale_up_input.groups}
    nodes, holdings = _upcoming(scale_up_input, decision, states)
    settled = decision.settled or orchestrator.filter_out_schedulable(scale_up_input).left
    ordered = settled.problem.classes
    snapshot = cluster.extend(scale_up_input.snapshot, nodes, [*packing.holdings(settled), *holdings])
    triggered = Counter(decision.triggered)
    chosen_for = [each._replace(pods=tuple(pod for pod in each.pods if pod in triggered)) for each in ordered]
    if nodes:
        on_new = Packing(problem.packing_problem(snapshot, chosen_for))
        template = NodeTemplate("", nodes[0])
        for position in binpacking.in_order(on_new.problem, template, range(len(chosen_for))):
            on_new.fill(position, len(chosen_for[position].pods), len(scale_up_input.snapshot.nodes))
        snapshot = cluster.extend(snapshot, [], packing.holdings(on_new))
    left = [
        each._replace(pods=tuple(pod for pod in demand.unplaced if pod not in triggered))
        for each, demand in zip(ordered, decision.demands, strict=True)
    ]
    targets = {each.group: each.to_size for each in decision.increases}
    created = {each.group for each in decision.creations}
    return replace(
        scale_up_input,
        snapshot=snapshot,
        classes=[each for each in left if each.pods],
        groups=[
            replace(state, group=replace(state.group, target_size=targets[state.id])) if state.id in targets else state
            for state in scale_up_input.groups
            if state.id not in created
        ],
        quotas=decision.remaining.quotas[1:],  # without the cluster's bounds, which count the nodes
        new_groups=scale_up_input.new_groups - len(created),
    )


def _upcoming(
    scale_up_input: ScaleUpInput, decision: ScaleUpDecision, states: dict[str, GroupStatus]
) -> tuple[list[NodeInfo], list[Holding]]:
    """The new nodes, and the pods that come with each."""
    nodes: list[NodeInfo] = []
    holdings: list[Holding] = []
    first = len(scale_up_input.snapshot.nodes)
    for group, count in decision.nodes.items():
        template = states[group].template
        assert template is not None
        for _ in range(count):
            row = first + len(nodes)
            nodes.append(cluster.fresh_node(template, f"upcoming-{row}", NodeState.UPCOMING))
            holdings += [(row, daemon, 1) for daemon in template.daemons]
    return nodes, holdings
