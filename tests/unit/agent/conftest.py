import psutil
import pytest


@pytest.fixture(autouse=True)
def proc_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source of measurements sets where psutil finds /proc, for the whole process: the next test gets it back."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", psutil.PROCFS_PATH)
