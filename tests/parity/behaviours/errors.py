"""Requests that are refused: status codes and error bodies."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, POD, config_map, lease
from tests.parity.calls import (
    STRATEGIC,
    Calls,
    Step,
    delete,
    get,
    given,
    patch,
    post,
    put,
)

errors = Area("errors", "Status codes and error bodies")

_NOBODY = {"Authorization": ""}

# fmt: off
errors.table({
    # 400
    "malformed JSON is refused": post("$cm", "{"),
    "an empty body is refused": post("$cm", ""),
    "a body that is no object is refused": post("$cm", "[1]"),
    "an object of another kind is refused": post("$cm", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
    "an object of another version is refused": post("$cm", config_map(apiVersion="v2", kind="ConfigMap")),
    "an object of an unknown kind is refused": post("$cm", config_map(apiVersion="v1", kind="Nothing")),
    "an object of another namespace is refused": post("$cm", {"metadata": {"name": "a", "namespace": "default"}}),
    "an update under another name is refused": [given("$cm", config_map()), put("$cm/a", config_map("b"))],
    "an update without a name is refused": [given("$cm", config_map()), put("$cm/a", {"metadata": {}})],
    "an update of another namespace is refused": [
        given("$cm", config_map()),
        put("$cm/a", {"metadata": {"name": "a", "namespace": "default"}}),
    ],
    "labels of the wrong type are refused": post("$cm", {"metadata": {"name": "a", "labels": {"a": 1}}}),
    "metadata of the wrong type is refused": post("$cm", {"metadata": "a"}),
    "data of the wrong type is refused": post("$cm", config_map(data={"a": 1})),
    "a list where an object belongs is refused": post("$cm", config_map(data=["a"])),
    "a quantity that is none is refused":
        post("$nodes", {"metadata": {"name": "$me"}, "status": {"capacity": {"cpu": "4x"}}}),
    "a number that is text is refused": post("$pods", {**POD, "spec": {**POD["spec"], "priority": "high"}}),
    "a time that is none is refused": post("$leases", lease(renewTime="yesterday")),
    "a custom object of another version is refused": post("$nm", NODE_METRIC | {"apiVersion": "slo.koordinator.sh/v2"}),
    "a limit that is no number is refused": get("$cm?limit=x"),
    "a timeout that is no number is refused": get("$cm?watch=1&timeoutSeconds=x"),
    "a negative grace period in the query is taken":
        [given("$cm", config_map()), delete("$cm/a?gracePeriodSeconds=-1")],
    "a grace period that is no number is refused": [given("$cm", config_map()), delete("$cm/a?gracePeriodSeconds=x")],
    "delete options that are no object are refused": [given("$cm", config_map()), delete("$cm/a", "[]")],
    "delete options of the wrong type are refused":
        [given("$cm", config_map()), delete("$cm/a", {"gracePeriodSeconds": "a"})],
    # 401
    "a call with a wrong token is refused": Step("GET", "$cm", headers={"Authorization": "Bearer wrong"}),
    "a wrong token is refused even where none is needed":
        Step("GET", "/healthz", headers={"Authorization": "Bearer x"}),
    # 403
    "a call of nobody on a path is refused": Step("GET", "/apis", headers=_NOBODY),
    "a call of nobody on the health is answered": Step("GET", "/healthz", headers=_NOBODY),
    "a namespace that stays cannot be deleted": delete("/api/v1/namespaces/kube-system"),
    # 404
    "an object that is missing is not found": get("$cm/nope"),
    "an object of a group that is missing is not found": get("$leases/nope"),
    "a custom object that is missing is not found": get("$nm/nope"),
    "the status of a missing object is not found": get("$nodes/nope/status"),
    "an update of a missing object is not found": put("$cm/nope", config_map("nope")),
    "an update of a missing custom object is not found": put("$nm/$me", NODE_METRIC),
    "a patch of a missing object is not found": patch("$cm/nope", {}),
    "a patch of a missing custom object is not found": patch("$nm/nope", {}),
    "a deletion of a missing object is not found": delete("$cm/nope"),
    "a creation in a missing namespace is not found": post("/api/v1/namespaces/nope/configmaps", config_map()),
    "a list of a missing namespace is empty": get("/api/v1/namespaces/nope/leases"),
    "an unknown resource of a known group is not found": get("/api/v1/namespaces/$ns/nothings"),
    "an unknown version is not found": get("/apis/apps/v9/namespaces/$ns/deployments"),
    "an unknown subresource is not found": get("$cm/a/nothing"),
    "the status of a kind without one is not found": get("$cm/a/status"),
    "an unknown path is not found": get("/nothing"),
    # 405
    "a creation at an object's path is not allowed": post("$cm/a", config_map()),
    "an update of a collection is not allowed": put("$cm", config_map()),
    "a patch of a collection is not allowed": patch("$cm", {}),
    "a creation in all namespaces is not allowed": post("/api/v1/configmaps", config_map()),
    "a deletion of a status is not allowed": delete("$nodes/$me/status"),
    "a deletion of all namespaces is not allowed": delete("$namespaces"),
    # 406, 413, 415
    "an answer as an unknown kind is not acceptable": get("$cm", "application/json;as=Nothing;v=v1;g=meta.k8s.io"),
    "a body of more than 3 MiB is refused": post("$cm", config_map(data={"a": "x" * (3 * 1024 * 1024)})),
    "a body of an unknown media type is refused": post("$cm", "a", "text/plain"),
    "a strategic patch of a custom object is refused": [given("$nm", NODE_METRIC), patch("$nm/$me", {}, STRATEGIC)],
    # 422
    "an invalid name is refused": post("$cm", config_map("A_b")),
    "a name that is too long is refused": post("$cm", config_map("a" * 254)),
    "an object without name is refused": post("$cm", {"data": {}}),
    "an invalid namespace name is refused": post("$namespaces", {"metadata": {"name": "a.b"}}),
    "an invalid label key is refused": post("$cm", {"metadata": {"name": "a", "labels": {"a b": "c"}}}),
    "an invalid label value is refused": post("$cm", {"metadata": {"name": "a", "labels": {"a": "b c"}}}),
    "a label value that is too long is refused": post("$cm", {"metadata": {"name": "a", "labels": {"a": "b" * 64}}}),
    "an invalid annotation key is refused": post("$cm", {"metadata": {"name": "a", "annotations": {"a b": "c"}}}),
    "a pod without containers is refused": post("$pods", {"metadata": {"name": "a"}, "spec": {}}),
    "a pod without spec is refused": post("$pods", {"metadata": {"name": "a"}}),
    "every cause is listed":
        post("$pods", {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}, {"name": "c"}]}}),
    "a request above its limit is refused": post("$pods", {"metadata": {"name": "a"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
    ]}}),
    "a mid resource without limit is taken as it is": post("$pods", {"metadata": {"name": "a"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"kubernetes.io/mid-cpu": "2k"}}},
    ]}}),
    "a container of a pod cannot be added": [given("$pods", POD), patch("$pods/a", {"spec": {"containers": [
        {"name": "d", "image": "i"}
    ]}}, STRATEGIC)],
    "a pod's node cannot be set by an update": [given("$pods", POD), patch("$pods/a", {"spec": {"nodeName": "n"}})],
    "a pod's priority class has to exist": post("$pods", {**POD, "spec": {**POD["spec"], "priorityClassName": "nope"}}),
    "a budget with both bounds is refused": post("$pdb", lease(minAvailable=1, maxUnavailable=1)),
    "a budget of no percentage is refused": post("$pdb", lease(minAvailable="half")),
    "a node's taint needs a known effect": post("$nodes", {"metadata": {"name": "$me"}, "spec": {"taints": [
        {"key": "a", "effect": "Never"}
    ]}}),
})
# fmt: on


@errors.behaviour("health, version and the roots of discovery answer")
def _(c: Calls) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        c.get(path)
