"""What is refused because somebody else was first."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, Object, config_map, lease, pod
from tests.parity.calls import JSON_PATCH, STRATEGIC, Calls, delete, given, patch, post, put

conflicts = Area("conflicts", "Conflict rules")

conflicts.table({
    "a second creation is refused": [given("$cm", config_map()), post("$cm", config_map())],
    "a second creation of a custom object is refused": [given("$nm", NODE_METRIC), post("$nm", NODE_METRIC)],
    "an update without resource version is taken":
        [given("$cm", config_map()), put("$cm/a", config_map(data={"a": "1"}))],
    "an update of a lease needs a resource version":
        [given("$leases", lease()), put("$leases/a", lease(holderIdentity="h"))],
    "an update of a custom object needs a resource version": [given("$nm", NODE_METRIC), put("$nm/$me", NODE_METRIC)],
    "an update of a budget needs a resource version": [
        given("$pdb", lease(minAvailable=1)),
        put("$pdb/a", lease(minAvailable=2)),
    ],
    "an update creates no config map": put("$cm/a", config_map()),
    "an update with another uid is refused":
        [given("$cm", config_map()), put("$cm/a", {"metadata": {"name": "a", "uid": "u"}})],
    "a patch of the uid is refused": [given("$cm", config_map()), patch("$cm/a", {"metadata": {"uid": "u"}})],
    "a patch of the uid of a custom object is refused":
        [given("$nm", NODE_METRIC), patch("$nm/$me", {"metadata": {"uid": "u"}})],
    "a patch of the name is refused": [given("$cm", config_map()), patch("$cm/a", {"metadata": {"name": "b"}})],
    "a patch of the namespace is refused":
        [given("$cm", config_map()), patch("$cm/a", {"metadata": {"namespace": "b"}})],
    "a patch of the creation time changes nothing": [
        given("$cm", config_map()),
        patch("$cm/a", {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}),
    ],
    "a deletion with another uid is refused":
        [given("$cm", config_map()), delete("$cm/a", {"preconditions": {"uid": "u"}})],
    "a deletion with another version is refused": [
        given("$cm", config_map()),
        delete("$cm/a", {"preconditions": {"resourceVersion": "1"}}),
    ],
    "a deletion of a custom object with another uid is refused": [
        given("$nm", NODE_METRIC),
        delete("$nm/$me", {"preconditions": {"uid": "u"}}),
    ],
    "a deletion of a pod with another uid is refused":
        [given("$pods", pod()), delete("$pods/a", {"preconditions": {"uid": "u"}})],
})  # fmt: skip


def _versioned(obj: Object, **fields: object) -> Object:
    return (
        obj
        | {"metadata": {"name": obj["metadata"]["name"], "resourceVersion": obj["metadata"]["resourceVersion"]}}
        | fields
    )


@conflicts.behaviour("an update with an old resource version is refused")
def _(c: Calls) -> None:
    old = c.post("$cm", config_map())
    c.put("$cm/a", _versioned(old, data={"a": "1"}))
    c.put("$cm/a", _versioned(old, data={"a": "2"}))
    c.get("$cm/a")


@conflicts.behaviour("an update of a custom object with an old resource version is refused")
def _(c: Calls) -> None:
    old = c.post("$nm", NODE_METRIC)
    c.put("$nm/$me", _versioned(old, spec={"metricCollectPolicy": {"reportIntervalSeconds": 7}}))
    c.put("$nm/$me", _versioned(old, spec={"metricCollectPolicy": {"reportIntervalSeconds": 8}}))


@conflicts.behaviour("a patch with an old resource version is refused, whatever its type")
def _(c: Calls) -> None:
    old = c.given("$cm", config_map())["metadata"]["resourceVersion"]
    c.patch("$cm/a", {"data": {"a": "1"}})
    c.patch("$cm/a", {"metadata": {"resourceVersion": old}, "data": {"a": "2"}})
    c.patch("$cm/a", {"metadata": {"resourceVersion": old}, "data": {"a": "2"}}, STRATEGIC)
    c.patch("$cm/a", [{"op": "replace", "path": "/metadata/resourceVersion", "value": old}], JSON_PATCH)


@conflicts.behaviour("a patch with the current resource version is taken")
def _(c: Calls) -> None:
    now = c.given("$cm", config_map())["metadata"]["resourceVersion"]
    c.patch("$cm/a", {"metadata": {"resourceVersion": now}, "data": {"a": "2"}})


@conflicts.behaviour("a write that changes nothing keeps the resource version")
def _(c: Calls) -> None:
    c.post("$cm", config_map(data={"a": "1"}))
    c.patch("$cm/a", {"data": {"a": "1"}})
    c.put("$cm/a", config_map(data={"a": "1"}))


@conflicts.behaviour("a status with an old resource version is refused")
def _(c: Calls) -> None:
    old = c.post("$nm", NODE_METRIC)
    c.patch("$nm/$me/status", {"status": {"updateTime": "2020-01-01T00:00:00Z"}})
    c.put("$nm/$me/status", _versioned(old, status={"updateTime": "2020-01-01T00:00:01Z"}))


@conflicts.behaviour("a deletion with the right uid and version is taken")
def _(c: Calls) -> None:
    meta = c.post("$cm", config_map())["metadata"]
    c.delete("$cm/a", {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}})
    c.get("$cm/a")


@conflicts.behaviour("an update of what was deleted and made again is refused by its uid")
def _(c: Calls) -> None:
    old = c.post("$cm", config_map())
    c.delete("$cm/a")
    c.post("$cm", config_map())
    c.put("$cm/a", {"metadata": {"name": "a", "uid": old["metadata"]["uid"]}})
