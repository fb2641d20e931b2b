"""The cache answers what was appended, whoever comes and goes, and whatever happens to the process or its files."""

import math
import random
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from prometheus_client import CollectorRegistry

from agent.metric_cache import aggregate, series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache, StorageTier
from agent.metric_cache.ring import SILENT_SECONDS, Ring
from agent.metric_cache.ring_file import BLOCK_COLUMNS, Geometry
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metric_cache.storage import Disk, Storage
from agent.metric_cache.windows import STEP_SECONDS
from shared.clock import ManualClock
from shared.errors import InvalidInput
from tests.support.properties import examples

NAN = float("nan")
NOW = 1_700_000_000
SMALL = Geometry(step_seconds=1, rows=8, planes=1, name_bytes=64)
PLENTY = 1 << 40
EXACT = {Aggregation.AVG, Aggregation.MAX, Aggregation.COUNT}  # over five-minute rows too
NODE_CPU = SeriesKey(Kind.NODE, "", Metric.CPU)
PSI = SeriesKey(Kind.POD, "a", Metric.PSI_CPU_SOME)


def pod_key(uid: str, metric: Metric = Metric.CPU) -> SeriesKey:
    return SeriesKey(Kind.POD, uid, metric)


def ring(directory: Path | None = None, geometry: Geometry = SMALL, limit_bytes: int = PLENTY) -> Ring:
    disk = None if directory is None else Disk(directory, "node", 0.0)
    return Ring(Storage(geometry, limit_bytes, disk, "small"))


def put(into: Ring, slot: int, values: dict[SeriesKey, float]) -> None:
    columns = {key: into.claim(key) for key in values}
    row = into.blank()
    for key, column in columns.items():
        if column is not None:
            row[0, column] = values[key]
    into.append(slot, row)


def samples(of: Ring, key: SeriesKey) -> dict[int, float]:
    """By slot, without those that are not there."""
    held = of.held(0, of.last)
    values = of.read(held, np.array([of.columns[key]]))[:, 0].tolist()
    return {slot: value for slot, value in zip(held.tolist(), values, strict=True) if not math.isnan(value)}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "metrics", "node", 0.0)


def test_a_slot_gone_by_is_refused() -> None:
    one = ring()
    put(one, 5, {NODE_CPU: 5})
    with pytest.raises(ValueError, match="before"):
        put(one, 4, {NODE_CPU: 4})
    cache = MetricCache()
    cache.append(5, {series.NODE: Usage(1, 1)})
    with pytest.raises(ValueError, match="before"):
        cache.append(4, {series.NODE: Usage(1, 1)})


def test_adding_series_moves_no_sample() -> None:
    one = ring()
    put(one, 0, {NODE_CPU: 1})
    before = one._storage.blocks[0].data
    put(one, 1, {pod_key(str(number)): 1 for number in range(2 * BLOCK_COLUMNS)})
    assert one.capacity == 3 * BLOCK_COLUMNS
    assert one._storage.blocks[0].data is before


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, 1e300])
def test_what_is_no_number_is_no_sample(value: float) -> None:
    cache = MetricCache()
    cache.append(0, {series.NODE: Usage(value, 1.0)}, {PSI: value})
    assert cache.aggregate(Aggregation.LAST, 10) == {NODE_CPU._replace(metric=Metric.MEMORY): 1.0}


def test_a_full_ring_takes_the_column_of_a_series_long_silent_and_refuses_while_there_is_none() -> None:
    geometry = SMALL._replace(rows=1000)
    one = ring(geometry=geometry, limit_bytes=geometry.base_bytes + geometry.block_bytes)
    busy = {pod_key(str(number)): 1.0 for number in range(BLOCK_COLUMNS)}
    put(one, 0, busy)
    put(one, 1, {PSI: 1.0})
    assert PSI not in one.columns
    some = dict(list(busy.items())[1:])
    for slot in range(2, 3 * SILENT_SECONDS):
        put(one, slot, some | {PSI: 2.0})
    assert samples(one, PSI)[one.last] == 2.0
    assert busy.keys() - one.columns.keys() == {pod_key("0")}


def test_a_series_without_a_sample_left_gives_up_its_column() -> None:
    one = ring()
    put(one, 0, {NODE_CPU: 1, PSI: 1})
    for slot in range(1, 9):
        put(one, slot, {NODE_CPU: 1})
    one.expire()
    assert one.columns.keys() == {NODE_CPU}


def job_node(cache: MetricCache, clock: ManualClock, steps: int, jobs: int) -> None:
    """Five-minute steps, in each of which other jobs run once."""
    for step in range(steps):
        names = [series.of_workload(f"ci/Job/run-{step}-{number}") for number in range(jobs)]
        cache.append(cache.second(), {series.NODE: Usage(1, 1)} | dict.fromkeys(names, Usage(0.1, 1e6)))
        clock.advance(STEP_SECONDS)


def test_workloads_that_come_once_leave_room_for_every_pod_and_for_its_week() -> None:
    clock = ManualClock(NOW)
    cache = MetricCache(clock=clock, limit_bytes=64 << 20)
    job_node(cache, clock, steps=100, jobs=20)
    assert cache.memory_bytes <= 64 << 20
    uids = [f"uid-{number}" for number in range(100)]
    containers = {SeriesKey(Kind.CONTAINER, f"{uid}/c", metric): 1.0 for uid in uids for metric in (Metric.CPU,)}
    for _ in range(3):
        cache.append(cache.second(), dict.fromkeys([series.NODE, *uids], Usage(1, 1)), containers)
        clock.advance(STEP_SECONDS)
    assert cache.memory_bytes <= 64 << 20
    assert uids_of(cache.usages(Aggregation.LAST, STEP_SECONDS)) == set(uids)
    assert len(cache.aggregate(Aggregation.LAST, STEP_SECONDS, kind=Kind.CONTAINER)) == len(uids)
    weekly = [
        key for key in map(pod_key, uids) if (cache.range(key, 0, cache.second(), StorageTier.MEANS).values == 1).any()
    ]
    assert len(weekly) == len(uids)


def uids_of(usages: dict[str, Usage]) -> set[str]:
    return {name for name in usages if series.named(name)[0] is Kind.POD}


def test_a_full_week_yields_the_series_longest_silent_first() -> None:
    clock = ManualClock(NOW)
    cache = MetricCache(clock=clock, limit_bytes=32 << 20)
    job_node(cache, clock, steps=40, jobs=8)
    assert cache._week.capacity == BLOCK_COLUMNS
    kept = sorted({int(key.entity.split("-")[1]) for key in cache._week.columns if key.kind is Kind.WORKLOAD})
    assert kept == list(range(kept[0], 39))


def test_a_ring_written_under_a_larger_limit_gives_back_what_it_has_too_much(disk: Disk) -> None:
    clock = ManualClock(NOW)
    before = MetricCache(disk=disk, clock=clock)
    job_node(before, clock, steps=10, jobs=40)
    before.close()
    for _ in range(2):
        after = MetricCache(disk=disk, clock=clock, limit_bytes=32 << 20)
        assert after.problems == []
        assert after.memory_bytes <= 32 << 20
        assert sum(path.stat().st_size for path in disk.directory.iterdir()) == after.memory_bytes
        assert after.aggregate_one(NODE_CPU, Aggregation.COUNT, 86400) == 10
        after.close()


def test_a_retention_the_cache_has_no_room_for_is_refused_by_flag_and_value() -> None:
    with pytest.raises(InvalidInput, match=r"--metric-retention: '24h0m0s': needs more room than --metric-cache-bytes"):
        MetricCache(86400, limit_bytes=64 << 20)
    MetricCache(86400)
    MetricCache(3600, limit_bytes=32 << 20)


def test_series_without_room_are_told_once_each_until_they_have_some(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    cache = MetricCache(limit_bytes=32 << 20, registry=registry)
    entities = [series.NODE, *(f"uid-{number}" for number in range(130))]
    for second in range(200):
        cache.append(second, dict.fromkeys(entities, Usage(1, 1)))
    refused = 2 * len(entities) - BLOCK_COLUMNS
    assert registry.get_sample_value("headroom_agent_metric_cache_refused_series") == refused
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    for second in range(200, 400):
        cache.append(second, dict.fromkeys(entities[:100], Usage(1, 1)))
    assert registry.get_sample_value("headroom_agent_metric_cache_refused_series") == 0


class RingModel(RuleBasedStateMachine):
    """A ring on disk and a dict of dicts that are told the same."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.ring = ring(Path(self.directory.name))
        self.model: defaultdict[SeriesKey, dict[int, float]] = defaultdict(dict)
        self.slot = 0

    @rule(
        skipped=st.integers(0, 10),
        values=st.dictionaries(
            st.sampled_from([pod_key(f"uid-{n}") for n in range(BLOCK_COLUMNS + 5)]), st.floats(0, 100, width=32)
        ),
    )
    def append(self, skipped: int, values: dict[SeriesKey, float]) -> None:
        self.slot += 1 + skipped
        put(self.ring, self.slot, values)
        for key, value in values.items():
            self.model[key][self.slot] = value

    @rule(random=st.randoms(use_true_random=False))
    def release(self, random: random.Random) -> None:
        gone = [key for key in sorted(self.model) if random.random() < 0.5]
        self.ring.release(gone)
        for key in gone:
            del self.model[key]

    @rule()
    def expire(self) -> None:
        self.ring.expire()
        for key in self.model.keys() - self.ring.columns.keys():
            assert not any(slot > self.slot - SMALL.rows for slot in self.model.pop(key))

    @rule()
    def restart(self) -> None:
        self.ring._storage.close()
        self.ring = ring(Path(self.directory.name))

    @invariant()
    def the_ring_holds_what_the_model_does(self) -> None:
        assert self.ring._storage.problem == self.ring._storage.set_aside == ""
        assert self.ring.columns.keys() == self.model.keys()
        oldest = self.slot - SMALL.rows
        for key, values in self.model.items():
            assert samples(self.ring, key) == {slot: value for slot, value in values.items() if slot > oldest}

    def teardown(self) -> None:
        self.ring._storage.close()
        self.directory.cleanup()


def test_a_ring_is_a_dict_that_forgets_through_claims_releases_laps_holes_and_restarts() -> None:
    run_state_machine_as_test(RingModel, settings=settings(examples(60), stateful_step_count=25))


def test_a_series_of_a_new_owner_shows_nothing_of_the_old_one() -> None:
    cache = MetricCache()
    cache.append(0, {"old": Usage(1.0, 1.0)})
    cache.retain_pods(set())
    cache.append(1, {"new": Usage(2.0, 2.0)})
    cache.append(2, {"new": Usage(4.0, 6.0)})
    assert cache.usages(Aggregation.AVG, 10) == {"new": Usage(3.0, 4.0)}
    assert cache.usages(Aggregation.COUNT, 10) == {"new": Usage(2.0, 2.0)}


def test_an_entity_without_a_sample_in_the_window_is_absent() -> None:
    cache = MetricCache()
    cache.append(0, {"a": Usage(1.0, 1.0), "b": Usage(1.0, 1.0)})
    cache.append(1, {"a": Usage(3.0, 3.0)})
    assert cache.usages(Aggregation.LAST, 1) == {"a": Usage(3.0, 3.0)}
    assert cache.usages(Aggregation.LAST, 2) == {"a": Usage(3.0, 3.0), "b": Usage(1.0, 1.0)}
    assert cache.usages(Aggregation.COUNT, 1) == {"a": Usage(1.0, 1.0)}


def test_a_window_ends_where_it_is_asked_to_before_or_after_the_last_sample() -> None:
    cache = MetricCache()
    for second in range(5):
        cache.append(second, {"a": Usage(second, second)})
    assert cache.usages(Aggregation.MAX, 2, until=3) == {"a": Usage(3.0, 3.0)}
    assert cache.usages(Aggregation.LAST, 5, until=8) == {"a": Usage(4.0, 4.0)}
    assert cache.usages(Aggregation.LAST, 5, until=9) == {}


def test_an_empty_cache_answers_nothing() -> None:
    cache = MetricCache()
    assert cache.usages(Aggregation.P95, 5) == {}
    assert cache.aggregate(Aggregation.AVG, 7200) == {}
    assert cache.aggregate_one(NODE_CPU, Aggregation.MAX, 5) is None
    assert cache.range(NODE_CPU, 0, 100).times.tolist() == []
    assert cache.last_second == -1


def test_usages_are_of_what_has_models_and_readings_of_everything() -> None:
    cache = MetricCache()
    workload = series.of_workload("default/Deployment/web")
    usages = {name: Usage(1.0, 2.0) for name in [*series.NODE_ENTITIES, "uid", workload]}
    container = SeriesKey(Kind.CONTAINER, "uid/main", Metric.CPU)
    cache.append(0, usages, {container: 0.5, pod_key("uid", Metric.MEMORY_WITH_PAGE_CACHE): 7.0})
    assert cache.usages(Aggregation.LAST, 1) == usages
    assert cache.aggregate(Aggregation.LAST, 1, kind=Kind.CONTAINER) == {container: 0.5}
    reading = pod_key("uid", Metric.MEMORY_WITH_PAGE_CACHE)
    assert cache.aggregate(Aggregation.LAST, 1, metric=Metric.MEMORY_WITH_PAGE_CACHE) == {reading: 7.0}
    assert cache.aggregate_one(reading, Aggregation.MAX, 1) == 7.0
    assert SeriesKey(Kind.WORKLOAD, "default/Deployment/web", Metric.CPU) in cache.series_keys(Kind.WORKLOAD)


def test_a_pod_that_went_takes_its_containers_along_and_leaves_its_workload() -> None:
    cache = MetricCache()
    workload = series.of_workload("default/Deployment/web")
    readings = {SeriesKey(Kind.CONTAINER, f"{uid}/c", Metric.CPU): 1.0 for uid in ("gone", "stays")}
    readings |= {pod_key("gone", Metric.PSI_IO_FULL): 1.0}
    cache.append(0, dict.fromkeys(["gone", "stays", workload, series.NODE], Usage(1.0, 1.0)), readings)
    cache.retain_pods({"stays"})
    assert {key.entity for key in cache.series_keys()} == {"stays", "stays/c", "default/Deployment/web", ""}


TICKS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 1, 1, 7, 200, 400]),
        st.dictionaries(st.sampled_from(["a", "b", "__node__"]), st.floats(0, 100, width=32)),
    ),
    min_size=1,
    max_size=40,
)


@examples(150)
@given(TICKS, st.integers(1, 5000), st.integers(0, 900), st.integers(0, STEP_SECONDS))
def test_any_window_is_answered_as_a_list_would(
    ticks: list[tuple[int, dict[str, float]]], window: int, before_end: int, begin: int
) -> None:
    cache, second = MetricCache(600), NOW + begin
    known: dict[str, dict[int, float]] = defaultdict(dict)
    for step, tick in ticks:
        second += step
        cache.append(second, {name: Usage(value, 1.0) for name, value in tick.items()})
        for name, value in tick.items():
            known[name][second] = value
    until = second - before_end
    first = until - window + 1
    coarse = cache.tier(Kind.POD, window, until) is StorageTier.MEANS
    if coarse:
        assert first <= second - 600
        first -= first % STEP_SECONDS
        if until // STEP_SECONDS < second // STEP_SECONDS:
            until += STEP_SECONDS - 1 - until % STEP_SECONDS
    for how in Aggregation:
        got = {
            key.entity: value
            for key, value in cache.aggregate(how, window, metric=Metric.CPU, until=second - before_end).items()
        }
        for name, values in known.items():
            inside = [value for at, value in sorted(values.items()) if first <= at <= until]
            entity = series.named(name)[1]
            assert (entity in got) == bool(inside)
            if inside and (not coarse or how in EXACT):
                assert got[entity] == pytest.approx(plain(how, inside), rel=1e-5, abs=1e-5)


def plain(how: Aggregation, values: list[float]) -> float:
    if how is Aggregation.AVG:
        return sum(values) / len(values)
    if how is Aggregation.MAX:
        return max(values)
    if how is Aggregation.COUNT:
        return len(values)
    if how is Aggregation.LAST:
        return values[-1]
    return sorted(values)[aggregate.percentile_index(len(values), int(how[1:]) / 100)]


def test_a_week_is_kept_as_means_and_maxima_of_five_minutes() -> None:
    cache, start = MetricCache(), NOW - NOW % STEP_SECONDS
    for second in range(0, 3 * 86400, 60):
        cache.append(start + second, {series.NODE: Usage(second // 3600, 1.0)})
    day = 86400
    begin, end = start + day, start + day + 3599
    means, maxima = (cache.range(NODE_CPU, begin, end, tier) for tier in (StorageTier.MEANS, StorageTier.MAXIMA))
    assert means.times.tolist() == list(range(begin, end, STEP_SECONDS))
    assert means.values.tolist() == pytest.approx([24] * len(means.times))
    assert (maxima.values >= means.values).all()
    assert cache.tier(Kind.NODE, 2 * day) is StorageTier.MEANS
    assert cache.aggregate_one(NODE_CPU, Aggregation.MAX, day, until=start + day - 1) == 23
    assert cache.aggregate_one(NODE_CPU, Aggregation.LAST, 2 * day) == 71
    for second in range(3 * day, 10 * day + STEP_SECONDS, 60):
        cache.append(start + second, {series.NODE: Usage(100.0, 1.0)})
    assert cache.aggregate_one(NODE_CPU, Aggregation.AVG, 10 * day) == 100


def test_a_range_has_every_second_and_nothing_where_nothing_was() -> None:
    cache = MetricCache()
    for second in (5, 6, 8):
        cache.append(second, {series.NODE: Usage(second, 1.0)}, {PSI: second} if second == 6 else None)
    times, values = cache.range(NODE_CPU, 4, 100)
    assert times.tolist() == [4, 5, 6, 7, 8]
    assert np.array_equal(values, [NAN, 5, 6, NAN, 8], equal_nan=True)
    assert np.array_equal(cache.range(PSI, 5, 7).values, [NAN, 6, NAN], equal_nan=True)
    assert np.isnan(cache.range(pod_key("unknown"), 5, 8).values).all()
    assert len(cache.range(NODE_CPU, 9, 5).times) == 0


def test_a_pod_of_less_than_five_minutes_takes_no_room_for_a_week() -> None:
    cache = MetricCache()
    for second in range(2 * STEP_SECONDS + 1):
        cache.append(second, {series.NODE: Usage(1, 1)} | ({"brief": Usage(1, 1)} if second < 100 else {}))
        if second == 100:
            cache.retain_pods(set())
    assert len(cache.range(NODE_CPU, 0, STEP_SECONDS, StorageTier.MEANS).times) == 2
    assert not cache.aggregate(Aggregation.COUNT, 1000, kind=Kind.POD)


@pytest.mark.parametrize("jump", [-6 * 3600, -1, 0, 1, 6 * 3600])
def test_seconds_follow_no_jump_of_the_wall_clock_and_wall_times_follow_all(jump: float) -> None:
    clock = ManualClock(NOW)
    cache = MetricCache(clock=clock)
    assert cache.second() == NOW
    clock.advance(10)
    clock.jump(jump)
    assert cache.second() == NOW + 10
    assert cache.second(clock.now()) == cache.second()
    assert cache.second(clock.now() - 60) == NOW - 50
    assert cache.wall_time(NOW) == NOW + jump


@given(st.floats(0, 1), st.floats(0, 0.3), st.lists(st.floats(0, 0.3), min_size=1, max_size=50))
def test_every_sample_is_of_a_second_of_its_own_whenever_in_a_second_sampling_began(
    phase: float, first_late: float, lateness: list[float]
) -> None:
    clock = ManualClock(NOW)
    cache, seconds = MetricCache(clock=clock), []
    for tick, late in enumerate([first_late, *lateness]):
        clock.advance(phase + tick + late - clock.monotonic())
        seconds.append(cache.second())
        cache.append(seconds[-1], {series.NODE: Usage(1.0, 1.0)})
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))


@given(st.floats(0, 1), st.lists(st.floats(0, 3), min_size=1, max_size=50))
def test_a_second_has_one_wall_time_which_leads_back_to_it(wall_phase: float, pauses: list[float]) -> None:
    clock = ManualClock(NOW + 0.25 + wall_phase / 2)
    cache = MetricCache(clock=clock)
    for pause in pauses:
        clock.advance(pause)
        assert cache.wall_time(NOW) == NOW
        assert cache.second(cache.wall_time(NOW + 7)) == NOW + 7


@pytest.mark.parametrize("jump", [-40 * 365 * 86400, -6 * 3600, 0, 6 * 3600])
def test_a_restart_under_another_wall_time_goes_on_behind_the_last_sample(disk: Disk, jump: float) -> None:
    clock = ManualClock(NOW)
    before = MetricCache(disk=disk, clock=clock)
    for _ in range(400):
        before.append(before.second(), {series.NODE: Usage(1.0, 1.0)})
        clock.advance(1)
    before.close()
    clock.jump(jump)
    after = MetricCache(disk=disk, clock=clock)
    assert after.second() == NOW + 400 + max(0, jump)
    after.append(after.second(), {series.NODE: Usage(3.0, 1.0)})
    assert after.aggregate_one(NODE_CPU, Aggregation.COUNT, 86400) == 401
    assert after.aggregate_one(NODE_CPU, Aggregation.MAX, 1) == 3


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Aggregation.AVG, 2.0),
        (Aggregation.MAX, 4.0),
        (Aggregation.LAST, 1.0),
        (Aggregation.COUNT, 3.0),
        (Aggregation.P50, 1.0),
        (Aggregation.P99, 1.0),
    ],
)
def test_gaps_are_no_samples(how: Aggregation, expected: float) -> None:
    samples = np.array([[1.0], [NAN], [4.0], [1.0], [NAN]], np.float32)
    assert aggregate.aggregate(samples, how).tolist() == [expected]


@given(st.lists(st.floats(0, 1000, width=32), min_size=1, max_size=60), st.integers(0, 20))
def test_percentiles_pick_koordinators_sample_with_and_without_gaps(values: list[float], gaps: int) -> None:
    full = np.array(values, np.float32)[:, np.newaxis]
    gapped = np.concatenate([full, np.full((gaps, 1), NAN, np.float32)])
    ordered = sorted(full[:, 0].tolist())
    for how, p in ((Aggregation.P50, 0.5), (Aggregation.P90, 0.9), (Aggregation.P95, 0.95), (Aggregation.P99, 0.99)):
        expected = ordered[aggregate.percentile_index(len(values), p)]
        assert aggregate.aggregate(full, how).tolist() == [expected]
        assert aggregate.aggregate(gapped, how).tolist() == [expected]
