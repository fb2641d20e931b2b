"""A threshold of use that is reached is reported at once, with what was seen, and again for as long as it lasts."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.reporter import pressure
from agent.reporter.schedule import PRESSED_SECONDS
from agent.states_informer.pods import NodePod, describe
from shared.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import Pressure
from shared.api.nodemetric_spec import ResourceThresholds
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.support import certain
from tests.unit.agent.cluster import NODE, NodeServer, Reporting, named, objects
from tests.unit.agent.models import entities
from tests.unit.kube.scripted import Request

GIB = 2**30
CAPACITY = Resources(8_000, 32 * GIB)
EVICTS = ResourceThresholds(
    enable=True, evict_enabled=True, cpu_satisfaction_lower_percent=40, cpu_satisfaction_upper_percent=80
)
WIRE = {"enable": True, "evictEnabled": True, "memoryEvictThresholdPercent": 60}


def held(name: str, cpu: str = "4", tier: str = "batch") -> NodePod:
    asked: dict[str, Any] = {f"kubernetes.io/{tier}-cpu": str(int(cpu) * 1000), f"kubernetes.io/{tier}-memory": "1Gi"}
    container = Container(name="c", resources=ResourceRequirements(requests=asked))
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return describe(Pod(metadata=meta, spec=PodSpec(containers=(container,)), status=PodStatus(phase="Running")))


class Node:
    """Ten seconds of a node, in which each of its pods uses the same."""

    def __init__(
        self, pods: list[NodePod], *, each: Usage, others: Usage, seconds: int = 10, stalls: float | None = 0.125
    ) -> None:
        clock = ManualClock()
        self.pods = pods
        self.cache = MetricCache(clock=clock)
        for _ in range(seconds):
            clock.advance(1)
            usages = {pod.uid: each for pod in pods}
            measured = {} if stalls is None else {SeriesKey(Kind.NODE, "", Metric.PSI_MEMORY_SOME): stalls}
            self.cache.append(self.cache.second(), entities(others, **usages), measured)
        self.second = self.cache.second()

    def seen(self, thresholds: ResourceThresholds = EVICTS, capacity: Resources = CAPACITY) -> Pressure | None:
        return pressure.seen(self.cache, self.pods, capacity, thresholds, self.second)


def test_memory_near_capacity_is_told_with_the_pods_that_hold_something() -> None:
    node = Node([held("a"), held("b", tier="mid")], each=Usage(0.5, 4 * GIB), others=Usage(1.0, 20 * GIB))
    found = certain(node.seen())
    assert found.resources == ("memory",)
    assert found.usage == {"cpu": "2", "memory": "28Gi"}
    assert found.memory_stall_percent == "12.50"
    assert [(pod.name, pod.uid, pod.usage) for pod in found.pods or ()] == [
        ("a", "uid-a", {"cpu": "500m", "memory": "4Gi"}),
        ("b", "uid-b", {"cpu": "500m", "memory": "4Gi"}),
    ]


def test_pods_that_get_too_little_of_what_they_request_and_use_it_all_are_short_of_cpu() -> None:
    node = Node([held("a"), held("b")], each=Usage(1.0, GIB), others=Usage(5.5, GIB))  # 2 of the 2.5 that are left
    short = ResourceThresholds(
        enable=True,
        evict_enabled=True,
        cpu_satisfaction_lower_percent=40,
        cpu_satisfaction_upper_percent=80,
        cpu_usage_threshold_percent=80,
    )
    found = certain(node.seen(short))
    assert (found.resources, found.tiers_cpu_request, found.tiers_cpu_usage, found.tiers_cpu_limit) == (
        ("cpu",),
        "8",
        "2",
        "2500m",
    )
    assert node.seen() is None  # 80 % of what they can get is in no want of more, by the default of 90
    assert Node([held("a")], each=Usage(2.4, GIB), others=Usage(5.5, GIB)).seen(short) is None  # 2.5 of 4 suffice


def test_what_is_not_known_well_enough_is_no_pressure() -> None:
    loaded = partial(Node, [held("a"), held("b")], each=Usage(0.5, 4 * GIB), others=Usage(1.0, 20 * GIB))
    assert loaded(seconds=2).seen() is None
    node = loaded()
    assert node.seen() is not None
    assert node.seen(capacity=Resources()) is None
    assert node.seen(ResourceThresholds(enable=True)) is None
    assert Node([], each=Usage(0, 0), others=Usage(1.0, 30 * GIB)).seen() is None  # nobody could go


@pytest.mark.parametrize(
    ("tier", "each_gib", "others_gib", "is_told"),
    [
        ("mid", 1, 26, False),  # 28 of 32 GiB, and both use what they hold
        ("mid", 2, 24, True),  # both use more
        ("batch", 1, 26, True),
        ("mid", 1, 27, True),  # 29 of 32 GiB are 90 %
    ],
)
def test_of_mid_pods_that_use_what_they_hold_a_node_that_is_well_used_tells_later(
    tier: str, each_gib: int, others_gib: int, is_told: bool
) -> None:
    pods = [held("a", tier=tier), held("b", tier=tier)]
    node = Node(pods, each=Usage(0.5, each_gib * GIB), others=Usage(1.0, others_gib * GIB))
    assert (node.seen() is not None) is is_told


def test_pressure_is_told_where_the_kernel_measures_no_stalls() -> None:
    node = Node([held("a")], each=Usage(0.5, 4 * GIB), others=Usage(1.0, 20 * GIB), stalls=None)
    found = certain(node.seen())
    assert (found.resources, found.cpu_stall_percent, found.memory_stall_percent) == (("memory",), None, None)


@pytest.fixture
def reporting(tmp_path: Path) -> Iterator[tuple[NodeServer, Reporting]]:
    known = objects()
    known["nodes"] = [named(NODE, 1, status={"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8", "memory": "4Gi"}})]
    asked = {"kubernetes.io/mid-cpu": "1000", "kubernetes.io/mid-memory": "1Gi"}
    containers = [{"name": "c", "resources": {"requests": asked}}]
    known["pods"] = [named("mid", 1, spec={"priority": 7500, "containers": containers})]
    server = NodeServer(known)
    with closing(Reporting(tmp_path, server)) as made:
        yield server, made


def told(request: Request) -> tuple[str, bool]:
    prediction = request.body[0]["value"]["prediction"]
    return prediction["reportReason"], "pressure" in prediction


def test_pressure_is_reported_at_once_again_while_it_lasts_and_no_more_when_it_is_over(
    reporting: tuple[NodeServer, Reporting],
) -> None:
    server, agent = reporting
    agent.reporter.apply({"resourceUsedThresholdWithBE": WIRE})
    agent.pass_seconds(32)
    arrived = len(server.writes)
    assert not any(pressed for _, pressed in map(told, server.writes))
    agent.usage = Usage(0.5, 2 * GIB)
    agent.pass_seconds(1)
    assert [told(each) for each in server.writes[arrived:]] == [("Pressure", True)]
    agent.pass_seconds(35)
    times = [told(each) for each in server.writes[arrived:]]
    assert 1 + 35 // PRESSED_SECONDS <= len(times) <= 2 + 35 // PRESSED_SECONDS
    assert all(pressed for _, pressed in times)
    agent.usage = Usage(0.5, GIB / 2)
    agent.pass_seconds(61)
    assert told(server.writes[-1])[1] is False
    assert agent.value("reports_total", reason="Pressure") == len([each for each in times if each[0] == "Pressure"])


def test_without_leave_to_evict_nothing_is_watched_for_and_bad_thresholds_leave_the_good_ones(
    reporting: tuple[NodeServer, Reporting],
) -> None:
    server, agent = reporting
    agent.usage = Usage(0.5, 3 * GIB)
    agent.pass_seconds(61)
    assert {pressed for _, pressed in map(told, server.writes)} == {False}
    agent.reporter.apply({"resourceUsedThresholdWithBE": WIRE})
    agent.reporter.apply({"resourceUsedThresholdWithBE": WIRE | {"memoryEvictThresholdPercent": 200}})
    assert agent.reporter.thresholds.memory_evict_threshold_percent == 60
    agent.pass_seconds(2)
    assert told(server.writes[-1]) == ("Pressure", True)
    conditions = {one["type"]: one for one in server.writes[-1].body[0]["value"]["prediction"]["conditions"]}
    assert "resourceUsedThresholdWithBE" in conditions["PolicyAccepted"]["message"]
    agent.reporter.apply({})
    agent.pass_seconds(61)
    assert told(server.writes[-1])[1] is False


def test_slowed_prod_is_reported_at_once_with_the_pods_that_may_be_the_cause(
    reporting: tuple[NodeServer, Reporting],
) -> None:
    server, agent = reporting
    agent.reporter.apply({"resourceUsedThresholdWithBE": WIRE})
    agent.usage = Usage(0.5, GIB / 2)
    agent.pass_seconds(40)
    arrived = len(server.writes)
    agent.readings = {
        SeriesKey(Kind.NODE, "", Metric.PROD_CPU_WAIT): 0.6,
        SeriesKey(Kind.NODE, "", Metric.PROD_THROTTLED_PODS): 2.0,
    }
    agent.pass_seconds(1)
    (request,) = server.writes[arrived:]
    status = request.body[0]["value"]
    cpu, memory = status["interference"]["waits"]
    assert (cpu["resource"], cpu["waitPercent"], "since" in cpu) == ("cpu", "60.00", True)
    assert memory == {"resource": "memory"}
    assert status["interference"]["throttledPods"] == 2
    assert [pod["name"] for pod in status["prediction"]["pressure"]["pods"]] == ["mid"]
    assert "resources" not in status["prediction"]["pressure"]
