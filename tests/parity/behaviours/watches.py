"""Watches: what they tell, where they begin and how they end."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, config_map, labelled, lease, pod
from tests.parity.calls import TABLE, Calls, Json, get

watches = Area("watch", "Watch")


def _version(obj: Json) -> str:
    version: str = obj["metadata"]["resourceVersion"]
    return version


watches.table({
    "a watch by an unknown field is refused": get("$pods?watch=1&fieldSelector=spec.nothing%3Da"),
    "a watch by a broken label selector is refused": get("$pods?watch=1&labelSelector=a%3D%3D%3Db"),
})  # fmt: skip


@watches.behaviour("a watch tells what is made, changed and deleted")
def _(c: Calls) -> None:
    with c.watch(f"$leases?watch=1&resourceVersion={_version(c.get('$leases'))}") as watch:
        c.given("$leases", lease())
        c.patch("$leases/a", {"spec": {"holderIdentity": "h"}})
        c.delete("$leases/a")
        watch.take(3)


@watches.behaviour("a watch of a custom kind tells what is made, changed and deleted")
def _(c: Calls) -> None:
    start = _version(c.get("$nm?labelSelector=test%3D$me"))
    with c.watch(f"$nm?watch=1&fieldSelector=metadata.name%3D$me&resourceVersion={start}") as watch:
        c.given("$nm", NODE_METRIC)
        c.patch("$nm/$me/status", {"status": {"updateTime": "2020-01-01T00:00:00Z"}})
        c.delete("$nm/$me")
        watch.take(3)


@watches.behaviour("a watch goes on from a version")
def _(c: Calls) -> None:
    first = c.given("$leases", lease("a"))
    c.given("$leases", lease("b"))
    with c.watch(f"$leases?watch=1&resourceVersion={_version(first)}") as watch:
        watch.take(1)
        c.given("$leases", lease("c"))
        watch.take(1)


@watches.behaviour("a watch without version begins with what is there")
def _(c: Calls) -> None:
    for name in ("b", "a"):
        c.given("$leases", lease(name))
    for query in ("watch=1", "watch=true&resourceVersion=0"):
        with c.watch(f"$leases?{query}") as watch:
            watch.take(2)
            c.patch("$leases/a", {"metadata": {"labels": {"x": query[-1]}}})
            watch.take(1)


@watches.behaviour("a watch by label tells transitions as additions and deletions")
def _(c: Calls) -> None:
    start = _version(c.get("$leases"))
    with c.watch(f"$leases?watch=1&labelSelector=app%3Dx&resourceVersion={start}") as watch:
        c.given("$leases", labelled("a", app="y"))
        for app in ("x", "x", "y", "z", "x"):
            c.patch("$leases/a", {"metadata": {"labels": {"app": app}, "annotations": {"n": app}}})
        c.patch("$leases/a", {"spec": {"holderIdentity": "h"}})
        c.delete("$leases/a")
        watch.take(5)


@watches.behaviour("a watch by field tells transitions as additions and deletions")
def _(c: Calls) -> None:
    start = _version(c.get("$pods"))
    with c.watch(
        f"$pods?watch=1&fieldSelector=spec.nodeName%3D$me,status.phase!%3DSucceeded&resourceVersion={start}"
    ) as watch:
        c.given("$pods", pod())
        c.post("$pods/a/binding", {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "$me"}})
        c.patch("$pods/a/status", {"status": {"phase": "Running"}})
        c.patch("$pods/a/status", {"status": {"phase": "Succeeded"}})
        c.delete("$pods/a")
        watch.take(3)


@watches.behaviour("a watch by name tells one object")
def _(c: Calls) -> None:
    start = _version(c.get("$leases"))
    with c.watch(f"$leases?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={start}") as watch:
        c.given("$leases", lease("a"))
        c.given("$leases", lease("b"))
        watch.take(1)


@watches.behaviour("an object's own path is watched")
def _(c: Calls) -> None:
    start = _version(c.given("$leases", lease()))
    with c.watch(f"$leases/a?watch=1&resourceVersion={start}") as watch:
        c.given("$leases", lease("b"))
        c.patch("$leases/a", {"spec": {"holderIdentity": "h"}})
        watch.take(1)


@watches.behaviour("a watch of all namespaces tells this one")
def _(c: Calls) -> None:
    start = _version(c.given("$leases", labelled("a", test=c.me)))
    path = "/apis/coordination.k8s.io/v1/leases"
    with c.watch(f"{path}?watch=1&labelSelector=test%3D$me&resourceVersion={start}") as watch:
        c.delete("$leases/a")
        watch.take(1)


@watches.behaviour("a watch ends when its time is up")
def _(c: Calls) -> None:
    c.given("$leases", lease())
    with c.watch("$leases?watch=1&timeoutSeconds=1") as watch:
        watch.rest()


@watches.behaviour("a watch tells Tables")
def _(c: Calls) -> None:
    start = _version(c.get("$cm?labelSelector=app"))
    with c.watch(f"$cm?watch=1&labelSelector=app&resourceVersion={start}", TABLE) as watch:
        c.given("$cm", config_map(data={"a": "1"}) | {"metadata": {"name": "a", "labels": {"app": "x"}}})
        c.patch("$cm/a", {"data": {"b": "2"}})
        watch.take(2)


@watches.behaviour("a watch from the future waits")
def _(c: Calls) -> None:
    with c.watch("$leases?watch=1&resourceVersion=9000000000000000000&timeoutSeconds=1") as watch:
        watch.rest()
