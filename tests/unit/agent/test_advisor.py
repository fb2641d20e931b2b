"""One tick is put together so that nothing is counted twice and nothing is lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.metrics_advisor.advisor import entities
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import Host, busy_seconds, used_bytes
from agent.metrics_advisor.source import Sample
from shared.names import PriorityClass

USAGE = st.builds(Usage, st.floats(0, 100), st.floats(0, 1e12))


def test_the_system_is_what_the_pods_leave_and_the_prod_peak_series_what_mid_must_not_touch() -> None:
    sample = Sample(
        Usage(4.0, 100.0),
        {"prod": Usage(1.0, 20.0), "mid": Usage(0.5, 10.0), "none": Usage(0.25, 5.0), "unknown": Usage(9.0, 9.0)},
    )
    classes = {
        "prod": PriorityClass.PROD,
        "mid": PriorityClass.MID,
        "none": PriorityClass.NONE,
        "unread": PriorityClass.PROD,
    }
    got = entities(sample, classes)
    assert got[series.SYSTEM] == Usage(2.25, 65.0)
    assert got[series.PROD_PEAK] == Usage(3.5, 90.0)
    assert got[series.of_class(PriorityClass.MID)] == Usage(0.5, 10.0)
    assert got[series.of_class(PriorityClass.BATCH)] == Usage(0.0, 0.0)
    assert "unknown" not in got
    assert "unread" not in got


@given(USAGE, st.dictionaries(st.sampled_from("abcdef"), st.tuples(USAGE, st.sampled_from(PriorityClass))))
def test_no_entity_uses_less_than_nothing_and_the_prod_peak_covers_the_system(
    node: Usage, pods: dict[str, tuple[Usage, PriorityClass]]
) -> None:
    sample = Sample(node, {uid: usage for uid, (usage, _) in pods.items()})
    got = entities(sample, {uid: priority_class for uid, (_, priority_class) in pods.items()})
    assert all(value >= 0 for usage in got.values() for value in usage)
    assert got.keys() == series.NODE_ENTITIES | pods.keys()
    assert got[series.PROD_PEAK].cpu_cores >= got[series.SYSTEM].cpu_cores


def test_system_follows_koordinators_rule() -> None:
    got = entities(Sample(Usage(1.0, 1024.0), {"p": Usage(0.5, 512.0)}), {"p": PriorityClass.PROD})
    assert got[series.SYSTEM] == Usage(0.5, 512.0)
    got = entities(Sample(Usage(1.0, 1.0), {"p": Usage(2.0, 2.0)}), {"p": PriorityClass.PROD})
    assert got[series.SYSTEM] == Usage(0.0, 0.0)


def test_cpus_that_come_at_run_time_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    host = Host(Path("/proc"), Descriptors())
    assert host.cpu_count == 2
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert host.cpu_count == 64


def test_busy_time_leaves_out_waiting_stolen_and_guest_time() -> None:
    tick = busy_seconds(b"cpu  1 0 0 0 0 0 0 0 0 0\ncpu0 0\n")
    assert busy_seconds(b"cpu  1 2 3 1000 1000 4 5 1000 1000 1000\n") == pytest.approx(15 * tick)


@pytest.mark.parametrize("stat", [b"", b"cpu 1 2 3\n", b"intr 1 2 3 4 5 6 7 8 9\n", b"cpu a b c d e f g h\n"])
def test_a_proc_stat_of_another_shape_is_refused(stat: bytes) -> None:
    with pytest.raises(ValueError):
        busy_seconds(stat)


def test_used_memory_is_total_less_available() -> None:
    assert used_bytes(b"MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 40 kB\nBuffers: 0 kB\n") == 60 * 1024


@pytest.mark.parametrize("meminfo", [b"", b"MemTotal: 100 kB\n", b"MemTotal:\nMemAvailable: 1 kB\n"])
def test_a_meminfo_without_the_numbers_is_refused(meminfo: bytes) -> None:
    with pytest.raises(ValueError):
        used_bytes(meminfo)
