import random
import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest
from prometheus_client import CollectorRegistry

from shared.api.core import ConfigMap, Pod
from shared.kube import errors
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind
from shared.kube.resources import CONFIGMAPS, PODS
from shared.kube.retry import Jitter
from shared.kube.watch import WatchScope, WatchTimes
from shared.stop import Stop
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule

Start: TypeAlias = Callable[[Callable[[Stop], None]], Stop]


class Follower:
    """An informer of one namespace's ConfigMaps, and a second cache built from its announcements alone."""

    def __init__(self, server: ApiServer, namespace: str, label_selector: str | None = None) -> None:
        self.registry = CollectorRegistry()
        self.mirror: dict[str, str] = {}
        self.told: list[str] = []
        self.namespace = namespace
        self.client = Client(server.connection, "test", registry=self.registry)
        self.informer = Informer(
            self.client,
            CONFIGMAPS,
            ConfigMap,
            on_change=self._mirror,
            scope=WatchScope(namespace=namespace, label_selector=label_selector),
            times=WatchTimes(jitter=Jitter(0.02, 0.2)),
        )

    def _mirror(self, change: Change[ConfigMap]) -> None:
        self.told.append(f"{change.kind} {change.key.rpartition('/')[2]}".strip())
        if change.new is not None:
            assert (change.kind is ChangeKind.ADDED) == (change.key not in self.mirror)
            self.mirror[change.key] = change.new.metadata.resource_version
        elif change.kind is ChangeKind.DELETED:
            del self.mirror[change.key]

    def cached(self) -> dict[str, str]:
        return {item.metadata.key: item.metadata.resource_version for item in self.informer.values()}

    def agrees(self, client: Client) -> bool:
        """Whether the server, the cache and the announcements tell the same."""
        listing = client.list(CONFIGMAPS, self.namespace, into=ConfigMap)
        truth = {item.metadata.key: item.metadata.resource_version for item in listing.items}
        return truth == self.cached() == self.mirror

    def restarts(self, reason: str) -> float:
        labels = {"resource": "configmaps", "reason": reason}
        return self.registry.get_sample_value("headroom_kube_watch_restarts_total", labels) or 0.0


@pytest.fixture
def follower(server: ApiServer, namespace: str, start: Start) -> Follower:
    follower = Follower(server, namespace)
    start(follower.informer.run)
    assert follower.informer.synced.wait(60)
    return follower


def write(client: Client, namespace: str, name: str, value: str, **labels: str) -> None:
    body = {"metadata": {"name": name, "labels": labels}, "data": {"value": value}}
    try:
        client.patch(CONFIGMAPS, name, body, namespace)
    except errors.NotFound:
        client.create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap"} | body, namespace)


def test_an_object_that_leaves_the_selection_is_deleted(
    server: ApiServer, client: Client, namespace: str, start: Start
) -> None:
    follower = Follower(server, namespace, label_selector="watched=yes")
    write(client, namespace, "a", "1", watched="yes")
    write(client, namespace, "b", "1", watched="no")
    start(follower.informer.run)
    eventually(lambda: list(follower.mirror) == [f"{namespace}/a"])
    write(client, namespace, "b", "1", watched="yes")
    write(client, namespace, "a", "1", watched="no")
    eventually(lambda: list(follower.mirror) == [f"{namespace}/b"])


def test_a_compacted_history_is_made_up_for_by_listing(
    server: ApiServer, client: Client, namespace: str, start: Start
) -> None:
    for name in ("stays", "changes", "vanishes"):
        write(client, namespace, name, "1")
    server.fault(rule("drop-watch", "watch=true", seconds=0.1), rule("status", "watch=true", times=0, status=503))
    follower = Follower(server, namespace)
    start(follower.informer.run)
    eventually(lambda: follower.restarts("refused"))
    write(client, namespace, "changes", "2")
    client.delete(CONFIGMAPS, "vanishes", namespace)
    write(client, namespace, "appears", "1")
    server.compact()
    server.heal()
    eventually(lambda: follower.told.count("SYNCED") == 2)
    since = follower.told[follower.told.index("SYNCED") + 1 :]
    assert sorted(since) == ["ADDED appears", "DELETED vanishes", "MODIFIED changes", "SYNCED"]
    assert follower.agrees(client)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_cache_and_announcements_agree_with_the_server_in_the_end(
    server: ApiServer, client: Client, namespace: str, follower: Follower, seed: int
) -> None:
    chance = random.Random(seed)
    faults = [
        rule("drop-watch", "watch=true", times=2),
        rule("truncate", "configmaps", times=2),
        rule("close", "configmaps", times=2),
        rule("status", "watch=true", times=2, status=410),
        rule("status", "configmaps", times=2, status=500),
        rule("delay", "watch=true", times=2, seconds=0.05),
    ]
    names = [f"c{number}" for number in range(6)]
    for step in range(80):
        if step % 10 == 0:
            server.fault(chance.choice(faults))
        if step == 40:
            server.kill()
            server.start()
        name = chance.choice(names)
        try:
            if chance.random() < 0.3:
                client.delete(CONFIGMAPS, name, namespace)
            else:
                write(client, namespace, name, str(step))
        except (errors.ApiError, errors.Unreachable, errors.InvalidResponse):
            pass  # the writer is under the same faults
    server.heal()
    eventually(lambda: follower.agrees(client))


def test_many_informers_stop_long_before_the_server_ends_their_watches(server: ApiServer, client: Client) -> None:
    stop = Stop()
    informers = [Informer(client, PODS, Pod) for _ in range(8)]
    threads = [threading.Thread(target=informer.run, args=(stop,)) for informer in informers]
    for thread in threads:
        thread.start()
    eventually(lambda: all(informer.current.is_set() for informer in informers))
    stop.set()
    eventually(lambda: not any(thread.is_alive() for thread in threads))
