"""Replacements over successive rounds of the autoscaler, in a town whose manager may die between any two steps."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import ErrorClass, Group, Instance, InstanceError, InstanceState, NodeRef
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_request, decode_registry, encode_registry
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.cluster_view import open_view
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_down.removal_status import (
    DeletionCounts,
    DeletionProgress,
    DeletionsInProgress,
    DeletionStage,
    GroupRules,
    ScaleDownHistory,
    ScaleDownReason,
    ScaleDownRules,
)
from manager.autoscaler.scale_up.options import ScaleUpSettings
from manager.autoscaler.settings.estimates import StartTimes
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.replacement import ConsolidationRules
from manager.autoscaler.settings.scale_down import Delays, RemovalRules
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from shared import durations
from shared.api.core import Node, Pod, Taint
from tests.support import independent_checker
from tests.support.independent_checker import CheckedPod
from tests.support.properties import stride
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW

TYPE = "node.kubernetes.io/instance-type"
PRICES = {"dear": 1.0, "cheap": 0.7, "foreign": 0.1}
CORES = {"dear": 8, "cheap": 12, "foreign": 2}
LONG_AGO = NOW - 86_400
ROUND_SECONDS = 30.0
RULES = ConsolidationRules(consolidation_min_node_age_seconds=60, consolidation_cooldown_seconds=60)


class ManagerDied(Exception):
    """It comes back with what is in the books."""


def made_node(name: str, group: str, at: float) -> Node:
    amounts = {"cpu": str(CORES[group]), "memory": "64Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": durations.timestamp(at)}
    labels = {TYPE: group, "kubernetes.io/hostname": name}
    raw = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": durations.timestamp(at),
            "labels": labels,
        },
        "spec": {"providerID": f"id:{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }
    return msgspec.convert(raw, Node)


def made_pod(name: str, on: str, cpu: str, **annotations: str) -> Pod:
    raw = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "creationTimestamp": durations.timestamp(LONG_AGO),
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": True}],
            "annotations": annotations,
        },
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(raw, Pod)


class Cloud(MemoryCloud):
    def template(self, group: str) -> Node:
        return made_node("template", group, LONG_AGO)


@dataclass
class Town:
    """Two half-empty dear nodes and what else is given; the registry is all that survives the manager."""

    chosen: DecisionSettings = field(default_factory=lambda: config())
    now: float = NOW
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    books: str = encode_registry(Registry())
    draining: dict[str, str] = field(default_factory=dict)  # in the manager's memory: node and group
    history: ScaleDownHistory = field(default_factory=ScaleDownHistory)
    begins: bool = True
    boots: bool = True  # whether machines become nodes
    stockout: bool = False
    dies_at: int = -1
    steps: int = 0
    seen: list[Iteration] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)
    cloud: Cloud = field(init=False)

    def __post_init__(self) -> None:
        self.cloud = Cloud(Group("dear", 0, 4, 2), Group("cheap", 0, 2, 0), Group("foreign", 0, 9, 1))
        self.cache = AutoscalerCache(self.chosen)
        for name, group in (("a", "dear"), ("b", "dear"), ("f", "foreign")):
            self.register(name, group, LONG_AGO)
        for node in ("a", "b"):
            for number, cpu in enumerate(("3", "2500m")):
                pod = made_pod(f"{node}-{number}", node, cpu)
                self.pods[pod.metadata.key] = pod

    def register(self, name: str, group: str, at: float) -> None:
        self.nodes[name] = made_node(name, group, at)
        self.cloud.members[group].append(Instance(f"id:{name}"))

    @property
    def price(self) -> float:
        """What all nodes cost per hour."""
        return sum(PRICES[(node.metadata.labels or {})[TYPE]] for node in self.nodes.values())

    @property
    def registry(self) -> Registry:
        return decode_registry(self.books, "registry", self.now)

    def of_group(self, group: str) -> list[str]:
        return [name for name, node in self.nodes.items() if (node.metadata.labels or {})[TYPE] == group]

    def pass_by(self) -> None:
        """The manager may die here."""
        self.steps += 1
        if self.steps == self.dies_at:
            raise ManagerDied

    def go_on(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            try:
                self._round()
            except ManagerDied:
                self.draining, self.history, self.begins = {}, ScaleDownHistory(), True
                self.cache = AutoscalerCache(self.chosen)
            self._live()
            self.check()

    def go_on_until(self, settled: Callable[["Town"], bool], most: int = 40) -> None:
        """So many rounds at most."""
        for _ in range(most):
            self.go_on()
            if settled(self):
                return

    def check(self) -> None:
        """What holds at every moment."""
        assert len(self.of_group("cheap")) <= 2
        assert self.of_group("foreign") == ["f"]
        assert self.cloud.target("foreign") == 1
        launched = len(self.cloud.members["cheap"])
        assert launched <= self.cloud.target("cheap") <= 2
        machines = {name: independent_checker.machine(msgspec.to_builtins(node)) for name, node in self.nodes.items()}
        for pod in self.pods.values():
            assert pod.spec.node_name in machines, "no pod is without a place"
            machines[pod.spec.node_name].pods.append(CheckedPod(msgspec.to_builtins(pod)))

    def _round(self) -> None:
        self.pass_by()
        planned = self._planned()
        made = planned.iteration
        self.seen.append(made)
        if made.scale_down is not None:
            self.history = made.scale_down.memory
        self.pass_by()
        self.books = encode_registry(planned.registry)
        self.pass_by()
        for name in planned.abandoned:
            self._taint(name)
        self.begins = False
        for action in made.actions:
            if action.kind is ActionKind.INCREASE:
                self._increase(action)
            elif action.kind is ActionKind.REMOVE_NODES:
                for name in action.nodes:
                    self.pass_by()
                    self._taint(name, Taint(TAINT_TO_BE_DELETED, str(int(self.now)), "NoSchedule"))
                    self.draining[name] = action.group

    def _planned(self) -> PlannedIteration:
        leaving = tuple(
            DeletionProgress(name, group, ScaleDownReason.UNDERUTILIZED, DeletionStage.DRAINING, self.now)
            for name, group in self.draining.items()
        )
        underway = DeletionsInProgress(self.history, leaving, in_progress=DeletionCounts(0, len(leaving)))
        objects = ClusterObjects(self.now, nodes=tuple(self.nodes.values()), pods=tuple(self.pods.values()))
        guard = Guard(self.cloud, self.chosen.ownership)
        guard.observe([NodeRef.from_node(each) for each in objects.nodes])
        try:
            view = open_view(
                objects,
                guard,
                self.registry,
                self.chosen,
                chance=random.Random(3),
                cache=self.cache,
                underway=underway,
            )
            return iteration_plan.plan(view, begins=self.begins)
        finally:
            guard.close()

    def _increase(self, action: Action) -> None:
        change = Increase(action.group, action.from_size, action.to_size, action.max_size)
        self.books = encode_registry(add_request(self.registry, change, self.now, 900))
        self.pass_by()
        self.cloud.increase(action.group, change.nodes)
        self.pass_by()

    def _taint(self, name: str, *taints: Taint) -> None:
        node = self.nodes[name]
        self.nodes[name] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))

    def _live(self) -> None:
        """Time passes: machines become nodes, drained nodes go, and their pods are made again where there is room."""
        self.now += ROUND_SECONDS
        for group, members in self.cloud.members.items():
            for position, each in enumerate(list(members)):
                if each.state is InstanceState.CREATING and self.stockout:
                    error = InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT", "no more of them")
                    members[position] = replace(each, error=error)
                elif each.state is InstanceState.CREATING and self.boots:
                    name = f"{group}-{next(self.names)}"
                    members.remove(each)
                    self.register(name, group, self.now)
        for name, group in list(self.draining.items()):
            moving = [pod for pod in self.pods.values() if pod.spec.node_name == name]
            for pod in moving:
                self.pods[pod.metadata.key] = self._scheduled(pod)
            del self.nodes[name], self.draining[name]
            self.cloud.members[group] = [each for each in self.cloud.members[group] if each.provider_id != f"id:{name}"]
            self.cloud.listed = [
                replace(each, target_size=each.target_size - 1) if each.id == group else each
                for each in self.cloud.listed
            ]

    def _scheduled(self, pod: Pod) -> Pod:
        """The pod on the first node that the independent checker lets it on; nodes under deletion are tainted."""
        spec = msgspec.structs.replace(pod.spec, node_name="")
        free = msgspec.structs.replace(pod, spec=spec)
        machines = []
        for name, node in self.nodes.items():
            machines.append(independent_checker.machine(msgspec.to_builtins(node), name=name))
            others = (each for each in self.pods.values() if each.spec.node_name == name)
            machines[-1].pods += [CheckedPod(msgspec.to_builtins(each)) for each in others]
        checker = independent_checker.World(machines)
        checked = CheckedPod(msgspec.to_builtins(free))
        to = next((machine.name for machine in machines if not checker.refusal(checked, machine)), "")
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=to))


def config(rules: ConsolidationRules | None = RULES, **more: Any) -> DecisionSettings:
    pricing = FilePricing(machine_types=PRICES)
    settings = ScaleUpSettings(Ownership({"dear": None, "cheap": None}), pricing=pricing)
    down = ScaleDownRules(
        group=GroupRules(scale_down_unneeded_time_seconds=60),
        delays=Delays(0, 0, 0),
        removal=RemovalRules(unremovable_node_recheck_timeout_seconds=60),
    )
    given: dict[str, Any] = {"scale_down": down, "consolidation": rules, "start": StartTimes(120, 60), **more}
    given.setdefault("disruption", DisruptionRules(limits=DisruptionLimits(())))
    return DecisionSettings(scale_up=settings, prices=pricing, scale_down_peaks=False, **given)


def ends(town: Town) -> list[str]:
    return [each.consolidation.ended for each in town.seen if each.consolidation and each.consolidation.ended]


def is_replaced(town: Town) -> bool:
    return (len(town.of_group("dear")), len(town.of_group("cheap"))) == (0, 1)


def is_over(town: Town) -> bool:
    return is_replaced(town) and (town.registry.replacing, town.registry.requests, town.draining) == (None, {}, {})


def test_a_half_empty_pair_becomes_one_cheaper_node_and_the_books_are_clean() -> None:
    town = Town()
    town.go_on(12)
    assert is_replaced(town)
    assert town.price == pytest.approx(0.8)
    assert (town.registry.replacing, town.registry.requests) == (None, {})
    assert ends(town) == ["the replacement of a, b by 1 of cheap is done"]
    launches = [
        action for each in town.seen for action in each.actions if action.kind is ActionKind.INCREASE and action.nodes
    ]
    assert [(each.group, each.to_size, each.reason) for each in launches] == [
        ("cheap", 1, "replaces a, b, which saves 949/month")
    ]


def test_old_nodes_go_one_after_the_other_where_only_one_may_be_drained() -> None:
    town = Town()
    town.go_on(12)
    going = [action.nodes for each in town.seen for action in each.actions if action.kind is ActionKind.REMOVE_NODES]
    assert going == [("a",), ("b",)]


def test_without_consolidation_the_same_town_stays_as_it_is() -> None:
    town = Town(config(None))
    town.go_on(12)
    assert town.price == pytest.approx(2.1)
    assert all(each.consolidation is None for each in town.seen)
    assert "replac" not in town.books, "an older manager reads these books"


# A whole replacement passes some 30 moments at which a manager may die; later ones never come.
@pytest.mark.parametrize("moment", range(1, 36, max(1, stride() // 3)))
def test_a_manager_that_dies_at_any_moment_leaves_a_town_that_comes_to_the_same_end(moment: int) -> None:
    town = Town(dies_at=moment)
    town.go_on_until(lambda here: is_over(here) and here.steps > moment)
    assert is_over(town)
    assert town.steps > moment
    assert all(not node.spec.taints for node in town.nodes.values())


@pytest.mark.parametrize("trouble", ["stockout", "boots"])
@pytest.mark.parametrize("moment", [-1, *range(3, 13, max(1, stride() // 2))])
def test_a_launch_that_comes_to_nothing_leaves_the_old_nodes_and_backs_off(trouble: str, moment: int) -> None:
    town = Town(dies_at=moment)
    setattr(town, trouble, trouble == "stockout")
    town.go_on_until(lambda here: here.steps > moment and len(ends(here)) > 0 and here.registry.backoffs != {})
    assert sorted(town.nodes) == ["a", "b", "f"], "no old node has gone, and nothing has come"
    assert not [action for each in town.seen for action in each.actions if action.kind is ActionKind.REMOVE_NODES]
    first = ends(town)[0]
    assert first.startswith("the replacement of a, b by 1 of cheap is given up: ")
    town.stockout, town.boots = False, True
    town.now += 7200
    town.cloud.members["cheap"].clear()
    town.cloud.listed = [replace(each, target_size=0) if each.id == "cheap" else each for each in town.cloud.listed]
    town.go_on_until(is_over)
    assert is_over(town), "it is tried again"


def test_pods_that_must_not_be_disturbed_from_the_launch_on_keep_the_old_nodes() -> None:
    town = Town()
    town.go_on(1)
    assert town.registry.replacing is not None
    key = "ns/a-0"
    town.pods[key] = made_pod("a-0", "a", "3", **{"karpenter.sh/do-not-disrupt": "true"})
    town.go_on_until(lambda here: bool(ends(here)) and not here.of_group("cheap"))
    assert town.of_group("dear") == ["a", "b"]
    assert town.of_group("cheap") == [], "the new node is not needed, and has gone"
    assert ends(town)[0].endswith("is given up: a: pod ns/a-0 has the annotation karpenter.sh/do-not-disrupt")
    assert town.registry.replacing is None


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_switching_it_off_takes_a_replacement_back_or_leaves_what_has_gone(rounds: int) -> None:
    town = Town()
    town.go_on(rounds)
    town.chosen = config(None)
    town.go_on(10)
    assert town.registry.replacing is None
    assert town.price <= 2.1 + PRICES["cheap"]
    if "a" in town.nodes:
        assert town.price == pytest.approx(2.1)


def test_groups_in_recommend_mode_are_only_advised() -> None:
    town = Town(config(mode=Mode.RECOMMEND))
    town.go_on(3)
    found = town.seen[0].consolidation
    assert found is not None
    assert found.advice
    assert found.option is not None
    assert found.option.removed == ("a", "b")
    assert all(not each.actions for each in town.seen)
    assert town.registry.replacing is None


def test_a_search_that_found_nothing_stands_until_something_changes() -> None:
    town = Town(config(msgspec.structs.replace(RULES, consolidation_min_savings_percent=90)))
    town.go_on(2)
    first, second = (each.consolidation for each in town.seen)
    assert first is second
    town.register("c", "dear", LONG_AGO)
    town.cloud.listed = [replace(each, target_size=3) if each.id == "dear" else each for each in town.cloud.listed]
    town.go_on(1)
    assert town.seen[-1].consolidation is not second
