"""Where kube-scheduler refuses pods that our predicates allow: its answer counts.

An answer counts if it is not older than what the predicates allow on nodes that are ready, counts all nodes ("0/N nodes
are available"), and no binding has followed for a while. For some refusals the scheduler does not look again when a
node comes; it flushes its queue every five minutes, so after `SILENCE_SECONDS` without a binding its silence counts, if
it has come to pods that stand behind them in its queue.

Then these nodes are no place for the pods for a while. If one of them is empty, a new node of its group would be
refused as well: the group is no option for these pods until the refusal expires, or the pods or the template change.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import msgspec
import numpy as np

from manager.autoscaler.cluster_state.registry import MOST_REFUSALS
from manager.autoscaler.cluster_state.state import OptionRefusal
from manager.autoscaler.estimator import problem
from manager.autoscaler.scale_up import pending_pods, scheduler_messages
from manager.autoscaler.scale_up.decisions import PodDemand
from manager.autoscaler.snapshot import equivalence_groups, templates
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeState, NodeTemplate, stable_since
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared import durations
from shared.api import podgroup
from shared.api import pods as podrules
from shared.api.core import Condition, Node, Pod
from shared.cached_property import cached_property
from shared.names import DEFAULT_SCHEDULER

SILENCE_SECONDS = 330.0  # kube-scheduler's flush of unschedulable pods after five minutes, every thirty seconds
SETTLING_SECONDS = 30.0  # a binding that is under way when its scheduler refuses the next pod is seen by then
SEEN_LATE_SECONDS = 15.0  # an iteration sees an answer, dated in whole seconds, this much later at most
# How long refused nodes, and refused options, are out for the pods: first, and at most after each doubling.
FIRST_NODE_SECONDS, MOST_NODE_SECONDS = 600.0, 4 * 3600.0
FIRST_OPTION_SECONDS, MOST_OPTION_SECONDS = 24 * 3600.0, 7 * 24 * 3600.0
MOST_OPTIONS_PER_PODS = 3  # refused options, after which no node is bought for these pods
MOST_OPTIONS = 10  # the same over all pods, while no pod at all is bound
TRIAL_SECONDS = 3600.0  # since the last refusal, after which one class of pods may try it nevertheless
MOST_MESSAGE = 300  # characters

NOT_HELPED = "the scheduler refuses them on nodes that were to help"
REFUSES_ALL = (
    "the scheduler has refused {count} options and bound no pod since, so at most one node an hour is launched"
)
SILENT = "it has not bound them within {minutes:g} minutes, and looks again every five"

# Labels that tell a pod of a Job or StatefulSet from others that are equal to the scheduler.
_IDENTITY_LABELS = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
        "statefulset.kubernetes.io/pod-name",
        podgroup.LABEL_COSCHEDULING,
    }
)
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(frozen=True)
class SchedulerAnswer:
    """The scheduler's message on a pod, and when it was first seen. `nodes` is how many nodes it counts, None if it
    does not say.
    """

    message: str
    seen_at: float
    scheduler: str
    nodes: int | None


@dataclass(frozen=True)
class RefusedNodes:
    """Nodes that are no place for pods until then; `since` the first refusal, which is the `times`-th in a row."""

    names: frozenset[str]
    message: str
    since: float
    until: float
    times: int = 1


@dataclass(frozen=True)
class Disagreement:
    """The scheduler refuses these pods on `nodes` ready nodes and on new nodes of `groups`, until then."""

    pods: tuple[str, ...]
    message: str
    since: float
    until: float
    nodes: int
    groups: tuple[str, ...]

    @property
    def plugin(self) -> str:
        """The scheduler's plug-in that refuses."""
        return scheduler_messages.plugin_of(self.message)

    def __str__(self) -> str:
        where = [f"{self.nodes} ready node{'s' * (self.nodes != 1)}"] if self.nodes else []
        where += [f"new nodes of {', '.join(self.groups)}"] if self.groups else []
        return f"they fit on {' and '.join(where)} by Headroom's predicates, and the scheduler says: {self.message}"


@dataclass(frozen=True)
class SchedulerMemory:
    """What is remembered between iterations. `refusals` are options that the scheduler has refused, as the registry
    keeps them; the rest may be lost: answers by pod, when a pod with an answer last left, by scheduler, and by the
    digest of pods since when they fit on ready nodes, and the nodes that are no place for them.
    """

    refusals: tuple[OptionRefusal, ...] = ()
    answers: Mapping[str, SchedulerAnswer] = field(default_factory=dict)
    left_at: Mapping[str, float] = field(default_factory=dict)
    fits_since: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, RefusedNodes] = field(default_factory=dict)

    def with_answers(self, pods: Iterable[Pod], now: float) -> "SchedulerMemory":
        """The same with the messages that pods without a node have now."""
        found: dict[str, SchedulerAnswer] = {}
        alike: dict[tuple[str, str | None, str], SchedulerAnswer] = {}  # mostly, many pods have one answer
        for pod in pods:
            condition = None if pod.spec.node_name else pending_pods.unschedulable_condition(pod)
            if condition is None:
                continue
            key, message = pod.metadata.key, condition.message[:MOST_MESSAGE]
            known = self.answers.get(key)
            if known is None or known.message != message:
                scheduler, changed = _scheduler_of(pod), None if known else condition.last_transition_time
                same = message, changed, scheduler
                if same not in alike:
                    alike[same] = _answer(message, now if known else _changed_at(condition, now), scheduler)
                known = alike[same]
            found[key] = known
        left_at = {**self.left_at, **{each.scheduler: now for key, each in self.answers.items() if key not in found}}
        waited_for = {each.scheduler for each in found.values()}
        left_at = {scheduler: at for scheduler, at in left_at.items() if scheduler in waited_for}
        return replace(self, answers=found, left_at=left_at)


@dataclass(frozen=True)
class AnsweredCluster:
    """The cluster at `now`, with which the scheduler's answers are compared.

    `made_as`: the id that a created group had as a candidate.
    """

    now: float
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    snapshot: ClusterSnapshot
    group_of_node: Mapping[str, str]
    templates: Mapping[str, NodeTemplate]
    made_as: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def ready_since(self) -> dict[str, float]:
        """Since when each node is ready that takes pods."""
        taking = {each.name for each in self.snapshot.nodes if each.state is NodeState.READY}
        return {name: stable_since(node) for node in self.nodes if (name := node.metadata.name) in taking}

    @cached_property
    def newest_judged(self) -> dict[tuple[str, int], float]:
        """When the newest pod was created that is bound or refused, by scheduler and priority."""
        found: dict[tuple[str, int], float] = {}
        for pod in self.pods:
            is_judged = bool(_bound_at(pod)) or pending_pods.found_unschedulable(pod)
            if is_judged and not equivalence_groups.is_mirror(pod):  # which no scheduler binds
                queue = _scheduler_of(pod), pod.spec.priority or 0
                found[queue] = max(found.get(queue, 0.0), pod.metadata.created_at)
        return found


def digest_of_pods(facts: PodInfo) -> str:
    """What the scheduler reads of equal pods, as a short text that outlives the process.

    The next Job of a CronJob, the next pod of a StatefulSet, and the next gang of the same pods have the same.
    """
    labels = {name: value for name, value in facts.labels.items() if name not in _IDENTITY_LABELS}
    demands, kind = facts.demands._replace(refused=frozenset()), facts.pod_group.partition("/")[0]
    facts = replace(facts, labels=labels, demands=demands, pod_group=kind)
    return _digest([getattr(facts, each.name) for each in fields(facts)])


def digest_of_template(template: NodeTemplate) -> str:
    """What the scheduler reads of a new node."""
    node = template.node
    return _digest((node.labels, node.taints, node.allocatable, *sorted(node.features)))


def believe(
    classes: Iterable[EquivalenceGroup],
    memory: SchedulerMemory,
    group_templates: Mapping[str, NodeTemplate],
    now: float,
) -> list[EquivalenceGroup]:
    """The classes with demands that exclude the nodes, ready or new ones of a group, that the scheduler refuses."""
    refused: dict[str, set[str]] = {
        digest: set(each.names) for digest, each in memory.nodes.items() if now < each.until
    }
    for each in _in_force(memory.refusals, group_templates, now):
        refused.setdefault(each.pods, set()).update((each.node, *map(templates.name_of_template, each.groups)))
    if not refused:
        return list(classes)
    return [
        each._replace(facts=replace(each.facts, demands=each.facts.demands._replace(refused=frozenset(names))))
        if (names := refused.get(digest_of_pods(each.facts)))
        else each
        for each in classes
    ]


def not_helped(
    classes: Iterable[EquivalenceGroup],
    memory: SchedulerMemory,
    group_templates: Mapping[str, NodeTemplate],
    pods: Iterable[Pod],
    now: float,
) -> dict[str, str]:
    """Pods for which no node is bought any more, each with the reason: too many options did not help."""
    in_force = sorted(_in_force(memory.refusals, group_templates, now), key=lambda each: each.at)
    if not in_force:
        return {}
    counts = Counter(each.pods for each in in_force)
    found: dict[str, str] = {}
    refuses_all = len(in_force) >= MOST_OPTIONS and not any(_bound_at(pod) > in_force[-MOST_OPTIONS].at for pod in pods)
    is_tried = now - in_force[-1].at >= TRIAL_SECONDS  # whether pods of one class may try it again
    for each in classes:
        count = counts[digest_of_pods(each.facts)]
        if count >= MOST_OPTIONS_PER_PODS:
            found |= dict.fromkeys(each.pods, NOT_HELPED)
        elif refuses_all and (count or not is_tried):
            found |= dict.fromkeys(each.pods, REFUSES_ALL.format(count=len(in_force)))
        elif not count:
            is_tried = False
    return found


def judge(
    memory: SchedulerMemory,
    classes: Sequence[EquivalenceGroup],
    demands: Iterable[PodDemand],
    view: AnsweredCluster,
) -> tuple[SchedulerMemory, tuple[Disagreement, ...]]:
    """Compares what a decision found to fit on ready nodes with the scheduler's answers.

    Returns the memory, and all disagreements in force about these classes, which are those of `believe`.
    """
    now = view.now
    fits = {each.pods: each.on_ready for each in demands if each.on_ready}
    if not (memory.nodes or memory.refusals):  # digests take time
        classes = [each for each in classes if each.pods in fits]
    digests = {each.pods: digest_of_pods(each.facts) for each in classes}
    fitting = {digest for pods, digest in digests.items() if pods in fits}
    fits_since = {each: memory.fits_since.get(each, now) for each in fitting}
    present = set(digests.values())
    nodes = {digest: each for digest, each in memory.nodes.items() if digest in present}
    found = list(_without_refuted(_without_expired(memory.refusals, now), view))
    for each in classes:
        digest = digests[each.pods]
        if digest not in fits_since:
            continue
        verdict = _verdict(each, fits_since[digest], len(set(fits[each.pods])), memory, view)
        if verdict is None:
            continue
        refusing = frozenset(name for name, since in view.ready_since.items() if since <= verdict.looked_at)
        if refusing.isdisjoint(fits[each.pods]):
            continue
        del fits_since[digest]
        nodes[digest] = _refused_again(nodes.get(digest), refusing, verdict.message, now)
        found = _with_options(found, each, digest, nodes[digest], view)
    kept = tuple(sorted(found, key=lambda each: each.at)[-MOST_REFUSALS:])
    memory = replace(memory, refusals=kept, fits_since=fits_since, nodes=nodes)
    return memory, tuple(_disagreements(classes, digests, memory, view))


class _Verdict(NamedTuple):
    """When the scheduler last looked at all nodes for pods that it has not bound since, and what it says."""

    looked_at: float
    message: str


def _verdict(
    each: EquivalenceGroup, since: float, fitting: int, memory: SchedulerMemory, view: AnsweredCluster
) -> _Verdict | None:
    known = [memory.answers[key] for key in each.pods if key in memory.answers]
    if not known or any(scheduler_messages.is_passing(answer.message) for answer in known):
        return None
    latest, now = max(known, key=lambda answer: answer.seen_at), view.now
    settles_from = latest.seen_at
    if settles_from < since:  # the room may have come after the answer, and then the scheduler binds pods to it
        settles_from = max(since, memory.left_at.get(latest.scheduler, 0.0))
        if scheduler_messages.without_room(latest.message) + fitting > (latest.nodes or 0):
            settles_from = math.inf  # it has come after it
    if latest.seen_at >= since - SEEN_LATE_SECONDS and now - settles_from >= SETTLING_SECONDS:
        there = sum(node.metadata.created_at <= latest.seen_at for node in view.nodes)
        unready = len(view.nodes) - len(view.ready_since)
        is_late = scheduler_messages.unready_nodes(latest.message) > unready  # it has yet to see some as ready
        if latest.nodes is not None and latest.nodes >= there and not is_late:
            return _Verdict(latest.seen_at, latest.message)
    if now - since > SILENCE_SECONDS and _has_passed(each, latest.scheduler, since + SILENCE_SECONDS, view):
        silent = SILENT.format(minutes=round(SILENCE_SECONDS / 60, 1))
        return _Verdict(now - SILENCE_SECONDS, f"{latest.message} ({silent})")
    return None


def _has_passed(each: EquivalenceGroup, scheduler: str, queued_at: float, view: AnsweredCluster) -> bool:
    """Whether the scheduler has bound or judged a pod that stood behind these in its queue, to which it has put them
    back by then: its order is priority, then time. One that is down or behind has refused nothing.
    """
    return any(
        created_at > queued_at and name == scheduler and priority <= each.facts.priority
        for (name, priority), created_at in view.newest_judged.items()
    )


def _refused_again(before: RefusedNodes | None, names: frozenset[str], message: str, now: float) -> RefusedNodes:
    times = 1 if before is None else before.times + 1
    seconds = min(FIRST_NODE_SECONDS * 2 ** min(times - 1, 10), MOST_NODE_SECONDS)
    since = now if before is None else before.since
    names = names if before is None or now >= before.until else names | before.names
    return RefusedNodes(names, message[:MOST_MESSAGE], since, now + seconds, times)


def _with_options(
    refusals: list[OptionRefusal], each: EquivalenceGroup, digest: str, refused: RefusedNodes, view: AnsweredCluster
) -> list[OptionRefusal]:
    """With the groups of which an empty node that fits is refused: a new node would be, too."""
    asked = problem.packing_problem(view.snapshot, [each])
    fits = asked.admitting(0) & np.all(asked.free >= asked.requests[0][:, None], axis=0) & view.snapshot.is_empty
    for row in fits.nonzero()[0].tolist():
        node = view.snapshot.nodes[row]
        group = view.group_of_node.get(node.name, "")
        template = view.templates.get(group)
        if node.name not in refused.names or template is None:
            continue
        groups = tuple(dict.fromkeys((group, view.made_as.get(group, group))))
        if any(one.pods == digest and group in one.groups and view.now < one.until for one in refusals):
            continue
        before = next((one for one in refusals if one.pods == digest and group in one.groups), None)
        times = 1 if before is None else before.times + 1
        seconds = min(FIRST_OPTION_SECONDS * 2 ** min(times - 1, 10), MOST_OPTION_SECONDS)
        refusals = [one for one in refusals if one is not before]
        refusals.append(
            OptionRefusal(
                digest,
                each.pods[0],
                groups,
                digest_of_template(template),
                node.name,
                refused.message,
                view.now,
                view.now + seconds,
                times,
            )
        )
    return refusals


def _disagreements(
    classes: Iterable[EquivalenceGroup],
    digests: Mapping[tuple[str, ...], str],
    memory: SchedulerMemory,
    view: AnsweredCluster,
) -> Iterator[Disagreement]:
    in_force = list(_in_force(memory.refusals, view.templates, view.now))
    for each in classes:
        digest = digests[each.pods]
        nodes = memory.nodes.get(digest)
        options = [one for one in in_force if one.pods == digest]
        if nodes is not None and view.now < nodes.until:
            count = len(nodes.names & view.ready_since.keys())
            groups = tuple(sorted({one.groups[0] for one in options}))
            yield Disagreement(each.pods, nodes.message, nodes.since, nodes.until, count, groups)
        elif options:
            last = max(options, key=lambda one: one.at)
            groups = tuple(sorted({one.groups[0] for one in options}))
            yield Disagreement(each.pods, last.message, min(one.at for one in options), last.until, 0, groups)


def _in_force(
    refusals: Iterable[OptionRefusal], group_templates: Mapping[str, NodeTemplate], now: float
) -> Iterator[OptionRefusal]:
    """Those that have not expired, and whose template has not changed."""
    for each in refusals:
        template = group_templates.get(each.groups[0])
        if now < each.until and (template is None or digest_of_template(template) == each.template):
            yield each


def _without_expired(refusals: Iterable[OptionRefusal], now: float) -> Iterator[OptionRefusal]:
    """An expired one is kept as long again, so that the next is longer."""
    return (each for each in refusals if now < each.until + (each.until - each.at))


def _without_refuted(refusals: Iterable[OptionRefusal], view: AnsweredCluster) -> list[OptionRefusal]:
    """Without those whose example the scheduler has bound to a node of the group after all."""
    listed = list(refusals)
    examples = {each.example for each in listed}
    groups = {
        pod.metadata.key: view.group_of_node.get(pod.spec.node_name)
        for pod in (view.pods if listed else ())
        if pod.spec.node_name and pod.metadata.key in examples
    }
    return [each for each in listed if groups.get(each.example) not in each.groups]


def _answer(message: str, seen_at: float, scheduler: str) -> SchedulerAnswer:
    return SchedulerAnswer(message, seen_at, scheduler, scheduler_messages.counted_nodes(message))


def _changed_at(condition: Condition, now: float) -> float:
    """When the pod was first refused: an unchanged status keeps the time, so the message may be younger."""
    try:
        return min(now, durations.instant(condition.last_transition_time or ""))
    except ValueError:
        return 0.0


def _bound_at(pod: Pod) -> float:
    """When the pod was scheduled; 0 if it was not, or its time cannot be read."""
    for each in pod.status.conditions or ():
        if each.type == podrules.SCHEDULED and each.status == "True":
            return _changed_at(each, math.inf)
    return 0.0


def _scheduler_of(pod: Pod) -> str:
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def _digest(facts: object) -> str:
    try:
        encoded = _ENCODER.encode(facts)
    except (OverflowError, ValueError):  # a number or a text that has no encoding
        encoded = repr(facts).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(encoded, digest_size=12).hexdigest()
