"""What kube-scheduler 1.36 refuses and the predicates may not know, in its words: what it costs in a simulated day."""

import pytest

from manager.autoscaler.scale_up import disagreements
from shared.api.core import Node, Pod
from tests.unit.manager.test_disagreements import DAY, TYPE, Town, refused_on

GANG = "pod group is unschedulable, waiting for minCount pods from a gang"
REFUSALS = (
    "node(s) exceed max volume count",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) had no available disk",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    "cannot allocate all claims",
    "resourceclaim not available on the node",
    "node(s) didn't match Pod's required features",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
)


class GangTown(Town):
    """Its scheduler counts no nodes in its answers about pods of a gang."""

    def message(self, nodes: int, why: str) -> str:
        return GANG


@pytest.mark.parametrize("message", REFUSALS)
def test_a_refusal_costs_one_node_in_a_day_and_none_after_a_restart(message: str) -> None:
    town = Town(refused_on("small", message=message), max_sizes={"small": 9})
    for number in range(3):
        town.add_pod(f"p{number}")
    town.pass_time(300)
    assert town.bought == {"small": 1}
    assert message in town.last.disagreements[0].message
    town.restart()
    town.pass_time(DAY - 300 - 60, 1800)
    assert town.bought == {"small": 1}
    assert not any(name.startswith("small") for name in town.nodes), "the useless node is deleted"


def test_an_answer_that_counts_no_nodes_costs_one_node_once_the_scheduler_has_bound_others() -> None:
    town = GangTown(max_sizes={"small": 9, "large": 0})
    town.refuses = lambda pod, _: GANG if pod.metadata.name == "p" else ""
    town.add_node("large")
    town.add_pod("p")
    for number in range(4):
        town.pass_time(300)
        town.add_pod(f"bound-{number}")
    town.pass_time(300)
    assert town.last.disagreements[0].plugin == "GangScheduling"
    assert town.bought == {"small": 1}
    town.pass_time(DAY - 1500, 900)
    assert town.bought == {"small": 1}


def test_a_scheduler_that_answers_for_the_wrong_pods_costs_a_bounded_number_of_nodes() -> None:
    """It refuses pods that fit, and binds others meanwhile, so that it is not taken for one that refuses everything."""
    most = 12
    town = Town(max_sizes={"small": 30, "large": 30})

    def mistaken(pod: Pod, node: Node) -> str:
        return "Insufficient cpu" if pod.metadata.name.startswith("wronged") else ""

    town.refuses = mistaken
    for number in range(most):
        town.add_pod(f"wronged-{number}", cpu=f"{1000 + number}m")
        town.add_pod(f"bound-{number}", cpu="500m")
        town.pass_time(300, 30)
    town.pass_time(1200, 30)
    assert sorted(town.pending()) == sorted(f"wronged-{number}" for number in range(most))
    useless = sum(town.bought.values()) - len({pod.spec.node_name for pod in town.pods.values()} - {""})
    assert useless <= disagreements.MOST_OPTIONS_PER_PODS * most
    before = dict(town.bought)
    town.pass_time(0.5 * DAY, 900)
    assert town.bought == before, "nothing is bought a second time"
    assert {(node.metadata.labels or {})[TYPE] for node in town.nodes.values()} <= {"small", "large"}
