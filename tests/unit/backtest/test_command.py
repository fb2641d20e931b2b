"""`headroom backtest` on files: what it prints, and how it ends."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import schemas
from tests.support.command_line import Run


def results(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["results"]
    return found


def test_json_keeps_to_its_schema(trace: list[str | Path], backtest: Run) -> None:
    asked = ["--model", "peak-mix,max(n-sigma-v1,percentile)", "--target", "1,5", "--horizon", "24h,1h", "-o", "json"]
    status, out, _ = backtest(*trace, *asked)
    assert status == 0
    assert list(schemas.problems(json.loads(out), schemas.published("backtest"))) == []
    assert [(one["model"], one["horizon_hours"], one["target_percent"]) for one in results(out)] == [
        ("peak-mix", 1, 1.0),
        ("peak-mix", 1, 5.0),
        ("peak-mix", 24, 1.0),
        ("peak-mix", 24, 5.0),
        ("max(n-sigma-v1,percentile)", 1, None),
        ("max(n-sigma-v1,percentile)", 24, None),
    ]
    assert {(one["source"], one["resource"], one["nodes"]) for one in results(out)} == {
        ("trace_cpu_millicores.csv.gz", "cpu", 3)
    }


def test_csv_and_table_have_a_row_for_each_result(trace: list[str | Path], backtest: Run) -> None:
    asked = [*trace, "--model", "borg-default,n-sigma-v1"]
    _, out, _ = backtest(*asked, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["model"] for row in rows] == ["borg-default", "n-sigma-v1"]
    assert rows[0]["target_percent"] == ""
    assert float(rows[0]["savings_percent"]) == pytest.approx(100 / 11)
    _, out, _ = backtest(*asked)
    header, first, *_ = out.splitlines()
    assert header.split()[:3] == ["SOURCE", "RESOURCE", "MODEL"]
    assert "9.1 %" in first


@pytest.mark.thorough
def test_workers_and_another_run_come_to_the_same_numbers(trace: list[str | Path], backtest: Run) -> None:
    asked = [*trace, "--model", "peak-mix,n-sigma-v2", "--churn", "30h", "--seeds", "2", "-o", "json"]

    def numbers(*more: str) -> list[dict[str, Any]]:
        _, out, _ = backtest(*asked, *more)
        return [{key: value for key, value in one.items() if key != "cpu_seconds"} for one in results(out)]

    assert numbers() == numbers("--workers", "2")


def test_the_answer_says_of_what_resolution_it_is_and_what_a_target_cannot_mean(
    trace: list[str | Path], backtest: Run
) -> None:
    asked = [*trace, "--model", "peak-mix", "--target", "1"]
    _, out, _ = backtest(*asked, "--aggregate", "mean", "-o", "json")
    (one,) = results(out)
    assert (one["resolution_seconds"], one["aggregate"]) == (900.0, "mean")
    assert "allowed in 100 days" in one["target_note"]
    assert "means of 900 s hide shorter peaks" in backtest(*asked, "--aggregate", "mean")[1]
    assert "hide shorter peaks" not in backtest(*asked, "--aggregate", "max")[1]


def test_a_missed_target_fails_when_asked_to(trace: list[str | Path], backtest: Run) -> None:
    asked = [*trace, "--target", "0.1", "--model"]
    status, out, err = backtest(*asked, "borg-default", "--fail-above-target")
    assert (status, err) == (0, "")
    status, out, err = backtest(*asked, "resource-central", "--fail-above-target")
    assert status == 1
    assert "resource-central broke" in err
    assert "resource-central" in out
    assert backtest(*asked, "resource-central")[0] == 0


def test_a_policy_is_read_from_a_file(trace: list[str | Path], tmp_path: Path, backtest: Run) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('{borgRatio: "2"}')
    _, out, _ = backtest(*trace, "--model", "borg-default", "--policy", policy, "-o", "json")
    assert results(out)[0]["savings_percent"] == pytest.approx(50)
    for wrong in ('{borgRatio: "0"}', "{borgRation: 2}"):
        policy.write_text(wrong)
        status, _, err = backtest(*trace, "--policy", policy)
        assert status == 2
        assert "borgRatio" in err


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--model", "guess", "no predictor 'guess'"),
        ("--target", "0", "percents above 0"),
        ("--target", "one", "not a number"),
        ("--target", "nan", "percents above 0"),
        ("--horizon", "90m", "whole hours"),
        ("--horizon", "1d", "not a duration"),
        ("--horizon", "1000h", "168h at most"),
        ("--resource", "gpu", "cpu or memory"),
        ("--churn", "5m", "an hour at least"),
        ("--churn", "recorded", "is not recorded"),
        ("--unit", "furlong", "expected one of"),
        ("--aggregate", "min", "expected one of mean, max"),
        ("--policy", "gone.yaml", "gone.yaml"),
        ("--limits", "gone.csv", "gone.csv"),
        ("--node-cores", "0", "--node-cores"),
        ("--node-cores", "nan", "--node-cores"),
        ("--seeds", "0", "--seeds"),
        ("-o", "html", "'-o'"),
    ],
)
def test_a_bad_flag_is_named_with_its_value(
    trace: list[str | Path], backtest: Run, flag: str, value: str, problem: str
) -> None:
    status, out, err = backtest(*trace, flag, value)
    assert (status, out) == (2, "")
    assert problem in err
    assert flag in err or value in err
    assert len(err.splitlines()) == 1


def test_a_source_of_another_resource_is_left_out_with_a_note(trace: list[str | Path], backtest: Run) -> None:
    status, _, err = backtest(*trace, "--resource", "memory")
    assert status == 2
    assert "trace_cpu_millicores.csv.gz is of cpu" in err
