"""Scale-down's part of the iterations: its history from one to the next, and its actions."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from manager.autoscaler.actuation.actuator import Actuator
from manager.autoscaler.actuation.deletion_machine import DeletionOptions
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry import Registry, lower_request
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import CloudAccess, ClusterAccess
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.listers import Listers
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.scale_down import removal_status
from manager.autoscaler.scale_down.removal_status import (
    DeletionProgress,
    DeletionsInProgress,
    NodeToRemove,
    ScaleDownHistory,
)
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import taints
from manager.autoscaler.snapshot.taints import NodePatch
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

NOT_BEGUN = "it is on its way already, or not there any more"
OUT_OF_TIME = "no time was left for it in this round"
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
        self._may_write = may_write
        actuation = config.actuation
        self._soft = NodeWriter(
            client.single_attempt(max(1.0, actuation.soft_taint_seconds)), cloud.guard, cloud.lock, may_write
        )
        self.actuator = Actuator(
            NodeWriter(client.single_attempt(ATTEMPT_SECONDS), cloud.guard, cloud.lock, may_write),
            listers,
            DeletionOptions(actuation, config.scale_down.drain, config.pending.expendable_below),
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
        loops.start("departures", self.actuator.run)

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
        until = now + self._config.scale_down.recheck_seconds
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
        nodes = {node.metadata.name: node for node in planned.context.objects.nodes}
        removals = () if made.scale_down is None else made.scale_down.removals
        late = self._clock.monotonic() + self._config.actuation.soft_taint_seconds
        done = []
        for action in made.actions:
            if action.kind is ActionKind.REMOVE_NODES:
                done.append(self._removed(action, removals, nodes, planned))
            elif action.kind in (ActionKind.TAINT, ActionKind.UNTAINT):
                done.append(self._softened(action, late))
        return done

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
