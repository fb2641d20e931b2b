"""Carries out what an iteration planned: group by group, node by node, and each request stored before it goes out."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from manager.autoscaler import planning, reconciliation
from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.actuation.scale_up_executor import ScaleUpExecutor
from manager.autoscaler.actuation.scan_actuator import ScanClients
from manager.autoscaler.cloudprovider.contract import Created, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cluster_state.registry import CLOUD_PROVIDER_ERROR, Registry, add_created_groups, back_off
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import CloudAccess, ClusterAccess
from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.listers import Listers
from manager.autoscaler.modes import Mode
from manager.autoscaler.planning import PlannedIteration
from manager.autoscaler.scale_down_controller import ScaleDownController
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import GroupCreation, Increase, ScaleUpDecision
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput

logger = logging.getLogger(__name__)

MOST_NAMED = 3  # of many, in an error


class GroupWrites:
    """For the loop's thread."""

    def __init__(
        self,
        settings: DecisionSettings,
        access: ClusterAccess,
        cloud: CloudAccess,
        listers: Listers,
        growth: ScaleUpExecutor,
    ) -> None:
        self._settings = settings
        self._listers = listers
        self._guard = cloud.guard
        self._cloud_lock = cloud.lock
        self._scale_up_executor = growth
        self._may_write = access.may_write

    def correct(self, action: Action) -> Action:
        """Deletes instances that never became nodes, or lowers a target that the cloud never filled."""
        if action.kind is ActionKind.DELETE_NODES:
            # None of them had a Node; an instance that registered during the cloud call may run pods already.
            here = self._listers.provider_ids()
            if action.reason == reconciliation.UNREGISTERED and (unread := self._listers.unread_nodes()):
                return replace(action, error=f"it may be a Node that cannot be read: {', '.join(unread[:MOST_NAMED])}")
            refs = [NodeRef(each, each) for each in action.nodes if each not in here]
            action = replace(action, nodes=tuple(ref.name for ref in refs), to_size=action.from_size - len(refs))
            return (
                self._try(action, lambda: self._guard.delete_nodes(action.group, refs, below_min=True))
                if refs
                else action
            )
        return self._try(action, lambda: self._guard.decrease_target(action.group, action.from_size - action.to_size))

    def delete_group(self, action: Action) -> Action:
        """Deletes an empty group that autoprovisioning created."""
        return self._try(action, lambda: self._guard.delete_group(action.group))

    def create_group(
        self,
        action: Action,
        creation: GroupCreation,
        decision: ScaleUpDecision,
        kept: Registry,
        planned: PlannedIteration,
    ) -> tuple[Action, ScaleUpDecision, Registry]:
        """Creates the group, empty. Returns the action, the decision with its increases, and the next registry."""
        made: list[Created] = []
        action = self._try(action, lambda: made.append(self._guard.create_group(creation.spec)))
        if action.error:
            return action, decision, self._backed_off(kept, action, planned.iteration.time)
        if not made:
            return action, decision, kept
        created = made[0]
        kept = add_created_groups(kept, (each.id for each in (created.main, *created.extras)), creation.group)
        templates = {}
        for group in (created.main, *created.extras):
            try:
                with self._cloud_lock:
                    templates[group.id] = planned.context.new_template(group.id)
            except (ProviderError, InvalidInput) as error:
                logger.warning("created, and not to be filled yet: %s", error, extra={"group": group.id})
        after = orchestrator.after_creation(decision, creation, created, templates, planned.context.settings.scale_up)
        return replace(action, group=created.main.id, max_size=created.main.max_size), after, kept

    def increase_groups(
        self, actions: Sequence[Action], kept: Registry, now: float
    ) -> tuple[Sequence[Action], Registry]:
        """Raises the targets. Returns the actions with their results, and the next registry."""
        wanted = [
            Increase(action.group, action.from_size, action.to_size, action.max_size)
            for action in actions
            if action.mode is Mode.ENFORCE and self._may_write()
        ]
        if not wanted:
            return actions, kept
        errors, kept = self._scale_up_executor.execute(wanted, kept, now)
        return [
            replace(action, done=errors[action.group] is None, error=str(errors[action.group] or ""))
            if action.mode is Mode.ENFORCE and action.group in errors  # but not advice on the same group
            else action
            for action in actions
        ], kept

    def _try(self, action: Action, work: Callable[[], object]) -> Action:
        """Tries the action if its mode and leadership allow it."""
        if action.mode is not Mode.ENFORCE or not self._may_write():
            return action
        try:
            with self._cloud_lock:
                work()
        except ProviderError as error:
            logger.error("%s failed: %s", action.kind, error, extra={"group": action.group})
            return replace(action, error=str(error))
        logger.info("%s: %s", action.kind, action.reason, extra={"group": action.group})
        return replace(action, done=True)

    def _backed_off(self, kept: Registry, action: Action, now: float) -> Registry:
        code = CLOUD_PROVIDER_ERROR
        return back_off(kept, action.group, action.error, now, self._settings.backoff, code=code)


class IterationExecutor:
    """For the loop's thread. `scan_clients` are for the scans of groups that scale by utilization."""

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
        self._registry = registry
        self._scale_up = ScaleUpExecutor(settings, guard, lock, registry, may_write, clock)
        self._group_writes = GroupWrites(settings, access, cloud, listers, self._scale_up)
        self.scan_clients = ScanClients(
            NodeWriter(access.client, guard, lock, may_write), self._scale_up.execute_for_scan
        )

    def carry_out(self, planned: PlannedIteration, removals: ScaleDownController) -> Iteration:
        """The iteration with the result of every action."""
        iteration = planned.iteration
        kept = planned.registry
        self._registry.write(kept)
        done = [
            self._group_writes.correct(action)
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
                action, decisions[number], kept = self._group_writes.create_group(
                    action, creation, decisions[number], kept, planned
                )
                done.append(action)
        launches = [action for action in iteration.actions if action.kind is ActionKind.INCREASE and action.nodes]
        increases = [*planning.increase_actions(decisions, planned.context.settings), *launches]
        increased, kept = self._group_writes.increase_groups(increases, kept, iteration.time)
        done += increased
        done += [
            self._group_writes.delete_group(action)
            for action in iteration.actions
            if action.kind is ActionKind.DELETE_GROUP
        ]
        if iteration.consolidation is not None and iteration.consolidation.ended:
            logger.info("%s", iteration.consolidation.ended)
        removals.note(done)
        done += removals.execute(planned)
        try:
            self._registry.write(kept)
        except HeadroomError as error:
            logger.error("the books are kept in mind: %s", error)
        return replace(
            iteration,
            decision=decisions[0] if decisions else None,
            further=tuple(decisions[1:]),
            actions=tuple(done),
        )
