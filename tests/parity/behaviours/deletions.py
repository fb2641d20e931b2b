"""generateName, deletion with its finalizers and grace, and owners."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE, NODE_METRIC, Object, config_map, lease, owner, pod
from tests.parity.calls import Calls, Json, Step, delete, get, given, patch, post, put

deletions = Area("deletion", "generateName, finalizers, deletion, owner references")

_GENERATED: Object = {"metadata": {"generateName": "gen-"}}
_HELD = config_map() | {"metadata": {"name": "a", "finalizers": ["x.io/wait"]}}
_RUNNING = given("$pods", pod(nodeName="$me", terminationGracePeriodSeconds=30))
_AT_ONCE = Step("DELETE", "$pods/a?gracePeriodSeconds=0", quiet=True)
_RELEASE = patch("$cm/a", {"metadata": {"finalizers": None}})

deletions.table({
    "a name is generated": post("$cm", _GENERATED),
    "a name is generated for a custom object":
        post("$nm", {**NODE_METRIC, "metadata": {"generateName": "gen-"}, "apiVersion": "slo.koordinator.sh/v1alpha1"}),
    "a given name goes before a generated one": post("$cm", {"metadata": {"name": "a", "generateName": "gen-"}}),
    "a dry run of a creation makes nothing": [post("$cm?dryRun=All", config_map()), get("$cm/a")],
    "a deleted config map is answered by a status": [given("$cm", config_map()), delete("$cm/a"), get("$cm/a")],
    "a deleted custom object is answered by a status": [given("$nm", NODE_METRIC), delete("$nm/$me"), get("$nm/$me")],
    "a deleted lease is answered by a status": [given("$leases", lease()), delete("$leases/a")],
    "a deleted node is answered by a status": [given("$nodes", NODE), delete("$nodes/$me")],
    "a deleted pod is answered by itself": [given("$pods", pod()), delete("$pods/a"), get("$pods/a")],
    "a dry run of a deletion deletes nothing": [
        given("$cm", config_map()),
        delete("$cm/a?dryRun=All"),
        delete("$cm/a", {"dryRun": ["All"]}),
        get("$cm/a"),
    ],
    "a finalizer holds what is deleted": [
        given("$cm", _HELD),
        delete("$cm/a"),
        delete("$cm/a"),
        put("$cm/a", _HELD | {"data": {"a": "1"}}),
        _RELEASE,
        get("$cm/a"),
    ],
    "a finalizer holds a custom object that is deleted": [
        given("$nm", NODE_METRIC | {"metadata": {"name": "$me", "finalizers": ["x.io/wait"]}}),
        delete("$nm/$me"),
        patch("$nm/$me", {"metadata": {"finalizers": None}}),
        get("$nm/$me"),
    ],
    "no finalizer is added to what is deleted": [
        given("$cm", _HELD),
        delete("$cm/a"),
        patch("$cm/a", {"metadata": {"finalizers": ["x.io/wait", "x.io/more"]}}),
        _RELEASE,
    ],
    "one of two finalizers goes": [
        given("$cm", config_map() | {"metadata": {"name": "a", "finalizers": ["x.io/1", "x.io/2"]}}),
        delete("$cm/a"),
        patch("$cm/a", {"metadata": {"finalizers": ["x.io/2"]}}),
        patch("$cm/a", {"metadata": {"finalizers": []}}),
        get("$cm/a"),
    ],
    "what is held is not made again": [given("$cm", _HELD), delete("$cm/a"), post("$cm", config_map()), _RELEASE],
    "a running pod is given its time": [_RUNNING, delete("$pods/a"), get("$pods/a"), _AT_ONCE],
    "a running pod is given the time asked for": [_RUNNING, delete("$pods/a?gracePeriodSeconds=7"), _AT_ONCE],
    "a running pod is deleted at once by no time": [_RUNNING, delete("$pods/a?gracePeriodSeconds=0"), get("$pods/a")],
    "a running pod with a finalizer outlives its time": [
        given("$pods", pod(nodeName="$me") | {"metadata": {"name": "a", "finalizers": ["x.io/wait"]}}),
        delete("$pods/a?gracePeriodSeconds=0"),
        patch("$pods/a", {"metadata": {"finalizers": None}}),
        get("$pods/a"),
    ],
    "a finished pod needs no time":
        [_RUNNING, patch("$pods/a/status", {"status": {"phase": "Succeeded"}}), delete("$pods/a"), get("$pods/a")],
})  # fmt: skip


def _owned(owned_by: Json, name: str = "b") -> Object:
    return {"metadata": {"name": name, "ownerReferences": [owned_by]}}


@deletions.behaviour("dependents go after their owner")
def _(c: Calls) -> None:
    c.post("$leases", _owned(owner(c.post("$cm", config_map()))))
    c.delete("$cm/a")
    c.gone("$leases/b")


@deletions.behaviour("a dependent of a missing owner goes")
def _(c: Calls) -> None:
    reference = owner(c.given("$cm", config_map()))
    c.delete("$cm/a")
    c.post("$leases", _owned(reference))
    c.gone("$leases/b")


@deletions.behaviour("a cluster-wide owner owns across kinds")
def _(c: Calls) -> None:
    c.given("$leases", _owned(owner(c.given("$nm", NODE_METRIC))))
    c.delete("$nm/$me")
    c.gone("$leases/b")


@deletions.behaviour("a namespace takes its content along")
def _(c: Calls) -> None:
    c.given("$leases", lease() | {"metadata": {"name": "a", "finalizers": ["x.io/wait"]}})
    c.delete("$namespaces/$ns")
    c.settled("$leases/a", lambda obj: obj["metadata"].get("deletionTimestamp"))
    c.post("$leases", lease("b"))
    c.delete("$namespaces/$ns")
    c.patch("$leases/a", {"metadata": {"finalizers": None}})
    c.gone("$namespaces/$ns")
