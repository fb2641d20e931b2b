"""The writes to the cloud's groups: targets, new groups, and deletions of groups.

An increase is stored before the request to the cloud, and dropped if the cloud refuses it. The decided targets are
raised one after another or all at once.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from manager.autoscaler.cloudprovider.contract import Created
from manager.autoscaler.cloudprovider.errors import Later, NotAsked, ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cluster_state.actions import Action
from manager.autoscaler.cluster_state.registry import (
    CLOUD_PROVIDER_ERROR,
    Registry,
    active_backoff,
    add_created_groups,
    add_request,
    back_off,
    fail_request,
    withdraw_request,
)
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.scale_up.decisions import GroupCreation
from manager.autoscaler.settings.modes import Mode
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.errors import NOT_LEADING

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 16


@dataclass(frozen=True)
class IncreaseResult:
    """One increase and its error; after an error the target may or may not have been raised."""

    increase: Increase
    error: ProviderError | None = None


class GroupWriter:
    """`lock` is held during cloud calls; mode and leadership are checked right before each."""

    def __init__(
        self,
        settings: DecisionSettings,
        guard: Guard,
        lock: threading.Lock,
        registry: RegistryStore,
        may_write: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._lock = lock
        self._registry = registry
        self._may_write = may_write
        self._clock = clock

    def lower_target(self, action: Action) -> Action:
        """Lowers a target that the cloud never filled."""
        decrease = action.from_size - action.to_size
        return self._try(action, lambda: self._guard.decrease_target(action.group, decrease))

    def delete_group(self, action: Action) -> Action:
        """Deletes an empty group that autoprovisioning created."""
        return self._try(action, lambda: self._guard.delete_group(action.group))

    def create_group(
        self, action: Action, creation: GroupCreation, kept: Registry, now: float
    ) -> tuple[Action, Created | None, Registry]:
        """Creates the group, empty. Returns the action, what was created, and the next registry."""
        made: list[Created] = []
        action = self._try(action, lambda: made.append(self._guard.create_group(creation.spec)))
        if action.error:
            times = self._settings.backoff
            return action, None, back_off(kept, action.group, action.error, now, times, code=CLOUD_PROVIDER_ERROR)
        if not made:
            return action, None, kept
        created = made[0]
        kept = add_created_groups(kept, (each.id for each in (created.main, *created.extras)), creation.group)
        return replace(action, group=created.main.id, max_size=created.main.max_size), created, kept

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
        errors, kept = self.raise_targets(wanted, kept, now)
        return [
            replace(action, done=errors[action.group] is None, error=str(errors[action.group] or ""))
            if action.mode is Mode.ENFORCE and action.group in errors  # but not advice on the same group
            else action
            for action in actions
        ], kept

    def raise_targets(
        self, wanted: Sequence[Increase], kept: Registry, now: float
    ) -> tuple[Mapping[str, HeadroomError | None], Registry]:
        """Returns the error of each attempted increase, by group, and the next registry."""
        noted = kept
        for each in wanted:
            noted = add_request(noted, each, now, self._provision_seconds(each.group))
        try:
            self._registry.write(noted)
        except HeadroomError as error:
            logger.error("no scale-up, because the registry could not be written first: %s", error)
            return {each.group: error for each in wanted}, kept
        kept = noted
        results = try_increases(wanted, self._increase, parallel=self._settings.parallel_scale_up)
        errors = {each.increase.group: each.error for each in results}
        for each in wanted:
            failure = errors.get(each.group)
            if each.group not in errors or isinstance(failure, NotAsked):
                kept = withdraw_request(kept, each)
            elif failure is not None:
                times = self._settings.backoff
                kept = fail_request(kept, each, str(failure), now, times, in_doubt=failure.leaves_doubt)
                logger.error("scale-up failed: %s", failure, extra={"group": each.group})
            else:
                logger.info("scale-up: %s", each, extra={"group": each.group})
        return errors, kept

    def increase_for_scan(self, increase: Increase) -> HeadroomError | None:
        """The same for a scan's increase; returns its error, if any.

        For a group that pending pods cannot raise, the scan's own lock and breaker replace the registry.
        """
        if not self._settings.answers_pending_pods(increase.group):
            try:
                self._increase(increase.group, increase.nodes)
            except ProviderError as error:
                return error
            return None
        now = self._clock.now()
        backoff = active_backoff(self._registry.known, increase.group, now)
        if backoff is not None:
            return Later(self._guard.name, increase.group, f"in backoff after: {backoff.reason}")
        errors, kept = self.raise_targets([increase], self._registry.known, now)
        try:
            self._registry.write(kept)
        except HeadroomError as error:
            logger.error("the registry was not written, it is kept in memory until a later write succeeds: %s", error)
        return errors[increase.group]

    def _try(self, action: Action, work: Callable[[], object]) -> Action:
        """Tries the action if its mode and leadership allow it."""
        if action.mode is not Mode.ENFORCE or not self._may_write():
            return action
        try:
            with self._lock:
                work()
        except ProviderError as error:
            logger.error("%s failed: %s", action.kind, error, extra={"group": action.group})
            return replace(action, error=str(error))
        logger.info("%s: %s", action.kind, action.reason, extra={"group": action.group})
        return replace(action, done=True)

    def _increase(self, group: str, delta: int) -> None:
        with self._lock:
            if not self._may_write():
                raise Refused(self._guard.name, group, NOT_LEADING)
            self._guard.increase(group, delta)

    def _provision_seconds(self, group: str) -> float:
        seen = self._guard.observed.groups.get(group)
        own = None if seen is None else seen.options.max_node_provision_time_seconds
        return self._settings.start.max_node_provision_time_seconds if own is None else own


def try_increases(
    increases: Sequence[Increase], increase: Callable[[str, int], None], *, parallel: bool = False
) -> list[IncreaseResult]:
    """The attempts, in the given order. One after another, the first error stops; in parallel, all are attempted."""

    def attempt(each: Increase) -> IncreaseResult:
        try:
            increase(each.group, each.nodes)
        except ProviderError as error:
            return IncreaseResult(each, error)
        return IncreaseResult(each)

    if parallel and increases:
        with ThreadPoolExecutor(min(MOST_AT_ONCE, len(increases)), "increase") as pool:
            return list(pool.map(attempt, increases))
    results: list[IncreaseResult] = []
    for each in increases:
        results.append(attempt(each))
        if results[-1].error is not None:
            break
    return results
