from pathlib import Path

import pytest

from deploy.prices import book
from tests.unit.prices.cloud_prices import write_table


@pytest.fixture(autouse=True)
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the machines of the tests cost, and nothing that was refreshed on this machine."""
    monkeypatch.setenv(book.FOLDER, str(tmp_path / "price-tables"))
    return write_table(tmp_path / "price-tables")
