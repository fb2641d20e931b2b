"""Recorded usage as files have it, and what is wrong with some."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from agent.metric_cache.aggregate import Aggregation
from deploy.backtest import fleets, matrix, tables
from deploy.backtest.fleets import SeriesPlacement
from deploy.backtest.samples import on_grid, unit_named
from shared.errors import HeadroomError, InvalidInput


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["usage_cpu_millicores.csv", "usage_cpu_millicores.csv.gz"])
def test_a_wide_table_has_a_column_for_each_series_and_gaps_where_fields_are_empty(tmp_path: Path, name: str) -> None:
    samples = tables.samples(file(tmp_path, name, "ts,a,b\n0,100,\n300,200,50\n900,300,60\n"))
    grid = on_grid(samples)
    assert samples.names == ["a", "b"]
    assert (grid.start, grid.interval_seconds) == (0, 300)
    expected = [[0.1, 0.2, np.nan, 0.3], [np.nan, 0.05, np.nan, 0.06]]
    assert np.allclose(grid.usage, expected, equal_nan=True)


def test_a_long_table_has_a_row_for_each_sample_and_may_tell_the_node(tmp_path: Path) -> None:
    text = "time,pod,node,memory_mib\n1970-01-01T00:00:00Z,a,n1,1\n60,a,n1,2\n60,b,n2,3\n120,a,n1,\n120,b,n2,4\n"
    samples = tables.samples(file(tmp_path, "usage.csv", text))
    grid = on_grid(samples)
    assert (samples.unit.resource, samples.names, samples.nodes) == ("memory", ["a", "b"], ["n1", "n2"])
    assert np.array_equal(grid.usage / 2**20, [[1, 2, np.nan], [np.nan, 3, 4]], equal_nan=True)


def test_samples_between_ticks_count_in_the_tick_before_with_the_largest(tmp_path: Path) -> None:
    text = "ts,a\n0,1\n60,2\n90,7\n120,3\n180,4\n240,5\n"
    grid = on_grid(tables.samples(file(tmp_path, "x.csv", text), "cpu_cores"))
    assert grid.usage.tolist() == [[1, 7, 3, 4, 5]]


@pytest.mark.parametrize(
    ("columns", "asked", "taken", "amount"),
    [
        ("min,mean,max", "", "max", 3.0),
        ("min,mean,max", "mean", "mean", 2.0),
        ("min_cpu_cores,avg_cpu_millicores,max_cpu_cores", "mean", "mean", 0.002),
        ("min,avg,value", "", "mean", 2.0),
        ("low,high,cpu_cores", "", "", 3.0),
    ],
)
def test_of_several_aggregates_of_an_interval_one_is_taken_the_maximum_unless_asked(
    tmp_path: Path, columns: str, asked: str, taken: str, amount: float
) -> None:
    path = file(tmp_path, "usage_cpu_cores.csv", f"time,pod,{columns}\n0,a,1,2,3\n300,a,1,2,3\n")
    samples = tables.samples(path, aggregate=asked)
    assert samples.aggregate == taken
    assert samples.values.tolist() == pytest.approx([amount, amount])


def test_samples_of_seconds_become_what_an_agent_trains_on(tmp_path: Path) -> None:
    rows = "".join(f"{second},a,{9 if second % 30 < 3 else 1}\n" for second in range(120))
    samples = tables.samples(file(tmp_path, "usage.csv", f"time,pod,cpu_cores\n{rows}"))
    limits = tables.requested(file(tmp_path, "limits.csv", "pod,cpu_limit_cores\na,10\n"))

    def replayed(training: Aggregation) -> tuple[list[float], float, str]:
        made = fleets.fleet(samples, limits, SeriesPlacement(node_cores=10), lambda note: None, training).recorded
        return made.usage[0].tolist(), made.interval_seconds, made.aggregate

    assert replayed(Aggregation.P90) == ([1.0] * 4, 30.0, "p90")
    assert replayed(Aggregation.MAX) == ([9.0] * 4, 30.0, "max")


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    import polars  # here, as each worker imports this file, and one runs it

    table = polars.DataFrame({"ts": [0, 300], "a": [0.5, None], "b": [1.0, 2.0]})
    table.write_parquet(tmp_path / "x_cpu_cores.parquet")
    grid = on_grid(tables.samples(tmp_path / "x_cpu_cores.parquet"))
    assert np.array_equal(grid.usage, np.array([[0.5, np.nan], [1, 2]]), equal_nan=True)
    polars.DataFrame({"time": table["ts"].cast(polars.Datetime("ms")), "pod": ["a", "b"], "cpu_cores": [1, 2]}).select(
        polars.col("time").dt.replace_time_zone("UTC"), "pod", "cpu_cores"
    ).write_parquet(tmp_path / "long.parquet")
    assert tables.samples(tmp_path / "long.parquet").times.tolist() == [0, 0.3]
    broken = file(tmp_path, "broken_cpu_cores.parquet", "no parquet")
    with pytest.raises(InvalidInput, match=r"broken_cpu_cores\.parquet: file"):
        tables.samples(broken)


def test_names_say_units() -> None:
    assert [unit and unit.factor for unit in map(unit_named, ("x_cpu_millicores", "mem_mib", "CPU_cores", "cpu"))] == [
        1e-3,
        2.0**20,
        1.0,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: '': expected a header"),
        ("ts,a,a\n", "line 1: 'ts,a,a': expected a header"),
        ("day,a\n1,2\n", "line 1, column time: 'day,a': no column of times"),
        ("ts,a\n0,x\n", "line 2, column a: 'x': expected a number"),
        ("ts,a\n0,-1\n", "line 2, column a: '-1': expected a number"),
        ("ts,a\n0,inf\n", "line 2, column a: 'inf': expected a number"),
        ("ts,a\n0,1\nsoon,1\n", "line 3, column ts: 'soon': neither"),
        ("ts,a\n1e99,1\n", "line 2, column ts: '1e99': not a time"),
        ("ts,a\n0,1,2\n", r"line 2, column \(all\): 3: expected 2 fields"),
        ("ts,pod,what\n0,a,1\n", "line 1, column value: 'ts,pod,what': no column of values"),
        ("ts,pod,value\n0,a,1\n7,b\n", r"line 3, column \(all\): 2: expected 3 fields"),
    ],
)
def test_a_bad_table_is_named_with_line_column_and_value(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=f"usage_cpu_cores.csv: {problem}"):
        tables.samples(file(tmp_path, "usage_cpu_cores.csv", text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ts,a\n0,1\n", "samples at two or more times"),
        ("ts,a\n0,1\n7000,1\n14000,1\n", "'7000 s': the time between two samples must divide an hour"),
        ("ts,a\n0,1\n1,2\n4000000000,1\n", "more than"),
    ],
)
def test_times_that_no_replay_can_be_made_of_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        on_grid(tables.samples(file(tmp_path, "x_cpu_cores.csv", text)))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"gone\.csv: file"):
        tables.samples(tmp_path / "gone.csv")
    broken = tmp_path / "broken_cpu_cores.csv.gz"
    broken.write_bytes(gzip.compress(b"ts,a\n0,1\n" * 1000)[:40])
    with pytest.raises(InvalidInput, match=r"broken_cpu_cores\.csv\.gz: "):
        tables.samples(broken)


def test_what_numbers_count_has_to_be_known(tmp_path: Path) -> None:
    path = file(tmp_path, "usage.csv", "ts,a\n0,1\n300,2\n")
    with pytest.raises(InvalidInput, match="name it with --unit"):
        tables.samples(path)
    assert tables.samples(path, "mem_mib").values.tolist() == [2**20, 2**21]


class TestRequests:
    wide = "ts,a,b\n0,1,1\n300,2,2\n600,2,3\n"

    def test_requests_go_before_limits(self, tmp_path: Path) -> None:
        text = "pod,cpu_limit_cores,cpu_request_millicores,mem_limit_mib\na,4,1500,10\nb,4,,\n"
        found = tables.requested(file(tmp_path, "limits.csv", text))
        assert found.cores == {"a": 1.5}
        assert found.memory_bytes == {"a": 10 * 2**20}

    def test_a_series_without_one_is_left_out_and_told(self, tmp_path: Path) -> None:
        samples = tables.samples(file(tmp_path, "x_cpu_cores.csv", self.wide))
        limits = tables.requested(file(tmp_path, "limits.csv", "vm,cpu_limit_cores\na,2\n"))
        notes: list[str] = []
        made = fleets.fleet(samples, limits, SeriesPlacement(node_cores=2), notes.append)
        assert made.recorded.limits.tolist() == [2]
        assert notes == ["x_cpu_cores.csv: 1 of 2 series requested nothing and are left out"]

    def test_nothing_is_replayed_without_any(self, tmp_path: Path) -> None:
        samples = tables.samples(file(tmp_path, "x_cpu_cores.csv", self.wide))
        with pytest.raises(InvalidInput, match="name a file with --limits"):
            fleets.fleet(samples, None, SeriesPlacement(), print)

    def test_a_table_without_amounts_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="no column of requests or limits"):
            tables.requested(file(tmp_path, "limits.csv", "vm,colour\na,red\n"))

    def test_machines_are_nodes_and_have_the_size_that_was_told(self, tmp_path: Path) -> None:
        samples = tables.samples(file(tmp_path, "x_cpu_e4.csv", "t,m1,m2\n0,5000,100\n300,2500,100\n"))
        limits = tables.requested(file(tmp_path, "meta.csv", "machine,cpu_capacity,mem_capacity\nm1,0.5,1\nm2,1,1\n"))
        made = fleets.fleet(samples, limits, SeriesPlacement(node_cores=32), print)
        assert made.schedule.nodes == 2
        assert made.recorded.limits.tolist() == [16, 32]
        assert made.recorded.usage[0].tolist() == [16, 8]
        with pytest.raises(InvalidInput, match=r"--churn: x_cpu_e4\.csv: '48h': machines have no churn"):
            fleets.fleet(samples, limits, SeriesPlacement(recorded=False, churn_hours=48), print)


class TestPlacement:
    def samples(self, folder: Path, series: int = 8) -> Path:
        rows = [f"{tick * 300},{pod},n{pod % 2},0.5" for tick in range(24) for pod in range(series)]
        return file(folder, "x.csv", "\n".join(["ts,pod,node,cpu_cores", *rows]))

    def limits(self, folder: Path, series: int = 8) -> tables.SeriesRequests:
        rows = "".join(f"{pod},1\n" for pod in range(series))
        return tables.requested(file(folder, "limits.csv", f"pod,cpu_limit_cores\n{rows}"))

    def test_pods_stay_where_they_ran_unless_told_otherwise(self, tmp_path: Path) -> None:
        samples, limits = tables.samples(self.samples(tmp_path)), self.limits(tmp_path)
        where = fleets.fleet(samples, limits, SeriesPlacement(), print).schedule
        assert (where.nodes, where.node.tolist(), where.series.tolist()) == (
            2,
            [0, 0, 0, 0, 1, 1, 1, 1],
            [0, 2, 4, 6, 1, 3, 5, 7],
        )
        packed = fleets.fleet(samples, limits, SeriesPlacement(2, recorded=False), print).schedule
        assert packed.nodes == 4

    def test_every_seed_packs_anew_and_has_so_many_nodes(self, tmp_path: Path) -> None:
        samples, limits = tables.samples(self.samples(tmp_path)), self.limits(tmp_path)
        made = fleets.fleet(samples, limits, SeriesPlacement(2, recorded=False, seeds=3, max_nodes=2), print).schedule
        assert made.nodes == 6
        assert len({tuple(made.series[made.node // 2 == seed].tolist()) for seed in range(3)}) > 1

    def test_a_place_that_is_not_recorded_cannot_be_taken(self, tmp_path: Path) -> None:
        samples = tables.samples(file(tmp_path, "x_cpu_cores.csv", "ts,a\n0,1\n300,2\n"))
        limits = tables.requested(file(tmp_path, "limits.csv", "vm,cpu_limit_cores\na,2\n"))
        with pytest.raises(InvalidInput, match="where these ran is not recorded"):
            fleets.fleet(samples, limits, SeriesPlacement(recorded=True), print)

    def test_nodes_too_large_for_what_was_recorded_are_refused(self, tmp_path: Path) -> None:
        samples, limits = tables.samples(self.samples(tmp_path)), self.limits(tmp_path)
        with pytest.raises(InvalidInput, match="no node is half full"):
            fleets.fleet(samples, limits, SeriesPlacement(64, recorded=False), print)


class TestSavedAnswers:
    def answer(self, folder: Path, *series: Mapping[str, object], name: str = "saved_cpu_cores.json") -> Path:
        document = {"status": "success", "data": {"resultType": "matrix", "result": series}}
        return file(folder, name, json.dumps(document))

    def test_each_series_is_a_pod_on_its_node(self, tmp_path: Path) -> None:
        one = {"metric": {"namespace": "a", "pod": "p", "node": "n"}, "values": [[0, "1"], [60, "NaN"], [120, "0.5"]]}
        other = {"metric": {"namespace": "b", "pod": "p", "node": "n"}, "values": [[60, "2"]]}
        samples = matrix.saved(self.answer(tmp_path, one, other), "")
        assert samples.names == ["a/p", "b/p"]
        assert samples.nodes == ["n", "n"]
        assert np.array_equal(on_grid(samples).usage, [[1, np.nan, 0.5], [np.nan, 2, np.nan]], equal_nan=True)

    @pytest.mark.parametrize(
        ("kind", "series", "problem"),
        [
            ("vector", "", "no answer to a range query.*resultType"),
            ("matrix", "", "no series"),
            ("matrix", '{"metric": {}, "values": [[0, "-1"]]}', r"-1\.0"),
            ("matrix", '{"metric": {}, "values": [[0, "+Inf"]]}', "inf"),
            ("matrix", '{"metric": {}, "values": [[0, "x"]]}', "'x'"),
            ("matrix", '{"metric": {}, "values": [["now", "1"]]}', "no answer to a range query"),
        ],
    )
    def test_what_is_no_answer_is_named(self, tmp_path: Path, kind: str, series: str, problem: str) -> None:
        content = f'{{"status": "success", "data": {{"resultType": "{kind}", "result": [{series}]}}}}'
        with pytest.raises(InvalidInput, match=rf"saved_cpu_cores\.json: .*{problem}"):
            matrix.saved(file(tmp_path, "saved_cpu_cores.json", content), "")

    def test_an_error_that_was_saved_is_told(self, tmp_path: Path) -> None:
        content = '{"status": "error", "errorType": "bad_data", "error": "parse error"}'
        with pytest.raises(HeadroomError, match=r"saved\.json: parse error"):
            matrix.saved(file(tmp_path, "saved.json", content), "cpu_cores")

    def test_a_counter_and_containers_are_refused(self, tmp_path: Path) -> None:
        counter = {"metric": {"__name__": "container_cpu_usage_seconds_total"}, "values": [[0, "1"]]}
        with pytest.raises(InvalidInput, match="a counter"):
            matrix.saved(self.answer(tmp_path, counter), "")
        containers = [{"metric": {"pod": "p", "container": name}, "values": [[0, "1"]]} for name in "ab"]
        with pytest.raises(InvalidInput, match="two series are of the same pod"):
            matrix.saved(self.answer(tmp_path, *containers), "")
