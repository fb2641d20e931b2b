"""Carries out what an iteration planned: group by group, node by node, and each request stored before it goes out."""

import logging
from dataclasses import replace

from manager.autoscaler.actuation.group_writer import GroupWriter
from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.actuation.scale_down_controller import ScaleDownController
from manager.autoscaler.actuation.scan_actuator import ScanClients
from manager.autoscaler.cloudprovider.contract import Created
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry import Registry, with_replacement
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import CloudAccess, ClusterAccess
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.listers import Listers
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import GroupCreation, ScaleUpDecision
from manager.autoscaler.settings.modes import Mode
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput

logger = logging.getLogger(__name__)


class IterationExecutor:
    """Runs in the loop's thread. `scan_clients` serve the scans of groups that scale by utilization."""

    def __init__(
        self,
        settings: DecisionSettings,
        access: ClusterAccess,
        cloud: CloudAccess,
        listers: Listers,
        registry: RegistryStore,
        clock: Clock,
    ) -> None:
        guard, lock, may_write = cloud.guard, cloud.lock, access.may_write
        self._cloud_lock = lock
        self._listers = listers
        self._registry = registry
        self._groups = GroupWriter(settings, guard, lock, registry, may_write, clock)
        self.scan_clients = ScanClients(
            NodeWriter(access.client, guard, lock, may_write), self._groups.increase_for_scan
        )

    def carry_out(self, planned: PlannedIteration, removals: ScaleDownController) -> Iteration:
        """The iteration with the result of every action."""
        iteration = planned.iteration
        kept = planned.registry
        self._registry.write(kept)
        done = [
            self._groups.correct(action, self._listers)
            for action in iteration.actions
            if action.kind in (ActionKind.DELETE_NODES, ActionKind.DECREASE_TARGET)
        ]
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
        increases = [*iteration_plan.increase_actions(decisions, planned.context.settings), *launches]
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
            logger.error("the books are kept in mind: %s", error)
        return replace(iteration.with_decisions(decisions), actions=tuple(done))

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
                    templates[group.id] = planned.context.new_template(group.id)
            except (ProviderError, InvalidInput) as error:
                logger.warning("created, and not to be filled yet: %s", error, extra={"group": group.id})
        return orchestrator.after_creation(decision, creation, created, templates, planned.context.settings.scale_up)
