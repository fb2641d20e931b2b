"""Status, scale, binding: parts of objects with paths of their own."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE, NODE_METRIC, USAGE, Object, pod
from tests.parity.calls import JSON_PATCH, STRATEGIC, Calls, Step, get, given, patch, post

subresources = Area("subresources", "status, scale and binding")

_NODE, _METRIC, _POD = given("$nodes", NODE), given("$nm", NODE_METRIC), given("$pods", pod())
_STATUS = {"status": {"updateTime": "2020-01-01T00:00:00Z"}}
_SPEC = {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}}
_MID = {"status": {"allocatable": {"kubernetes.io/mid-cpu": "7k"}, "capacity": {"kubernetes.io/mid-cpu": "7k"}}}
_READY = {"type": "Ready", "status": "True"}


def _binding(**fields: object) -> Object:
    return {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "$me"}} | fields


subresources.table({
    "a custom object is made without its status": [post("$nm", NODE_METRIC | _STATUS), get("$nm/$me")],
    "an update of a custom object leaves its status": [
        _METRIC,
        patch("$nm/$me/status", _STATUS),
        patch("$nm/$me", _SPEC | {"status": None}),
        patch("$nm/$me", {"status": {"updateTime": "2020-01-01T00:00:09Z"}}),
    ],
    "a custom status leaves spec and metadata": [
        _METRIC,
        patch("$nm/$me/status", _STATUS | _SPEC | {"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}}),
    ],
    "only a change of spec counts as a generation": [
        _METRIC,
        patch("$nm/$me/status", _STATUS),
        patch("$nm/$me", {"metadata": {"labels": {"x": "y"}}}),
        patch("$nm/$me", _SPEC),
        patch("$nm/$me", _SPEC),
    ],
    "a custom status is checked": [_METRIC, patch("$nm/$me/status", {"status": {"updateTime": 7}})],
    "a custom status is pruned": [_METRIC, patch("$nm/$me/status", {"status": {"nothing": 7}})],
    "a custom status is read": [_METRIC, get("$nm/$me/status")],
    "a custom status is patched by operations": [
        _METRIC,
        patch("$nm/$me/status", [{"op": "add", "path": "/status", "value": {"nodeMetric": {"nodeUsage": USAGE}}}],
            JSON_PATCH),
        patch("$nm/$me/status", [{"op": "remove", "path": "/status/nodeMetric"}], JSON_PATCH),
    ],
    "a node is made with its status": [post("$nodes", NODE)],
    "a node's status takes extended resources": [_NODE, patch("$nodes/$me/status", _MID), get("$nodes/$me/status")],
    "a node's status loses extended resources by null": [
        _NODE,
        patch("$nodes/$me/status", _MID, STRATEGIC),
        patch("$nodes/$me/status", {"status": {key: {"kubernetes.io/mid-cpu": None} for key in ("capacity",
            "allocatable")}}),
    ],
    "an update of a node leaves its status": [_NODE, patch("$nodes/$me", {**_MID, "metadata": {"labels": {"x": "y"}}})],
    "a node's status takes its labels as well":
        [_NODE, patch("$nodes/$me/status", {**_MID, "metadata": {"labels": {"x": "y"}}})],
    "a node's status leaves its spec": [_NODE, patch("$nodes/$me/status", {"spec": {"unschedulable": True}})],
    "a node's conditions merge by type": [
        _NODE,
        patch("$nodes/$me/status", {"status": {"conditions": [{"type": "Mid", "status": "True"}]}}, STRATEGIC),
    ],
    "a missing node has no status": patch("$nodes/nope/status", _MID),
    "a pod's status is not the pod's": [
        post("$pods", pod() | {"status": {"phase": "Running"}}),
        patch("$pods/a", {"status": {"phase": "Running"}}),
        patch("$pods/a/status", {"status": {"phase": "Running", "podIP": "10.1.2.3", "conditions": [_READY]}}),
        get("$pods/a/status"),
    ],
    "a pod's conditions merge by type": [
        _POD,
        patch("$pods/a/status", {"status": {"conditions": [_READY]}}, STRATEGIC),
        patch("$pods/a/status", {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}, STRATEGIC),
    ],
    "a pod is bound": [_POD, post("$pods/a/binding", _binding()), get("$pods/a")],
    "a pod is bound once": [_POD, post("$pods/a/binding", _binding()), post("$pods/a/binding", _binding())],
    "a missing pod is not bound": post("$pods/nope/binding", _binding(metadata={"name": "nope"})),
})  # fmt: skip


@subresources.behaviour("a binding and a deletion exclude each other")
def _(c: Calls) -> None:
    c.given("$pods", pod(nodeName="$me", terminationGracePeriodSeconds=30))
    c.delete("$pods/a")
    c.post("$pods/a/binding", _binding())
    c.prepare(Step("DELETE", "$pods/a?gracePeriodSeconds=0"))
