"""Server-side apply, and who owns which field."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE, NODE_METRIC, POD, applied, config_map
from tests.parity.calls import APPLY, Calls, Json, Step, get, given, patch, put

applies = Area("apply", "Server-side apply and managedFields")


def _apply(body: Json, manager: str = "m1", query: str = "", path: str = "$cm/a") -> Step:
    return patch(f"{path}?fieldManager={manager}{query}", body, APPLY)


def _workload(*containers: Json, init: bool = False) -> Json:
    pod = {"containers": list(containers)} | ({"initContainers": [{"name": "i", "image": "i"}]} if init else {})
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


applies.table({
    "an apply creates": [_apply(applied(data={"a": "1"})), get("$cm/a")],
    "an apply again changes nothing": [_apply(applied(data={"a": "1"})), _apply(applied(data={"a": "1"}))],
    "an apply takes back what it no longer says":
        [_apply(applied(data={"a": "1", "b": "2"})), _apply(applied(data={"b": "2"}))],
    "an apply of nothing takes everything back": [_apply(applied(data={"a": "1"})), _apply(applied())],
    "an apply to another's field conflicts": [_apply(applied(data={"a": "1"})), _apply(applied(data={"a": "2"}), "m2")],
    "an apply to several fields of others lists them": [
        _apply(applied(data={"a": "1", "b": "1"})),
        _apply(applied(data={"a": "2", "b": "2", "c": "2"}), "m2"),
    ],
    "an apply by force takes fields over": [
        _apply(applied(data={"a": "1"})),
        _apply(applied(data={"a": "2"}), "m2", "&force=true"),
        _apply(applied(data={"a": "1"})),
    ],
    "an apply of the same value shares the field": [
        _apply(applied(data={"a": "1"})),
        _apply(applied(data={"a": "1"}), "m2"),
        _apply(applied()),
    ],
    "an apply conflicts with an update":
        [given("$cm?fieldManager=m2", config_map(data={"a": "1"})), _apply(applied(data={"a": "2"}))],
    "an update takes an applied field over": [
        _apply(applied(data={"a": "1"})),
        put("$cm/a?fieldManager=m2", config_map(data={"a": "2"})),
        _apply(applied(data={"a": "1"})),
    ],
    "an update that removes a field removes its owner": [
        _apply(applied(data={"a": "1", "b": "1"})),
        put("$cm/a?fieldManager=m2", config_map(data={"b": "1"})),
    ],
    "a patch is owned like an update": [
        given("$cm?fieldManager=m1", config_map(data={"a": "1"})),
        patch("$cm/a?fieldManager=m2", {"data": {"b": "1"}, "metadata": {"labels": {"x": "y"}}}),
    ],
    "a dry run of an apply changes nothing": [_apply(applied(data={"a": "1"}), query="&dryRun=All"), get("$cm/a")],
    "a dry run of an apply conflicts as well": [
        _apply(applied(data={"a": "1"})),
        _apply(applied(data={"a": "2"}), "m2", "&dryRun=All"),
    ],
    "an apply without manager is refused": patch("$cm/a", applied(), APPLY),
    "an apply with managed fields is refused":
        _apply({**applied(), "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}}),
    "an apply under another name is refused": _apply(applied(), path="$cm/b"),
    "an apply without kind is refused": _apply({"metadata": {"name": "a"}}),
    "an apply of another kind is refused": _apply({**applied(), "kind": "Pod"}),
    "an apply without name is refused": _apply({"apiVersion": "v1", "kind": "ConfigMap"}),
    "an apply with a uid creates nothing": _apply({**applied(), "metadata": {"name": "a", "uid": "u"}}),
    "an apply with an old resource version is refused": [
        given("$cm", config_map()),
        _apply({**applied(), "metadata": {"name": "a", "resourceVersion": "1"}}),
    ],
    "an apply of an unknown field is refused": _apply(applied(nothing=1)),
    "an apply of a wrong type is refused": _apply(applied(data={"a": 1})),
    "an apply of no YAML is refused": _apply("a: ["),
    "an apply in a missing namespace is not found": _apply(applied(), path="/api/v1/namespaces/nope/configmaps/a"),
    "force is for applies only": patch("$cm/a?force=true", {}),
    "an emptied list of managed fields stops the tracking": [
        _apply(applied(data={"a": "1"})),
        patch("$cm/a", {"metadata": {"managedFields": [{}]}}),
        patch("$cm/a", {"data": {"b": "1"}}),
        _apply(applied(data={"a": "2"}), "m2"),
    ],
    "an apply merges containers by name": [
        _apply({**POD, "apiVersion": "v1", "kind": "Pod"}, path="$pods/a"),
        _apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "containers": [{"name": "c", "image": "busybox:2"}]
        }}, "m2", "&force=true", path="$pods/a"),
    ],
    "an apply takes back containers with their defaults": [
        _apply(_workload({"name": "c", "image": "i"}, {"name": "d", "image": "i"}, init=True), path="$deployments/a"),
        _apply(_workload({"name": "c", "image": "i"}), path="$deployments/a"),
    ],
    "an apply takes back a container of which another says something": [
        _apply(_workload({"name": "c", "image": "i"}, {"name": "d", "image": "i"}), path="$deployments/a"),
        _apply(_workload({"name": "d", "image": "i", "tty": True}), "m2", path="$deployments/a"),
        _apply(_workload({"name": "c", "image": "i"}), path="$deployments/a"),
    ],
    "an apply of two containers of one name is refused": _apply({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "j"}]},
    }, path="$pods/a"),
    "a custom object is applied": [
        _apply({**NODE_METRIC, "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}}, path="$nm/$me"),
        _apply({**NODE_METRIC, "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 8}}}, "m2", path="$nm/$me"),
        _apply({**NODE_METRIC, "status": {"updateTime": "2020-01-01T00:00:00Z"}}, "m2", path="$nm/$me/status"),
    ],
    "an apply of an unknown field of a custom object is refused":
        _apply({**NODE_METRIC, "spec": {"nothing": 1}}, path="$nm/$me"),
    "a status is applied": [
        given("$nodes", NODE),
        _apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$me"}, "status": {
            "capacity": {"kubernetes.io/mid-cpu": "7000"}, "conditions": [{"type": "Mid", "status": "True"}],
        }}, path="$nodes/$me/status"),
    ],
})  # fmt: skip


@applies.behaviour("managed fields of a write name manager, operation and subresource")
def _(c: Calls) -> None:
    c.given("$nm?fieldManager=m1", NODE_METRIC)
    c.patch("$nm/$me/status?fieldManager=m1", {"status": {"updateTime": "2020-01-01T00:00:00Z"}})
    c.patch("$nm/$me?fieldManager=m2", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}})
    c.patch("$nm/$me/status?fieldManager=m2", {"status": {"updateTime": "2020-01-01T00:00:01Z"}})
