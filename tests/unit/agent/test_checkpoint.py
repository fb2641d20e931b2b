"""Checkpoints are whole or not believed, and together they are what was learnt."""

import hashlib
import math
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import checkpoint
from agent.predict_server.checkpoint import CYCLE, CheckpointLog, Restored, UnusableCheckpoint
from agent.predict_server.maxima import DAYS
from agent.predict_server.table import ModelTable
from shared.clock import ManualClock
from tests.support import certain
from tests.support.properties import examples, stride
from tests.unit.agent.models import Life, entities, model_table, predict_server, train
from tests.unit.agent.pods import NOW, pod


class Learner:
    """A table that is written as it learns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = CheckpointLog(directory, "n")
        restored = self.log.restore(NOW)
        self.table = restored.table if restored else model_table()
        self.log.begin(self.table)

    def train(self, usages: Mapping[str, Usage], time: float) -> None:
        train(self.table, usages, time)
        self.log.trained(list(usages), np.array(list(usages.values()), float).reshape(-1, 2), time)

    def forget(self, *keys: str) -> None:
        self.table.forget(keys)
        self.log.forgot(keys)

    def change_half_lives(self, cpu: float, memory: float, time: float) -> None:
        self.table.change_half_lives(cpu_seconds=cpu, memory_seconds=memory, time=time)
        self.log.changed_half_lives(self.table, time)

    def set_clock(self, seconds: float) -> None:
        self.table.set_clock(seconds)
        self.log.set_clock(seconds)

    def write(self) -> None:
        content = self.log.next(self.table, trained_until=7, states={"own": b"x"})
        if content is not None:
            self.log.write(content)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.checkpoint"))


def restored(directory: Path) -> Restored:
    return certain(CheckpointLog(directory, "n").restore(NOW))


def contents(table: ModelTable) -> dict[str, list[object]]:
    """All there is to know of every model, to the bit."""
    return {
        key: [table.samples[row], table.first_observed[row], table.last_updated[row]]
        + [table.maxima.newest_first(np.array([row])).tolist()]
        + [
            part
            for bank in table.banks
            for part in (
                bank.half_life_seconds,
                bank.histograms.weights[row].tolist(),
                bank.histograms.totals[row],
                bank.histograms.first[row],
                bank.histograms.last[row],
                bank.references[row],
                bank.moments.weights[row],
                bank.moments.means[row],
                bank.moments.squares[row],
            )
        ]
        for key, row in table.rows.items()
    }


def learnt(directory: Path, steps: int = 5) -> Learner:
    learner = Learner(directory)
    for step in range(steps):
        learner.train({"a": Usage(step, 1e9), "b": Usage(0.5, step * 1e8)}, NOW + 30 * step)
        learner.write()
    learner.forget("b")  # leaves a hole in the rows
    learner.train({"c": Usage(2.0, 2e9)}, NOW + 30 * steps)
    learner.write()
    return learner


def test_what_was_saved_is_restored_exactly(tmp_path: Path) -> None:
    learner = learnt(tmp_path / "state")
    found = restored(tmp_path / "state")
    assert contents(found.table) == contents(learner.table)
    assert (found.last.trained_until, found.last.states) == (7, {"own": b"x"})


USAGES = st.builds(Usage, st.floats(0, 100), st.floats(0, 2.0**38))
EVENTS = st.one_of(
    st.tuples(st.just("train"), st.dictionaries(st.sampled_from("abcdef"), USAGES, min_size=1)),
    st.tuples(st.just("forget"), st.sampled_from("abcdef")),
    st.tuples(st.just("half-lives"), st.sampled_from([60.0, 3600.0, 43200.0])),
    st.tuples(st.just("wait"), st.sampled_from([-100_000.0, -30.0, 30.0, 3600.0, 10_000_000.0])),
    st.tuples(st.just("clock"), st.sampled_from([-10_000_000.0, -3600.0, 60.0, 10_000_000.0])),
    st.tuples(st.just("write"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


@examples(200)
@given(st.lists(EVENTS, max_size=60))
def test_checkpoints_and_what_came_after_them_are_one_uninterrupted_run(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, object]]
) -> None:
    directory = tmp_path_factory.mktemp("state")
    learner, uninterrupted, now = Learner(directory), model_table(), NOW
    for name, what in events:
        if isinstance(what, dict):
            learner.train(what, now)
            train(uninterrupted, what, now)
        elif name == "forget" and what in uninterrupted.rows:
            learner.forget(str(what))
            uninterrupted.forget([str(what)])
        elif name == "half-lives" and isinstance(what, float):
            learner.change_half_lives(what, what * 2, now)
            uninterrupted.change_half_lives(cpu_seconds=what, memory_seconds=what * 2, time=now)
        elif name == "wait" and isinstance(what, float):
            now += what
        elif name == "clock" and isinstance(what, float):
            now += what
            learner.set_clock(what)
            uninterrupted.set_clock(what)
        elif name == "restart":
            learner.write()
            if files(directory):
                learner = Learner(directory)
        elif name == "write":
            learner.write()
    assert contents(learner.table) == contents(uninterrupted)


def test_writing_is_spread_over_time_and_needless_files_go(tmp_path: Path) -> None:
    learner = Learner(tmp_path)
    usages = {f"pod-{number}": Usage(number, 1e9) for number in range(200)}
    for step in range(3 * CYCLE):
        learner.train(usages, NOW + 30 * step)
        content = certain(learner.log.next(learner.table, trained_until=0, states={}))
        assert len(content.models.keys) == 200 / CYCLE
        learner.log.write(content)
        assert len(files(tmp_path)) <= 2 * CYCLE + 1
    assert contents(restored(tmp_path).table) == contents(learner.table)


def test_a_file_truncated_at_any_byte_is_not_believed(tmp_path: Path) -> None:
    learnt(tmp_path)
    whole = files(tmp_path)[-1].read_bytes()
    for length in range(len(whole)):
        with pytest.raises(UnusableCheckpoint):
            checkpoint.decode(whole[:length], node="n")


def test_a_torn_file_is_set_aside_and_costs_no_more_than_it_held(tmp_path: Path) -> None:
    learnt(tmp_path)
    last = files(tmp_path)[-1]
    torn = last.read_bytes()[:-1]
    last.write_bytes(torn)
    found = restored(tmp_path)
    assert found.table.rows.keys() == {"a", "b"}
    assert found.table.samples_of("a") == 5
    assert not last.exists()
    assert last.with_name(f"{last.name}.bad-{int(NOW)}").read_bytes() == torn


def test_a_torn_file_after_a_long_silence_costs_no_more_than_the_silence(tmp_path: Path) -> None:
    learner = learnt(tmp_path)
    for step in range(2 * CYCLE + 1):
        learner.train({"a": Usage(step, 1e9)}, NOW + 300 + 30 * step)
    learner.write()
    last = files(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    found = restored(tmp_path).table
    assert found.rows.keys() == {"a", "c"}
    assert found.samples_of("a") == 5


def test_what_was_forgotten_in_a_long_silence_stays_forgotten(tmp_path: Path) -> None:
    learner = learnt(tmp_path)
    learner.forget("c")
    for step in range(2 * CYCLE + 1):
        learner.train({"a": Usage(step, 1e9), "d": Usage(1.0, step)}, NOW + 300 + 30 * step)
    assert learner.log.next(learner.table, trained_until=0, states={}) is not None  # and it is not written
    learner.forget("d")
    learner.train({"e": Usage(1.0, 1e9)}, NOW + 10_000)
    learner.write()
    assert contents(restored(tmp_path).table) == contents(learner.table)
    learner.train({"a": Usage(1.0, 1e9)}, NOW + 10_030)
    learner.write()
    assert contents(restored(tmp_path).table) == contents(learner.table)


def test_after_a_file_was_lost_learning_goes_on_under_a_new_number(tmp_path: Path) -> None:
    learnt(tmp_path)
    first, *_, last = files(tmp_path)
    first.write_bytes(b"?")
    last.write_bytes(b"?")
    learner = Learner(tmp_path)
    for step in range(CYCLE):
        learner.train({"a": Usage(1.0, 1e9)}, NOW + 300 + 30 * step)
        learner.write()
    assert files(tmp_path)[-1].name > last.name
    assert contents(restored(tmp_path).table) == contents(learner.table)


@pytest.mark.parametrize("position", [0, 8, 12, 20, 60, -1])
def test_a_flipped_byte_is_noticed(tmp_path: Path, position: int) -> None:
    learnt(tmp_path)
    content = bytearray(files(tmp_path)[-1].read_bytes())
    content[position] ^= 0xFF
    with pytest.raises(UnusableCheckpoint):
        checkpoint.decode(bytes(content), node="n")


@pytest.mark.parametrize("content", [b"", b"\x00" * 1000, b"{}", os.urandom(4096)])
@pytest.mark.parametrize("name", ["prediction-000000000001.checkpoint", "prediction.checkpoint"])
def test_a_foreign_file_is_set_aside(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert CheckpointLog(tmp_path, "n").restore(NOW) is None
    assert [file.name for file in tmp_path.iterdir()] == [f"{name}.bad-{int(NOW)}"]


def test_the_models_of_another_node_are_not_ours(tmp_path: Path) -> None:
    learnt(tmp_path)
    assert CheckpointLog(tmp_path, "other").restore(NOW) is None
    assert not files(tmp_path)


def test_a_file_somebody_began_to_write_goes(tmp_path: Path) -> None:
    learner = learnt(tmp_path)
    (tmp_path / "prediction-000000000099.tmp").write_bytes(b"half")
    assert contents(restored(tmp_path).table) == contents(learner.table)
    assert not list(tmp_path.glob("*.tmp"))


Change = Callable[[checkpoint.Content], checkpoint.Content]


def changed_models(**changes: object) -> Change:
    return lambda content: msgspec.structs.replace(content, models=msgspec.structs.replace(content.models, **changes))


def changed_cpu(**changes: object) -> Change:
    def change(content: checkpoint.Content) -> checkpoint.Content:
        return changed_models(cpu=msgspec.structs.replace(content.models.cpu, **changes))(content)

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed_models(samples=b""),
        changed_models(keys=["a", "a"]),
        changed_models(maxima=b"\0" * 8),
        changed_models(maxima=np.full(DAYS * 2, np.nan, "<f4").tobytes()),
        changed_models(maxima=np.full(DAYS * 2, -1.0, "<f4").tobytes()),
        changed_models(maxima_day=-1),
        changed_models(maxima_day=2**40),
        changed_cpu(buckets=7),
        changed_cpu(weight_rows=b"\xff" * 4),
        changed_cpu(totals=np.array([np.nan]).tobytes()),
        lambda content: msgspec.structs.replace(content, cpu_half_life_seconds=0.0),
        lambda content: msgspec.structs.replace(content, events=[checkpoint.Trained(NOW, ["a", "a"], b"\0" * 32)]),
        lambda content: msgspec.structs.replace(content, events=[checkpoint.Trained(NOW, ["a"], b"")]),
        lambda content: msgspec.structs.replace(content, events=[checkpoint.HalfLives(NOW, 60.0, -1.0)]),
        lambda content: msgspec.structs.replace(content, events=[checkpoint.ClockSet(math.inf)]),
    ],
)
def test_a_file_that_contradicts_itself_changes_nothing(tmp_path: Path, change: Change) -> None:
    learner = learnt(tmp_path)
    before = contents(learner.table)
    learner.train({"a": Usage(1.0, 1.0)}, NOW + 1000)
    content = certain(learner.log.next(learner.table, trained_until=8, states={}))
    checkpoint.save(tmp_path / "prediction-000000000099.checkpoint", change(content))
    found = restored(tmp_path)
    assert contents(found.table) == before
    assert found.last.trained_until == 7
    assert list(tmp_path.glob("*99.checkpoint.bad-*"))


def as_version_2(file: Path) -> None:
    """Writes it as it was before there were daily maxima."""
    content = checkpoint.decode(file.read_bytes(), node="n")
    document = msgspec.to_builtins(content, builtin_types=(bytes,))
    for added in ("maxima", "maxima_day"):
        del document["models"][added]
    payload = msgspec.msgpack.encode(document)
    header = struct.pack("<8sIQ32s", b"HEADROOM", 2, len(payload), hashlib.sha256(payload).digest())
    file.write_bytes(header + payload)


def test_what_an_earlier_version_learnt_goes_on_with_the_largest_it_has_seen_as_its_maximum(tmp_path: Path) -> None:
    learner = learnt(tmp_path)
    before = learner.table
    for file in files(tmp_path):
        as_version_2(file)
    upgraded = restored(tmp_path)
    assert upgraded.last.states == {"own": b"x"}
    for key, row in before.rows.items():
        found = upgraded.table.rows[key]
        assert upgraded.table.samples[found] == before.samples[row]
        assert upgraded.table.cpu.moments.means[found] == before.cpu.moments.means[row]
        seen, taken = before.maxima.over(np.array([row]), 14), upgraded.table.maxima.over(np.array([found]), 14)
        assert (taken >= seen).all()
        assert taken == pytest.approx(seen, rel=0.06, abs=2e7)
    again = Learner(tmp_path)
    again.train({"a": Usage(1.0, 1e9)}, NOW + 1000)
    again.write()
    assert contents(restored(tmp_path).table) == contents(again.table)


def test_daily_maxima_outlive_the_process_for_two_weeks(tmp_path: Path) -> None:
    learner = Learner(tmp_path)
    for day in range(20):
        learner.train({"a": Usage(20.0 - day, 1e9)}, NOW + 86400 * day)
        learner.write()
        learner = Learner(tmp_path)
    (week,), (two_weeks,) = (learner.table.maxima.over(learner.table.claim(["a"], NOW), days) for days in (7, 14))
    assert (week[0], two_weeks[0]) == (8.0, 15.0)


def steady(life: Life, seconds: int) -> None:
    for _ in range(seconds):
        life.sample(entities(web=Usage(1.0, 1.0)))


def samples_on_disk(directory: Path) -> int:
    return restored(directory).table.samples_of(series.NODE)


def test_a_kill_at_any_instant_costs_at_most_one_interval_and_counts_nothing_twice(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    for number in range(3):
        life = Life(tmp_path, clock)  # nothing of its cache outlives it
        for _ in range(2):
            steady(life, 30)
            life.server.train([])
        steady(life, 29)  # sampled but not trained: what the kill costs
        assert samples_on_disk(tmp_path) == 2 * (number + 1)


def test_samples_that_outlive_a_kill_in_the_metric_cache_are_learnt_and_none_of_them_twice(tmp_path: Path) -> None:
    life = Life(tmp_path, training_input="max")
    life.sample(entities(web=Usage(8.0, 1.0)))
    steady(life, 29)
    life.server.train([])
    steady(life, 20)
    second = predict_server(tmp_path, life.cache, life.clock, training_input="max")
    second.train([])
    second.train([])  # nothing new
    prod = restored(tmp_path).table
    assert prod.samples_of("web") == 2
    assert prod.cpu.moments.means[prod.rows["web"]] == pytest.approx((8.0 + 1.0) / 2, rel=1e-3)


def test_a_disk_that_takes_nothing_stops_no_prediction_and_loses_nothing_once_it_does(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    life = Life(directory)
    server = life.server
    directory.write_text("a file where the directory should be")
    for steps in (3, 3 * CYCLE):
        for _ in range(steps):
            steady(life, 30)
            server.train([])
        assert server.histograms("web") is not None
        directory.unlink(missing_ok=True)
        server.apply({"predictPolicy": {"cpuHalfLifeSeconds": 600 + steps}})
        server.save()
        table = restored(directory).table
        assert table.cpu.half_life_seconds == 600 + steps
        saved = certain(server.histograms("web"))
        row = table.rows["web"]
        assert table.cpu.histograms.totals[row] == saved["cpu"].total_weight
        for file in files(directory):
            file.unlink()
        directory.rmdir()
        directory.write_text("again")


def test_models_of_vanished_pods_expire_and_those_of_present_ones_never(tmp_path: Path) -> None:
    life = Life(tmp_path)
    made = life.server
    life.learn(entities(stays=Usage(1.0, 1.0), goes=Usage(1.0, 1.0)), [pod("stays"), pod("goes")])
    known = made.model_count
    life.clock.advance(1801)
    made.train(None)
    assert made.model_count == known
    made.train([pod("stays")])
    assert made.histograms("goes") is None
    assert made.histograms("stays") is not None
    made.save()
    assert restored(tmp_path).table.rows.keys() == {*series.NODE_ENTITIES, "stays"}


_LEARNS_UNTIL_ENDED = """
import sys, threading
from pathlib import Path
from shared import termination
from shared.clock import ManualClock
from tests.unit.agent.models import Life, entities
from agent.metric_cache.series import Usage

stop = termination.event()
life = Life(Path(sys.argv[1]), ManualClock(float(sys.argv[2])))
step = 0
while not stop.is_set():
    step += 1
    life.learn(entities(**{f"pod-{n}": Usage(n + step % 7, 1e9) for n in range(50)}))
    if step == 1:
        print("learning", flush=True)
life.server.save()
print(step, flush=True)
"""


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.thorough), signal.SIGKILL])
def test_a_signal_while_a_checkpoint_is_written_leaves_whole_files(tmp_path: Path, how: signal.Signals) -> None:
    samples = 0
    for life in range(max(2, 4 // stride())):
        command = [sys.executable, "-c", _LEARNS_UNTIL_ENDED, str(tmp_path), str(NOW + 100_000 * life)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "learning\n"  # of which the first step is written
            deadline = time.monotonic() + random.uniform(0.05, 0.3)
            while time.monotonic() < deadline:
                pass  # any instant will do, so none is waited for
            process.send_signal(how)
            answer = process.stdout.read()
        found = restored(tmp_path)
        assert not list(tmp_path.glob("*.bad-*"))
        learnt_now = found.table.samples_of("pod-7") - samples
        assert learnt_now > 0
        samples += learnt_now
        assert samples == found.table.samples_of(series.NODE)
        if how is signal.SIGTERM:
            assert answer == f"{learnt_now}\n"
