"""Lists: pages, moments and selectors."""

from urllib.parse import quote

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, event, labelled, lease, pod
from tests.parity.calls import Calls, Step, get, given

lists = Area("lists", "Pagination and moments of lists")
selectors = Area("selectors", "Label and field selectors")

_FIVE = [given("$leases", labelled(name, app=name, tier="x" if name in "ac" else "y", n=str(index)))
         for index, name in enumerate("abcde")]  # fmt: skip


def _five(*queries: str) -> list[Step]:
    return [*_FIVE, *(get(f"$leases?{query}") for query in queries)]


lists.table({
    "a list is ordered by name": [given("$leases", lease(name)) for name in ("b", "a-b", "a")] + [get("$leases")],
    "an empty list has no items": get("$leases"),
    "a list of a custom kind is answered": [given("$nm", NODE_METRIC), get("$nm?labelSelector=test%3D$me")],
    "a list of all namespaces holds this one": [
        given("$leases", labelled("a", test="$me")),
        get("/apis/coordination.k8s.io/v1/leases?labelSelector=test%3D$me"),
    ],
    "a limit counts the remaining objects": _five("limit=2"),
})  # fmt: skip


@lists.behaviour("a list is read in pages")
def _(c: Calls) -> None:
    for step in _FIVE:
        c.make(step)
    token = c.get("$leases?limit=2")["metadata"]["continue"]
    token = c.get(f"$leases?limit=2&continue={quote(token)}")["metadata"]["continue"]
    c.get(f"$leases?limit=2&continue={quote(token)}")


@lists.behaviour("pages by selector go on behind what does not match")
def _(c: Calls) -> None:
    for step in _FIVE:
        c.make(step)
    token = c.get("$leases?limit=1&labelSelector=tier%3Dx")["metadata"]["continue"]
    c.get(f"$leases?limit=1&labelSelector=tier%3Dx&continue={quote(token)}")


@lists.behaviour("a list of a version is at least of that version, or exactly")
def _(c: Calls) -> None:
    first = c.given("$leases", lease("a"))["metadata"]["resourceVersion"]
    second = c.given("$leases", lease("b"))["metadata"]["resourceVersion"]
    c.get(f"$leases?resourceVersion={first}&resourceVersionMatch=NotOlderThan")
    c.get(f"$leases?resourceVersion={second}&resourceVersionMatch=Exact")
    c.get(f"$leases?resourceVersion={first}")
    c.get(f"$leases/a?resourceVersion={first}")


def _labels(text: str) -> list[Step]:
    return _five(f"labelSelector={quote(text)}")


def _fields(text: str, path: str = "$leases") -> Step:
    return get(f"{path}?fieldSelector={quote(text, safe='/$')}")


_PODS = [given("$pods", pod("a")), given("$pods", pod("b", nodeName="$me", restartPolicy="Never"))]

selectors.table({
    **{f"labels are selected by `{text}`": _labels(text) for text in (
        "app=a", "app!=a", "app", "!app", "none", "app in (a,b)", "app notin (a,b)", "app=a,tier=x",
    )},
    "fields are selected by name": [*_FIVE, _fields("metadata.name=a"), _fields("metadata.name!=a,metadata.name!=b")],
    "fields are selected by namespace":
        [*_FIVE[:1], _fields("metadata.namespace=$ns"), _fields("metadata.namespace=other")],
    "pods are selected by node": [*_PODS, _fields("spec.nodeName=$me", "$pods"), _fields("spec.nodeName=", "$pods")],
    "pods are selected by phase":
        [*_PODS, _fields("status.phase=Pending,metadata.name=a", "$pods"), _fields("status.phase!=Pending", "$pods")],
    "nodes are selected by schedulability": _fields("spec.unschedulable=true,metadata.name=nope", "$nodes"),
    "events are selected by what they are about": [
        given("$events", event()),
        *(_fields(f"{text},metadata.namespace=$ns", "$events") for text in (
            "involvedObject.name=a", "involvedObject.name=b", "involvedObject.kind=Pod,involvedObject.uid=u",
            "reason=Tested,type=Normal", "type!=Normal", "involvedObject.apiVersion=v1", "source=",
                "reportingComponent=",
        )),
    ],
    "a custom object is selected by name": [given("$nm", NODE_METRIC), _fields("metadata.name=$me", "$nm")],
})  # fmt: skip
