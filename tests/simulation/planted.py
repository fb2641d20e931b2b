"""Defects that the simulation must find: each is planted into the running product, and names the rule it breaks."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent.predict_server.debts import Debts
from deploy.local.apiserver import disruption
from manager.autoscaler.actuation import group_writer
from manager.autoscaler.actuation.deletion_machine import BatchSteps
from manager.autoscaler.actuation.node_drain import NodeDrain, PodEviction
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.planning import removal_planning
from manager.autoscaler.scale_down import planner, removal_status
from manager.nodeside.noderesource import explain
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.lease import LeaderElector
from shared.kube.object_cache import ObjectCache
from shared.kube.resources import PODS
from shared.kube.retry import Jitter
from tests.simulation import invariants, promises, protection


@dataclass(frozen=True)
class Defect:
    """`seed`, `minutes` and `flags` of a run that shows it; `rules` are those that it may break first."""

    plant: Callable[[], None]
    rules: tuple[str, ...]
    seed: int = 1
    minutes: float = 30.0
    flags: tuple[str, ...] = ()


def _set(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def _forget_floors() -> None:
    _set(explain, "with_floors", lambda decision, held: decision)


def _evict_again() -> None:
    _set(PodEviction, "is_due", lambda self, now: not self.is_protected)


def _count_per_group() -> None:
    original = planner.crop

    def crop(empty: Any, drained: Any, atomic: Any, in_progress: Any, parallelism: Any) -> planner.CroppedBuckets:
        def of(buckets: Any, group: str) -> list[Any]:
            return [each for each in buckets if each.group == group]

        groups = sorted({each.group for each in (*empty, *drained)})
        none = removal_status.DeletionCounts()
        found = [original(of(empty, each), of(drained, each), atomic, none, parallelism) for each in groups]
        return planner.CroppedBuckets(
            tuple(bucket for each in found for bucket in each.empty),
            tuple(bucket for each in found for bucket in each.drained),
        )

    _set(planner, "crop", crop)


def _trust_an_old_lease() -> None:
    """Whoever has led once believes that it still does."""
    original = LeaderElector.is_leader
    leaders: set[int] = set()

    def is_leader(self: LeaderElector) -> bool:
        if original(self):
            leaders.add(id(self))
        return id(self) in leaders

    _set(LeaderElector, "is_leader", is_leader)


def _send_unfenced() -> None:
    """Only the loops look at the lease, each when it begins."""
    _set(Client, "fenced", lambda self, may_write: self)


def _register_afterwards() -> None:
    """The registry is stored at the end of the iteration alone."""
    write = RegistryStore.write
    raised = group_writer.GroupWriter.raise_targets

    def raise_targets(self: Any, *arguments: Any) -> Any:
        _set(RegistryStore, "write", lambda store, registry: None)
        try:
            return raised(self, *arguments)
        finally:
            _set(RegistryStore, "write", write)

    _set(group_writer.GroupWriter, "raise_targets", raise_targets)


def _skip_versions() -> None:
    """A watch resumes a few changes too late."""
    original = Informer._watch

    def watch(self: Any, position: str, stop: Any) -> None:
        original(self, str(int(position) + 40) if position.isdecimal() else position, stop)

    _set(Informer, "_watch", watch)


def _hurry() -> None:
    _set(Jitter, "delay_seconds", lambda self, failures, error=None: 0.01)


def _keep_what_a_list_lacks() -> None:
    original = ObjectCache._remove

    def replace_all(self: Any, listing: Any) -> None:
        _set(ObjectCache, "_remove", lambda cache, key: None)
        try:
            replaced(self, listing)
        finally:
            _set(ObjectCache, "_remove", original)

    replaced = ObjectCache.replace
    _set(ObjectCache, "replace", replace_all)


def _rename_before_sync() -> None:
    _set(os, "fsync", lambda descriptor: None)


def _delete_pods() -> None:
    """A drain does not ask whether a budget allows it."""

    def evict(self: Client, namespace: str, name: str, **options: Any) -> None:
        self.delete(PODS, name, namespace, **options)

    _set(Client, "evict", evict)


def _allow_one_more() -> None:
    """The disruption controller counts a pod too many."""
    original = disruption.budget_status

    def budget_status(budget: Any, pods: Any, scale: Any) -> Any:
        found = original(budget, pods, scale)
        return found | {"disruptionsAllowed": found["disruptionsAllowed"] + 1}

    _set(disruption, "budget_status", budget_status)


def _trust_the_drain() -> None:
    """A node is drained as soon as its drain has begun, and not looked at again."""
    _set(NodeDrain, "is_over", lambda self, now: True)
    _set(BatchSteps, "_may_go", lambda self, each, found, now: True)


def _leave_taints() -> None:
    """What another leader has tainted stays tainted."""
    _set(removal_planning, "abandoned_nodes", lambda cluster, *, begins: ())


def _forgive_debts() -> None:
    """What a checkpoint says of broken promises is paid by the restart."""
    restored = Debts.of_arrays

    def of_arrays(arrays: Any) -> Debts:
        debts = restored(arrays)
        debts.debt[:] = 0.0
        return debts

    _set(Debts, "of_arrays", of_arrays)


def _withhold_nothing() -> None:
    """Broken promises are counted, and the next ones are as if they were not."""
    _set(Debts, "withheld", lambda self: np.minimum(self.debt, 0.0))
    _set(Debts, "ends_run", lambda self, time: np.zeros(len(self.debt), np.bool_))


DEFECTS = {
    "a floor that forgets pods": Defect(_forget_floors, (invariants.FLOOR,), seed=3),
    "an eviction that is repeated": Defect(_evict_again, (invariants.EVICTED, invariants.BACKOFF)),
    "a budget that is counted per group and iteration": Defect(_count_per_group, (invariants.BUDGET,), seed=2),
    "a lease that is not looked at again": Defect(_trust_an_old_lease, (invariants.LEASE,), seed=4),
    "a lease that is looked at before and not at the write": Defect(
        _send_unfenced, (invariants.LEASE,), minutes=60, flags=("--kinds=STOP_AT_ANSWER", "--gap=15", "--no-liveness")
    ),
    "a registry that is stored after the call": Defect(_register_afterwards, (invariants.REGISTERED,)),
    "a watch that resumes from a wrong version": Defect(_skip_versions, (invariants.CACHES, invariants.PLACED)),
    "a retry without a pause": Defect(_hurry, (invariants.BACKOFF,)),
    "a cache that keeps what a new list lacks": Defect(_keep_what_a_list_lacks, (invariants.CACHES,)),
    "a checkpoint that is renamed before it is synced": Defect(_rename_before_sync, (invariants.LEARNED,)),
    "a taint that is not taken back": Defect(
        _leave_taints, (invariants.TAINTED,), minutes=60, flags=("--kinds=KILL", "--gap=40", "--no-liveness")
    ),
    "a drain that deletes pods": Defect(_delete_pods, (protection.EVICTS,)),
    "a budget that allows one more": Defect(_allow_one_more, (protection.PROTECTED,), minutes=60, flags=("--budgets",)),
    "a drain that ends before its pods do": Defect(_trust_the_drain, (protection.DRAINED,), seed=2),
    "a restart that forgives a debt": Defect(
        _forgive_debts, (promises.DEBT,), flags=("--prediction-hour=10", "--kinds=KILL", "--gap=40", "--no-liveness")
    ),
    "a debt that withholds nothing": Defect(
        _withhold_nothing,
        (promises.TARGET, promises.OWED),
        minutes=40,
        flags=("--prediction-hour=10", "--agents=2", "--kinds=KILL", "--gap=60", "--no-liveness"),
    ),
}
