"""Carries out what an iteration planned: group by group, node by node, and each request stored before it goes out.

`ScaleDownController` also keeps scale-down's history from one iteration to the next.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from manager.autoscaler.actuation.actuator import Actuator
from manager.autoscaler.actuation.group_writer import GroupWriter
from manager.autoscaler.actuation.node_deletion import DeletionOptions
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter
from manager.autoscaler.actuation.scans import ScanAccess
from manager.autoscaler.cloudprovider.contract import Created, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry import Registry, lower_request, with_replacement
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import CloudAccess, ClusterAccess
from manager.autoscaler.listers import Listers
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.scale_down import removal_status
from manager.autoscaler.scale_down.removal_status import (
    DeletionProgress,
    DeletionsInProgress,
    NodeToRemove,
    ScaleDownHistory,
)
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import GroupCreation, ScaleUpDecision
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import taints
from manager.autoscaler.snapshot.taints import NodePatch
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

NOT_BEGUN = "it is on its way already, or does not exist any more"
OUT_OF_TIME = "no time was left for it in this iteration"
MOST_NAMED = 3  # of many, in an error
SOFT_TAINT_SECONDS = 3.0  # of an iteration, for all soft taints; more wait for the next one
ATTEMPT_SECONDS = 10.0  # time limit of one request, retries included
JUMP_SECONDS = 5.0  # wall clock against monotonic clock between two iterations; no clock drifts that far


class ScaleDownController:
    """Runs in the loop's thread; calls to the cloud hold the lock."""

    def __init__(
        self,
        config: DecisionSettings,
        access: ClusterAccess,
        cloud: CloudAccess,
        listers: Listers,
        clock: Clock,
    ) -> None:
        client, may_write = access.client, access.may_write
        self._config = config
        self._clock = clock
        self._listers = listers
        self._may_write = may_write
        actuation = config.actuation
        self._soft = NodeWriter(
            client.single_attempt(SOFT_TAINT_SECONDS),
            cloud.guard,
            cloud.lock,
            may_write,
        )
        self.actuator = Actuator(
            NodeWriter(client.single_attempt(ATTEMPT_SECONDS), cloud.guard, cloud.lock, may_write),
            listers,
            DeletionOptions(actuation, config.scale_down.drain, config.pending.expendable_pods_priority_cutoff),
            clock,
        )
        self._memory = ScaleDownHistory()
        self._taken: Counter[str] = Counter()
        self._offset = clock.now() - clock.monotonic()
        self.jumped_seconds = 0.0  # wall clock jump since the last iteration
        self.underway = DeletionsInProgress()
        self.begins = True  # taints that another process may have left are not handled yet

    def start(self, loops: Loops) -> None:
        """Starts its thread."""
        loops.start("node-deletions", self.actuator.run)

    def forget(self) -> None:
        """Another process leads."""
        self.actuator.leadership_lost()
        self._memory, self.underway, self.begins = ScaleDownHistory(), DeletionsInProgress(), True
        self._taken.clear()

    def begin(self, now: float) -> tuple[DeletionProgress, ...]:
        """Begins an iteration; returns the nodes under deletion, and those whose deletion has ended."""
        offset = now - self._clock.monotonic()
        jumped, self._offset = offset - self._offset, offset
        self.jumped_seconds = jumped if abs(jumped) > JUMP_SECONDS else 0.0
        if self.jumped_seconds:
            logger.warning("the clock has jumped by %.0f s", jumped)
            self._memory = removal_status.shifted_history(self._memory, jumped)
        leaving = self.actuator.take_progress()
        until = now + self._config.scale_down.removal.unremovable_node_recheck_timeout_seconds
        self._memory = removal_status.history_after_failures(self._memory, leaving, until)
        self.underway = self.actuator.deletions_in_progress(leaving, self._memory)
        return leaving

    def observed(self, observed: CloudObservation) -> None:
        """Takes the observation of the cloud, under its lock."""
        self.actuator.cloud_observed(observed)

    def put_right(self, registry: Registry) -> Registry:
        """The registry, minus the nodes that the cloud has deleted since the last write."""
        self._taken.update(self.actuator.take_accepted())
        for group, nodes in self._taken.items():
            registry = lower_request(registry, group, nodes)
        return registry

    def remember(self, made: Iteration) -> None:
        """Keeps the history of an iteration."""
        if made.scale_down is not None:
            self._memory = made.scale_down.memory

    def execute(self, planned: PlannedIteration) -> list[Action]:
        """Carries out scale-down's actions; returns them with their results."""
        made = planned.iteration
        self.actuator.untaint_abandoned(planned.abandoned)
        self.begins = False
        self._taken.clear()  # the stored registry includes them
        nodes = {node.metadata.name: node for node in planned.view.objects.nodes}
        removals = () if made.scale_down is None else made.scale_down.removals
        late = self._clock.monotonic() + SOFT_TAINT_SECONDS
        done = []
        for action in made.actions:
            if action.kind is ActionKind.REMOVE_NODES:
                done.append(self._removed(action, removals, nodes, planned))
            elif action.kind in (ActionKind.TAINT, ActionKind.UNTAINT):
                done.append(self._softened(action, late))
        return done

    def delete_instances(self, action: Action) -> Action:
        """Deletes instances that never became nodes."""
        # None of them had a Node; an instance that registered during the cloud call may run pods already.
        here = self._listers.provider_ids()
        if action.reason == reconciliation.UNREGISTERED and (unread := self._listers.unread_nodes()):
            return replace(action, error=f"it may be a Node that cannot be read: {', '.join(unread[:MOST_NAMED])}")
        refs = [NodeRef(each, each) for each in action.nodes if each not in here]
        action = replace(action, nodes=tuple(ref.name for ref in refs), to_size=action.from_size - len(refs))
        if not refs or action.mode is not Mode.ENFORCE or not self._may_write():
            return action
        error = self.actuator.delete_instances(action.group, refs)
        if not error:
            logger.info("%s: %s", action.kind, action.reason, extra={"group": action.group})
        return replace(action, done=not error, error=error)

    def note(self, actions: Sequence[Action]) -> None:
        """Increases among these start the cooldown of scale-down."""
        grown = [
            action.group
            for action in actions
            if action.done and action.kind in (ActionKind.INCREASE, ActionKind.CREATE_GROUP)
        ]
        self.actuator.nodes_added(grown)

    def _removed(
        self, action: Action, removals: Sequence[NodeToRemove], nodes: Mapping[str, Node], planned: PlannedIteration
    ) -> Action:
        if action.mode is not Mode.ENFORCE or not self._may_write():
            return action
        status = planned.iteration.state.groups[action.group]
        atomic = (action.group,) if status.options.zero_or_max_node_scaling else ()
        begun = self.actuator.begin((each for each in removals if each.group == action.group), nodes, atomic)
        if not begun:
            return replace(action, error=NOT_BEGUN)
        logger.info("%s: %s", action.kind, ", ".join(begun), extra={"group": action.group})
        return replace(action, nodes=tuple(begun), to_size=action.from_size - len(begun), done=True)

    def _softened(self, action: Action, late: float) -> Action:
        """Writes as many soft taints as time allows; the others wait for a later iteration."""
        if action.mode is not Mode.ENFORCE:
            return action

        def patch_of(node: Node) -> NodePatch | None:
            if action.kind is ActionKind.UNTAINT:
                return taints.needed_patch(node)
            return taints.candidate_patch(node, self._clock.now())

        done: list[str] = []
        for name in action.nodes:
            if not self._may_write():
                break
            if self._clock.monotonic() > late:
                return replace(
                    action, nodes=tuple(done) or action.nodes, done=bool(done), error="" if done else OUT_OF_TIME
                )
            try:
                self._soft.change(name, patch_of)
            except NodeVanished:
                continue
            except HeadroomError as error:
                logger.warning("%s failed: %s", action.kind, error, extra={"node": name, "group": action.group})
                return replace(
                    action, nodes=tuple(done) or action.nodes, done=bool(done), error="" if done else str(error)
                )
            done.append(name)
        return replace(action, nodes=tuple(done), done=True) if done else action


class IterationExecutor:
    """Runs in the loop's thread."""

    def __init__(
        self,
        settings: DecisionSettings,
        access: ClusterAccess,
        cloud: CloudAccess,
        registry: RegistryStore,
        clock: Clock,
    ) -> None:
        guard, lock, may_write = cloud.guard, cloud.lock, access.may_write
        self._cloud_lock = lock
        self._registry = registry
        self._groups = GroupWriter(settings, guard, lock, registry, may_write, clock)
        self._writer = NodeWriter(access.client, guard, lock, may_write)

    def carry_out(self, planned: PlannedIteration, removals: ScaleDownController) -> Iteration:
        """The iteration with the result of every action."""
        iteration = planned.iteration
        kept = planned.registry
        self._registry.write(kept)
        done = []
        for action in iteration.actions:
            if action.kind is ActionKind.DELETE_NODES:
                done.append(removals.delete_instances(action))
            elif action.kind is ActionKind.DECREASE_TARGET:
                done.append(self._groups.lower_target(action))
        decisions = list(planned.decisions)
        creations = {
            (action.group, action.mode is Mode.RECOMMEND): action
            for action in iteration.actions
            if action.kind is ActionKind.CREATE_GROUP
        }
        for number, decision in enumerate(decisions):
            for creation in decision.creations:
                action = creations[creation.group, decision.advice]
                action, created, kept = self._groups.create_group(action, creation, kept, iteration.time)
                if created is not None:
                    decisions[number] = self._filled(decisions[number], creation, created, planned)
                done.append(action)
        created_first, launches, iteration, kept = self._launches(iteration, kept)
        done += created_first
        increases = [*iteration_plan.increase_actions(decisions, planned.view.settings), *launches]
        increased, kept = self._groups.increase_groups(increases, kept, iteration.time)
        done += increased
        done += [
            self._groups.delete_group(action) for action in iteration.actions if action.kind is ActionKind.DELETE_GROUP
        ]
        if iteration.consolidation is not None and iteration.consolidation.ended:
            logger.info("%s", iteration.consolidation.ended)
        removals.note(done)
        done += removals.execute(planned)
        try:
            self._registry.write(kept)
        except HeadroomError as error:
            logger.error("the registry was not written, it is kept in memory until a later write succeeds: %s", error)
        return replace(iteration.with_decisions(decisions), actions=tuple(done))

    def scan_access(self, removals: ScaleDownController) -> ScanAccess:
        """What the scans of groups that scale by utilization act through."""
        return ScanAccess(self._writer, removals.actuator, self._groups.increase_for_scan)

    def _launches(self, iteration: Iteration, kept: Registry) -> tuple[list[Action], list[Action], Iteration, Registry]:
        """Creates the groups of a replacement that begins. Returns these actions and the increases of its launches,
        none if a group was not created: the next iteration then gives the replacement up.
        """
        launches = [action for action in iteration.actions if action.kind is ActionKind.INCREASE and action.nodes]
        consolidation, move = iteration.consolidation, kept.replacing
        if consolidation is None or consolidation.option is None or move is None:
            return [], launches, iteration, kept
        creations = {each.group: each for each in consolidation.option.creations}
        done = []
        for action in iteration.actions:
            if action.kind is not ActionKind.CREATE_GROUP or not action.nodes:
                continue
            wanted = action.group
            action, created, kept = self._groups.create_group(action, creations[wanted], kept, iteration.time)
            done.append(action)
            if created is None:
                return done, [], iteration, kept
            launches.append(replace(action, kind=ActionKind.INCREASE, done=False))
            move = move.renamed(wanted, created.main.id)
            kept = with_replacement(kept, move)
        return done, launches, replace(iteration, consolidation=replace(consolidation, move=move)), kept

    def _filled(
        self, decision: ScaleUpDecision, creation: GroupCreation, created: Created, planned: PlannedIteration
    ) -> ScaleUpDecision:
        """The decision with increases of the groups that were created; without a template, a group stays empty."""
        templates = {}
        for group in (created.main, *created.extras):
            try:
                with self._cloud_lock:
                    templates[group.id] = planned.view.new_template(group.id)
            except (ProviderError, InvalidInput) as error:
                logger.warning(
                    "node group created, but it cannot be scaled up yet: %s", error, extra={"group": group.id}
                )
        return orchestrator.after_creation(decision, creation, created, templates, planned.view.settings.scale_up)
