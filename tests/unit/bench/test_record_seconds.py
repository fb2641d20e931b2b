"""What a recording by the second has of a service, and what becomes of its processes."""

import csv
import gzip
import sys
from pathlib import Path

import pytest

from tests.bench.agent import pod_tree
from tests.bench.record_seconds import record

BUSY = """
import os
os.fork()
while True: pass
"""


@pytest.fixture(autouse=True)
def _cgroups() -> None:
    with pod_tree([]) as layout:
        if layout is None:
            pytest.skip("no cgroups of v1 can be made here")


def test_a_service_is_recorded_with_its_children_and_none_is_left_when_it_is_over(tmp_path: Path) -> None:
    file = tmp_path / "seconds.csv.gz"
    record(
        {"idle": ["sleep", "1000"], "busy": [sys.executable, "-c", BUSY]}, 3, file
    )  # no cgroup in use can be removed
    with gzip.open(file, "rt", newline="") as read:
        first, *rows = csv.DictReader(read)
    assert [row.pop("ts") for row in (first, *rows)] == ["0", "1", "2", "3"]
    assert not any(first.values()), "there is no rate before the second reading"
    last = {name: float(value) for name, value in rows[-1].items()}
    assert last["busy_cpu_millicores"] > last["idle_cpu_millicores"]
    assert last["busy_memory_mib"] > last["idle_memory_mib"]


def test_a_recording_ends_with_the_service_that_ends(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="short ended after"):
        record({"short": ["true"], "long": ["sleep", "1000"]}, 30, tmp_path / "seconds.csv.gz")
