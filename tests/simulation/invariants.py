"""What must hold after every write, and what may not last: each a sentence, and where it comes from.

A check reads the API server's store and the cloud as they are, without asking any process. `Invariants` looks at each
accepted write and each request to the cloud as it happens, and every ten seconds at what may hold only for a while.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.local.apiserver.store import StoredObject
from manager.autoscaler.cloudprovider.simulated.fake_nodes import ANNOTATION_GROUP
from shared import durations, names, quantity
from shared.quantity import QuantityError
from tests.simulation.cloud import CloudRequest
from tests.simulation.cluster import Cluster
from tests.simulation.faults import AGENT, API_SERVER, CLOUD, MANAGER, Fault, FaultKind
from tests.simulation.network import AcceptedWrite, FailedCall
from tests.simulation.promises import PromiseChecks, Written
from tests.simulation.protection import BudgetChecks, ProtectionChecks
from tests.simulation.virtual import EPOCH, WORLD, Process

NODE_METRICS = "slo.koordinator.sh/nodemetrics"
LOOK_SECONDS = 10.0
SETTLE_SECONDS = 1200.0  # from the last fault until everything must have come about
MOST_REPORT_AGE_SECONDS = 180.0
LOST_SAMPLES = 4  # what an agent learns between two checkpoints, and while it starts
MOST_UNSAVED_SECONDS = 100.0  # from when a disk has space again to the next checkpoint
TIERS = (names.MID_CPU, names.MID_MEMORY, names.BATCH_CPU, names.BATCH_MEMORY)
_NATIVE = {names.MID_CPU: "cpu", names.BATCH_CPU: "cpu", names.MID_MEMORY: "memory", names.BATCH_MEMORY: "memory"}
DEGRADE_SECONDS = 15 * 60.0
TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
GROUPS = {"general": 12, "big": 6}
MOST_DRAINED = 1  # --max-drain-parallelism
MOST_INHERITED_SECONDS = 75.0  # in which a new leader, undisturbed, lists, looks once at all nodes, and untaints some
_ROLES_OF_LEADERS = (MANAGER, API_SERVER, CLOUD)  # whose faults may keep a leader from acting
MOST_REFUSED_IN_A_ROW = 30  # of one call of one process within ten seconds

LEASE = (
    "Only the holder of the lease has a write accepted, or one that held it when it decided to, for an object that no "
    "other has changed since (Kubernetes' leader election and resourceVersion; ARCHITECTURE)."
)
FLOOR = "A Node never shows less of a tier than its admitted pods hold (isolation, 2)."
CEILING = "A Node never offers more of a resource than it has (isolation, 2)."
STALE = "A report older than the degrade time leaves nothing on offer beyond what pods hold (design, 3)."
TWICE = "Nothing is asked of a cloud on an outdated view of the group (ARCHITECTURE)."
BOUNDS = "No group grows beyond its bounds (Cluster Autoscaler's --nodes)."
FOREIGN = "A group that is neither listed nor made by the autoscaler is never changed (ARCHITECTURE)."
REGISTERED = "Every increase is in the registry before the cloud is asked (ARCHITECTURE)."
BUDGET = "No more nodes are drained at a time, over all groups, than --max-drain-parallelism (Cluster Autoscaler)."
EVICTED = "No process evicts a pod again after it was told that it is evicted (Kubernetes' eviction API)."
TAINTED = "A deletion taint does not outlive the deletion, nor the process that deletes (Cluster Autoscaler)."
BACKOFF = "A call that fails is repeated with growing pauses (design, 5)."
LEARNED = "What an agent had learned at its last checkpoint is there after a restart (design, 5)."
CACHES = "A cache that says it is current holds what the API server holds (Kubernetes' list and watch)."
LOOPS = "Every loop of a running manager turns (operations)."
PLACED = "Every pod that fits somewhere has a node (Cluster Autoscaler)."
UNNEEDED = "An empty node of a group is deleted (Cluster Autoscaler)."
FRESH = "Reports are fresh (design, 3)."
EMPTIED = "No queue grows (operations)."


@dataclass(frozen=True)
class Violation:
    """`rule` does not hold, as `what` shows."""

    at: float
    rule: str
    what: str

    def __str__(self) -> str:
        return f"at {self.at:.1f} s: {self.what}. Broken: {self.rule}"


@dataclass
class Invariants:
    """All checks of one cluster."""

    cluster: Cluster
    violations: list[Violation] = field(default_factory=list)
    disturbed_until: float = 0.0  # by faults that excuse what lasts only as long
    _lasting: dict[tuple[str, str], float] = field(default_factory=dict)
    evictions: int = 0
    _drained: set[str] = field(default_factory=set)  # nodes with a deletion taint that pods were evicted from
    _evicted: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # by process and path: pods' uids
    _learned: dict[str, tuple[str, int]] = field(default_factory=dict)  # by node: agent's process, samples
    _full_until: dict[str, float] = field(default_factory=dict)  # the disks of agents
    _terms: list[tuple[float, str]] = field(default_factory=list)  # since when who has held the lease
    _failures: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _marked: dict[str, str] = field(default_factory=dict)  # by node with a deletion taint: the process that wrote it
    _registry: str = ""  # as it was last written
    _faulted_at: float = 0.0  # the last begin or end of a fault that may keep a leader from acting
    _loaded: dict[tuple[str, str], tuple[StoredObject, Any]] = field(default_factory=dict)  # by resource and key

    def __post_init__(self) -> None:
        self._promises = PromiseChecks(self.report, self.cluster.size.prediction_hour_seconds)
        self._protection = ProtectionChecks(self.report, self._objects)

    def watch(self) -> None:
        self.cluster.journal.watchers.append(self._written)
        self.cluster.journal.mourners.append(self._failed)
        self.cluster.cloud.watchers.extend((self._asked, self._protection.asked))
        self.cluster.store_listeners.append(BudgetChecks(self.report, self._objects).changed)
        self.cluster.faults.watchers.append(self._note_fault)
        WORLD.spawn(self._look, "invariants", WORLD.outside)

    def report(self, rule: str, what: str) -> None:
        if sum(each.rule == rule for each in self.violations) < 3:
            self.violations.append(Violation(WORLD.now, rule, what))

    def _written(self, write: AcceptedWrite) -> None:
        self._protection.written(write)
        if write.process.name.startswith("manager"):
            self._check_leader(write)
        if write.path.startswith("/api/v1/nodes/"):
            self._check_node(write.path.split("/")[4], write.process.name)
        if write.path.endswith("/eviction"):
            self._check_eviction(write)
        if write.path.endswith(f"/configmaps/{names.REGISTRY_CONFIG_MAP}"):
            self._registry = write.body.decode()
        if write.process.name.startswith(AGENT) and "/nodemetrics/" in write.path:
            self._check_learned(write)

    def _check_leader(self, write: AcceptedWrite) -> None:
        lease = self._object("coordination.k8s.io/leases", f"{names.INSTALL_NAMESPACE}/{names.MANAGER_LEASE}")
        holder = (lease and lease["spec"].get("holderIdentity")) or "none"
        if not self._terms or self._terms[-1][1] != holder:
            self._terms.append((write.at, holder))
        if (
            "/leases/" in write.path
            or write.path.endswith(("/events", "/leases", "reviews"))
            or "/events/" in write.path
        ):
            return
        if holder == write.process.name or (_is_conditional(write) and self._held_at(write.begun, write.process.name)):
            return
        age = write.at - write.begun
        self.report(
            LEASE, f"{write.method} {write.path} of {write.process.name}, {age:.1f} s old, while {holder} holds it"
        )

    def _held_at(self, at: float, process: str) -> bool:
        before = [holder for since, holder in self._terms if since <= at]
        return bool(before) and before[-1] == process

    def _check_node(self, name: str, writer: str) -> None:
        node = self._object("/nodes", name)
        if node is None:
            return
        offers = _amounts(node["status"].get("allocatable") or {})
        for resource in TIERS:
            own = offers.get(_NATIVE[resource], 0)
            if offers.get(resource, 0) > own + 1:
                self.report(CEILING, f"{name} offers {offers[resource]} of {resource}, and has {own}")
        if _is_marked(node):
            if name not in self._marked:
                self._protection.marked(name)
            self._marked.setdefault(name, writer)
        else:
            self._protection.unmarked(name)
            self._drained.discard(name)
            self._marked.pop(name, None)

    def _check_drains(self, evicted_from: str) -> None:
        """A node is drained from the first eviction from it until its pods are gone, or its mark is taken back."""
        self._drained.add(evicted_from)
        nodes = (self._object("/nodes", each) for each in sorted(self._drained))
        drained = [each["metadata"]["name"] for each in nodes if each is not None and self._has_pods(each)]
        if len(drained) > MOST_DRAINED:
            self.report(BUDGET, f"{', '.join(drained)} are drained together")

    def _has_pods(self, node: Any) -> bool:
        name = node["metadata"]["name"]
        return any(pod["spec"].get("nodeName") == name and _counts(pod) for pod in self._objects("/pods"))

    def _check_learned(self, write: AcceptedWrite) -> None:
        """A report after a restart rests on no less than the last checkpoint before it, which is a minute old at most
        unless its disk was full.
        """
        node = write.path.split("/nodemetrics/")[1].split("/")[0]
        status = (self._object(NODE_METRICS, node) or {}).get("status") or {}
        agent = f"{AGENT}-{node}"
        saved_at = self.cluster.disk.synced_at(self.cluster.state_of(agent))
        self._promises.check(node, status, Written(write.at, write.process, saved_at))
        samples = (status.get("prediction") or {}).get("samples")
        if samples is None:
            return
        process, before = self._learned.get(node, (write.process.name, 0))
        if process != write.process.name and samples < before - LOST_SAMPLES:
            self.report(LEARNED, f"{node} has {samples} samples after a restart, and had {before}")
        was_full = WORLD.now - self._full_until.get(agent, -math.inf) < MOST_UNSAVED_SECONDS
        self._learned[node] = write.process.name, before if was_full else samples

    def _failed(self, call: FailedCall) -> None:
        self._evicted.pop((call.process.name, call.what), None)  # it does not know whether it has evicted the pod
        recent = self._failures.setdefault((call.process.name, call.what), [])
        recent.append(call.at)
        while recent[0] < call.at - 10.0:
            recent.pop(0)
        if len(recent) > MOST_REFUSED_IN_A_ROW:
            self.report(BACKOFF, f"{call.process.name} tried {call.what} {len(recent)} times in ten seconds")

    def _check_eviction(self, write: AcceptedWrite) -> None:
        uid = (json.loads(write.body).get("deleteOptions") or {}).get("preconditions", {}).get("uid", write.path)
        self.evictions += 1
        namespace, name = write.path.split("/")[4], write.path.split("/")[6]
        pod = self._object("/pods", f"{namespace}/{name}")
        node = pod and self._object("/nodes", pod["spec"].get("nodeName", ""))
        if node is not None and _is_marked(node):
            self._check_drains(node["metadata"]["name"])
        known = self._evicted.setdefault((write.process.name, f"{write.method} {write.path}"), set())
        if uid in known:
            self.report(EVICTED, f"{write.path} by {write.process.name}")
        known.add(uid)

    def _asked(self, asked: CloudRequest) -> None:
        who = f"{asked.what} of {asked.group} by {asked.process.name}"
        if asked.group not in GROUPS:
            self.report(FOREIGN, who)
        elif asked.after.target > GROUPS[asked.group]:
            self.report(BOUNDS, f"{who} to {asked.after.target}")
        if asked.what == "increase":
            if asked.seen != asked.version:
                self.report(TWICE, f"{who}, {asked.version - asked.seen} changes after its last look")
            if not self._is_registered(asked):
                self.report(REGISTERED, who)

    def _is_registered(self, asked: CloudRequest) -> bool:
        if self.cluster.store is None:  # the API server restarts
            return asked.group in self._registry
        kept = self._object("/configmaps", f"{names.INSTALL_NAMESPACE}/{names.REGISTRY_CONFIG_MAP}")
        return kept is not None and asked.group in json.dumps(kept.get("data") or {})

    def _note_fault(self, fault: Fault, /, *, begins: bool) -> None:
        if fault.kind is FaultKind.FILL_DISK:
            self._full_until[fault.target] = math.inf if begins else WORLD.now
        if fault.target.startswith(_ROLES_OF_LEADERS):
            self._faulted_at = WORLD.now

    def _check_former_marks(self) -> None:
        """A new leader removes the taints of the last one as soon as it can."""
        active = self.cluster.faults.active.values()
        if not self._terms or any(each.target.startswith(_ROLES_OF_LEADERS) for each in active):
            return
        since, leader = self._terms[-1]
        paused = (each.paused_until for each in self.cluster.managers())
        settled = WORLD.now - max(since, self._faulted_at, *paused)
        for name, writer in list(self._marked.items()):
            if self._object("/nodes", name) is None:
                del self._marked[name]
            elif writer != leader and settled > MOST_INHERITED_SECONDS:
                self.report(TAINTED, f"{name} was marked by {writer}, and {leader} leads since {since:.0f} s")

    def _look(self) -> None:
        while True:
            WORLD.park(LOOK_SECONDS)
            if self.cluster.store is None:
                continue
            self._check_former_marks()
            found = dict(self._lasting_problems())
            self._lasting = {key: self._lasting.get(key, WORLD.now) for key in found}
            for (rule, about), (most_seconds, what) in found.items():
                if WORLD.now - max(self._lasting[rule, about], 0.0) > most_seconds:
                    self.report(rule, f"{what} for {WORLD.now - self._lasting[rule, about]:.0f} s")
                    self._lasting[rule, about] = WORLD.now

    def _lasting_problems(self) -> Iterator[tuple[tuple[str, str], tuple[float, str]]]:
        """What may be so for some seconds: the rule and its object, how long, and what it looks like."""
        for process in self.cluster.managers():
            for resource, differing in self._outdated(process):
                about = f"{process.name} {resource} {differing}"
                yield (CACHES, about), (60.0, f"the cache of {about} differs from the API server")
        leads = self._leads_undisturbed()
        held = self._held()
        for node in self._objects("/nodes"):
            name = node["metadata"]["name"]
            if not leads:
                continue
            offers = _amounts(node["status"].get("allocatable") or {})
            for resource in TIERS:
                has, holds = offers.get(resource, 0), held.get((name, resource), 0)
                own = offers.get(_NATIVE[resource], 0)
                if has < min(holds, own):
                    yield (FLOOR, f"{name} {resource}"), (90.0, f"{name} shows {has} of {resource}, pods hold {holds}")
                if has > min(holds, own) and self._age(name) > DEGRADE_SECONDS + 120.0:
                    yield (STALE, f"{name} {resource}"), (90.0, f"{name} offers {has} of {resource} unreported")
            if _is_marked(node):
                yield (TAINTED, name), (900.0, f"{name} is marked to be deleted")

    def check_liveness(self) -> None:
        """What must have come about some time after the last fault, with nothing left to do."""
        if not any(map(_leads, self.cluster.managers())):
            self.report(LEASE, "no manager leads")
        for process in self.cluster.managers():
            self._check_manager(process)
        placed = {pod["spec"].get("nodeName", "") for pod in self._objects("/pods") if _counts(pod)}
        for pod in self._objects("/pods"):
            if not pod["spec"].get("nodeName") and _is_native(pod):
                self.report(PLACED, f"pod {pod['metadata']['name']} waits")
        for node in self._objects("/nodes"):
            name = node["metadata"]["name"]
            group = (node["metadata"].get("annotations") or {}).get(ANNOTATION_GROUP)
            if group in GROUPS and name not in placed and not _is_marked(node):
                self.report(UNNEEDED, f"{name} of {group} is empty")
            if group is None and (age := self._age(name)) > MOST_REPORT_AGE_SECONDS:
                self.report(FRESH, f"{name} has not reported for {age:.0f} s")

    def _check_manager(self, process: Process) -> None:
        manager: Any = process.own.get("manager")
        if manager is None:
            return
        with WORLD.inside(process):
            silent = manager._liveness.silent()
        if silent:
            self.report(LOOPS, f"{process.name}: {silent}")
        if any(pending := manager._controller.pending()):
            self.report(EMPTIED, f"{process.name}: {pending} nodes wait for decisions and writes")
        for resource, differing in self._outdated(process):
            self.report(CACHES, f"{process.name} {resource}: {differing}")

    def _outdated(self, process: Process) -> Iterator[tuple[str, list[str]]]:
        """The first objects that a cache has and the API server has not, or the other way round, by resource."""
        manager: Any = process.own.get("manager")
        if manager is None or process.paused_until >= WORLD.now - LOOK_SECONDS:
            return  # it may just have gone on
        for resource, informer in (("/nodes", manager._informers.nodes), ("/pods", manager._informers.pods)):
            if informer.current.is_set() and (
                differing := set(informer.keys()) ^ {_key(each) for each in self._objects(resource)}
            ):
                yield resource, sorted(differing)[:3]

    def _leads_undisturbed(self) -> bool:
        """Whether some manager leads, and no fault in force keeps it from acting."""
        disturbed = any(
            each.target.startswith(("manager", "apiserver")) for each in self.cluster.faults.active.values()
        )
        if disturbed:
            self.disturbed_until = WORLD.now + 60.0
        return WORLD.now > self.disturbed_until and any(map(_leads, self.cluster.managers()))

    def _held(self) -> dict[tuple[str, str], int]:
        """What admitted pods hold of each tier, by node and resource."""
        found: dict[tuple[str, str], int] = {}
        for pod in self._objects("/pods"):
            status = pod.get("status") or {}
            if not pod["spec"].get("nodeName") or status.get("phase") != "Running":
                continue
            for container in pod["spec"]["containers"]:
                amounts = _amounts(container.get("resources", {}).get("requests") or {})
                for resource in TIERS:
                    if resource in amounts:
                        key = pod["spec"]["nodeName"], resource
                        found[key] = found.get(key, 0) + amounts[resource]
        return found

    def _age(self, node: str) -> float:
        """Seconds since the node's report was written."""
        metric = self._object(NODE_METRICS, node)
        if metric is None:
            return 0.0
        written = (metric.get("status") or {}).get("updateTime") or metric["metadata"]["creationTimestamp"]
        try:
            return EPOCH + WORLD.now - durations.instant(written)
        except ValueError:
            return 0.0

    def _object(self, resource: str, key: str) -> Any:
        store = self.cluster.store
        record = None if store is None else store.get(resource, key)
        return None if record is None else self._read(record)

    def _objects(self, resource: str) -> list[Any]:
        store = self.cluster.store
        return [] if store is None else [self._read(record) for record in store.ordered(resource)]

    def _read(self, record: StoredObject) -> Any:
        known = self._loaded.get((record.resource, record.key))
        if known is None or known[0] is not record:
            known = self._loaded[record.resource, record.key] = (record, record.load())
        return known[1]


def _is_conditional(write: AcceptedWrite) -> bool:
    """Whether the API server refuses it once another has changed the object."""
    if write.method == "POST" and not write.path.endswith("/eviction"):
        return True  # to create what must not exist yet
    body = json.loads(write.body)
    if isinstance(body, list):
        return any(each["path"] == "/metadata/resourceVersion" for each in body)
    options = body.get("deleteOptions") or body
    return bool((body.get("metadata") or {}).get("resourceVersion") or options.get("preconditions"))


def _key(obj: Any) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _is_marked(node: Any) -> bool:
    return any(each["key"] == TAINT_TO_BE_DELETED for each in node["spec"].get("taints") or ())


def _counts(pod: Any) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _is_native(pod: Any) -> bool:
    """Whether nodes would be bought for it."""
    asked = [each.get("resources", {}).get("requests") or {} for each in pod["spec"]["containers"]]
    return _counts(pod) and not any(resource in each for each in asked for resource in TIERS)


def _leads(process: Process) -> bool:
    manager = process.own.get("manager")
    with WORLD.inside(process):
        return manager is not None and bool(manager.is_leader())


def _amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """CPU in milli, everything else whole; what cannot be read is left out."""
    found = {}
    for name, text in quantities.items():
        try:
            found[name] = quantity.milli(text) if name == "cpu" else quantity.whole(text)
        except (QuantityError, ValueError):
            continue
    return found
