"""Parts that die, hang or are away, and what comes after; and that only one manager writes at a time."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from shared import names, quantity
from tests.node.cluster import Failed
from tests.node.conftest import LENDING_SECONDS
from tests.node.layout import NODE
from tests.node.release import NAMESPACE, Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("what is killed is a process in a pod, or a part of a real control plane")

OUTAGE_SECONDS = 12  # beyond the first retries of whoever asks, and within the degrade time
# Of memory: what an API server burns when it starts is system usage of its node, and takes Mid's CPU for a while.
WRONG = '{"status": {"allocatable": {"kubernetes.io/mid-memory": "7"}, "capacity": {"kubernetes.io/mid-memory": "7"}}}'


def _holder(release: Release) -> str:
    """Of the Lease: the name of a pod, and a part that is new with each process."""
    path = "--output=jsonpath={.spec.holderIdentity}"
    return release.cluster.kubectl("get", "lease", names.MANAGER_LEASE, f"--namespace={NAMESPACE}", path)


def _leader(release: Release) -> int:
    """The process that holds the Lease, as the node counts."""

    def pid() -> int:
        name = _holder(release).rpartition("_")[0]
        found = [pod for pod in release.pods("manager") if pod["metadata"]["name"] == name]
        with suppress(Failed):  # it may be about to be started again
            return release.process(found[0]) if found else 0
        return 0

    return eventually(pid, 90, 0.5)


def _wait_until_all_is_well(release: Release) -> None:
    """Reports come, and the manager puts right what is wrong on the Node."""
    eventually(release.cluster.serves, 60, 0.5)
    before = release.reported_at()
    eventually(lambda: release.reported_at() > before, 120, 1.0)
    release.cluster.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", f"--patch={WRONG}")
    offered = "kubernetes.io/mid-memory"
    eventually(lambda: quantity.whole(release.allocatable()[offered]) > 7, LENDING_SECONDS, 1.0)


@contextmanager
def _without(release: Release, name: str) -> Iterator[None]:
    """Killed, and not started again for a while."""
    release.cluster.hold(name)
    try:
        release.cluster.kill(name)
        yield
    finally:
        release.cluster.release(name)


def test_the_other_manager_takes_over_from_a_leader_that_is_killed(lending: Release) -> None:
    leader, before = _leader(lending), _holder(lending)
    lending.cluster.signal(leader, signal.SIGKILL)
    eventually(lambda: _holder(lending) not in ("", before), 90, 0.5)
    _wait_until_all_is_well(lending)


def test_a_leader_that_hangs_loses_the_lease_and_writes_nothing_when_it_wakes(lending: Release) -> None:
    leader, before = _leader(lending), _holder(lending)
    lending.cluster.signal(leader, signal.SIGSTOP)
    try:
        eventually(lambda: _holder(lending) not in ("", before), 90, 0.5)
    finally:
        lending.cluster.signal(leader, signal.SIGCONT)
    _wait_until_all_is_well(lending)
    assert _holder(lending) != before


def test_without_the_api_server_all_keep_running_and_go_on_when_it_is_back(lending: Release) -> None:
    restarts = lending.restarts()
    with _without(lending, "kube-apiserver"):
        time.sleep(OUTAGE_SECONDS)
    _wait_until_all_is_well(lending)
    assert lending.restarts() == restarts


def test_while_etcd_hangs_all_keep_running_and_go_on_when_it_answers(lending: Release) -> None:
    restarts = lending.restarts()
    lending.cluster.signal("etcd", signal.SIGSTOP)
    time.sleep(OUTAGE_SECONDS)
    lending.cluster.signal("etcd", signal.SIGCONT)
    _wait_until_all_is_well(lending)
    assert lending.restarts() == restarts


def test_watches_whose_history_was_compacted_are_begun_anew(lending: Release) -> None:
    script = """
import json, urllib.request
def ask(path, **body):
    call = urllib.request.Request("http://127.0.0.1:2379/v3" + path, json.dumps(body).encode())
    return json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call))
revision = ask("/maintenance/status")["header"]["revision"]
ask("/kv/compaction", revision=revision, physical=True)
"""
    restarts = lending.restarts()
    with _without(lending, "kube-apiserver"):
        lending.cluster.at_api_server(sys.executable, "-c", script)
    _wait_until_all_is_well(lending)
    assert lending.restarts() == restarts


def _audited(release: Release) -> list[dict[str, Any]]:
    """What the managers have written, in the order in which it was done."""
    user = f"system:serviceaccount:{NAMESPACE}:headroom-manager"
    text = (release.cluster.layout.logs / "audit.log").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    ours = [event for event in events if event["user"].get("username") == user]
    done = [event for event in ours if event.get("responseStatus", {}).get("code") in (200, 201)]
    return sorted(done, key=lambda event: event["requestReceivedTimestamp"])


def test_only_who_holds_the_lease_has_written_to_the_node_through_all_of_this(lending: Release) -> None:
    holder, writers, strangers = "", set(), []
    for event in _audited(lending):
        kind, source = event["objectRef"]["resource"], event["sourceIPs"][0]
        if kind == "leases" and event["objectRef"]["name"] == names.MANAGER_LEASE:
            holder = source
        elif kind == "nodes":
            writers.add(source)
            strangers += [event] if source != holder else []
    assert len(writers) > 1, "nobody took over"
    assert not strangers
