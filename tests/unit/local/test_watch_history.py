"""The API server's history of changes is bounded in age, number and bytes, whatever is written."""

from typing import Any

import msgspec
import pytest

from deploy.local.apiserver import status, watch
from deploy.local.apiserver.kinds import BY_RESOURCE
from deploy.local.apiserver.objects import encode
from deploy.local.apiserver.store import ObjectChange, StoredObject
from deploy.local.apiserver.watch import ChangeHistory, Filter, Hub, Watcher

NODES = "/nodes"


def change(version: int, size: int = 10) -> ObjectChange:
    value = encode({"metadata": {"name": "n", "resourceVersion": str(version)}, "x": "x" * size})
    return ObjectChange(StoredObject(NODES, "n", version, {}, {}, (), value), None, deleted=False)


def versions(changes: list[ObjectChange]) -> list[int]:
    return [each.record.version for each in changes]


def test_a_change_is_told_until_it_is_too_old_and_then_the_client_lists_anew() -> None:
    history = ChangeHistory(floor=1)
    for version in range(2, 12):
        history.append(60.0 * version, change(version))
    kept = versions(history.since(history.floor))
    assert kept == list(range(6, 12))
    assert versions(history.since(9)) == [10, 11]
    with pytest.raises(status.StatusError, match="too old resource version"):
        history.since(4)
    history.trim(60.0 * 1000)
    assert history.since(11) == []
    assert history.floor == 11


@pytest.mark.parametrize(("size", "most"), [(10, watch.HISTORY_EVENTS), (1 << 20, watch.HISTORY_BYTES >> 20)])
def test_the_newest_changes_stay_when_there_are_too_many_or_too_large_ones(size: int, most: int) -> None:
    history = ChangeHistory(floor=0)
    one = change(1, size)
    for version in range(1, most + 20):
        history.append(0.0, ObjectChange(msgspec.structs.replace(one.record, version=version), None, deleted=False))
    kept = versions(history.since(history.floor))
    assert most - 2 < len(kept) <= most
    assert kept[-1] == most + 19


def test_what_was_encoded_for_watches_is_not_kept() -> None:
    hub, told = Hub(0), change(1)
    watchers: list[Any] = [
        Watcher(BY_RESOURCE[NODES], Filter("", (), ()), None, bookmarks=False, timeout_seconds=60) for _ in range(2)
    ]
    for each in watchers:
        hub.attach(NODES, each)
    hub.publish(told)
    assert [each._lines for each in watchers] == [[b'{"type":"ADDED","object":%s}\n' % told.record.value]] * 2
    assert versions(hub.history(NODES).since(0)) == [1]
    assert told.lines == {}
