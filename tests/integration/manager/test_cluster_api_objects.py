"""The Cluster API provider against an API server, where the test says what Cluster API does.

It is of an older version, and in a group of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Later, Refused, Unavailable
from shared.kube.client import Client
from shared.kube.config import Connection
from tests.integration.manager.cluster_api_fleet import GROUP, MACHINES, MARK, MAX, MIN, POOLS, SETS, Fleet
from tests.support.apiserver import ApiServer, rule


@pytest.fixture
def fleet(server: ApiServer, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(server, tmp_path / "cloud.yaml")
    yield fleet
    fleet.close()


def node(name: str) -> NodeRef:
    return NodeRef(f"node-{name}", f"capi:///{name}")


def test_a_group_grows_from_the_number_that_was_seen_and_from_no_other(fleet: Fleet) -> None:
    fleet.scale(4)
    with pytest.raises(Later, match="had 3 replicas, but now has 4"):
        fleet.guard.increase(fleet.web, 1)
    assert fleet.replicas() == 4
    fleet.guard.observe()
    fleet.guard.increase(fleet.web, 1)
    assert fleet.replicas() == 5


def test_a_write_whose_answer_is_lost_counts_once(fleet: Fleet) -> None:
    fleet.server.fault(rule("truncate", "/web/scale", method="PATCH", times=1))
    fleet.guard.increase(fleet.web, 1)
    assert fleet.server.faults_left() == 0
    assert fleet.replicas() == 4


def test_writes_that_come_too_late_are_tried_again_and_given_up_in_the_end(fleet: Fleet) -> None:
    conflict = rule("status", "/web/scale", method="PATCH", times=7, status=409)
    fleet.server.fault(conflict)
    fleet.guard.increase(fleet.web, 1)
    assert (fleet.server.faults_left(), fleet.replicas()) == (0, 4)
    fleet.server.fault(conflict | {"times": 0})
    with pytest.raises(Later, match=r"another client keeps changing it: .*409"):
        fleet.guard.increase(fleet.web, 1)
    fleet.server.fault()
    assert fleet.replicas() == 4


def test_what_people_have_changed_meanwhile_holds(fleet: Fleet) -> None:
    fleet.annotate(MAX, "3")
    with pytest.raises(Refused, match="4 replicas are above its maximum of 3"):
        fleet.guard.increase(fleet.web, 1)
    fleet.annotate(f"{GROUP}/paused", "")
    with pytest.raises(Refused, match="paused"):
        fleet.guard.increase(fleet.web, 1)
    for key in (MIN, MAX, f"{GROUP}/paused"):
        fleet.annotate(key, None)
    with pytest.raises(Refused, match="lost its annotations"):
        fleet.guard.increase(fleet.web, 1)
    assert fleet.replicas() == 3
    assert not fleet.guard.observe().groups


def test_a_group_where_something_else_undoes_each_change_is_left_alone_for_a_while(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.guard.increase(fleet.web, 1)
    fleet.scale(3)
    fleet.guard.observe()
    assert "its replicas were changed to 4, but another client changed them to 3" in caplog.text
    with pytest.raises(Refused, match=r"reverted the last change; retried in 600 s"):
        fleet.guard.increase(fleet.web, 1)
    with pytest.raises(Refused, match="reverted the last change"):
        fleet.guard.delete_nodes(fleet.web, [node("a")])
    assert (fleet.marked(), fleet.replicas()) == ([], 3)
    fleet.clock.advance(600)
    fleet.guard.observe()
    fleet.guard.increase(fleet.web, 1)
    assert fleet.replicas() == 4


def test_a_change_by_others_much_later_holds_nothing_back(fleet: Fleet) -> None:
    fleet.guard.increase(fleet.web, 1)
    fleet.clock.advance(301)
    fleet.guard.observe()
    fleet.scale(3)
    fleet.guard.observe()
    fleet.guard.increase(fleet.web, 1)
    assert fleet.replicas() == 4


def test_named_machines_are_marked_before_the_replicas_go_down_at_once(fleet: Fleet) -> None:
    before = fleet.deployment()["metadata"]["generation"]
    fleet.guard.delete_nodes(fleet.web, [node("a"), node("b")])
    assert (fleet.marked(), fleet.replicas()) == (["a", "b"], 1)
    assert fleet.deployment()["metadata"]["generation"] == before + 1
    leaving = {"a": "Deleting", "b": "Deleting", "c": "Running"}
    assert fleet.states() == leaving  # Cluster API has not done anything yet, and the marks stay
    again = fleet.begin()
    assert fleet.states(again) == leaving
    with pytest.raises(Refused, match="is already being deleted"):
        again.delete_nodes(fleet.web, [node("a")])
    with pytest.raises(Refused, match="minimum of 1"):
        again.delete_nodes(fleet.web, [node("c")])
    assert (fleet.marked(), fleet.replicas()) == (["a", "b"], 1)


def test_marks_are_taken_back_when_the_replicas_stay(fleet: Fleet) -> None:
    fleet.server.fault(rule("status", "/web/scale", method="PATCH", times=1, status=403))
    with pytest.raises(Refused, match="3 replicas could not become 2"):
        fleet.guard.delete_nodes(fleet.web, [node("a")])
    assert (fleet.marked(), fleet.replicas()) == ([], 3)


def test_marks_stay_in_doubt_until_it_is_seen_that_nothing_has_followed(fleet: Fleet) -> None:
    guard = fleet.begin(fleet.client.single_attempt())
    guard.observe()
    fleet.server.fault(rule("status", "/web/scale", method="PATCH", times=1, status=500))
    with pytest.raises(Unavailable):
        guard.delete_nodes(fleet.web, [node("a")])
    assert fleet.marked() == ["a"]
    assert guard.is_in_doubt(fleet.web)
    guard.observe()
    assert (fleet.marked(), fleet.replicas()) == ([], 3)


def test_of_several_machines_all_are_marked_or_none(fleet: Fleet) -> None:
    fleet.server.fault(rule("status", "/machines/b", method="PATCH", times=1, status=403))
    with pytest.raises(Refused, match="Machine b could not be marked for deletion"):
        fleet.guard.delete_nodes(fleet.web, [node("a"), node("b")])
    assert (fleet.marked(), fleet.replicas()) == ([], 3)


def test_a_machine_that_has_been_made_since_is_not_taken_away_with_the_target(fleet: Fleet) -> None:
    fleet.scale(5)
    fleet.client.patch(SETS, "web-1", {"spec": {"replicas": 5}}, fleet.namespace)
    fleet.guard.observe()
    fleet.add_machine("d")
    with pytest.raises(Refused, match="5 - 2 is below its 4 machines"):
        fleet.guard.decrease_target(fleet.web, 2)
    fleet.guard.decrease_target(fleet.web, 1)
    assert fleet.replicas() == 4


def test_a_pool_without_machines_grows_and_none_of_its_nodes_can_be_named(fleet: Fleet) -> None:
    fleet.add("MachinePool", "pool", {MAX: "3"}, replicas=1, providerIDList=["capi:///p"])
    pool = f"MachinePool/{fleet.namespace}/pool"
    observed = fleet.guard.observe([node("p")])
    assert observed.group_of_node == {"node-p": pool}
    fleet.guard.increase(pool, 1)
    with pytest.raises(Refused, match="has no Machine"):
        fleet.guard.delete_nodes(pool, [node("p")])
    assert fleet.client.get(POOLS, "pool", fleet.namespace)["spec"]["replicas"] == 2


def test_a_group_with_annotations_that_lie_is_refused_and_the_others_go_on(fleet: Fleet) -> None:
    fleet.add("MachineDeployment", "liar", {MIN: "7", MAX: "5"})
    observed = fleet.guard.observe()
    refused = observed.refused[f"MachineDeployment/{fleet.namespace}/liar"]
    assert isinstance(refused, InvalidAnswer)
    assert (refused.field, refused.value) == (MAX, "5")
    assert list(observed.groups) == [fleet.web]
    fleet.guard.increase(fleet.web, 1)


def test_an_answer_that_cannot_be_read_is_no_empty_group(fleet: Fleet) -> None:
    fleet.client.patch(MACHINES, "b", {"spec": {"providerID": 7}}, fleet.namespace)
    with pytest.raises(Unavailable, match=f"machines.{GROUP} {fleet.namespace}/b"):
        fleet.guard.observe()


def test_without_cluster_api_nothing_is_observed(fleet: Fleet) -> None:
    with pytest.raises(Unavailable, match=r"does not serve nowhere\.example\.com: is Cluster API installed"):
        fleet.begin(api_group="nowhere.example.com").observe()


def test_a_management_cluster_elsewhere_is_reached_by_its_kubeconfig(fleet: Fleet) -> None:
    nowhere = Client(Connection("http://127.0.0.1:1"), "test")
    guard = fleet.begin(nowhere, kubeconfig=str(fleet.server.kubeconfig))
    assert set(fleet.states(guard)) == {"a", "b", "c"}
    guard.increase(fleet.web, 1)
    assert fleet.replicas() == 4


def test_who_only_reads_writes_nothing(fleet: Fleet) -> None:
    patch = {"metadata": {"annotations": {MARK: "headroom of a process that has died"}}}
    fleet.client.patch(MACHINES, "a", patch, fleet.namespace)
    reader = fleet.begin(writes=False)
    reader.observe()
    with pytest.raises(Refused, match="only read"):
        reader.increase(fleet.web, 1)
    with pytest.raises(Refused, match="only read"):
        reader.delete_nodes(fleet.web, [node("b")])
    assert (fleet.marked(), fleet.replicas()) == (["a"], 3)
