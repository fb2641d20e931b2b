"""A replay on a real Dask cluster comes to the same numbers as one in this process."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Run
from tests.unit.backtest.test_command import results


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_comes_to_the_same_numbers_to_the_last_digit(
    tmp_path: Path, trace: list[str | Path], backtest: Run
) -> None:
    def numbers(*more: str) -> list[dict[str, Any]]:
        status, out, err = backtest(*trace, "--model", "peak-mix,n-sigma-v2", "-o", "json", *more)
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
def test_a_bad_engine_is_named(backtest: Run, engine: str) -> None:
    status, _, err = backtest("x.csv", "--engine", engine)
    assert status == 2
    assert f"--engine: '{engine}': expected dask://HOST:PORT" in err


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_is_not_there_is_named(
    trace: list[str | Path], backtest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr("deploy.backtest.on_dask.CONNECT_SECONDS", 0.5)
        status, _, err = backtest(*trace, "--engine", f"dask://{address}")
    assert status == 1
    assert f"no Dask scheduler at {address}" in err
