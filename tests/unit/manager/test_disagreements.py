"""A scheduler that refuses what the predicates allow, over successive iterations: what is bought, and what is not."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from deploy import plan_table
from manager.autoscaler.cloudprovider.contract import Group, Instance, InstanceState, NodeRef
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_request, decode_registry, encode_registry
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.cluster_view import open_view
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.reporting import answers, events, group_rows
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.scale_down.removal_status import (
    DeletionsInProgress,
    GroupRules,
    ScaleDownHistory,
    ScaleDownRules,
)
from manager.autoscaler.scale_up import disagreements, scheduler_messages
from manager.autoscaler.scale_up.options import ScaleUpSettings
from manager.autoscaler.settings.estimates import StartTimes
from manager.autoscaler.settings.scale_down import Delays, RemovalRules
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import durations
from shared.api.core import Condition, Node, Pod
from shared.kube.events import ObjectRef
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW

TYPE = "node.kubernetes.io/instance-type"
PRICES = {"small": 1.0, "large": 2.0, "spare": 3.0}
STEP_SECONDS, DAY = 10.0, 86_400.0
STATUS = ObjectRef("v1", "ConfigMap", "status", "home", "")
VOLUMES = "node(s) exceed max volume count"
Refusal = Callable[[Pod, Node], str]


def made_node(name: str, group: str, at: float) -> Node:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": durations.timestamp(at)}
    raw = {
        "metadata": {"name": name, "creationTimestamp": durations.timestamp(at), "labels": {TYPE: group}},
        "spec": {"providerID": f"id:{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }
    return msgspec.convert(raw, Node)


def made_pod(
    name: str, at: float, on: str = "", cpu: str = "1", labels: dict[str, str] | None = None, **more: Any
) -> Pod:
    about = {"name": name, "namespace": "ns", "creationTimestamp": durations.timestamp(at), "labels": labels}
    raw = {
        "metadata": about,
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **more},
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(raw, Pod)


def nothing_refused(_: Pod, __: Node) -> str:
    return ""


class Cloud(MemoryCloud):
    def template(self, group: str) -> Node:
        return made_node("template", group, NOW)


@dataclass
class Town:
    """A scheduler with a rule of its own: `refuses` says why a pod may not run on a node. It looks at a pod when it is
    new, when a node has come, if it `minds_nodes`, and each `flush_seconds`. The manager keeps the registry alone.
    """

    refuses: Refusal = nothing_refused
    minds_nodes: bool = True
    flush_seconds: float = 300.0
    is_up: bool = True
    max_sizes: dict[str, int] = field(default_factory=lambda: {"small": 9, "large": 9})
    now: float = NOW
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    books: str = encode_registry(Registry())
    bought: Counter[str] = field(default_factory=Counter)
    seen: list[Iteration] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)
    looked: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cloud = Cloud(*(Group(name, 0, most, 0) for name, most in self.max_sizes.items()))
        owned = Ownership(dict.fromkeys(self.max_sizes))
        pricing = FilePricing(machine_types=PRICES)
        down = ScaleDownRules(
            group=GroupRules(scale_down_unneeded_time_seconds=600),
            delays=Delays(0, 0, 0),
            removal=RemovalRules(unremovable_node_recheck_timeout_seconds=600),
        )
        self.chosen = DecisionSettings(
            scale_up=ScaleUpSettings(owned, pricing=pricing),
            prices=pricing,
            scale_down_peaks=False,
            scale_down=down,
            start=StartTimes(120, 60),
        )
        self.restart()

    def restart(self) -> None:
        """Of the manager."""
        self.cache, self.history = AutoscalerCache(self.chosen), ScaleDownHistory()

    def surroundings(self) -> ReferencedObjects:
        """What pods refer to."""
        return ReferencedObjects()

    def add_node(self, group: str, pods: int = 0) -> str:
        name = f"{group}-{next(self.names)}"
        self.nodes[name] = made_node(name, group, self.now)
        self.cloud.members[group].append(Instance(f"id:{name}"))
        for number in range(pods):
            self.add_pod(f"of-{name}-{number}", on=name)
        return name

    def add_pod(self, name: str, on: str = "", **more: Any) -> None:
        pod = made_pod(name, self.now, on, **more)
        self.looked.pop(name, None)
        self.pods[name] = pod
        if on:
            self._say(pod, Condition("PodScheduled", "True"))

    def pending(self) -> list[str]:
        return sorted(name for name, pod in self.pods.items() if not pod.spec.node_name)

    def pass_time(self, seconds: float, step_seconds: float = STEP_SECONDS) -> None:
        end = self.now + seconds
        while self.now < end:
            self._iterate()
            self.now += step_seconds
            self._boot()
            if self.is_up:
                self._look()

    def _look(self) -> None:
        for name in self.pending():
            self._schedule(name)

    @property
    def last(self) -> Iteration:
        return self.seen[-1]

    def _iterate(self) -> None:
        guard = Guard(self.cloud, self.chosen.ownership)
        nodes, pods = tuple(self.nodes.values()), tuple(self.pods.values())
        objects = ClusterObjects(self.now, nodes=nodes, pods=pods, surroundings=self.surroundings())
        guard.observe([NodeRef.from_node(each) for each in objects.nodes])
        registry = decode_registry(self.books, "registry", self.now)
        view = open_view(
            objects,
            guard,
            registry,
            self.chosen,
            chance=random.Random(3),
            cache=self.cache,
            underway=DeletionsInProgress(self.history),
        )
        planned = iteration_plan.plan(view)
        if planned.iteration.scale_down is not None:
            self.history = planned.iteration.scale_down.memory
        guard.close()
        registry = planned.registry
        for action in planned.iteration.actions:
            if action.kind is ActionKind.INCREASE:
                change = Increase(action.group, action.from_size, action.to_size, action.max_size)
                registry = add_request(registry, change, self.now, 900)
                self.cloud.increase(action.group, change.nodes)
                self.bought[action.group] += change.nodes
            elif action.kind is ActionKind.REMOVE_NODES:
                for name in action.nodes:
                    self.cloud.delete_nodes(action.group, [NodeRef.from_node(self.nodes.pop(name))])
        self.books = encode_registry(registry)
        self.seen.append(planned.iteration)

    def _boot(self) -> None:
        for group, members in self.cloud.members.items():
            for each in [each for each in members if each.state is InstanceState.CREATING]:
                members.remove(each)
                self.add_node(group)

    def _schedule(self, name: str) -> None:
        there, pod = frozenset(self.nodes), self.pods[name]
        at, known = self.looked.get(name, (0.0, frozenset()))
        if self.now - at < self.flush_seconds and not (self.minds_nodes and there - known):
            return
        self.looked[name] = self.now, there
        reasons = Counter[str]()
        for node in self.nodes.values():
            held = [each for each in self.pods.values() if each.spec.node_name == node.metadata.name]
            if len(held) >= 4:
                reasons["Insufficient cpu"] += 1
            elif refused := self.refuses(pod, node):
                reasons[refused] += 1
            else:
                spec = msgspec.structs.replace(pod.spec, node_name=node.metadata.name)
                self._say(msgspec.structs.replace(pod, spec=spec), Condition("PodScheduled", "True"))
                return
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        self._say(pod, Condition("PodScheduled", "False", "Unschedulable", self.message(len(there), why)))

    def message(self, nodes: int, why: str) -> str:
        """What the scheduler says of a pod that no node takes."""
        return f"0/{nodes} nodes are available: {why}."

    def _say(self, pod: Pod, condition: Condition) -> None:
        before = (pod.status.conditions or (Condition(),))[0]
        at = before.last_transition_time
        if at is None or before.status != condition.status:
            at = durations.timestamp(self.now)
        found = msgspec.structs.replace(condition, last_transition_time=at)
        status = msgspec.structs.replace(pod.status, conditions=(found,))
        self.pods[pod.metadata.name] = msgspec.structs.replace(pod, status=status)


def refused_on(*groups: str, message: str = VOLUMES) -> Refusal:
    return lambda _, node: message if (node.metadata.labels or {})[TYPE] in groups else ""


def test_without_a_disagreement_a_pod_gets_the_one_node_that_it_needs() -> None:
    town = Town()
    town.add_pod("p")
    town.pass_time(1800)
    assert (town.pending(), town.bought) == ([], {"small": 1})
    assert not any(each.disagreements for each in town.seen)


@pytest.mark.parametrize("minds_nodes", [True, False])
def test_a_node_that_does_not_help_is_bought_once_and_then_another_kind(minds_nodes: bool) -> None:
    town = Town(refused_on("small"), minds_nodes)
    town.add_node("large", pods=4)  # for a pod that the scheduler binds, so that it is known to live
    town.add_pod("p")
    town.pass_time(400 if minds_nodes else 900)
    assert (town.pending(), town.bought) == ([], {"small": 1, "large": 1})
    told = next(each for iteration in town.seen for each in iteration.disagreements)
    assert (told.pods, told.groups, told.nodes) == (("ns/p",), ("small",), 2)
    assert VOLUMES in str(told) or not minds_nodes


def test_pods_that_no_node_helps_cost_one_node_of_each_kind_in_a_day() -> None:
    town = Town(refused_on("small", "large"))
    town.add_pod("p")
    town.pass_time(900)
    town.pass_time(0.9 * DAY, 240)
    assert town.bought == {"small": 1, "large": 1}
    assert not town.nodes, "the useless nodes are removed"
    (told,) = town.last.disagreements
    assert told.groups == ("large", "small")


def test_three_options_are_the_most_that_one_kind_of_pods_costs() -> None:
    kinds = [f"kind-{number}" for number in range(6)]
    town = Town(refused_on(*kinds), max_sizes=dict.fromkeys(kinds, 9))
    town.add_pod("p")
    town.pass_time(3600)
    assert (sum(town.bought.values()), max(town.bought.values())) == (disagreements.MOST_OPTIONS_PER_PODS, 1)
    assert town.last.skipped_pods == {"ns/p": disagreements.NOT_HELPED}


def test_a_restarted_manager_buys_nothing_a_second_time() -> None:
    town = Town(refused_on("small", "large"))
    town.add_pod("p")
    town.pass_time(900)
    before = dict(town.bought)
    assert before == {"small": 1, "large": 1}
    for _ in range(10):
        town.restart()
        town.pass_time(900, 30)
    assert town.bought == before


def test_a_place_on_nodes_there_are_that_the_scheduler_refuses_is_none() -> None:
    town = Town()
    full = town.add_node("small", pods=2)
    town.refuses = lambda _, node: VOLUMES if node.metadata.name == full else ""
    town.add_pod("p")
    town.pass_time(400)
    assert (town.pending(), town.bought) == ([], {"small": 1}), "a new node of the same kind helps"


def test_a_scheduler_that_is_down_has_refused_nothing() -> None:
    town = Town(refused_on("small"))
    town.add_node("small")
    town.add_pod("p")
    town.pass_time(20)
    town.refuses, town.is_up = nothing_refused, False
    town.nodes.clear()
    town.cloud.members["small"].clear()
    town.add_node("small")
    town.pass_time(2 * 3600, 60)
    assert not town.bought
    town.is_up = True
    town.pass_time(600)
    assert (town.pending(), town.bought) == ([], {})


@pytest.mark.parametrize("message", ["node(s) cpu usage exceed threshold", "node(s) Mid cpu has shrunk below"])
def test_what_our_own_extender_refuses_is_no_disagreement(message: str) -> None:
    town = Town(refused_on("small", message=message))
    town.add_node("small", pods=1)
    town.add_pod("p")
    town.pass_time(1800, 30)
    assert not town.bought
    assert not any(each.disagreements for each in town.seen)


def test_a_changed_template_or_pod_is_tried_again() -> None:
    town = Town(refused_on("small", "large"))
    town.add_pod("p")
    town.pass_time(900)
    del town.pods["p"]
    town.add_pod("p")
    town.pass_time(900)
    assert town.bought == {"small": 1, "large": 1}, "an equal pod of the same name is no other one"
    town.pass_time(1200)
    assert not town.nodes
    town.add_pod("p", tolerations=[{"key": "gpu", "operator": "Exists"}])
    town.pass_time(900)
    assert town.bought == {"small": 2, "large": 2}


@pytest.mark.parametrize("label", ["batch.kubernetes.io/controller-uid", "statefulset.kubernetes.io/pod-name"])
def test_the_next_pod_of_a_job_or_stateful_set_is_no_other_one(label: str) -> None:
    town = Town(refused_on("small", "large"))
    for number in range(4):
        town.add_pod("p", labels={label: f"uid-{number}"})
        town.pass_time(600)
    assert town.bought == {"small": 1, "large": 1}


def test_a_scheduler_that_refuses_everything_costs_a_bounded_number_of_nodes() -> None:
    town = Town(refused_on("small", "large"))
    for number in range(40):
        town.add_pod(f"p{number}", cpu=f"{1000 + number}m")
        town.pass_time(300, 30)
    town.pass_time(1200, 20)
    most = disagreements.MOST_OPTIONS + 4  # those under way when the last of them is refused
    assert sum(town.bought.values()) <= most
    assert "one node an hour" in next(iter(town.last.skipped_pods.values()))
    before = sum(town.bought.values())
    town.pass_time(5 * 3600, 240)
    assert sum(town.bought.values()) - before <= 5
    town.refuses = nothing_refused
    town.pass_time(2 * 3600, 60)
    left = len(town.pending())
    assert left <= disagreements.MOST_OPTIONS + 5, (
        "once it binds a pod, nodes are bought again, but for refused options"
    )


def test_a_registry_with_refusals_is_read_again_and_one_without_any_is_as_before() -> None:
    town = Town(refused_on("small"))
    town.add_pod("p")
    town.pass_time(30)
    assert "refusals" not in town.books
    town.pass_time(600)
    found = decode_registry(town.books, "registry", town.now)
    (refusal,) = found.refused_options
    assert (refusal.example, refusal.groups, refusal.times) == ("ns/p", ("small",), 1)
    assert decode_registry(encode_registry(found), "registry", town.now) == found


@pytest.mark.parametrize("groups", [("small",), ("small", "large")])
def test_what_the_scheduler_refused_is_remembered_no_longer_than_it_matters(groups: tuple[str, ...]) -> None:
    town = Town(refused_on(*groups))
    for number in range(5):
        town.add_pod(f"p{number}", cpu=f"{1000 + number}m")
    town.pass_time(1200)
    town.pods.clear()
    town.pass_time(60)
    memory = town.cache.scheduler
    assert (memory.answers, memory.fits_since, memory.nodes) == ({}, {}, {})
    assert replace(memory, refusals=()) == disagreements.SchedulerMemory()


def test_a_disagreement_is_told_once_on_each_pod_and_everywhere_in_the_schedulers_words() -> None:
    town = Town(refused_on("small"), max_sizes={"small": 9})
    town.add_pod("p")
    town.add_pod("q")
    town.pass_time(300)
    told = [
        (event.regarding.name, event.message)
        for before, made in itertools.pairwise(town.seen)
        for event in events.events(made, STATUS, before=before)
        if event.reason == events.DISAGREES
    ]
    assert [name for name, _ in told] == ["p", "q"]
    assert all(VOLUMES in message and "new nodes of small" in message for _, message in told)
    plan = answers.plan(town.last)
    (row,) = plan.disagreements
    assert (row.pods, row.count, row.groups, row.nodes) == (["ns/p", "ns/q"], 2, ["small"], 1)
    table = plan_table.render(plan, group_rows.groups(town.last))
    (line,) = [line for line in table.splitlines() if VOLUMES in line]
    assert line.startswith("  ns/p, ns/q, until ")
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    metrics.note(town.last)
    values = {plugin: _shown(registry, plugin) for plugin in scheduler_messages.PLUGINS}
    assert {plugin: value for plugin, value in values.items() if value} == {"NodeVolumeLimits": 2}


def _shown(registry: CollectorRegistry, plugin: str) -> float | None:
    return registry.get_sample_value("headroom_autoscaler_scheduler_disagreements", {"plugin": plugin})


@pytest.mark.parametrize(
    ("message", "plugin"),
    [
        ("0/4 nodes are available: 1 cannot allocate all claims, 3 Insufficient cpu.", "DynamicResources"),
        ("0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.", "VolumeBinding"),
        ("0/2 nodes are available: 2 node(s) wear no hat.", "other"),
    ],
)
def test_a_refusal_is_counted_by_the_plugin_that_says_it(message: str, plugin: str) -> None:
    assert disagreements.Disagreement(("ns/p",), message, NOW, NOW, 1, ()).plugin == plugin


def test_a_long_message_is_as_old_as_it_is() -> None:
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": durations.timestamp(NOW),
        "message": "0/1 nodes are available: " + "1 node(s) had a reason of many words, " * 20,
    }
    pod = made_pod("waits", NOW)
    status = msgspec.structs.replace(pod.status, conditions=(msgspec.convert(refused, Condition),))
    pod = msgspec.structs.replace(pod, status=status)
    first = disagreements.SchedulerMemory().with_answers([pod], NOW)
    assert len(first.answers["ns/waits"].message) == disagreements.MOST_MESSAGE
    assert first.with_answers([pod], NOW + 60).answers == first.answers
