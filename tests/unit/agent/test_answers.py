"""What an answer says of times that nobody has measured yet, or any more."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.enforcer import bounds
from agent.enforcer.bounds import BoundOutcome, CgroupBound
from agent.http import answers
from agent.http.rooms import Rooms
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.series import Kind, Metric
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.metrics_advisor.local import LocalSource
from shared import durations
from shared.telemetry import Loops
from tests.support import certain, schemas
from tests.unit.agent.cluster import NODE, NodeServer, Reporting, objects


class Looked:
    """An agent's rooms, that no enforcer or one with this folder stands beside."""

    def __init__(self, tmp_path: Path, enforcer_status: Path | None = None) -> None:
        self.reporting = reporting = Reporting(tmp_path, NodeServer(objects()))
        self._source = LocalSource(cgroup_root=tmp_path)
        self.rooms = Rooms(
            node_name=NODE,
            clock=reporting.clock,
            registry=reporting.registry,
            loops=Loops(),
            states=reporting.states,
            cache=reporting.cache,
            advisor=MetricsAdvisor(self._source, reporting.states, reporting.cache, registry=reporting.registry),
            predict_server=reporting.predict_server,
            reporter=reporting.reporter,
            enforcer_status=enforcer_status,
        )

    def close(self) -> None:
        self._source.close()
        self.reporting.close()


@pytest.mark.parametrize(
    ("passed", "value"), [(0.0, 0.75), (0.4, 0.75), (0.6, 0.75), (1.4, 0.75), (1.6, None)], ids=lambda one: str(one)
)
def test_a_window_of_one_second_is_that_of_the_last_sample_while_there_can_be_no_newer_one(
    tmp_path: Path, passed: float, value: float | None
) -> None:
    with closing(Looked(tmp_path)) as looked:
        reporting, rooms = looked.reporting, looked.rooms
        reporting.pass_seconds(3)
        sampled_at = reporting.cache.wall_time(reporting.cache.last_second)
        reporting.clock.advance(passed)
        chosen = answers.choose(rooms, Kind.NODE, Metric.CPU, None, {})
        found = answers.aggregates(rooms, chosen, Aggregation.AVG, 1)
        assert [one.value for one in found.values] == [value]
        assert (found.time == durations.timestamp(sampled_at)) == (value is not None)


def test_a_pods_answer_has_what_the_enforcer_did_for_it_in_the_shape_of_the_schema(tmp_path: Path) -> None:
    def enforced() -> object:
        found = certain(answers.pod(looked.rooms, "uid-pod-0"))
        return msgspec.to_builtins(found.enforcer)

    with closing(Looked(tmp_path, tmp_path)) as looked:
        assert enforced() is None
        clock = looked.reporting.clock
        clock.advance(100)
        bound = CgroupBound(
            cgroup="kubepods/pod0",
            file="cpu.max",
            term="mid-cpu limit",
            amount=400,
            unit="milli",
            value="40000 100000",
            outcome=BoundOutcome.WRITTEN,
            at=clock.monotonic() - 60,
            before="max 100000",
        )
        future = msgspec.structs.replace(bound, amount=None, outcome=BoundOutcome.REFUSED, at=1e12, problem="why")
        pod = bounds.of_pod("d/pod-0", "mid", [bound, future])
        bounds.write(tmp_path, bounds.encoded({"uid-pod-0": pod, "another": pod}))
        said: Any = enforced()
        assert list(schemas.problems(said, schemas.published("pod_bounds"))) == []
        assert [each["time"] for each in said["bounds"]] == [
            durations.timestamp(clock.now() - 60),
            durations.timestamp(clock.now()),
        ]
        assert said["bounds"][0]["outcome"] == "written"
        bounds.write(tmp_path, bounds.encoded({}))
        assert enforced() is None


def test_every_metric_has_a_unit() -> None:
    assert set(answers.UNITS) == set(Metric)
