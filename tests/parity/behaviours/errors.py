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
    "a quantity that is none is refused":
        post("$nodes", {"metadata": {"name": "$me"}, "status": {"capacity": {"cpu": "4x"}}}),
    # 401
    "a call with a wrong token is refused": Step("GET", "$cm", headers={"Authorization": "Bearer wrong"}),
    # 403
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
    "an unknown path is not found": get("/nothing"),
    # 422
    "an invalid name is refused": post("$cm", config_map("A_b")),
    "an object without name is refused": post("$cm", {"data": {}}),
    "an invalid namespace name is refused": post("$namespaces", {"metadata": {"name": "a.b"}}),
    "an invalid label key is refused": post("$cm", {"metadata": {"name": "a", "labels": {"a b": "c"}}}),
    "an invalid label value is refused": post("$cm", {"metadata": {"name": "a", "labels": {"a": "b c"}}}),
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
