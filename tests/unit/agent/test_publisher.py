"""The agent tells the enforcer what pods hold and what is left, and nothing that it does not know."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.enforcer import orders, status
from agent.enforcer.publisher import EnforcerCollector, Publisher
from agent.enforcer.status import EnforcerStatus
from agent.metric_cache.series import Usage
from shared.api.nodemetric_spec import ResourceThresholds
from tests.support import certain
from tests.unit.agent.cluster import NODE, NodeServer, Reporting, named, objects


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Reporting]:
    known = objects()
    amounts = {"allocatable": {"cpu": "7", "memory": "4Gi"}, "capacity": {"cpu": "8", "memory": "4Gi"}}
    known["nodes"] = [named(NODE, 1, status=amounts)]
    asked = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    containers = [{"name": "c", "resources": {"requests": asked, "limits": asked}}]
    native = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    known["pods"] = [
        named("batch", 1, spec={"priority": 5500, "containers": containers}),
        named("prod", 1, spec={"priority": 9500, "containers": native}),
    ]
    with closing(Reporting(tmp_path / "state", NodeServer(known), pods=2)) as made:
        yield made


def publisher(
    agent: Reporting, directory: Path, thresholds: ResourceThresholds, waited: Callable[[], float | None] = lambda: None
) -> Publisher:
    return Publisher(
        directory,
        agent.states,
        agent.cache,
        agent.clock,
        second=agent.cache.second,
        thresholds=lambda: thresholds,
        waited_seconds=waited,
    )


def test_pods_that_hold_something_are_told_and_without_thresholds_nobody_is_held_down(
    agent: Reporting, tmp_path: Path
) -> None:
    agent.clock.advance(1)
    publisher(agent, tmp_path, ResourceThresholds()).publish()
    found = certain(orders.read(tmp_path))
    assert (found.at, found.suppress) == (agent.clock.monotonic(), None)
    (batch,) = found.pods
    assert (batch.uid, batch.cpu_milli, batch.limit_milli, batch.limit_bytes) == ("uid-batch", 1000, 1000, 1 << 30)


def test_what_is_left_to_best_effort_pods_is_told_with_the_nodes_capacity(agent: Reporting, tmp_path: Path) -> None:
    agent.usage = Usage(1.5, 2**30)  # of either pod, beside 0.25 of the system, for which a core is reserved
    agent.pass_seconds(10)
    publishing = publisher(agent, tmp_path, ResourceThresholds(enable=True))
    publishing.publish()
    found = certain(orders.read(tmp_path))
    assert found.suppress == orders.Suppress(cpu_milli=8000 * 65 // 100 - 1500 - 1000, capacity_milli=8000)
    registry = CollectorRegistry()
    registry.register(EnforcerCollector(publishing, tmp_path, agent.clock))
    assert registry.get_sample_value("headroom_agent_best_effort_cpu_cores") == 2.7
    assert registry.get_sample_value("headroom_agent_enforcer_age_seconds") is None
    status.write(tmp_path, EnforcerStatus(at=agent.clock.monotonic() - 3, pods=1, written=9))
    assert registry.get_sample_value("headroom_agent_enforcer_age_seconds") == 3
    assert registry.get_sample_value("headroom_agent_enforcer_writes_total", {"outcome": "written"}) == 9
    (tmp_path / status.FILE).write_text("{")
    assert registry.get_sample_value("headroom_agent_enforcer_age_seconds") is None


def test_while_prod_waits_too_long_less_is_left_to_best_effort_pods_and_then_as_much_as_before(
    agent: Reporting, tmp_path: Path
) -> None:
    agent.usage = Usage(1.5, 2**30)  # of either pod
    agent.pass_seconds(10)
    waited: list[float | None] = [0.0]
    publishing = publisher(agent, tmp_path, ResourceThresholds(enable=True), lambda: waited[0])
    publishing.publish()
    assert certain(certain(orders.read(tmp_path)).suppress).cpu_milli == 750
    registry = CollectorRegistry()
    registry.register(EnforcerCollector(publishing, tmp_path, agent.clock))
    assert registry.get_sample_value("headroom_agent_prod_first_cpu_cores") == 0.75
    waited[0] = None
    for _ in range(170):
        agent.pass_seconds(1)
        publishing.publish()
    assert certain(certain(orders.read(tmp_path)).suppress).cpu_milli == 2700
    assert registry.get_sample_value("headroom_agent_prod_first_cpu_cores") is None


def test_a_policy_that_is_turned_off_ends_the_cap(agent: Reporting, tmp_path: Path) -> None:
    agent.pass_seconds(10)
    policy = [ResourceThresholds(enable=True)]
    publishing = Publisher(
        tmp_path,
        agent.states,
        agent.cache,
        agent.clock,
        second=agent.cache.second,
        thresholds=lambda: policy[0],
        waited_seconds=lambda: 0.0,
    )
    publishing.publish()
    assert publishing.cap is not None
    policy[0] = ResourceThresholds()
    publishing.publish()
    assert publishing.cap is None


def test_a_node_that_cannot_be_read_is_not_told_so_that_its_quota_goes(agent: Reporting, tmp_path: Path) -> None:
    publisher(agent, tmp_path, ResourceThresholds(enable=True)).publish()
    assert orders.read(tmp_path) is None
