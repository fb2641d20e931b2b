"""The controllers of kube-controller-manager: owner references, namespaces, events, disruption budgets."""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from deploy.local.apiserver import disruption, status
from deploy.local.apiserver.bodies import How
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.kinds import BY_RESOURCE
from deploy.local.apiserver.objects import Json, JsonObject, dig, owner_references
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.store import ObjectChange, Store, StoredObject, object_key
from deploy.local.apiserver.writes import Writes
from shared import durations

logger = logging.getLogger(__name__)

EVENT_SECONDS = 3600.0
SWEEP_SECONDS = 20.0
EVENT_SWEEP_SECONDS = 300.0  # reading all of them takes a twentieth of the time of an idle server
_AT_LEISURE = Deletion()
_BUDGETS = "policy/poddisruptionbudgets"
Where = tuple[str, str]  # resource and key
Work = tuple[Callable[..., None], tuple[str, ...]]  # a chore and its arguments


class Janitor:
    """Finds its work in the store's changes, and does one item at a time, from which new changes come."""

    def __init__(self, store: Store, writes: Writes, kinds: KindRegistry) -> None:
        self._store = store
        self._writes = writes
        self._kinds = kinds
        self._dependents: dict[str, set[Where]] = defaultdict(set)
        self._pending: dict[Work, None] = {}
        self._wake = asyncio.Event()
        self._missing_since: dict[str, float] = {}
        self._events_due = 0.0
        for resource in store.resources():
            for record in store.ordered(resource):
                self.changed(ObjectChange(record, None, deleted=False))

    def _later(self, chore: Callable[..., None], *where: str) -> None:
        self._pending[chore, where] = None
        self._wake.set()

    def changed(self, change: ObjectChange) -> None:
        record, previous = change.record, change.previous
        where = (record.resource, record.key)
        before = previous.owners if previous is not None else ()
        if record.owners != before or change.deleted:
            self._index(where, before, () if change.deleted else record.owners)
        if change.deleted:
            self._notice_deletion(record)
        elif record.owners != before:
            self._later(self._check_owners, *where)
        if not change.deleted and record.resource == "/namespaces" and b'"deletionTimestamp"' in record.value:
            self._later(self._empty_namespace, record.key)
        if record.resource in ("/pods", _BUDGETS):
            self._later(self._update_budgets, record.namespace)

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
            self._later(self._drop_dependents, uid)
        if record.namespace and self._store.get("/namespaces", record.namespace):
            self._later(self._empty_namespace, record.namespace)
        if record.resource == "apiextensions.k8s.io/customresourcedefinitions":
            self._later(self._drop_custom_objects, f"{obj['spec']['group']}/{obj['spec']['names']['plural']}")

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
                work = next(iter(self._pending))
                del self._pending[work]
                self._do(*work)
                await asyncio.sleep(0)

    def _do(self, chore: Callable[..., None], where: Sequence[str]) -> None:
        try:
            chore(*where)
        except status.StatusError as error:
            logger.debug("%s%s: %s", chore.__name__, where, error)
        except Exception:
            logger.exception("%s%s failed", chore.__name__, where)

    def _delete(self, record: StoredObject, deletion: Deletion = _AT_LEISURE) -> None:
        kind = self._kinds.of_resource(record.resource)
        if kind is not None and self._store.get(record.resource, record.key) is not None:
            self._writes.delete(kind, record.namespace, record.name, deletion)

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

    def _drop_dependents(self, uid: str) -> None:
        for where in sorted(self._dependents.get(uid, ())):
            self._check_owners(*where)

    def _empty_namespace(self, name: str) -> None:
        """Deletes the content of a terminating namespace, then completes the namespace's deletion."""
        namespace, kind = self._store.get("/namespaces", name), BY_RESOURCE["/namespaces"]
        if namespace is None or not namespace.load()["metadata"].get("deletionTimestamp"):
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

    def _drop_custom_objects(self, resource: str) -> None:
        """Removes the objects of a kind that is no longer defined, whatever their finalizers."""
        for record in self._store.ordered(resource):
            self._store.delete(resource, record.key, record.load())

    def _update_budgets(self, namespace: str) -> None:
        budgets = [r for r in self._store.ordered(_BUDGETS) if r.namespace == namespace]
        pods = [r for r in self._store.ordered("/pods") if r.namespace == namespace] if budgets else []
        for record in budgets:
            self._update_budget(record, pods)

    def _update_budget(self, record: StoredObject, pods: Sequence[StoredObject]) -> None:
        budget = record.load()
        covered = [pod.load() for pod in pods if disruption.covers(budget, pod.labels)]
        told = {"status": disruption.budget_status(budget, covered, self._replicas)}
        if budget.get("status") == told["status"]:
            return
        self._writes.update(BY_RESOURCE[_BUDGETS], record.namespace, record.name, lambda old: old | told, How("status"))

    def _replicas(self, pod: JsonObject) -> int | None:
        reference = next(owner for owner in owner_references(pod) if owner.get("controller"))
        resource, key = self._owner(reference, pod["metadata"]["namespace"])
        owner = self._store.get(resource, key)
        replicas: Json = dig(owner.load(), "spec", "replicas") if owner is not None else None
        return replicas if isinstance(replicas, int) else None

    def sweep(self, now: float) -> None:
        """Deletes events older than their hour, and pods whose node has been missing for two sweeps."""
        if now >= self._events_due:
            self._events_due = now + EVENT_SWEEP_SECONDS
            for record in self._store.ordered("/events"):
                if now - _last_seen(record.load()) > EVENT_SECONDS:
                    self._delete(record)
        nodes = {record.key for record in self._store.ordered("/nodes")}
        placed = [r for r in self._store.ordered("/pods") if r.fields.get("spec.nodeName")]
        missing = {r.fields["spec.nodeName"] for r in placed} - nodes
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
