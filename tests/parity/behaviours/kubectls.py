"""What a person types: kubectl against either server."""

from tests.parity.behaviours import Area, Script
from tests.parity.behaviours.objects import NODE, NODE_METRIC, USAGE, applied, event, pod
from tests.parity.calls import Calls, Json, patch

kubectl = Area("kubectl", "kubectl", kubectl=True)

_CONFIG = applied(data={"a": "1"})
_METRIC = NODE_METRIC | {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}}
_NODE = NODE | {"apiVersion": "v1", "kind": "Node"}
_POD = pod(automountServiceAccountToken=False) | {"apiVersion": "v1", "kind": "Pod"}
_STRAY = pod(nodeName="$me", terminationGracePeriodSeconds=0) | {"apiVersion": "v1", "kind": "Pod"}


Command = str | tuple[str, Json]  # what is typed, and what goes in


def _typed(*commands: Command) -> Script:
    def session(c: Calls) -> None:
        for command in commands:
            if isinstance(command, tuple):
                c.kubectl(*command)
            else:
                c.kubectl(command)

    return session


_SESSIONS: dict[str, Script] = {
    "apply creates, changes and leaves": _typed(
        ("apply -f -", _CONFIG), ("apply -f -", _CONFIG), ("apply -f -", applied(data={"b": "2"})),
            "get cm a -o jsonpath={.data}",
    ),
    "apply refuses what is no field": _typed(("apply -f -", _METRIC | {"spec": {"nothing": 1}})),
    "apply of an invalid pod lists the causes":
        _typed(("apply -f -", _POD | {"spec": {"containers": [{"name": "c"}]}})),
    "apply on the server in a dry run changes nothing": _typed(("apply --dry-run=server -f -", _CONFIG), "get cm a"),
    "diff shows what would change": _typed(("apply -f -", _CONFIG), ("diff -f -", _CONFIG)),
    "create creates once": _typed(("create -f -", _CONFIG), ("create -f -", _CONFIG)),
    "replace replaces":
        _typed(("create -f -", _CONFIG), ("replace -f -", applied(data={"a": "9"})), "get cm a -o jsonpath={.data}"),
    "edit of nothing is refused":
        _typed("get cm nope", "get nothings", "describe cm nope", "delete cm nope", "get cm nope --ignore-not-found"),
    "get shows node metrics":
        _typed(("create -f -", _METRIC), "get nm $me", "get nodemetrics $me -o jsonpath={.spec}", "get nm $me -o name"),
    "get shows the chunks of a list as one": _typed(("create -f -", _POD), "get pods --chunk-size=1 -o name"),
    "run and wait": _typed(
        "run web --image=busybox --labels=app=web", "wait --for=jsonpath={.status.phase}=Pending pod/web --timeout=5s",
            "delete pod web --wait=true",
    ),
    "describe tells a pod": _typed(("create -f -", _POD), "describe pod a"),
    "describe tells a node metric": _typed(("create -f -", _METRIC), "describe nm $me"),
    "cordon, taint and uncordon a node": _typed(
        ("create -f -", _NODE), "cordon $me", "cordon $me", "taint node $me k=v:NoSchedule",
            "taint node $me k=v:NoSchedule",
        "uncordon $me", "get node $me -o jsonpath={.spec.unschedulable}", "label node $me x=y", "delete node $me",
    ),
    "drain evicts": _typed(
        ("create -f -", _NODE), ("create -f -", _STRAY), "drain $me", "drain $me --force --timeout=20s", "get pods",
    ),
    "explain explains": _typed("explain nodemetric.spec", "explain nodemetric.nothing"),
    "explain lists the fields of built-in kinds": _typed(*(
        f"explain {what} --recursive | grep -P '\\t<'" for what in ("pod.spec.containers", "pdb", "service", "roles")
    ), "explain node.nothing"),
    "discovery lists the kind":
        _typed("api-resources --api-group=slo.koordinator.sh", "api-resources --categories=headroom -o name"),
    "deletes by label": _typed(("create -f -", _POD), "delete pods -l app=a", "delete pods -l app=a"),
    "delete deletes a namespace": _typed(("create -f -", _CONFIG), "delete ns $ns --timeout=20s", "get ns $ns"),
    "events are shown": _typed(
        ("create -f -", event(count=3, lastTimestamp="2020-01-01T00:00:00Z") | {"apiVersion": "v1", "kind": "Event"}),
            "get events -o name", "get events --field-selector=reason=Tested -o jsonpath={.items[*].message}",
    ),
}  # fmt: skip
for _sentence, _script in _SESSIONS.items():
    kubectl.behaviour(_sentence)(_script)


@kubectl.behaviour("get shows the status of a node metric")
def _(c: Calls) -> None:
    c.given("$nm", NODE_METRIC)
    c.prepare(
        patch("$nm/$me/status", {"status": {"nodeMetric": {"nodeUsage": USAGE}, "prodPeakMetric": {"resource": USAGE}}})
    )
    c.kubectl("get nm $me")
