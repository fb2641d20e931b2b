"""One replacement in one iteration, whatever asks for it: begins it, or takes the one under way further."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.reconciliation import SETTLING_SECONDS
from manager.autoscaler.cluster_state.registry import with_replacement
from manager.autoscaler.cluster_state.replacement import (
    DisruptionReason,
    Launch,
    ReplacedNode,
    Replacement,
    ReplacementPhase,
)
from manager.autoscaler.disruption import replacing
from manager.autoscaler.disruption.disruption_limits import allowance
from manager.autoscaler.disruption.replacing import (
    LaunchNodes,
    LookAgain,
    LookedAgain,
    RemoveNodes,
    ReplacementAbandoned,
    ReplacementChosen,
    ReplacementEnded,
    ReplacementEvent,
    ReplacementOutcome,
    ReplacementSeen,
)
from manager.autoscaler.disruption.simulation import ReplacementSimulation
from manager.autoscaler.disruption.verdicts import ConsolidationDecision, ReplacementOption
from manager.autoscaler.planning.cluster_view import ClusterView
from manager.autoscaler.planning.removal_view import RemovalCommands, RemovalView
from manager.autoscaler.scale_down import planner, pods_on_nodes
from manager.autoscaler.scale_down.planner import NodeBucket
from manager.autoscaler.scale_down.pods_on_nodes import DrainPlan
from manager.autoscaler.scale_down.removal_status import (
    DeletionCounts,
    NodeRemovalStatus,
    NodeStanding,
    NodeToRemove,
    ScaleDownDecision,
    ScaleDownReason,
)
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.cluster import NodeState
from shared.api import pods
from shared.api.core import Node
from shared.explanation import ScaleExplanation, first_names
from shared.names import ANNOTATION_DO_NOT_DISRUPT
from shared.quantity import Resources

MOST_NAMES = 3

NOT_ENFORCED = "a group of it is not in enforce mode any more"


def begin(decision: ConsolidationDecision, view: RemovalView, decided: RemovalCommands) -> RemovalCommands:
    """What is decided, with what follows from this decision; nothing does from advice."""
    cluster, option = view.cluster, decision.option
    if option is None or decision.advice:
        return decided.with_consolidation(decision)
    chosen = _describe_choice(option, cluster)
    state, instructions = replacing.step(None, ReplacementChosen(chosen))
    launches = (
        _launch_action(launch, chosen, option, cluster)
        for instruction in instructions
        if isinstance(instruction, LaunchNodes)
        for launch in instruction.launches
    )
    begun = replace(decided, registry=with_replacement(decided.registry, state), actions=(*decided.actions, *launches))
    return begun.with_consolidation(replace(decision, move=state, reason=chosen.reason))


def undisturbed_nodes(cluster: ClusterView, *, minds_pods: bool = True) -> dict[str, str]:
    """The nodes that are not to be disturbed, by their own annotation, or by that of a pod on them (`minds_pods`)."""
    found = {}
    for pod in cluster.objects.pods if minds_pods else ():
        is_held = pod.metadata.annotation(ANNOTATION_DO_NOT_DISRUPT) == "true" and not pod.metadata.deletion_timestamp
        if is_held and pod.spec.node_name and pods.is_active(pod):
            found[pod.spec.node_name] = f"pod {pod.metadata.key} has the annotation {ANNOTATION_DO_NOT_DISRUPT}"
    if not cluster.settings.marks_own_nodes:
        for node in cluster.objects.nodes:
            if node.metadata.annotation(ANNOTATION_DO_NOT_DISRUPT) == "true":
                found[node.metadata.name] = f"its annotation {ANNOTATION_DO_NOT_DISRUPT} is true"
    return found


def _describe_choice(option: ReplacementOption, cluster: ClusterView) -> Replacement:
    now, observed, start = cluster.objects.now, cluster.cloud.observed, cluster.settings.start
    uids = {node.metadata.name: node.metadata.uid for node in cluster.objects.nodes}
    newest: dict[str, float] = {}
    for node in cluster.objects.nodes:
        group = observed.group_of_node.get(node.metadata.name, "")
        newest[group] = max(newest.get(group, 0.0), node.metadata.created_at)
    new = {each.group for each in option.creations}
    seconds = start.max_node_provision_time_seconds + start.max_node_startup_time_seconds if new else 0.0
    for name in option.added.keys() - new:
        own = observed.groups[name].options
        provision, startup = own.max_node_provision_time_seconds, own.max_node_startup_time_seconds
        provision = start.max_node_provision_time_seconds if provision is None else provision
        seconds = max(seconds, provision + (start.max_node_startup_time_seconds if startup is None else startup))
    return Replacement(
        tuple(ReplacedNode(each, uids[each], observed.group_of_node[each]) for each in option.removed),
        tuple(
            Launch(name, 0 if name in new else observed.groups[name].group.target_size, count, newest.get(name, 0.0))
            for name, count in sorted(option.added.items())
        ),
        option.saving,
        now,
        now + seconds,
        reason=option.reason,
    )


def _launch_action(launch: Launch, chosen: Replacement, option: ReplacementOption, cluster: ClusterView) -> Action:
    """Raises the target of a group, or creates the group first."""
    created = {each.group: each.max_size for each in option.creations}
    is_new = launch.group in created
    names = tuple(each.name for each in chosen.removed)
    is_by_price = chosen.reason is DisruptionReason.UNDERUTILIZED
    why = f"which saves {option.saves_per_month:.4g}/month" if is_by_price else f"{option.reason}: {option.why}"
    return Action(
        ActionKind.CREATE_GROUP if is_new else ActionKind.INCREASE,
        launch.group,
        cluster.settings.mode_of(launch.group),
        launch.from_size,
        launch.from_size + launch.nodes,
        created[launch.group] if is_new else cluster.cloud.observed.groups[launch.group].group.max_size,
        names,
        ScaleExplanation(
            f"replaces {first_names(names, MOST_NAMES)}, {why}", bound=option.reason.value, result=launch.nodes
        ),
    )


@dataclass(frozen=True)
class ReplacementFollower:
    """Takes a replacement under way further, unless `unwanted` says why it is not wanted any more. After
    `grace_seconds` of draining an old node goes with its pods; None waits for them.
    """

    view: RemovalView
    scale_down: ScaleDownDecision
    unwanted: str = ""
    grace_seconds: float | None = None

    def follow(self, known: Replacement, decided: RemovalCommands) -> RemovalCommands:
        """What is decided, with the next step of this replacement."""
        registry = decided.registry
        removals: list[NodeToRemove] = []
        ended, is_done = "", False
        state, instructions = replacing.step(known, self._event(known))
        queue = [*instructions]
        while queue:
            instruction = queue.pop(0)
            match instruction:
                case LookAgain():
                    assert state is not None
                    looked, drains = self._look(state, instruction.nodes)
                    state, more = replacing.step(state, looked)
                    queue += more
                case RemoveNodes():
                    removals += [self._removal(name, drains[name], known.reason) for name in instruction.nodes]
                case ReplacementEnded():
                    ended, is_done = str(instruction), instruction.outcome is ReplacementOutcome.DONE
                    registry = msgspec.structs.replace(registry, replaced_at=self.view.cluster.objects.now)
                case LaunchNodes():
                    pass
        decision = ConsolidationDecision(move=state, ended=ended, is_done=is_done, reason=known.reason)
        followed = replace(decided, registry=with_replacement(registry, state)).with_consolidation(decision)
        return followed.with_removals(removals, _verdicts(removals, known))

    def _event(self, known: Replacement) -> ReplacementEvent:
        cluster = self.view.cluster
        if self.unwanted:
            return ReplacementAbandoned(self.unwanted)
        # A group that is to be created is awaited like its nodes.
        awaited = {each.group for each in known.launches if known.phase is ReplacementPhase.LAUNCHING}
        awaited -= cluster.cloud.observed.groups.keys()
        if any(
            name not in self.view.context.groups or cluster.settings.mode_of(name) is not Mode.ENFORCE
            for name in known.groups - awaited
        ):
            return ReplacementAbandoned(NOT_ENFORCED)
        launched, states = cluster.launched_nodes(known), cluster.reconciled.node_states
        return ReplacementSeen(
            cluster.objects.now,
            frozenset(node.metadata.uid for node in cluster.objects.nodes),
            frozenset(self.view.context.leaving),
            {
                group: tuple(each.metadata.name for each in nodes if states[each.metadata.name] is NodeState.READY)
                for group, nodes in launched.items()
            },
            self._failures(known, launched),
        )

    def _failures(self, known: Replacement, launched: Mapping[str, Sequence[Node]]) -> dict[str, str]:
        """Why no further nodes come to a group: it has failed since, or nothing asks for nodes any more."""
        registry, now = self.view.cluster.reconciled.registry, self.view.cluster.objects.now
        found = {}
        for launch in known.launches:
            if len(launched[launch.group]) >= launch.nodes:
                continue
            backoff = registry.backoffs.get(launch.group)
            if backoff is not None and backoff.failed_at >= known.started_at:
                found[launch.group] = f"group {launch.group} failed: {backoff.reason}"
            elif launch.group not in registry.requests and now - known.started_at > SETTLING_SECONDS:
                found[launch.group] = f"no more nodes of group {launch.group} are on their way"
        return found

    def _look(self, state: Replacement, waiting: Sequence[ReplacedNode]) -> tuple[LookedAgain, Mapping[str, DrainPlan]]:
        """Whether these old nodes can go, all of them, on what is there now; and which of them may begin."""
        now, names = self.view.cluster.objects.now, [each.name for each in waiting]
        drains = self._drains(state, names)
        if isinstance(drains, str):
            return LookedAgain(now, refusal=drains), {}
        removing = DeletionCounts(
            self.view.context.in_progress.empty + sum(not each.is_drained for each in self.scale_down.removals),
            self.view.context.in_progress.drained + sum(each.is_drained for each in self.scale_down.removals),
        )
        may_go = allowance(self.view.context, self.view.cluster.settings.disruption.limits, state.reason)
        cropped = planner.crop(
            [NodeBucket("", tuple(name for name in names if not drains[name].evicted))],
            [NodeBucket("", tuple(name for name in names if drains[name].evicted))],
            {},
            removing,
            self.view.cluster.settings.scale_down.parallelism,
        )
        ours = [name for bucket in (*cropped.empty, *cropped.drained) for name in bucket.nodes]
        may = may_go.cropped(ours, lambda name: self.view.context.group_of[name])
        shut = [each for name in names if not (each := may_go.of_group(self.view.context.group_of[name])).nodes]
        if not may and shut and not any(each.name in self.view.context.leaving for each in state.removed):
            return LookedAgain(now, refusal=f"the disruption limit {shut[0].limit!r} allows no node now"), {}
        return LookedAgain(now, tuple(may)), drains

    def _drains(self, state: Replacement, names: Sequence[str]) -> dict[str, DrainPlan] | str:
        """What happens to the pods of these nodes; or why they cannot go together."""
        context, is_forced = self.view.context, self.grace_seconds is not None
        protected = undisturbed_nodes(self.view.cluster, minds_pods=not is_forced)
        for name in names:
            failed = context.memory.unremovable.get(name)
            if name in protected:
                return f"{name}: {protected[name]}"
            if failed is not None and context.now < failed.until:
                return f"{name} could not be deleted recently: {failed.detail}"
        new = [node.metadata.name for nodes in self.view.cluster.launched_nodes(state).values() for node in nodes]
        if state.phase is not ReplacementPhase.DRAINING and state.reason is DisruptionReason.UNDERUTILIZED:
            prices = self.view.iteration.cost.known_by_node
            unpriced = [name for name in (*names, *new) if name not in prices]
            if unpriced:
                return f"{unpriced[0]} has no price any more"
            if sum(prices[each] for each in new) >= sum(prices[each] for each in names):
                return "the new nodes cost no less than the nodes that they would replace"
        over = replace(context, peaks=self._peaks(new))
        gone = [each for each in self.scale_down.unneeded if each not in names]
        simulation = ReplacementSimulation(
            over, gone, names if state.reason is DisruptionReason.UNHEALTHY else (), names if is_forced else ()
        )
        drains = simulation.drains(names, ())
        if isinstance(drains, tuple):
            return drains[1]
        placed = simulation.place(names)
        return drains if placed.stuck is None else placed.stuck.detail

    def _peaks(self, new: Sequence[str]) -> Mapping[str, Resources] | None:
        """The predicted peaks; that of a new node without a report is what its pods request."""
        peaks = self.view.context.peaks
        if peaks is None:
            return None
        on_node = pods_on_nodes.pods_by_node(self.view.context.residents)
        young = {
            name: pods_on_nodes.requested(
                each.facts.requests for each in on_node.get(name, ()) if each.drain_info is not None
            )
            for name in new
            if name not in peaks
        }
        return {**peaks, **young}

    def _removal(self, name: str, drain: DrainPlan, reason: DisruptionReason) -> NodeToRemove:
        status = self.scale_down.statuses.get(name)
        kind = ScaleDownReason.UNDERUTILIZED if drain.evicted else ScaleDownReason.EMPTY
        return NodeToRemove(
            name,
            self.view.context.group_of[name],
            ScaleDownReason.UNREADY if reason is DisruptionReason.UNHEALTHY else kind,
            (status and status.utilization) or 0.0,
            tuple(each.key for each in drain.evicted),
            self.grace_seconds,
        )


def _verdicts(removals: Sequence[NodeToRemove], known: Replacement) -> dict[str, NodeRemovalStatus]:
    made = Counter(each.group for each in known.launches for _ in range(each.nodes))
    by = ", ".join(f"{count} of {group}" for group, count in sorted(made.items())) or "nodes that stay"
    is_by_price = known.reason is DisruptionReason.UNDERUTILIZED
    detail = f"it is replaced by {by}" if is_by_price else f"{known.reason}, it is replaced by {by}"
    why = ScaleExplanation(detail, result=-1)
    return {
        each.node: NodeRemovalStatus(each.node, each.group, NodeStanding.GOES, why, each.utilization)
        for each in removals
    }
