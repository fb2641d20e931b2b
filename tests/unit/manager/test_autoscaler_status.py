"""The status ConfigMap's text."""

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cluster_state.state import (
    AcceptableRange,
    ClusterState,
    GroupBackoff,
    GroupStatus,
    Readiness,
    ScaleUpRequest,
)
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import status
from manager.autoscaler.settings.modes import Mode
from shared.errors import InvalidInput
from tests.unit.manager.objects import NOW

POOL = GroupStatus(
    Group("pool", 1, 5, 3),
    Mode.ENFORCE,
    Readiness(ready=1, unready=1, not_started=1, being_deleted=1, unregistered=2, long_unregistered=1),
    AcceptableRange(3, 3, 3),
    healthy=True,
)
GROWING = replace(POOL, request=ScaleUpRequest("pool", 2, NOW, NOW + 900))
STUCK = replace(POOL, backoff=GroupBackoff("none left", NOW, 300, NOW + 300, "STOCKOUT"))


def a_round(group: GroupStatus = POOL, *, healthy: bool = True, at: float = NOW, held: str = "") -> Iteration:
    state = ClusterState({"pool": group}, readiness=group.readiness, healthy=healthy)
    return Iteration(1, at, state, blocked_reason=held)


def test_the_text_has_cluster_autoscalers_fields() -> None:
    text = status.document(status.autoscaler_status(a_round()))
    counts = {
        "registered": {
            "total": 4,
            "ready": 1,
            "notStarted": 1,
            "suspended": 0,
            "beingDeleted": 1,
            "unready": {"total": 1, "resourceUnready": 0},
        },
        "longUnregistered": 1,
        "unregistered": 2,
    }
    since = {"lastProbeTime": "2023-11-14T22:13:20Z", "lastTransitionTime": "2023-11-14T22:13:20Z"}
    assert yaml.safe_load(text) == {
        "time": "2023-11-14 22:13:20 +0000 UTC",
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": {"status": "Healthy", "nodeCounts": counts, **since},
            "scaleUp": {"status": "NoActivity", **since},
            "scaleDown": {"status": "NoCandidates", "candidates": 0, **since},
        },
        "nodeGroups": [
            {
                "name": "pool",
                "health": {
                    "status": "Healthy",
                    "nodeCounts": counts,
                    "cloudProviderTarget": 3,
                    "minSize": 1,
                    "maxSize": 5,
                    **since,
                },
                "scaleUp": {"status": "NoActivity", **since},
                "scaleDown": {"status": "NoCandidates", "candidates": 0, **since},
            }
        ],
    }


@pytest.mark.parametrize(
    ("group", "told"),
    [
        (POOL, "NoActivity"),
        (GROWING, "InProgress"),
        (replace(STUCK, upcoming=1), "InProgress"),
        (STUCK, "Backoff"),
        (replace(STUCK, healthy=False), "Unhealthy"),
    ],
)
def test_a_group_is_growing_or_says_why_it_cannot(group: GroupStatus, told: str) -> None:
    (entry,) = status.autoscaler_status(a_round(group)).node_groups
    assert entry.scale_up.status == told
    assert (entry.scale_up.backoff_info is not None) == (told == "Backoff")


def test_a_backoff_says_why_in_at_most_five_hundred_characters() -> None:
    long = replace(STUCK, backoff=GroupBackoff("x" * 600, NOW, 300, NOW + 300, "STOCKOUT"))
    (entry,) = status.autoscaler_status(a_round(long)).node_groups
    assert entry.scale_up.backoff_info is not None
    assert entry.scale_up.backoff_info.error_code == "STOCKOUT"
    assert entry.scale_up.backoff_info.error_message == "x" * 489 + "<truncated>"


def test_what_stays_as_it_is_keeps_its_time_over_a_restart_and_what_changes_does_not() -> None:
    first = status.autoscaler_status(a_round())
    restarted = status.read_status(status.document(first))
    assert restarted == first
    later = status.autoscaler_status(a_round(GROWING, healthy=False, at=NOW + 60), restarted)
    assert later.cluster_wide is not None
    changed, before = "2023-11-14T22:14:20Z", "2023-11-14T22:13:20Z"
    assert later.cluster_wide.health.last_transition_time == changed
    assert later.cluster_wide.scale_up.last_transition_time == changed
    assert later.node_groups[0].health.last_transition_time == before
    assert later.node_groups[0].health.last_probe_time == changed
    assert later.node_groups[0].scale_up.last_transition_time == changed


def test_what_stands_in_the_way_is_the_message() -> None:
    made = a_round(held="not all has been seen yet")
    refused = replace(made, state=replace(made.state, refused={"odd": "its target is negative"}))
    assert status.autoscaler_status(refused).message == (
        "not all has been seen yet; node group odd is skipped: its target is negative"
    )


def test_before_the_first_round_it_is_initializing() -> None:
    made = Iteration(1, NOW, blocked_reason="not all has been seen yet: pods")
    assert yaml.safe_load(status.document(status.autoscaler_status(made))) == {
        "time": "2023-11-14 22:13:20 +0000 UTC",
        "autoscalerStatus": "Initializing",
        "message": "not all has been seen yet: pods",
    }


def test_a_restart_that_has_seen_nothing_yet_leaves_what_stands_there() -> None:
    first = status.autoscaler_status(a_round())
    unseen = status.autoscaler_status(Iteration(1, NOW + 60, blocked_reason="not all has been seen yet: pods"), first)
    assert (unseen.autoscaler_status, unseen.node_groups) == ("Initializing", first.node_groups)
    later = status.autoscaler_status(a_round(at=NOW + 90), unseen)
    assert (later.autoscaler_status, later.message) == ("Running", "")
    assert later.node_groups[0].health.last_transition_time == first.node_groups[0].health.last_transition_time


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "nodeGroups: 3", "clusterWide: {health: {}}", "\x00", "&a [*a]", "!!bool x"]
)
def test_a_text_of_somebody_else_is_as_good_as_none(text: str) -> None:
    assert status.read_status(text) is None


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    found = status.read_status(text)
    assert found is None or status.autoscaler_status(a_round(), found).autoscaler_status == "Running"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "2023-11-14 22:13:20.5 +0000 UTC"), (0.000250, "2023-11-14 22:13:20.00025 +0000 UTC")],
)
def test_instants_are_written_as_go_does(seconds: float, text: str) -> None:
    assert status.go_time(NOW + seconds) == text


@pytest.mark.parametrize("name", ["books", "headroom-simulated-cloud", "slo-controller-config"])
def test_it_does_not_take_the_place_of_something_else(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"--status-config-map-name.*{name}"):
        status.checked_name(name, others=("books",))
    assert status.checked_name("own-status", others=("books",)) == "own-status"
