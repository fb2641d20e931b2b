"""Which answers of a scheduler count: it may be slow, new, one of several, or about to bind the pod."""

from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, Pod
from tests.unit.manager.test_disagreements import DAY, TYPE, VOLUMES, Town, nothing_refused, refused_on

METADATA_NAME = "kubernetes.io/metadata.name"
OLD_TAINT = "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"  # as before Kubernetes 1.35


def disagreements_of(town: Town) -> list[str]:
    return [str(each) for iteration in town.seen for each in iteration.disagreements]


def refused_for(town: Town, seconds: float, message: str) -> None:
    """The scheduler refuses every pod for that time."""
    end = town.now + seconds
    town.refuses = lambda _, __: message if town.now < end else ""


def town_with_room(**pod: Any) -> Town:
    """A pod is refused on a full node, which is then emptied without the scheduler's looking at the pod again."""
    town = Town(max_sizes={"small": 0}, minds_nodes=False, flush_seconds=DAY)
    town.add_node("small", pods=4)
    town.add_pod("waits", **pod)
    town.pass_time(60)
    for name in [name for name in town.pods if name != "waits"]:
        del town.pods[name]
    town.pass_time(20)
    return town


def test_an_answer_that_is_seen_late_counts() -> None:
    """No other pod comes, so that silence would not count."""
    town = Town()
    full = town.add_node("small", pods=2)
    town.refuses = lambda _, node: VOLUMES if node.metadata.name == full else ""
    town.add_pod("p")
    town.pass_time(10)
    town.now += 5
    town.pass_time(90)
    assert (town.pending(), town.bought) == ([], {"small": 1})


def test_an_answer_from_before_the_room_came_is_no_refusal() -> None:
    """The scheduler has refused the pod for want of room, and ends before it sees that there is some."""
    town = Town(max_sizes={"small": 0})
    town.add_node("small", pods=4)
    town.add_pod("p")
    town.pass_time(10)
    town.is_up = False
    for name in ("of-small-0-0", "of-small-0-1"):
        del town.pods[name]
    town.cloud.listed[0] = Group("small", 0, 9, 0)
    town.now += 3
    town.pass_time(1800, 30)
    assert (town.bought, disagreements_of(town)) == ({}, [])


def test_a_pod_that_is_bound_meanwhile_makes_no_disagreement() -> None:
    town = Town(flush_seconds=10)
    town.add_node("small")
    town.add_pod("p")
    refused_for(town, 30, VOLUMES)
    town.pass_time(600)
    assert (town.pending(), town.bought, disagreements_of(town)) == ([], {}, [])


def test_the_pod_that_is_left_when_an_equal_one_is_bound_gets_a_node() -> None:
    town = Town()
    town.add_node("small", pods=3)
    town.add_pod("p")
    town.add_pod("q")
    town.pass_time(600)
    assert (town.pending(), town.bought, disagreements_of(town)) == ([], {"small": 1}, [])


class SlowTown(Town):
    """Once it is slow, its scheduler takes one pod in ten seconds, the one that has waited longest."""

    is_slow = False

    def _look(self) -> None:
        if not self.is_slow:
            return super()._look()
        for name in sorted(self.pending(), key=lambda each: self.looked[each][0])[:1]:
            self._schedule(name)
        return None


def test_a_scheduler_that_is_slow_has_not_refused_the_pods_that_wait_for_it() -> None:
    town = SlowTown(max_sizes={"small": 0, "large": 0}, flush_seconds=0)
    for _ in range(15):
        town.add_node("small", pods=4)
    for number in range(60):
        town.add_pod(f"p{number}")
    town.pass_time(20)
    for name in set(town.pods) - set(town.pending()):
        del town.pods[name]
    town.cloud.listed[1] = Group("large", 0, 9, 0)
    town.is_slow = True
    town.pass_time(900)
    assert (town.pending(), town.bought, disagreements_of(town)) == ([], {}, [])


@pytest.mark.parametrize(
    ("waiting", "passing", "behind"),
    [
        ({}, {"priority": 1000}, {}),
        ({"schedulerName": "batch"}, {}, {"schedulerName": "batch"}),
        ({"schedulerName": "batch"}, {"schedulerName": "another"}, {"schedulerName": "batch", "priority": -1}),
    ],
    ids=["higher priority", "default scheduler", "another scheduler"],
)
def test_silence_counts_once_the_scheduler_has_passed_the_pod(
    waiting: dict[str, Any], passing: dict[str, Any], behind: dict[str, Any]
) -> None:
    town = town_with_room(**waiting)
    for number in range(3):
        town.add_pod(f"passing-{number}", cpu="500m", **passing)
        town.pass_time(400)
    assert (town.pending(), disagreements_of(town)) == (["waits"], [])
    town.add_pod("behind", cpu="500m", **behind)
    town.pass_time(20)
    assert town.last.disagreements[0].pods == ("ns/waits",)


def replace_scheduler(town: Town) -> None:
    """By one that begins with an empty queue, some time after the one before has ended."""
    town.is_up = False
    town.pass_time(60)
    town.is_up = True
    town.looked.clear()


def test_a_new_scheduler_that_refuses_the_same_costs_nothing() -> None:
    town = Town(refused_on("small"), max_sizes={"small": 9})
    town.add_pod("p")
    town.pass_time(300)
    for _ in range(3):
        replace_scheduler(town)
        town.pass_time(0.1 * DAY, 300)
    assert (town.pending(), town.bought) == (["p"], {"small": 1})


def test_a_new_scheduler_that_binds_the_pod_ends_the_refusal() -> None:
    town = Town(refused_on("small"), max_sizes={"small": 9})
    town.add_pod("p")
    town.pass_time(300)
    town.refuses = nothing_refused
    replace_scheduler(town)
    town.pass_time(60)
    for number in range(4):
        town.add_pod(f"like-p-{number}")
    town.pass_time(300)
    assert (town.pending(), town.bought) == ([], {"small": 2})


def test_equal_pods_of_two_schedulers_are_not_refused_together() -> None:
    town = Town(max_sizes={"small": 9})
    town.refuses = lambda pod, _: VOLUMES if pod.spec.scheduler_name == "batch" else ""
    town.add_pod("theirs", schedulerName="batch")
    town.pass_time(300)
    assert town.bought == {"small": 1}
    for number in range(8):
        town.add_pod(f"p{number}")
    town.pass_time(300)
    assert (town.pending(), town.bought) == (["theirs"], {"small": 2})


def nominate(town: Town, name: str, node: str) -> None:
    pod = town.pods[name]
    status = msgspec.structs.replace(pod.status, nominated_node_name=node)
    town.pods[name] = msgspec.structs.replace(pod, status=status)


def test_a_nominated_pod_waits_for_the_pods_that_it_preempts() -> None:
    town = Town(lambda pod, _: "Insufficient cpu" if pod.metadata.name == "p" else "")
    node = town.add_node("small", pods=4)
    town.add_pod("p", priority=1000)
    nominate(town, "p", node)
    town.pass_time(1800)
    assert (town.bought, disagreements_of(town)) == ({}, [])


@pytest.mark.parametrize(
    "message",
    ["resource claim ns/gpu is in the process of being allocated", "node(s) Mid memory has shrunk", OLD_TAINT],
)
def test_a_refusal_that_ends_by_itself_makes_no_disagreement(message: str) -> None:
    town = Town(flush_seconds=10)
    town.add_node("small")
    town.add_pod("p")
    refused_for(town, 600, message)
    town.pass_time(900)
    assert (town.pending(), town.bought, disagreements_of(town)) == ([], {}, [])


def test_a_node_that_is_never_ready_hides_no_refusal_of_the_others() -> None:
    town = Town(max_sizes={"small": 9, "dead": 0})
    dead = town.nodes[town.add_node("dead")]
    not_ready = msgspec.structs.replace((dead.status.conditions or ())[0], status="Unknown")
    status = msgspec.structs.replace(dead.status, conditions=(not_ready,))
    town.nodes[dead.metadata.name] = msgspec.structs.replace(dead, status=status)
    refusals = {"small": VOLUMES, "dead": OLD_TAINT}
    town.refuses = lambda _, node: refusals[(node.metadata.labels or {})[TYPE]]
    town.add_pod("p")
    town.pass_time(300)
    told = town.last.disagreements[0]
    assert (told.groups, told.plugin) == (("small",), "NodeVolumeLimits")
    assert town.bought == {"small": 1}


def test_a_gang_that_is_refused_is_no_other_one_in_its_next_run() -> None:
    town = Town(refused_on("small"), max_sizes={"small": 9})
    for run in range(3):
        for number in range(2):
            group: dict[str, Any] = {"podGroupName": f"run-{run}"}
            town.add_pod(f"run-{run}-{number}", schedulingGroup=group)
        town.pass_time(900, 30)
        for number in range(2):
            del town.pods[f"run-{run}-{number}"]
    assert town.bought == {"small": 1}


class NamespaceTown(Town):
    """Its scheduler takes a namespaceSelector with NotIn to match every namespace (kubernetes#141526)."""

    def surroundings(self) -> ReferencedObjects:
        return ReferencedObjects({"ns": {METADATA_NAME: "ns"}})

    def apart(self, pod: Pod, _: Node) -> str:
        is_taken = any(each.metadata.labels and each.spec.node_name for each in self.pods.values())
        return "node(s) didn't match pod anti-affinity rules" if is_taken else ""


def test_a_namespace_selector_that_kube_scheduler_misreads_costs_one_node() -> None:
    town = NamespaceTown(max_sizes={"small": 9})
    town.refuses = town.apart
    town.add_node("small")
    elsewhere = {"matchExpressions": [{"key": METADATA_NAME, "operator": "NotIn", "values": ["ns"]}]}
    term = {"topologyKey": TYPE, "labelSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": elsewhere}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(6):
        town.add_pod(f"p{number}", labels={"app": "web"}, affinity=apart)
    town.pass_time(1800, 30)
    assert (len(town.pending()), town.bought) == (5, {"small": 1})
    assert town.last.disagreements[0].plugin == "InterPodAffinity"
    town.restart()
    town.pass_time(0.5 * DAY, 900)
    assert town.bought == {"small": 1}
