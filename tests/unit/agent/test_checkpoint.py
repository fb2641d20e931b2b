"""A checkpoint is whole or it is not believed."""

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from agent.metric_cache import series
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Usage
from agent.predict_server import checkpoint
from agent.predict_server.checkpoint import UnusableCheckpoint
from agent.predict_server.server import PredictServer
from agent.predict_server.table import ModelTable
from agent.settings import AgentSettings
from shared.clock import ManualClock
from tests.unit.agent.pods import pod

NOW = 1_700_000_000.0


def table() -> ModelTable:
    trained = ModelTable(cpu_half_life_seconds=43200, memory_half_life_seconds=86400)
    for step in range(5):
        trained.train({"a": Usage(step, 1e9), "b": Usage(0.5, step * 1e8)}, NOW + 30 * step)
    trained.expire({"b"}, NOW + 1000)  # leaves a hole in the rows
    trained.train({"c": Usage(2.0, 2e9)}, NOW + 200)
    return trained


def saved(path: Path) -> bytes:
    checkpoint.save(path, checkpoint.of(table(), node="n", now=NOW + 300))
    return path.read_bytes()


def same(one: ModelTable, other: ModelTable) -> bool:
    p = np.array([0.5, 0.95])
    return one.rows.keys() == other.rows.keys() and all(
        one.history(key) == other.history(key)
        and one.observed_since(key, NOW) == other.observed_since(key, NOW)
        and np.array_equal(
            getattr(one, bank).histograms.percentiles(np.array([one.rows[key]]), p),
            getattr(other, bank).histograms.percentiles(np.array([other.rows[key]]), p),
        )
        for key in one.rows
        for bank in ("cpu", "memory")
    )


def test_what_was_saved_is_restored_exactly(tmp_path: Path) -> None:
    path = tmp_path / "state" / checkpoint.FILE_NAME
    saved(path)
    restored = checkpoint.load(path, node="n", now=NOW)
    assert restored is not None
    assert same(restored, table())


def test_restored_models_go_on_as_if_never_interrupted(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE_NAME
    saved(path)
    restored, uninterrupted = checkpoint.load(path, node="n", now=NOW), table()
    assert restored is not None
    for interrupted_or_not in (restored, uninterrupted):
        interrupted_or_not.train({"b": Usage(3.0, 3e9), "new": Usage(1.0, 1.0)}, NOW + 400)
    assert same(restored, uninterrupted)


def test_a_file_truncated_at_any_byte_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE_NAME
    whole = saved(path)
    for length in range(len(whole)):
        with pytest.raises(UnusableCheckpoint):
            checkpoint.decode(whole[:length], node="n")
    path.write_bytes(whole[:-1])
    assert checkpoint.load(path, node="n", now=NOW) is None
    assert not path.exists()
    assert (tmp_path / f"{checkpoint.FILE_NAME}.bad-{int(NOW)}").read_bytes() == whole[:-1]


@pytest.mark.parametrize("position", [0, 8, 12, 20, 60, -1])
def test_a_flipped_byte_is_noticed(tmp_path: Path, position: int) -> None:
    content = bytearray(saved(tmp_path / checkpoint.FILE_NAME))
    content[position] ^= 0xFF
    with pytest.raises(UnusableCheckpoint):
        checkpoint.decode(bytes(content), node="n")


@pytest.mark.parametrize("content", [b"", b"\x00" * 1000, b"{}", os.urandom(4096)])
def test_a_foreign_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / checkpoint.FILE_NAME
    path.write_bytes(content)
    assert checkpoint.load(path, node="n", now=NOW) is None
    assert [file.name for file in tmp_path.iterdir()] == [f"{checkpoint.FILE_NAME}.bad-{int(NOW)}"]


def test_the_models_of_another_node_are_not_ours(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE_NAME
    saved(path)
    assert checkpoint.load(path, node="other", now=NOW) is None


def test_a_checkpoint_that_contradicts_itself_is_refused() -> None:
    state = checkpoint.of(table(), node="n", now=NOW)
    with pytest.raises(UnusableCheckpoint, match="twice"):
        checkpoint.restored(msgspec.structs.replace(state, keys=["b"] * len(state.keys)))
    with pytest.raises(UnusableCheckpoint, match="size"):
        checkpoint.restored(msgspec.structs.replace(state, samples=b""))


def server(tmp_path: Path, clock: ManualClock, cache: MetricCache) -> PredictServer:
    settings = AgentSettings(node_name="n", state_dir=str(tmp_path))
    made = PredictServer(settings, cache, clock, registry=CollectorRegistry())
    made.restore()
    return made


def test_a_kill_at_any_instant_costs_at_most_one_interval_and_counts_nothing_twice(tmp_path: Path) -> None:
    clock = ManualClock()
    for life in range(3):
        cache = MetricCache(100)
        server_ = server(tmp_path, clock, cache)
        for second in range(60):
            cache.append(second, {series.NODE: Usage(1.0, 1.0)})
            clock.advance(1)
            if second % 30 == 29:
                server_.train([])
        for second in range(60, 89):  # sampled but not trained: what the kill costs
            cache.append(second, {series.NODE: Usage(1.0, 1.0)})
        on_disk = checkpoint.load(tmp_path / checkpoint.FILE_NAME, node="n", now=NOW)
        assert on_disk is not None
        history = on_disk.history(series.NODE)
        assert history is not None
        assert history.samples == 2 * (life + 1)


def test_a_disk_that_takes_nothing_stops_no_prediction(tmp_path: Path) -> None:
    clock, cache = ManualClock(), MetricCache(100)
    made = server(tmp_path / "state", clock, cache)
    (tmp_path / "state").write_text("a file where the directory should be")
    cache.append(0, {series.NODE: Usage(1.0, 1.0)})
    made.train([])
    assert made.model_count == 1


def test_models_of_vanished_pods_expire_and_those_of_present_ones_never(tmp_path: Path) -> None:
    clock, cache = ManualClock(), MetricCache(100)
    made = server(tmp_path, clock, cache)
    cache.append(0, {"stays": Usage(1.0, 1.0), "goes": Usage(1.0, 1.0), series.NODE: Usage(2.0, 2.0)})
    made.train([pod("stays"), pod("goes")])
    clock.advance(1801)
    made.train(None)
    assert made.model_count == 3
    made.train([pod("stays")])
    assert made.histograms("goes") is None
    assert made.histograms("stays") is not None
