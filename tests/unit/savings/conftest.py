import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from deploy.prices import book
from tests.support import schemas
from tests.support.command_line import Run
from tests.unit.backtest.prometheus_server import PrometheusServer
from tests.unit.prices.cloud_prices import write_table
from tests.unit.savings import clusters

Dump: TypeAlias = Callable[..., Path]


class Command:
    """`headroom savings` or `headroom recommend`."""

    def __init__(self, headroom: Run, name: str) -> None:
        self._headroom, self._name = headroom, name

    def __call__(self, *arguments: str | Path, status: int = 0) -> str:
        """What it prints; it has to end with that status."""
        done = self._headroom(self._name, *arguments)
        assert done.status == status, done.err
        return done.out

    def answer(self, *arguments: str | Path) -> Any:
        """Its answer in JSON, which keeps to the published schema."""
        found = json.loads(self(*arguments, "-o", "json"))
        assert list(schemas.problems(found, schemas.published(self._name))) == []
        return found


@pytest.fixture(autouse=True)
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the machines of the tests cost, and nothing that was refreshed on this machine."""
    monkeypatch.setenv(book.FOLDER, str(tmp_path / "price-tables"))
    return write_table(tmp_path / "price-tables")


@pytest.fixture
def savings(headroom: Run) -> Command:
    return Command(headroom, "savings")


@pytest.fixture
def recommend(headroom: Run) -> Command:
    return Command(headroom, "recommend")


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    found = PrometheusServer()
    yield found
    found.close()


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    """Writes objects as kubectl prints them."""
    return lambda *objects: clusters.dumped(tmp_path / "dump.json", *objects)
