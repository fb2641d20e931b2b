"""A replay on a real Dask cluster comes to the same numbers as one in this process."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.unit.backtest import traces
from tests.unit.backtest.test_command import results, run


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_comes_to_the_same_numbers_to_the_last_digit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, limits = traces.write_wide(tmp_path)
    asked: list[str | Path] = [
        trace,
        "--limits",
        limits,
        "--node-cores",
        "16",
        "--model",
        "peak-mix,n-sigma-v2",
        "-o",
        "json",
    ]

    def numbers(*more: str) -> list[dict[str, Any]]:
        status, out, err = run(capsys, monkeypatch, *asked, *more)
        assert status == 0, err
        return [{key: value for key, value in one.items() if key != "cpu_seconds"} for one in results(out)]

    from distributed import LocalCluster  # here, as each worker imports this file, and one runs it

    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None, local_directory=str(tmp_path)
    ) as cluster:
        here = numbers()
        there = numbers("--engine", cluster.scheduler_address.replace("tcp://", "dask://"))
    assert here == there


@pytest.mark.parametrize("engine", ["ray://host:1", "dask://host", "dask://host:port", "dask://:1", "dask://h:1/x"])
def test_a_bad_engine_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    status, _, err = run(capsys, monkeypatch, tmp_path / "x.csv", "--engine", engine)
    assert status == 2
    assert f"--engine: '{engine}': expected dask://HOST:PORT" in err


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, limits = traces.write_wide(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr("deploy.backtest.on_dask.CONNECT_SECONDS", 0.5)
        status, _, err = run(
            capsys, monkeypatch, trace, "--limits", limits, "--node-cores", "16", "--engine", f"dask://{address}"
        )
    assert status == 1
    assert f"no Dask scheduler at {address}" in err
