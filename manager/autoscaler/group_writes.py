"""What a round asks of the cloud about groups, each act tried where it may be, and what became of it."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from manager.autoscaler import planning, reconciliation
from manager.autoscaler.actuation.scale_up_executor import ScaleUpExecutor
from manager.autoscaler.cloudprovider.contract import Created, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cluster_state.registry import CLOUD_PROVIDER_ERROR, Registry, add_created_groups, back_off
from manager.autoscaler.config import Config
from manager.autoscaler.iteration import Action, ActionKind
from manager.autoscaler.listers import Listers
from manager.autoscaler.modes import Mode
from manager.autoscaler.planning import PlannedIteration
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import GroupCreation, Increase, ScaleUpDecision
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

MOST_NAMED = 3  # of many, in an error


class GroupWrites:
    """For the thread that makes the rounds."""

    def __init__(
        self,
        config: Config,
        watching: Listers,
        guard: Guard,
        cloud_lock: threading.Lock,
        growth: ScaleUpExecutor,
        may_write: Callable[[], bool],
    ) -> None:
        self._config = config
        self._watching = watching
        self._guard = guard
        self._cloud_lock = cloud_lock
        self._growth = growth
        self._may_write = may_write

    def corrected(self, act: Action) -> Action:
        """Without the nodes that never came, or the places of such."""
        if act.what is ActionKind.DELETE_NODES:
            # All of them had no Node; who has registered while the cloud was asked may be at work already.
            here = self._watching.provider_ids()
            if act.reason == reconciliation.UNREGISTERED and (unread := self._watching.unread_nodes()):
                return replace(act, error=f"it may be a Node that cannot be read: {', '.join(unread[:MOST_NAMED])}")
            refs = [NodeRef(each, each) for each in act.nodes if each not in here]
            act = replace(act, nodes=tuple(ref.name for ref in refs), to_size=act.from_size - len(refs))
            return self._done(act, lambda: self._guard.delete_nodes(act.group, refs, below_min=True)) if refs else act
        return self._done(act, lambda: self._guard.decrease_target(act.group, act.from_size - act.to_size))

    def group_deleted(self, act: Action) -> Action:
        """Without the group."""
        return self._done(act, lambda: self._guard.delete_group(act.group))

    def created(
        self, act: Action, creation: GroupCreation, decision: ScaleUpDecision, kept: Registry, planned: PlannedIteration
    ) -> tuple[Action, ScaleUpDecision, Registry]:
        """The group itself, empty, the decision with what its nodes go to, and the books after it."""
        made: list[Created] = []
        act = self._done(act, lambda: made.append(self._guard.create_group(creation.spec)))
        if act.error:
            return act, decision, self._backed_off(kept, act, planned.round.time)
        if not made:
            return act, decision, kept
        created = made[0]
        kept = add_created_groups(kept, (each.id for each in (created.main, *created.extras)), creation.group)
        templates = {}
        for group in (created.main, *created.extras):
            try:
                with self._cloud_lock:
                    templates[group.id] = planned.context.new_template(group.id)
            except (ProviderError, InvalidInput) as error:
                logger.warning("created, and not to be filled yet: %s", error, extra={"group": group.id})
        after = orchestrator.after_creation(decision, creation, created, templates, planned.settings)
        return replace(act, group=created.main.id, max_size=created.main.max_size), after, kept

    def increased(
        self, decisions: Sequence[ScaleUpDecision], kept: Registry, now: float
    ) -> tuple[list[Action], Registry]:
        """What is to be raised, and what became of it."""
        acts = planning.increase_actions(decisions, self._config)
        wanted = [
            Increase(act.group, act.from_size, act.to_size, act.max_size)
            for act in acts
            if act.mode is Mode.ENFORCE and self._may_write()
        ]
        if not wanted:
            return acts, kept
        errors, kept = self._growth.ask(wanted, kept, now)
        return [
            replace(act, done=errors[act.group] is None, error=str(errors[act.group] or ""))
            if act.mode is Mode.ENFORCE and act.group in errors  # and no advice on the same group
            else act
            for act in acts
        ], kept

    def _done(self, act: Action, work: Callable[[], object]) -> Action:
        """The act, tried if it may be."""
        if act.mode is not Mode.ENFORCE or not self._may_write():
            return act
        try:
            with self._cloud_lock:
                work()
        except ProviderError as error:
            logger.error("%s failed: %s", act.what, error, extra={"group": act.group})
            return replace(act, error=str(error))
        logger.info("%s: %s", act.what, act.reason, extra={"group": act.group})
        return replace(act, done=True)

    def _backed_off(self, kept: Registry, act: Action, now: float) -> Registry:
        code = CLOUD_PROVIDER_ERROR
        return back_off(kept, act.group, act.error, now, self._config.backoff, code=code)
