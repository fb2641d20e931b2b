"""What an answer says of times that nobody has measured yet, or any more."""

from pathlib import Path

import pytest

from agent.http import answers
from agent.http.rooms import Rooms
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.series import Kind, Metric
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.metrics_advisor.local import LocalSource
from shared import durations
from shared.telemetry import Loops
from tests.unit.agent.cluster import NODE, NodeServer, Reporting, objects


@pytest.mark.parametrize(
    ("passed", "value"), [(0.0, 0.75), (0.4, 0.75), (0.6, 0.75), (1.4, 0.75), (1.6, None)], ids=lambda one: str(one)
)
def test_a_window_of_one_second_is_that_of_the_last_sample_while_there_can_be_no_newer_one(
    tmp_path: Path, passed: float, value: float | None
) -> None:
    server = NodeServer(objects())
    reporting = Reporting(tmp_path, server)
    source = LocalSource(cgroup_root=tmp_path)
    rooms = Rooms(
        node_name=NODE,
        clock=reporting.clock,
        registry=reporting.registry,
        loops=Loops(),
        states=reporting.states,
        cache=reporting.cache,
        advisor=MetricsAdvisor(source, reporting.states, reporting.cache, registry=reporting.registry),
        predict_server=reporting.predict_server,
        reporter=reporting.reporter,
    )
    try:
        reporting.pass_seconds(3)
        sampled_at = reporting.cache.wall_time(reporting.cache.last_second)
        reporting.clock.advance(passed)
        chosen = answers.choose(rooms, Kind.NODE, Metric.CPU, None, {})
        found = answers.aggregates(rooms, chosen, Aggregation.AVG, 1)
        assert [one.value for one in found.values] == [value]
        assert (found.time == durations.timestamp(sampled_at)) == (value is not None)
    finally:
        source.close()
        reporting.close()
        server.close()
