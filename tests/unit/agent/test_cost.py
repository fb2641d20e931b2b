"""The agent's own cost, as procfs tells it."""

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.telemetry.cost import CostCollector
from shared import descriptors

ROLLUP = """00400000-7ffc00000000 ---p 00000000 00:00 0    [rollup]
Rss:               90000 kB
Private_Clean:     20000 kB
Private_Dirty:     50000 kB
Anonymous:         45000 kB
Private_Hugetlb:       0 kB
"""


def registry(process: Path) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(CostCollector(process))
    return made


def test_memory_of_files_is_told_apart_from_what_the_agent_holds_itself(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    (tmp_path / "smaps_rollup").write_text(ROLLUP)
    found = registry(tmp_path)
    assert found.get_sample_value("headroom_agent_uss_bytes", {"backing": "anonymous"}) == 45000 * 1024
    assert found.get_sample_value("headroom_agent_uss_bytes", {"backing": "file"}) == 25000 * 1024
    assert found.get_sample_value("headroom_agent_open_files") == 0


@pytest.mark.parametrize("rollup", [None, "", "nonsense", "a\nPrivate_Dirty: many kB\n"])
def test_what_cannot_be_read_costs_no_other_figure(tmp_path: Path, rollup: str | None) -> None:
    if rollup is not None:
        (tmp_path / "smaps_rollup").write_text(rollup)
    assert registry(tmp_path).get_sample_value("headroom_agent_cpu_seconds_total") is not None


def test_of_this_very_process_open_files_and_their_raised_limit_are_told() -> None:
    limit = descriptors.raise_limit()
    found = registry(Path("/proc/self"))
    before = found.get_sample_value("headroom_agent_open_files")
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        assert found.get_sample_value("headroom_agent_open_files") == (before or 0) + 1
    finally:
        os.close(descriptor)
    assert found.get_sample_value("headroom_agent_open_files_limit") == limit
    assert (found.get_sample_value("headroom_agent_uss_bytes", {"backing": "anonymous"}) or 0) > 1 << 20
