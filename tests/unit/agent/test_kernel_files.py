"""What the kernel writes is understood in every form it takes, and nothing else is."""

from collections.abc import Callable

import pytest

from agent.metrics_advisor import formats
from agent.metrics_advisor.cgroup import MemoryLines

V2_MEMORY = b"anon 1\nactive_anon 10\ninactive_anon 20\nunevictable 3\nfile 5\nactive_file 100\ninactive_file 1000\n"


def test_busy_time_leaves_out_waiting_stolen_and_guest_time() -> None:
    tick = formats.busy_seconds(b"cpu  1 0 0 0 0 0 0 0 0 0\ncpu0 0\n")
    assert formats.busy_seconds(b"cpu  1 2 3 1000 1000 4 5 1000 1000 1000\n") == pytest.approx(15 * tick)


def test_busy_time_by_cpu_knows_the_cpus_that_are_online() -> None:
    stat = b"cpu  9 0 0 0 0 0 0 0\ncpu0 100 0 0 0 0 0 0 0\ncpu3 200 0 0 7 7 0 0 7\nintr 1 2\nctxt 9\n"
    tick = formats.busy_seconds(b"cpu  1 0 0 0 0 0 0 0\n")
    assert formats.busy_seconds_by_cpu(stat) == {0: pytest.approx(100 * tick), 3: pytest.approx(200 * tick)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"some avg10=12.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=100.00 avg60=0 avg300=0 total=1\n", (0.125, 1)),
        (b"some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n", (0, None)),
        (b"some avg10=100.50 avg60=0.00 avg300=0.00 total=9\n", (1, None)),
    ],
    ids=["both", "an older kernel's cpu", "never above all"],
)
def test_pressure_is_a_ratio(text: bytes, expected: tuple[float | None, float | None]) -> None:
    assert formats.pressure(text) == expected


@pytest.mark.parametrize(("text", "expected"), [(b"0-3\n", {0, 1, 2, 3}), (b"0,2-3,7\n", {0, 2, 3, 7}), (b"\n", set())])
def test_lists_of_cpus(text: bytes, expected: set[int]) -> None:
    assert formats.cpu_list(text) == expected


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (formats.usage_usec, b""),
        (formats.usage_usec, b"nr_periods 0\n"),
        (formats.usage_usec, b"usage_usec \n"),
        (formats.usage_usec, b"a_usage_usec 5\n"),
        (formats.throttling, b"usage_usec 5\n"),
        (formats.busy_seconds, b""),
        (formats.busy_seconds, b"cpu 1 2 3\n"),
        (formats.busy_seconds, b"intr 1 2 3 4 5 6 7 8 9\n"),
        (formats.busy_seconds, b"cpu a b c d e f g h\n"),
        (formats.busy_seconds_by_cpu, b"cpu 1\ncpu0 1 2\n"),
        (formats.used_bytes, b""),
        (formats.used_bytes, b"MemTotal: 100 kB\n"),
        (formats.used_bytes, b"MemTotal:\nMemAvailable: 1 kB\n"),
        (formats.numa_used_bytes, b"Node 0 MemTotal: 1 kB\n"),
        (formats.pressure, b"some avg10=-1.00 avg60=0 total=1\n"),
        (formats.pressure, b"some avg10=nan avg60=0 total=1\n"),
        (formats.pressure, b"some\n"),
        (formats.cpu_list, b"0-x\n"),
        (formats.load, b"0.5\n"),
    ],
)
def test_a_file_of_another_shape_is_refused(read: Callable[[bytes], object], content: bytes) -> None:
    with pytest.raises(ValueError):
        read(content)


@pytest.mark.parametrize(
    "stat", [b"", b"\n", b"active_anon 10\n", V2_MEMORY.replace(b"unevictable 3", b"unevictable x")]
)
def test_a_memory_stat_without_every_line_is_refused(stat: bytes) -> None:
    with pytest.raises(ValueError):
        formats.sum_of(stat, MemoryLines.of(v2=True).working)


def test_a_numa_stat_without_every_line_is_refused() -> None:
    with pytest.raises(ValueError, match="hierarchical_anon"):
        formats.numa_bytes(b"total=4 N0=4\n", (b"hierarchical_anon",), 4096)
