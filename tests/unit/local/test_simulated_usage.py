"""Curves and traces: deterministic, bounded, and refused when they mean nothing."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.settings import AgentSettings
from deploy.local.simulated import curves, fleet, traces, workloads
from deploy.local.simulated.curves import Curve
from deploy.local.simulated.source import SimulatedSource, curve_of
from shared import names
from shared.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.clock import ManualClock
from shared.errors import InvalidInput

SIZE = workloads.NODE_SIZE


def a_pod(curve: str = "steady:1", *, phase: str = "Running", cpu: str = "1", created: str | None = None) -> Pod:
    meta = ObjectMeta(
        name="p",
        namespace="d",
        uid="uid",
        annotations={names.ANNOTATION_USAGE_CURVE: curve},
        creation_timestamp=created,
    )
    container = Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"}))
    return Pod(meta, PodSpec(containers=(container,)), PodStatus(phase=phase))


@given(curve=st.sampled_from(Curve), seed=st.integers(0, 2**32 - 1), seconds=st.floats(0, 1e9))
def test_a_share_is_between_nothing_and_all_and_the_same_every_time(curve: Curve, seed: int, seconds: float) -> None:
    share = curves.share(curve, seed, seconds)
    assert 0 <= share.cpu <= 1
    assert 0 <= share.memory <= 1
    assert share == curves.share(curve, seed, seconds)


@given(seed=st.integers(0, 2**64 - 1), step=st.integers(0, 2**64 - 1))
def test_uniform_numbers_are_in_range(seed: int, step: int) -> None:
    assert 0 <= curves.uniform(seed, step) < 1


def test_uniform_numbers_are_spread_evenly() -> None:
    numbers = [curves.uniform(7, step) for step in range(10_000)]
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.02
    assert abs(sum(number < 0.1 for number in numbers) / len(numbers) - 0.1) < 0.02


def test_curves_differ_in_what_they_are_named_for() -> None:
    day = [curves.share(Curve.DIURNAL, 1, hour * 3600.0).cpu for hour in range(24)]
    assert max(day) > 2 * min(day)
    bursts = [curves.share(Curve.BURSTY, 1, slot * curves.BURST_SLOT_SECONDS + 1).cpu for slot in range(500)]
    assert 0.1 < sum(cpu > 0.2 for cpu in bursts) / len(bursts) < 0.3
    burner = [curves.share(Curve.BURNER, 1, float(second)).cpu for second in range(120)]
    assert max(burner[:60]) < 0.1 < 0.4 < min(burner[60:])


@pytest.mark.parametrize("text", ["sawtooth", "diurnal:x", "diurnal:-1", ":3"])
def test_an_unknown_curve_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match=names.ANNOTATION_USAGE_CURVE):
        curve_of(a_pod(text))


def test_a_node_uses_the_sum_of_its_pods_and_a_little_of_its_own() -> None:
    source = SimulatedSource("n", SIZE, ManualClock(), speed=1)
    sample = source.sample([a_pod()])
    assert sample.pods["uid"].cpu_cores <= 1
    assert sample.node.cpu_cores > sample.pods["uid"].cpu_cores
    assert sample.node.cpu_cores < sample.pods["uid"].cpu_cores + 1


def test_no_node_uses_more_than_it_has() -> None:
    sample = SimulatedSource("n", SIZE, ManualClock(), speed=1).sample([a_pod(cpu="1000")])
    assert sample.node.cpu_cores == 16


@pytest.mark.parametrize("pod", [a_pod(phase="Pending"), a_pod("sawtooth"), a_pod(cpu="many")])
def test_a_pod_that_does_not_run_or_means_nothing_has_no_usage(pod: Pod) -> None:
    assert SimulatedSource("n", SIZE, ManualClock(), speed=1).sample([pod]).pods == {}


def test_simulated_time_starts_with_the_pod_and_runs_as_fast_as_asked() -> None:
    clock = ManualClock(now=1_700_000_000.0)
    pod = a_pod(created="2023-11-14T22:13:20Z")  # the clock's start
    trace = [traces.Series(np.array([0.0, 600.0, 1200.0]), np.array([0.0, 0.6, 0.0]))]
    source = SimulatedSource("n", SIZE, clock, speed=60, trace=trace)
    clock.advance(5)
    assert source.sample([pod]).pods["uid"].cpu_cores == pytest.approx(0.3)
    clock.advance(5)
    assert source.sample([pod]).pods["uid"].cpu_cores == pytest.approx(0.6)
    clock.advance(15)
    assert source.sample([pod]).pods["uid"].cpu_cores == pytest.approx(0.3), "the trace starts anew"


def test_agents_of_an_accelerated_world_learn_as_much_sooner() -> None:
    assert fleet.accelerated(AgentSettings(), 60).prediction_hour_seconds == 60
    assert fleet.accelerated(AgentSettings(prediction_hour_seconds=2), 60).prediction_hour_seconds == 1


def test_names_of_nodes_sort_as_they_count() -> None:
    assert fleet.node_names(3) == ["sim-0", "sim-1", "sim-2"]
    names = fleet.node_names(101)
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("text", "at", "shares"),
    [
        ("ts,vm1,vm2\n100,1,10\n200,3,\n300,2,20\n", 50, [2 / 3, 0.625]),
        ("series,ts,value\ns0,60,4\ns1,60,1\ns0,120,2\ns1,120,1\n", 30, [0.75, 1.0]),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_series_stand_in_columns_or_in_rows(
    text: str, at: float, shares: list[float], suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"trace{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    assert [series.at(at) for series in traces.load(path)] == pytest.approx(shares)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a header"),
        ("a,b,c\n1,2,3\n", "no column of times"),
        ("ts,vm1\n1,2\n3,four\n", "line 3, column vm1: 'four'"),
        ("ts,vm1\n1,2\n3\n", "line 3"),
        ("ts,vm1\n1,2\n", "no series with two samples"),
        ("ts,vm1\n1,\n2,\n", "no series with two samples"),
        ("series,ts,value\na,1,x\n", "line 2, column value: 'x'"),
    ],
)
def test_a_malformed_trace_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        traces.load(path)
    assert words in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x1f\x8b\x08\x00broken"])
def test_a_file_that_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"trace\.csv\.gz"):
        traces.load(path)


def test_sample_workloads_ask_for_most_of_a_node_and_stay_off_others() -> None:
    pods = [*workloads.sample_pods("sim-0", 0), *workloads.sample_pods("sim-1", 1)]
    assert len(pods) == 2 * workloads.PODS_PER_NODE == 14
    assert len({str(pod["metadata"]) for pod in pods}) == 14


@pytest.mark.parametrize(("cpu", "waits"), [("1", 0.0), ("1000", 0.9)])
def test_pods_wait_for_what_they_want_beyond_the_node(cpu: str, waits: float) -> None:
    sample = SimulatedSource("n", SIZE, ManualClock(), speed=1).sample([a_pod(cpu=cpu)])
    share = sample.readings[SeriesKey(Kind.NODE, "", Metric.PROD_CPU_WAIT)]
    assert waits <= share < 1
    assert (share == 0) is (waits == 0)
