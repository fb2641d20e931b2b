"""Gangs: pending pods that are scheduled together or not at all. Nodes are launched for all of them or for none.

A gang is a PodGroup of Kubernetes with a gang policy, or one of the coscheduling plug-in.
"""

import random
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from manager.autoscaler.scale_up import orchestrator, salvo
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.options import PendingGang, ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.api import podgroup
from shared.api import pods as podrules
from shared.api.core import Pod
from shared.api.podgroup import PodGroup

MOST_DECISIONS = 8  # decisions that launch the nodes of one gang together
MOST_TRIED = 10  # times that decisions are made anew without a gang


class ReadGangs(NamedTuple):
    """The gangs of pending pods, and why the pods of others wait, by "namespace/name"."""

    gangs: tuple[PendingGang, ...]
    waiting: Mapping[str, str]


def pending_gangs(
    classes: Iterable[EquivalenceGroup],
    pods: Iterable[Pod],
    pod_groups: Mapping[str, PodGroup] | None,
    moving: Container[str],
) -> ReadGangs:
    """The gangs of the classes. `pods` are all pods, of which those that are `moving` have no place. Without
    `pod_groups` it is not known which pods are a gang.
    """
    members: dict[str, list[str]] = {}
    for each in classes:
        if each.facts.pod_group:
            members.setdefault(each.facts.pod_group, []).extend(each.pods)
    if not members or pod_groups is None:
        return ReadGangs((), {})
    placed = Counter(
        podgroup.pod_group_of(pod)
        for pod in pods
        if pod.spec.node_name and podrules.is_active(pod) and pod.metadata.key not in moving
    )
    gangs, waiting = [], dict[str, str]()
    for key, waits in sorted(members.items()):
        name, group = key.partition("/")[2], pod_groups.get(key)
        if group is None and key.startswith(podgroup.NATIVE):
            waiting |= dict.fromkeys(waits, f'PodGroup "{name}" does not exist')
        if group is None or group.min_count <= max(1, placed[key]):
            continue
        if placed[key] + len(waits) < group.min_count:
            there = (
                f'PodGroup "{name}" has {placed[key] + len(waits)} of the {group.min_count} pods that it needs at once'
            )
            waiting |= dict.fromkeys(waits, there)
        else:
            gangs.append(PendingGang(name, group.min_count, group.min_count - placed[key], frozenset(waits)))
    return ReadGangs(tuple(gangs), waiting)


class GangDecisions(NamedTuple):
    """The decisions, the input without the pods that `waiting` says wait, and why these do."""

    decisions: list[ScaleUpDecision]
    scale_up_input: ScaleUpInput
    waiting: Mapping[str, str]


def decide(
    scale_up_input: ScaleUpInput,
    settings: ScaleUpSettings,
    chance: random.Random,
    *,
    seconds: float | None,
    clock: Callable[[], float] | None,
) -> GangDecisions:
    """The decisions of a salvo, with further ones until every gang has room, and without gangs that get none."""
    waiting: dict[str, str] = {}
    tried = 0
    while True:
        decisions = salvo.decide(scale_up_input, settings, chance, seconds=seconds, clock=clock)
        short = _complete(scale_up_input, decisions, settings, chance) if scale_up_input.gangs else None
        if short is None:
            return GangDecisions(decisions, scale_up_input, waiting)
        gang, count = short
        tried += 1
        for each in (gang,) if tried < MOST_TRIED else tuple(scale_up_input.gangs):
            found = (
                f"{count} of the {each.missing} missing get a place" if each is gang else "other gangs were tried first"
            )
            why = f'PodGroup "{each.name}" needs {each.min_count} pods at once: {found}, so no node is launched for it'
            waiting |= dict.fromkeys(each.pods, why)
        scale_up_input = _without_waiting(scale_up_input, waiting)


def _complete(
    scale_up_input: ScaleUpInput, decisions: list[ScaleUpDecision], settings: ScaleUpSettings, chance: random.Random
) -> tuple[PendingGang, int] | None:
    """Adds decisions until every gang has room; the first gang that gets none, and how many of its pods have one."""
    after = salvo.apply_decisions(scale_up_input, decisions)
    for gang in scale_up_input.gangs:
        for _ in range(MOST_DECISIONS):
            if _placed(gang, after) >= gang.missing:
                break
            following = orchestrator.decide(after, settings, chance)
            if following.outcome is not ScaleUpOutcome.GROW:
                break
            decisions.append(following)
            after = salvo.apply_decision(after, following)
        count = _placed(gang, after)
        if count < gang.missing:
            return gang, count
    return None


def _placed(gang: PendingGang, after: ScaleUpInput) -> int:
    return len(gang.pods) - sum(pod in gang.pods for each in after.classes for pod in each.pods)


def _without_waiting(scale_up_input: ScaleUpInput, waiting: Container[str]) -> ScaleUpInput:
    return replace(
        scale_up_input,
        classes=[each for each in scale_up_input.classes if each.pods[0] not in waiting],
        gangs=[each for each in scale_up_input.gangs if min(each.pods) not in waiting],
    )
