"""Killed processes, torn files, full disks, crowds of pods: what is stored is right or absent, and never in the way."""

import logging
import os
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from agent.metric_cache import ring, ring_file, series, storage
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.ring import Ring
from agent.metric_cache.ring_file import BLOCK_COLUMNS, Geometry, UnusableRing
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metric_cache.storage import Disk, Storage
from shared.clock import ManualClock
from tests.support.properties import stride

NOW = 1_700_000_000
TINY = Geometry(step_seconds=1, rows=2, planes=1, name_bytes=32)
PLENTY = 1 << 40
HEADER_FIELDS_BYTES = 72  # with their checksum
NODE_CPU = SeriesKey(Kind.NODE, "", Metric.CPU)

# A node whose pods come and go; what each series holds at a second can be told from its name.
_WRITER = """
import itertools, sys, zlib
from pathlib import Path
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metric_cache.storage import Disk

cache = MetricCache(600, Disk(Path(sys.argv[1]), "node", 0.0))
assert not cache.problems, cache.problems
for second in itertools.count(max(cache.last_second + 1, 1_700_000_000)):
    uids = [f"pod-{number}" for number in range(second % 1000, second % 1000 + 100)]
    usages = {name: Usage(zlib.crc32(name.encode()) % 1000, second % 600) for name in ["__node__", *uids]}
    readings = {SeriesKey(Kind.CONTAINER, f"{uid}/c", Metric.CPU): float(second % 600) for uid in uids}
    cache.append(second, usages, readings)
    cache.retain_pods(uids)
    print(second, flush=True)
"""


def opened(directory: Path, **changes: Any) -> MetricCache:
    return MetricCache(600, Disk(directory, "node", 0.0), clock=ManualClock(NOW), **changes)


def test_a_process_killed_at_any_time_leaves_every_second_it_said_it_had_stored(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(0, 12, stride()):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 400)):
                said = int(writer.stdout.readline())
            writer.kill()
            said = max([said, *map(int, writer.stdout.read().split())])
        cache = opened(tmp_path)
        assert not cache.problems
        assert cache.last_second in (said, said + 1)
        # The second after the last one may have begun to take the place of the oldest.
        seconds, values = cache.range(SeriesKey(Kind.NODE, "", Metric.MEMORY), cache.last_second - 598, said)
        assert seconds[-1] == said
        assert np.array_equal(values[seconds >= NOW], seconds[seconds >= NOW] % 600)
        for key in cache.series_keys():
            seconds, values = cache.range(key, 0, said + 1)
            there = ~np.isnan(values)
            name = series.model_key(key.kind, key.entity)
            constant = key.metric is Metric.CPU and name is not None
            expected = zlib.crc32(str(name).encode()) % 1000 if constant else seconds[there] % 600
            assert (values[there] == expected).all(), key
        cache.close()


def tiny(directory: Path) -> Ring:
    return Ring(Storage(TINY, PLENTY, Disk(directory, "node", 0.0), "tiny"))


def key(number: int) -> SeriesKey:
    return SeriesKey(Kind.POD, f"uid-{number}", Metric.CPU)


def put(into: Ring, slot: int, numbers: range) -> None:
    columns = [column for number in numbers if (column := into.claim(key(number))) is not None]
    row = into.blank()
    row[0, columns] = [value(number, slot) for number in numbers]
    into.append(slot, row)


def value(number: Any, slot: Any) -> Any:
    return 1000 * slot + number


def claims(of: Ring) -> None:
    """Every sample is what its series had at that time."""
    held = of.held(0, of.last)
    if not len(held) or not of.columns:
        return
    found = of.read(held, np.array(list(of.columns.values())))
    numbers = np.array([int(name.entity.removeprefix("uid-")) for name in of.columns])
    assert (np.isnan(found) | (found == value(numbers, held[:, np.newaxis]))).all()


def interrupted(work: Callable[[], None], look: Callable[[], None]) -> int:
    """Runs `work`, and `look` before its lines in the modules that write; how many lines there are."""
    modules = {module.__file__ for module in (ring, ring_file, storage)}
    lines, every = 0, stride()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in modules:
            return None
        if event == "line":
            lines += 1
            if lines % every == 0:
                sys.settrace(None)
                look()
                sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.thorough
@pytest.mark.parametrize("first_pods", [range(0), range(BLOCK_COLUMNS - 4)], ids=["no ring yet", "an almost full one"])
def test_a_process_killed_between_any_two_lines_leaves_a_ring_that_is_right(tmp_path: Path, first_pods: range) -> None:
    life, after = tmp_path / "life", tmp_path / "after"
    life.mkdir()
    stored = -1
    if first_pods:
        of = tiny(life)
        put(of, 0, first_pods)
        of._storage.close()
        stored = 0

    def look() -> None:
        """What the next process would find, and whether it can go on."""
        shutil.copytree(life, after)
        found = tiny(after)
        assert found._storage.problem == found._storage.set_aside == ""
        assert found.last in (stored, stored + 1)
        claims(found)
        put(found, stored + 2, range(1000, 1003))
        claims(found)
        found._storage.close()
        shutil.rmtree(after)

    def work() -> None:
        nonlocal stored
        of = tiny(life)
        for slot in range(stored + 1, stored + 5):
            put(of, slot, range(500 + slot, 503 + slot))
            stored = slot
            of.release([key(500 + slot)])
        of._storage.close()

    assert interrupted(work, look) > 300


@pytest.mark.parametrize("length", [1_000, 70_000])
def test_a_name_too_long_for_its_record_costs_nothing_but_to_be_forgotten_at_a_restart(
    tmp_path: Path, length: int
) -> None:
    long = SeriesKey(Kind.WORKLOAD, f"d/Deployment/{'x' * length}", Metric.CPU)
    cache = opened(tmp_path)
    cache.append_values(NOW, (NODE_CPU, long), np.array([1.0, 2.0]))
    assert cache.range(long, NOW, NOW).values.tolist() == [2.0]
    cache.close()
    again = opened(tmp_path)
    assert again.series_keys() == [NODE_CPU]
    again.close()


@pytest.mark.thorough
def test_a_file_cut_off_at_any_byte_is_not_believed(tmp_path: Path) -> None:
    of = tiny(tmp_path)
    put(of, 0, range(3))
    of._storage.close()
    path = tmp_path / "tiny.ring"
    for size in reversed(range(path.stat().st_size)):
        os.truncate(path, size)
        with pytest.raises(UnusableRing):
            ring_file.open_existing(path, TINY, "node", 0.0)


def test_a_header_with_any_other_byte_is_not_believed(tmp_path: Path) -> None:
    tiny(tmp_path)._storage.close()
    path = tmp_path / "tiny.ring"
    whole = path.read_bytes()
    for place in range(HEADER_FIELDS_BYTES):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        with pytest.raises(UnusableRing):
            ring_file.open_existing(path, TINY, "node", 0.0)


def spoil(path: Path, how: str) -> None:
    if how == "a directory":
        path.unlink()
        path.mkdir()
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "of another node":
        other = path.parent / "other"
        MetricCache(600, Disk(other, "another", 0.0)).close()
        (other / path.name).replace(path)
    elif how == "of another geometry":
        other = path.parent / "other"
        MetricCache(700, Disk(other, "node", 0.0)).close()
        (other / path.name).replace(path)
    else:
        path.write_bytes({"empty": b"", "text": b"not a ring\n" * 10_000, "torn": path.read_bytes()[:-1]}[how])


@pytest.mark.parametrize(
    "how", ["empty", "text", "torn", "a directory", "a pipe", "of another node", "of another geometry"]
)
def test_a_torn_or_foreign_file_is_set_aside_and_said(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = opened(tmp_path)
    before.append(NOW, {series.NODE: Usage(1.0, 1.0)}, {SeriesKey(Kind.NUMA, "0", Metric.CPU): 1.0})
    before.close()
    spoil(tmp_path / "hour.ring", how)
    registry = CollectorRegistry()
    with caplog.at_level(logging.ERROR):
        cache = opened(tmp_path, registry=registry)
    assert "was renamed" in caplog.text
    assert registry.get_sample_value("headroom_agent_metric_cache_damaged_files_total") == 1
    assert (tmp_path / "hour.ring.bad").exists()
    assert not cache.problems
    assert cache.series_keys() == [SeriesKey(Kind.NUMA, "0", Metric.CPU)]
    cache.append(NOW + 1, {series.NODE: Usage(2.0, 1.0)})
    cache.close()
    assert opened(tmp_path).aggregate_one(NODE_CPU, Aggregation.AVG, 10) == 2.0


def test_rubbish_in_names_and_stamps_is_no_series_and_no_second(tmp_path: Path) -> None:
    chance = random.Random(2)
    of = tiny(tmp_path)
    put(of, 0, range(BLOCK_COLUMNS))
    of._storage.close()
    path = tmp_path / "tiny.ring"
    whole = bytearray(path.read_bytes())
    begin = ring_file.HEADER_BYTES
    end = TINY.base_bytes + BLOCK_COLUMNS * TINY.name_bytes
    whole[begin:end] = chance.randbytes(end - begin)
    path.write_bytes(whole)
    found = tiny(tmp_path)
    assert not found.columns
    assert found.last == -1
    put(found, 1, range(BLOCK_COLUMNS))
    claims(found)
    found._storage.close()


def test_after_a_reboot_the_last_minute_is_not_believed(tmp_path: Path) -> None:
    before = opened(tmp_path)
    for second in range(NOW, NOW + 200):
        before.append(second, {series.NODE: Usage(1.0, 1.0)})
    before.close()
    again = opened(tmp_path)
    assert again.last_second == NOW + 199
    again.close()
    path = tmp_path / "hour.ring"
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    assert path.read_bytes().count(boot) == 1
    path.write_bytes(path.read_bytes().replace(boot, b"another".ljust(len(boot))))
    for _ in range(2):
        after = opened(tmp_path)
        assert after.aggregate_one(NODE_CPU, Aggregation.COUNT, 600, until=NOW + 199) == 140
        after.close()


def test_a_ring_another_process_has_is_left_to_it(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.append(NOW, {series.NODE: Usage(1.0, 1.0)})
    second = opened(tmp_path)
    assert len(second.problems) == 3
    assert "another process" in second.problems[0]
    second.append(NOW, {series.NODE: Usage(2.0, 1.0)})
    assert first.aggregate_one(NODE_CPU, Aggregation.MAX, 10) == 1.0
    assert second.aggregate_one(NODE_CPU, Aggregation.MAX, 10) == 2.0


def test_a_disk_without_its_reserve_gets_nothing(tmp_path: Path) -> None:
    cache = MetricCache(600, Disk(tmp_path, "node", reserve_percent=100.0))
    cache.append(NOW, {series.NODE: Usage(1.0, 1.0)})
    assert cache.usages(Aggregation.LAST, 1) == {series.NODE: Usage(1.0, 1.0)}
    assert len(cache.problems) == 3
    assert "100 %" in cache.problems[0]
    assert list(tmp_path.iterdir()) == []


# Prints what was stored where the disk refused to grow, and what the next process then finds.
_CONSTRAINED = """
import os, resource, sys
from pathlib import Path
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache, StorageTier
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metric_cache.storage import Disk

directory, largest_file = Path(sys.argv[1]), int(sys.argv[2])
if largest_file:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
node = SeriesKey(Kind.NODE, "", Metric.CPU)
container = SeriesKey(Kind.CONTAINER, "uid/c", Metric.CPU)

def live(begin):
    cache = MetricCache(600, Disk(directory, "node", 0.0))
    for second in range(begin, begin + 700):
        cache.append(second, {"__node__": Usage(second % 7, 1.0)}, {container: 3.0})
    assert cache.aggregate_one(node, Aggregation.COUNT, 600) == 600
    assert cache.aggregate_one(container, Aggregation.MAX, 60) == 3.0
    assert len(cache.range(node, begin, begin + 700, StorageTier.MEANS).times) >= 2
    print(*(Path(problem.split(":")[0]).name for problem in cache.problems))
    cache.close()

live(1_700_000_000)
live(1_700_000_700)
print(sum(file.stat().st_blocks * 512 for file in directory.iterdir()))
"""


def constrained(directory: Path, largest_file: int, *around: str) -> list[str]:
    command = [*around, sys.executable, "-c", _CONSTRAINED, str(directory), str(largest_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("mebibytes", [0, 1, 2])
def test_a_full_disk_moves_samples_to_memory_and_kills_nobody(tmp_path: Path, mebibytes: int) -> None:
    size = f"{mebibytes}m" if mebibytes else "32k"
    mount = f'mount -t tmpfs -o size={size} tmpfs {tmp_path} && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", mount, "sh", "true"], capture_output=True).returncode:
        pytest.skip("mounting takes privileges")
    first, second, used = constrained(tmp_path, 0, "unshare", "-m", "sh", "-c", mount, "sh")
    assert first == second
    in_memory = {0: {"quarter.ring", "week.ring"}, 1: {"quarter.ring", "week.ring"}, 2: {"week.ring"}}[mebibytes]
    assert in_memory <= set(first.split())
    assert int(used) <= max(mebibytes << 20, 32 << 10)


def test_a_limit_on_the_size_of_files_moves_samples_to_memory_too(tmp_path: Path) -> None:
    first, second, _ = constrained(tmp_path, 1 << 20)
    assert first == second == "week.ring"


@pytest.mark.thorough
def test_a_thousand_pods_in_a_minute_leave_the_room_they_took_to_the_next(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    sizes, series_counts = [], set()
    for minute in range(8):
        for second in range(60):
            live = [f"{minute}-{number}" for number in range(second * 17, second * 17 + 50)]
            containers = {SeriesKey(Kind.CONTAINER, f"{uid}/c", metric): 1.0 for uid in live for metric in Metric}
            cache.append(NOW + 60 * minute + second, dict.fromkeys(live, Usage(1.0, 1.0)), containers)
            cache.retain_pods(live)
            series_counts.add(cache.series_count)
        sizes.append((cache.memory_bytes, sum(path.stat().st_blocks for path in tmp_path.iterdir())))
    assert len(set(sizes[5:])) == 1  # from the first row of the week on
    assert max(series_counts) <= 50 * (2 + 2 + len(Metric))
    assert not cache.problems
