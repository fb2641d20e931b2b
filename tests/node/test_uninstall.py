"""What an uninstall leaves behind on API server and node, by what the values say of pods and of what was learnt."""

import pytest

from deploy.local.apiserver import patching
from shared import names
from tests.node.conftest import LENDING_SECONDS
from tests.node.layout import NODE
from tests.node.pods import Pods
from tests.node.release import DEFINITIONS, Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("a kubelet keeps what a Node shows, and its disk what an agent has learnt")

STATE = "headroom"  # below /var/lib
HELD = {"cpu": "50m", "memory": "16Mi"}


def _var_lib(release: Release) -> list[str]:
    """What is there on all nodes."""
    cluster = release.cluster
    return [name for node in cluster.nodes for name in cluster.inside("ls", "/var/lib", node=node).split()]


def test_an_uninstall_keeps_what_pods_hold_and_what_was_learnt_and_a_new_release_goes_on_from_there(
    lending: Release, pods: Pods
) -> None:
    cluster = lending.cluster
    learnt = eventually(lambda: (found := lending.samples()) >= 10 and found, LENDING_SECONDS, 1.0)
    before = pods.run("worker", tier="koord-mid", node=NODE, requests=HELD)
    lending.uninstall()
    held = {f"resource {name}" for name in (names.MID_CPU, names.MID_MEMORY)}
    assert lending.remains() == held | DEFINITIONS
    assert lending.mid_cpu() == 50
    assert STATE in _var_lib(lending)
    cluster.kill("kubelet")
    lending.wait_for_heartbeats(3)
    assert pods.get("worker")["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    pods.delete()
    lending.command("cleanup")
    assert lending.remains() == DEFINITIONS

    lending.install()
    eventually(lambda: lending.mid_cpu() > 0, LENDING_SECONDS, 1.0)
    assert lending.samples() >= learnt


def test_an_uninstall_that_drains_and_removes_leaves_nothing_on_api_server_and_node(
    lending: Release, pods: Pods
) -> None:
    gone = {"cleanup": {"pods": "drain", "state": "remove"}, "crds": {"keep": False}}
    release = Release(lending.cluster, patching.merge(quick_values(), gone))
    release.install()
    eventually(lambda: release.mid_cpu() >= 50, LENDING_SECONDS, 1.0)
    pods.run("worker", tier="koord-mid", node=NODE, requests=HELD)
    release.uninstall()
    assert not pods.is_there("worker")
    assert release.remains() == set()
    assert STATE not in _var_lib(release)
