"""Raises target sizes: stores the request, asks the cloud, and drops the request if the cloud refuses.

The decided targets are raised one after another or all at once.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.errors import Later, NotAsked, ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cluster_state.registry import (
    Registry,
    active_backoff,
    add_request,
    fail_request,
    withdraw_request,
)
from manager.autoscaler.cluster_state.registry_store import NOT_LEADING, RegistryStore
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.scale_up.decisions import Increase
from shared.clock import Clock
from shared.errors import HeadroomError

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 16


@dataclass(frozen=True)
class IncreaseResult:
    """One increase and its error; after an error the target may or may not have been raised."""

    increase: Increase
    error: ProviderError | None = None


class ScaleUpExecutor:
    """`lock` is held during cloud calls; leadership is checked right before each."""

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

    def execute(
        self, wanted: Sequence[Increase], kept: Registry, now: float
    ) -> tuple[Mapping[str, HeadroomError | None], Registry]:
        """Returns the error of each attempted increase, by group, and the next registry."""
        noted = kept
        for each in wanted:
            noted = add_request(noted, each, now, self._provision_seconds(each.group))
        try:
            self._registry.write(noted)
        except HeadroomError as error:
            logger.error("no scale-up, as it could not be noted first: %s", error)
            return {each.group: error for each in wanted}, kept
        kept = noted
        results = carry_out(wanted, self._increase, parallel=self._settings.parallel)
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

    def execute_for_scan(self, increase: Increase) -> HeadroomError | None:
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
            return Later(self._guard.name, increase.group, f"left alone for a while, after: {backoff.reason}")
        errors, kept = self.execute([increase], self._registry.known, now)
        try:
            self._registry.write(kept)
        except HeadroomError as error:
            logger.error("the books are kept in mind: %s", error)
        return errors[increase.group]

    def _increase(self, group: str, delta: int) -> None:
        with self._lock:
            if not self._may_write():
                raise Refused(self._guard.name, group, NOT_LEADING)
            self._guard.increase(group, delta)

    def _provision_seconds(self, group: str) -> float:
        seen = self._guard.observed.groups.get(group)
        own = None if seen is None else seen.options.max_node_provision_seconds
        return self._settings.start.provision_seconds if own is None else own


def carry_out(
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
