"""The scenarios of node auto-provisioning, from a pod that fits nowhere to its running on a node made for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.town import BOUND_SECONDS, Town, own_taints
from tests.support import eventually
from tests.support.apiserver import ApiServer, started

ours = pytest.mark.own_decision("the autoscaler decides, whichever API server has pods and nodes")

# A real server is asked to make a node and to delete it, once.
which_group = pytest.mark.embedded_only("which group a pod gets is for the manager alone to decide")

DELETED_SECONDS = 150.0  # a node that vanishes is waited for, for a while


@pytest.fixture(scope="module")
def server(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = started(cluster_kind, tmp_path_factory.mktemp("apiserver"))
    yield server
    server.close()


@pytest.fixture
def town(server: ApiServer, tmp_path: Path) -> Iterator[Town]:
    town = Town(server, tmp_path)
    yield town
    town.close()


def tolerating(value: str) -> dict[str, Any]:
    return {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]}


def full(town: Town) -> None:
    """Nothing more fits on the node that was there."""
    town.add_pod("filler", "1500m")
    town.running("filler")


def test_seed_nap_tc_001_a_pod_with_big_requirements_gets_a_big_node_without_labels_and_taints(town: Town) -> None:
    town.begin()
    town.add_pod("big", "12")
    node = town.running("big")["big"]
    assert town.machine_type(node).endswith("-16")
    assert town.labels(node) == {}
    assert not own_taints(node)
    assert len(town.created_groups()) == 1


@ours
@which_group
@pytest.mark.thorough
def test_seed_nap_tc_002_a_pod_with_a_selector_gets_a_node_with_these_labels(town: Town) -> None:
    town.begin()
    town.add_pod("picky", nodeSelector={"team": "a"})
    node = town.running("picky")["picky"]
    assert town.labels(node) == {"team": "a"}
    assert len(town.created_groups()) == 1
    assert eventually(lambda: town.said("picky", "TriggeredScaleUp"), BOUND_SECONDS)


@ours
@which_group
@pytest.mark.thorough
def test_seed_nap_tc_003_pods_with_incompatible_selectors_get_two_groups_eventually(town: Town) -> None:
    town.begin()
    town.add_pod("one", nodeSelector={"team": "a"})
    town.add_pod("two", nodeSelector={"team": "b"})
    placed = town.running("one", "two")
    assert [town.labels(placed[name]) for name in ("one", "two")] == [{"team": "a"}, {"team": "b"}]
    assert len(town.created_groups()) == 2


@ours
@which_group
def test_seed_nap_tc_004_pods_with_different_compatible_selectors_share_a_group(town: Town) -> None:
    town.add_pod("one", nodeSelector={"team": "a"})
    town.add_pod("two", nodeSelector={"disk": "ssd"})
    town.begin()  # it sees both at once
    placed = town.running("one", "two")
    assert [town.labels(placed[name]) for name in ("one", "two")] == [{"team": "a", "disk": "ssd"}] * 2
    assert len(town.created_groups()) == 1


@ours
@which_group
@pytest.mark.thorough
def test_seed_nap_tc_005_a_pod_with_a_toleration_gets_a_node_with_taints_where_that_is_wanted(town: Town) -> None:
    town.begin(autoprovisioning_tolerations="always")
    full(town)
    town.add_pod("tolerant", "1", **tolerating("batch"))
    taints = own_taints(town.running("tolerant")["tolerant"])
    assert [(each.key, each.value, each.effect) for each in taints] == [("dedicated", "batch", "NoSchedule")]


@ours
@which_group
@pytest.mark.thorough
def test_seed_nap_tc_006_pods_with_different_tolerations_get_two_groups_eventually(town: Town) -> None:
    town.begin(autoprovisioning_tolerations="always")
    full(town)
    town.add_pod("one", "1", **tolerating("a"))
    town.add_pod("two", "1", **tolerating("b"))
    placed = town.running("one", "two")
    values = [[taint.value for taint in own_taints(placed[name])] for name in ("one", "two")]
    assert values == [["a"], ["b"]]
    assert len(town.created_groups()) == 2


def test_seed_nap_tc_007_a_group_that_was_made_goes_when_it_is_empty(town: Town) -> None:
    town.begin(scale_down_unneeded_time="500ms", scale_down_delay_after_add="0s", node_delete_delay_after_taint="200ms")
    town.add_pod("picky", nodeSelector={"team": "a"})
    town.running("picky")
    assert len(town.created_groups()) == 1
    town.delete_pod("picky")
    eventually(lambda: not town.created_groups(), DELETED_SECONDS, 0.2)
    assert len(town.nodes()) == 1


@ours
@which_group
@pytest.mark.thorough
def test_seed_nap_tc_008_no_group_is_created_without_quota(town: Town) -> None:
    town.begin(max_cpu="2")
    town.add_pod("unlucky", nodeSelector={"team": "a"})
    said = eventually(lambda: town.said("unlucky", "NotTriggerScaleUp"), BOUND_SECONDS)
    assert "cpu" in said[0]
    assert not town.created_groups()
    assert len(town.nodes()) == 1


@ours
@which_group
@pytest.mark.thorough
def test_seed_nap_tc_009_many_pods_of_many_kinds_all_run(town: Town) -> None:
    town.begin()
    pods = [f"p{number}" for number in range(120)]
    for number, name in enumerate(pods):
        town.add_pod(name, f"{250 * (1 + number % 8)}m", nodeSelector={"team": "abc"[number % 3]})
    placed = town.running(*pods)
    assert all(town.labels(placed[name]) == {"team": "abc"[number % 3]} for number, name in enumerate(pods))
    assert len({node.metadata.name for node in placed.values()}) < len(pods) / 2


@ours
@which_group
def test_a_group_that_is_not_listed_is_never_used(town: Town) -> None:
    town.begin({"name": "ready-made", "machine_type": "n1-standard-4"})
    town.add_pod("three-cores", "3")
    node = town.running("three-cores")["three-cores"]
    assert node.metadata.annotation("cluster-autoscaler.kwok.nodegroup/name") in town.created_groups()


@ours
@which_group
def test_a_listed_group_that_is_as_good_is_used_before_one_is_made(town: Town) -> None:
    town.begin({"name": "ready-made", "machine_type": "n1-highcpu-4"}, nodes="0:3:ready-made")
    town.add_pod("three-cores", "3")
    node = town.running("three-cores")["three-cores"]
    assert node.metadata.annotation("cluster-autoscaler.kwok.nodegroup/name") == "ready-made"
    assert not town.created_groups()
