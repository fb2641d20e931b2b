"""Carries out what an iteration planned: group by group, node by node, and each request stored before it goes out."""

import logging
from dataclasses import replace

from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.actuation.scale_up_executor import ScaleUpExecutor
from manager.autoscaler.actuation.scan_actuator import ScanClients
from manager.autoscaler.cloud_access import CloudAccess
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import ClusterAccess
from manager.autoscaler.group_writes import GroupWrites
from manager.autoscaler.iteration import ActionKind, Iteration
from manager.autoscaler.listers import Listers
from manager.autoscaler.modes import Mode
from manager.autoscaler.planning import PlannedIteration
from manager.autoscaler.scale_down_controller import ScaleDownController
from shared.clock import Clock
from shared.errors import HeadroomError

logger = logging.getLogger(__name__)


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
        self._group_writes = GroupWrites(settings, listers, guard, lock, self._scale_up, may_write)
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
        increased, kept = self._group_writes.increase_groups(decisions, kept, iteration.time)
        done += increased
        done += [
            self._group_writes.delete_group(action)
            for action in iteration.actions
            if action.kind is ActionKind.DELETE_GROUP
        ]
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
