"""Tables with their printer columns, and bare metadata."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE, NODE_METRIC, USAGE, config_map, event, lease, pod
from tests.parity.calls import TABLE, get, given, patch

tables = Area("tables", "Tables, printer columns and bare metadata")

_KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
_NODE = given("$nodes", NODE)
_STATUS = {
    "updateTime": "2020-01-01T00:00:00Z",
    "nodeMetric": {"nodeUsage": USAGE},
    "prodPeakMetric": {"resource": USAGE},
    "prodReclaimableMetric": {"resource": USAGE},
}
_RUNNING = {
    "phase": "Running",
    "podIP": "10.1.2.3",
    "containerStatuses": [
        {"name": "c", "ready": True, "restartCount": 2, "image": "i", "imageID": "", "state": {"running": {}}}
    ],
}
_WAITING = {
    "containerStatuses": [
        {"name": "c", "ready": False, "restartCount": 0, "image": "i", "imageID": "",
         "state": {"waiting": {"reason": "ErrImagePull"}}}
    ],
}  # fmt: skip

tables.table({
    "nodes have columns": [_NODE, get("$nodes?labelSelector=test%3D$me", TABLE), get("$nodes/$me", _KUBECTL)],
    "a node that is cordoned, of a role and not ready says so": [
        _NODE,
        patch("$nodes/$me", {"spec": {"unschedulable": True},
            "metadata": {"labels": {"node-role.kubernetes.io/mid": ""}}}),
        patch("$nodes/$me/status", {"status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "nodeInfo": {"kubeletVersion": "v1.2.3", "osImage": "OS", "kernelVersion": "6.1",
                "containerRuntimeVersion": "c://1"},
        }}),
        get("$nodes/$me?includeObject=None", TABLE),
    ],
    "pods have columns": [given("$pods", pod()), get("$pods", TABLE), get("$pods/a", TABLE)],
    "a running pod says how ready it is": [
        given("$pods", pod(nodeName="$me")),
        patch("$pods/a/status", {"status": _RUNNING}),
        get("$pods/a", TABLE),
    ],
    "a waiting pod says why":
        [given("$pods", pod(nodeName="$me")), patch("$pods/a/status", {"status": _WAITING}), get("$pods/a", TABLE)],
    "node metrics have columns": [
        given("$nm", NODE_METRIC),
        get("$nm/$me", TABLE),
        patch("$nm/$me/status", {"status": _STATUS}),
        get("$nm?labelSelector=test%3D$me", _KUBECTL),
    ],
    "config maps have columns": [
        given("$cm", config_map(data={"a": "1", "b": "2"}, binaryData={"c": "YQ=="})),
        get("$cm/a", TABLE),
    ],
    "secrets have columns": [given("$secrets", config_map(data={"a": "YQ=="})), get("$secrets", TABLE)],
    "leases have columns":
        [given("$leases", lease(holderIdentity="h")), given("$leases", lease("b")), get("$leases", TABLE)],
    "events have columns":
        [given("$events", event(count=2, source={"component": "x", "host": "y"})), get("$events", TABLE)],
    "namespaces have columns": get("$namespaces/$ns", TABLE),
    "budgets have columns": [
        given("$pdb", lease(minAvailable="50%", selector={"matchLabels": {"app": "none"}})),
        given("$pdb", lease("b", maxUnavailable=1, selector={"matchLabels": {"app": "none"}})),
        get("$pdb?includeObject=None", TABLE),
    ],
    "service accounts have columns": [given("$accounts", {"metadata": {"name": "a"}}), get("$accounts/a", TABLE)],
    "priority classes have columns":
        [given("$classes", {"metadata": {"name": "$me"}, "value": 7, "description": "d"}), get("$classes/$me", TABLE)],
    "custom definitions have columns": get(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodemetrics.slo.koordinator.sh?includeObject=None",
            TABLE
    ),
    "a Table leaves out its objects": [given("$leases", lease()), get("$leases?includeObject=None", TABLE)],
    "a Table holds its objects": [given("$leases", lease()), get("$leases?includeObject=Object", TABLE)],
    "an empty Table has columns": get("$leases", TABLE),
    "a Table has pages": [given("$leases", lease("a")), given("$leases", lease("b")), get("$leases?limit=1", TABLE)],
    "a missing object has no Table": get("$leases/nope", TABLE),
})  # fmt: skip
