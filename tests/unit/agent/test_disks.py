"""What the machine's disks read and write is counted once, and never what a counter cannot mean."""

from pathlib import Path

import pytest

from agent.metric_cache.series import Metric, SeriesKey
from agent.metrics_advisor.disks import Disks
from tests.unit.agent.trees import sysfs

SECTOR = 512


def rates(directory: Path, *readings: tuple[int, int]) -> dict[Metric, float]:
    """After two readings, ten seconds apart, of the sectors vda has read and written."""
    sysfs(directory / "sys", ())
    now = 0.0
    disks = Disks(directory, directory / "sys", None, lambda: now)
    found: dict[SeriesKey, float] = {}
    for read, written in readings:
        now += 10
        lines = (
            f"254 {minor} {name} 1 0 {read} 1 1 0 {written} 1 0 1 1\n" for minor, name in enumerate(("vda", "vda1"))
        )
        (directory / "diskstats").write_text("".join(lines))
        found.clear()
        disks.sample(found)
    return {key.metric: value for key, value in found.items()}


def test_partitions_do_not_count_twice(tmp_path: Path) -> None:
    assert rates(tmp_path, (0, 0), (100, 200)) == {Metric.DISK_READ: 10 * SECTOR, Metric.DISK_WRITE: 20 * SECTOR}


@pytest.mark.parametrize("later", [(50, 300), (2**62, 300)], ids=["went back", "leapt"])
def test_a_counter_that_makes_no_sense_tells_nothing(tmp_path: Path, later: tuple[int, int]) -> None:
    assert rates(tmp_path, (100, 200), later) == {Metric.DISK_WRITE: 10 * SECTOR}


def test_the_first_reading_has_nothing_to_compare_with(tmp_path: Path) -> None:
    assert rates(tmp_path, (100, 200)) == {}


def test_a_machine_that_shows_no_disks_has_no_rates(tmp_path: Path) -> None:
    found: dict[SeriesKey, float] = {}
    Disks(tmp_path / "proc", tmp_path / "sys", tmp_path / "gone", lambda: 0.0).sample(found)
    assert found == {}
