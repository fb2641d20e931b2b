"""The controllers without which objects would stay forever: owner references, namespaces, events, budgets.

In real clusters kube-controller-manager does this. The janitor finds its work in changes, does one item at a
time, and gets new work from the changes that it causes.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from deploy.local.apiserver import disruption, status
from deploy.local.apiserver.bodies import How
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.objects import Json, JsonObject, dig, owner_references
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.store import ObjectChange, Store, StoredObject, object_key
from deploy.local.apiserver.writes import Writes
from shared import durations

logger = logging.getLogger(__name__)

EVENT_SECONDS = 3600.0
SWEEP_SECONDS = 20.0
_AT_LEISURE = Deletion()
_HOW = How()
_BUDGETS = "policy/poddisruptionbudgets"
Where = tuple[str, str]  # resource and key
Work = tuple[str, str, str]  # the chore, and the object's resource and key


class Janitor:
    """Watches the store's changes and cleans up after them."""

    def __init__(self, store: Store, writes: Writes, kinds: KindRegistry) -> None:
        self._store = store
        self._writes = writes
        self._kinds = kinds
        self._dependents: dict[str, set[Where]] = defaultdict(set)
        self._pending: dict[Work, None] = {}
        self._wake = asyncio.Event()
        self._chores: dict[str, Callable[[str, str], None]] = {
            "check-owners": self._check_owners,
            "drop-dependents": self._drop_dependents,
            "namespace": self._empty_namespace,
            "definition": self._drop_custom_objects,
            "budgets": self._update_budgets,
        }
        self._missing_since: dict[str, float] = {}
        for resource in store.resources():
            for record in store.ordered(resource):
                self._notice(ObjectChange(record, None, deleted=False))
        if self._pending:
            self._wake.set()

    def changed(self, change: ObjectChange) -> None:
        self._notice(change)
        if self._pending:
            self._wake.set()

    def _later(self, chore: str, resource: str, key: str = "") -> None:
        self._pending[chore, resource, key] = None

    def _notice(self, change: ObjectChange) -> None:
        record, previous = change.record, change.previous
        where = (record.resource, record.key)
        before = previous.owners if previous is not None else ()
        if record.owners != before or change.deleted:
            self._index(where, before, () if change.deleted else record.owners)
        if change.deleted:
            self._notice_deletion(record)
        elif record.owners != before:
            self._later("check-owners", *where)
        if not change.deleted and record.resource == "/namespaces" and b'"deletionTimestamp"' in record.value:
            self._later("namespace", *where)
        if record.resource in ("/pods", _BUDGETS):
            self._later("budgets", record.namespace)

    def _index(self, where: Where, before: Sequence[str], after: Sequence[str]) -> None:
        for uid in before:
            self._dependents[uid].discard(where)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after:
            self._dependents[uid].add(where)

    def _notice_deletion(self, record: StoredObject) -> None:
        obj = record.load()
        uid = obj["metadata"]["uid"]
        if uid in self._dependents:
            self._later("drop-dependents", uid)
        if record.namespace and self._store.get("/namespaces", record.namespace):
            self._later("namespace", "/namespaces", record.namespace)
        if record.resource == "apiextensions.k8s.io/customresourcedefinitions":
            self._later("definition", f"{obj['spec']['group']}/{obj['spec']['names']['plural']}")

    def _owner(self, reference: JsonObject, namespace: str) -> Where:
        kind = self._kinds.of_object(reference["apiVersion"], reference["kind"])
        if kind is None:
            return ("", "")
        return (kind.resource, object_key(namespace if kind.namespaced else "", reference["name"]))

    async def run(self) -> None:
        """Works until cancelled."""
        next_sweep = time.monotonic() + SWEEP_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, next_sweep - time.monotonic()))
            self._wake.clear()
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + SWEEP_SECONDS
                self.sweep(time.time())
            while self._pending:
                chore, resource, key = next(iter(self._pending))
                del self._pending[chore, resource, key]
                self._do(chore, resource, key)
                await asyncio.sleep(0)

    def _do(self, chore: str, resource: str, key: str) -> None:
        try:
            self._chores[chore](resource, key)
        except status.StatusError as error:
            logger.debug("%s of %s %s: %s", chore, resource, key, error)
        except Exception:
            logger.exception("%s of %s %s failed", chore, resource, key)

    def _delete(self, record: StoredObject, deletion: Deletion = _AT_LEISURE) -> None:
        kind = self._kinds.of_resource(record.resource)
        if kind is not None and self._store.get(record.resource, record.key) is not None:
            self._writes.delete(kind, record.namespace, record.name, deletion, _HOW)

    def _check_owners(self, resource: str, key: str) -> None:
        """Deletes a dependent whose owners are all deleted."""
        record = self._store.get(resource, key)
        if record is None:
            return
        references = list(owner_references(record.load()))
        if references and not any(self._exists(reference, record.namespace) for reference in references):
            self._delete(record)

    def _exists(self, reference: JsonObject, namespace: str) -> bool:
        resource, key = self._owner(reference, namespace)
        if not resource:
            return True  # an owner of an unknown kind may still exist
        owner = self._store.get(resource, key)
        return owner is not None and owner.load()["metadata"]["uid"] == reference["uid"]

    def _drop_dependents(self, uid: str, _: str) -> None:
        for where in sorted(self._dependents.get(uid, ())):
            self._check_owners(*where)

    def _empty_namespace(self, resource: str, name: str) -> None:
        """Deletes the content of a terminating namespace, then completes the namespace's deletion."""
        namespace, kind = self._store.get(resource, name), self._kinds.of_resource(resource)
        if namespace is None or kind is None or not namespace.load()["metadata"].get("deletionTimestamp"):
            return
        content = [
            record
            for other in self._kinds.kinds()
            if other.namespaced
            for record in self._store.ordered(other.resource)
            if record.namespace == name
        ]
        pods = [record for record in content if record.resource == "/pods"]
        for record in pods or content:  # objects that pods may use are deleted after the pods
            if b'"deletionTimestamp"' not in record.value:
                self._delete(record)
        if not content:
            self._writes.update(kind, "", name, lambda old: old | {"spec": {}}, How("finalize"))

    def _drop_custom_objects(self, resource: str, _: str) -> None:
        """Removes the objects of a kind that is no longer defined, whatever their finalizers."""
        for record in self._store.ordered(resource):
            self._store.delete(resource, record.key, record.load())

    def _update_budgets(self, namespace: str, _: str) -> None:
        kind = self._kinds.of_resource(_BUDGETS)
        budgets = [r for r in self._store.ordered(_BUDGETS) if r.namespace == namespace]
        if kind is None or not budgets:
            return
        pods = [r for r in self._store.ordered("/pods") if r.namespace == namespace]
        for record in budgets:
            budget = record.load()
            covered = [pod.load() for pod in pods if disruption.covers(budget, pod.labels)]
            recount = functools.partial(self._budgeted, covered)
            self._writes.update(kind, namespace, record.name, recount, How("status"))

    def _budgeted(self, pods: Sequence[JsonObject], budget: JsonObject) -> JsonObject:
        return budget | {"status": disruption.budget_status(budget, pods, self._replicas)}

    def _replicas(self, pod: JsonObject) -> int | None:
        reference = next(owner for owner in owner_references(pod) if owner.get("controller"))
        resource, key = self._owner(reference, pod["metadata"]["namespace"])
        owner = self._store.get(resource, key)
        replicas: Json = dig(owner.load(), "spec", "replicas") if owner is not None else None
        return replicas if isinstance(replicas, int) else None

    def sweep(self, now: float) -> None:
        """Deletes events older than their hour, and pods whose node has been missing for two sweeps."""
        for record in self._store.ordered("/events"):
            if now - _last_seen(record.load()) > EVENT_SECONDS:
                self._delete(record)
        nodes = self._store.records("/nodes")
        placed = [r for r in self._store.ordered("/pods") if r.fields.get("spec.nodeName")]
        missing = {r.fields["spec.nodeName"] for r in placed} - nodes.keys()
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        for record in placed:
            since = self._missing_since.get(record.fields["spec.nodeName"], now)
            if now - since >= 2 * SWEEP_SECONDS:
                self._delete(record, Deletion(grace_period_seconds=0))


def _last_seen(event: JsonObject) -> float:
    times = (
        dig(event, "series", "lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
        event["metadata"]["creationTimestamp"],
    )  # fmt: skip
    return max(durations.instant(moment) for moment in times if moment)
