"""Leases under contention, eviction with budgets, events."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import Object, event, lease, pod
from tests.parity.calls import Calls, get, given, patch, post, put

leases = Area("leases", "Leases under contention")
evictions = Area("evictions", "Eviction and disruption budgets")
events = Area("events", "Events")


def _held(by: str, version: str, transitions: int = 0) -> Object:
    spec = {"holderIdentity": by, "leaseDurationSeconds": 15, "leaseTransitions": transitions}
    spec |= {"acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:01.000000Z"}
    return {"metadata": {"name": "a", "resourceVersion": version}, "spec": spec}


leases.table({
    "of two creators one wins":
        [post("$leases", _held("one", "")), post("$leases", _held("two", "")), get("$leases/a")],
    "a lease keeps its microseconds":
        [given("$leases", lease()), patch("$leases/a", {"spec": {"renewTime": "2020-01-01T00:00:00.000001Z"}})],
})  # fmt: skip


@leases.behaviour("of two holders of one version one wins")
def _(c: Calls) -> None:
    version = c.given("$leases", _held("one", ""))["metadata"]["resourceVersion"]
    c.put("$leases/a", _held("two", version, 1))
    c.put("$leases/a", _held("three", version, 1))
    c.get("$leases/a")


@leases.behaviour("a holder renews from version to version")
def _(c: Calls) -> None:
    version = c.given("$leases", _held("one", ""))["metadata"]["resourceVersion"]
    for moment in range(3):
        renewed = _held("one", version)
        renewed["spec"]["renewTime"] = f"2020-01-01T00:00:02.00000{moment}Z"
        version = c.put("$leases/a", renewed)["metadata"]["resourceVersion"]


@leases.behaviour("a holder that lost sees who holds it, and releases nothing")
def _(c: Calls) -> None:
    version = c.given("$leases", _held("one", ""))["metadata"]["resourceVersion"]
    c.put("$leases/a", _held("two", version, 1))
    c.patch("$leases/a", {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}})
    c.get("$leases/a")


_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "$ns"}}
_READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


def _running(c: Calls, *names: str, ready: bool = True) -> None:
    for name in names:
        c.given("$pods", pod(name, {"app": "x"}, nodeName="$me", terminationGracePeriodSeconds=0))
        if ready:
            c.prepare(patch(f"$pods/{name}/status", _READY))


def _budget(c: Calls, name: str = "a", *, expected: int, **spec: object) -> None:
    """A budget whose status its controller has settled, with the pods it expects."""
    made = c.given("$pdb", {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "x"}}} | spec})

    def counted(budget: Object) -> bool:
        status = budget.get("status", {})
        seen: bool = status.get("observedGeneration", 0) >= made["metadata"]["generation"]
        return seen and status["expectedPods"] == expected

    c.settled(f"$pdb/{name}", counted)


evictions.table({
    "a pod without budget is evicted": [given("$pods", pod()), post("$pods/a/eviction", _EVICTION), get("$pods/a")],
    "a running pod is evicted within its time": [
        given("$pods", pod(nodeName="$me")),
        post("$pods/a/eviction", _EVICTION | {"deleteOptions": {"gracePeriodSeconds": 7}}),
        get("$pods/a"),
    ],
    "a missing pod is not evicted": post("$pods/a/eviction", _EVICTION),
    "an eviction in a dry run evicts nothing": [
        given("$pods", pod()),
        post("$pods/a/eviction", _EVICTION | {"deleteOptions": {"dryRun": ["All"]}}),
        post("$pods/a/eviction?dryRun=All", _EVICTION),
        get("$pods/a"),
    ],
    "a budget is made with defaults": post("$pdb", lease(minAvailable=1, selector={"matchLabels": {"app": "x"}})),
})  # fmt: skip


@evictions.behaviour("a budget's counts change its generation")
def _(c: Calls) -> None:
    c.given("$pdb", lease(minAvailable=1))
    c.settled("$pdb/a", lambda budget: budget.get("status", {}).get("observedGeneration") == 1)
    c.patch("$pdb/a", {"spec": {"minAvailable": 2}, "metadata": {"managedFields": None}})


@evictions.behaviour("a budget counts its pods")
def _(c: Calls) -> None:
    _running(c, "a", "b")
    _budget(c, expected=2, minAvailable=1)
    c.get("$pdb/a")


@evictions.behaviour("a budget lets go as many as it can spare")
def _(c: Calls) -> None:
    _running(c, "a", "b")
    _budget(c, expected=2, minAvailable=1)
    c.post("$pods/a/eviction", _EVICTION)
    c.post("$pods/b/eviction", _EVICTION | {"metadata": {"name": "b"}})


@evictions.behaviour("two budgets of one pod let nothing go")
def _(c: Calls) -> None:
    _running(c, "a", "b")
    _budget(c, expected=2, minAvailable=0)
    _budget(c, "b", expected=2, minAvailable=0)
    c.post("$pods/a/eviction", _EVICTION)


@evictions.behaviour("a pod that is not ready goes when the others suffice")
def _(c: Calls) -> None:
    _running(c, "b")
    _running(c, "a", ready=False)
    c.prepare(patch("$pods/a/status", {"status": {"phase": "Running"}}))
    _budget(c, expected=2, minAvailable=1)
    c.post("$pods/a/eviction", _EVICTION)


@evictions.behaviour("a pod that is not ready goes in any case where its budget says so")
def _(c: Calls) -> None:
    _running(c, "a", ready=False)
    c.prepare(patch("$pods/a/status", {"status": {"phase": "Running"}}))
    _budget(c, expected=1, minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    c.post("$pods/a/eviction", _EVICTION)


@evictions.behaviour("a pending pod goes whatever its budget says")
def _(c: Calls) -> None:
    _running(c, "a", ready=False)
    _budget(c, expected=1, minAvailable=1)
    c.post("$pods/a/eviction", _EVICTION)


@evictions.behaviour("a dry run of an eviction asks the budget")
def _(c: Calls) -> None:
    _running(c, "a")
    _budget(c, expected=1, minAvailable=1)
    c.post("$pods/a/eviction?dryRun=All", _EVICTION)


_TIMES = {"firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z"}

events.table({
    "an event is made with defaults": [post("$events", event()), get("$events/a")],
    "an event repeats by its count": [
        given("$events", event(count=1, **_TIMES)),
        patch("$events/a", {"count": 2, "lastTimestamp": "2020-01-01T00:00:09Z"}),
    ],
    "an event is updated": [given("$events", event(count=1)), put("$events/a", event(count=7))],
    "an event's name is generated": post("$events", event(metadata={"generateName": "gen-"})),
    "an event of the new form is taken": post("$events", event(
        eventTime="2020-01-01T00:00:00.000000Z", reportingComponent="x.io/y", reportingInstance="z", action="Try",
        series={"count": 2, "lastObservedTime": "2020-01-01T00:00:00.000000Z"},
    )),
})  # fmt: skip
