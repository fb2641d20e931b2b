from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_line import Run
from tests.unit.backtest import traces
from tests.unit.backtest.prometheus_server import PrometheusServer


@pytest.fixture
def backtest(headroom: Run) -> Run:
    return partial(headroom, "backtest")


@pytest.fixture
def trace(tmp_path: Path) -> list[str | Path]:
    """What makes a replay of three nodes."""
    path, limits = traces.write_wide(tmp_path)
    return [path, "--limits", limits, "--node-cores", "16"]


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    found = PrometheusServer()
    yield found
    found.close()
