"""Watches: what they tell, where they begin and how they end."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, labelled, lease
from tests.parity.calls import Calls, Json

watches = Area("watch", "Watch")


def _version(obj: Json) -> str:
    version: str = obj["metadata"]["resourceVersion"]
    return version


watches.table({
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
