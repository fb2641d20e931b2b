"""A third party's model is found by its entry point; what it does wrong is its own affair, and lends nothing."""

import dataclasses
import importlib
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from textwrap import dedent
from typing import Protocol

import msgspec
import numpy as np
import pytest

from agent.metric_cache.series import Usage
from agent.predict_server import plugins
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Candidates
from agent.predict_server.models import Outcome, Parameters, Situation, Uses
from agent.predict_server.prediction import NodePrediction
from agent.states_informer.informer import LocalNode
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.plugins import DISTRIBUTION
from shared.quantity import Resources
from tests.unit.agent.models import Life, answer, entities, reclaimable_milli
from tests.unit.agent.pods import NOW, pod

GIB = 2**30
NODE = LocalNode(Resources(8000, 16 * GIB))
PODS = [pod("web", cpu="2", memory="4Gi")]

# What a third party writes: the largest usage ever seen of prod and system, kept through restarts.
EXAMPLE = """
    import struct

    from agent.metric_cache.series import PROD_PEAK
    from agent.predict_server.models import Predictor


    class AllTimeMaximum(Predictor):
        def __init__(self, parameters):
            self.most = [0.0, 0.0]

        def update(self, keys, usages, time):
            if PROD_PEAK in keys:
                seen = usages[list(keys).index(PROD_PEAK)]
                self.most = [max(pair) for pair in zip(self.most, seen.tolist())]

        def peak(self, situation):
            return {"all-time-maximum": self.most}

        def state(self):
            return struct.pack("<2d", *self.most)

        def restore(self, state):
            self.most = list(struct.unpack("<2d", state))


    class Answers(Predictor):
        answer = {"constant": [0.1, 1.0]}

        def __init__(self, parameters):
            pass

        def peak(self, situation):
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer


    class Witness(Predictor):
        # Notes all that it is shown; promises two horizons.
        situations, outcomes, steps = [], [], []

        def __init__(self, parameters):
            pass

        def update(self, keys, usages, time):
            self.steps.append(time)

        def observe(self, outcomes):
            self.outcomes.extend(outcomes)

        def set_clock(self, seconds):
            self.steps.append(("clock", seconds))

        def peak(self, situation):
            if situation.whole.keys == (PROD_PEAK,):
                self.situations.append(situation)
            return {"by-horizon": [[[1.5, 1e9]], [[0.5, 1e9]]]}


    class Unmakable(Predictor):
        def __init__(self, parameters):
            raise RuntimeError("no licence")
"""
ENTRY_POINTS = """
    [headroom.predictors]
    all-time-maximum = third_party:AllTimeMaximum
    answers = third_party:Answers
    witness = third_party:Witness
    unmakable = third_party:Unmakable
    missing = third_party:NotThere
    n-sigma-v2 = third_party:Answers
"""


@pytest.fixture(autouse=True)
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """A distribution as a package installer leaves it; its class whose answer can be set."""
    site = tmp_path / "site"
    info = site / "third_party-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "third_party.py").write_text(dedent(EXAMPLE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(dedent(ENTRY_POINTS))
    monkeypatch.syspath_prepend(str(site))
    yield importlib.import_module("third_party").Answers
    del sys.modules["third_party"]


class Steps(Life):
    """Sees one steady pod, step by step."""

    def __init__(self, directory: Path, clock: ManualClock, predictor: str) -> None:
        super().__init__(directory, clock, predictor=predictor, cold_start_seconds=0)
        self.node = NODE

    def step(self, cpu_cores: float = 0.5) -> NodePrediction:
        self.learn(entities(web=Usage(cpu_cores, GIB)), PODS)
        return self.predict(*PODS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def test_a_plug_in_decides_the_peak(tmp_path: Path, clock: ManualClock) -> None:
    life = Steps(tmp_path, clock, "all-time-maximum")
    for cpu_cores in (0.5, 1.5, 0.25):
        life.step(cpu_cores)
    prediction = life.predict(*PODS)
    assert prediction.model == "all-time-maximum"
    assert reclaimable_milli(prediction) == 500
    named = {term.name: term for term in answer(prediction).explanation.cpu.terms}
    assert named["all-time-maximum"].value == 1500
    assert named["predictedPeak"].source == "all-time-maximum"


def test_what_a_plug_in_keeps_outlives_the_process_and_a_change_of_policy(tmp_path: Path, clock: ManualClock) -> None:
    life = Steps(tmp_path, clock, "all-time-maximum")
    for cpu_cores in (1.5, 0.5, 0.5):
        life.step(cpu_cores)
    assert reclaimable_milli(Steps(tmp_path, clock, "all-time-maximum").predict(*PODS)) == 500
    life.server.apply({"predictPolicy": {"sigmaCPU": 1}})
    assert reclaimable_milli(life.predict(*PODS)) == 500


def test_plug_ins_and_built_in_models_can_be_combined(tmp_path: Path, clock: ManualClock) -> None:
    life = Steps(tmp_path, clock, "max(all-time-maximum, borg-default)")
    for _ in range(3):
        life.step(0.5)
    prediction = life.predict(*PODS)
    assert prediction.model_peak == Resources(1819, 3904515724)  # borg's, above all usage


def test_a_built_in_name_cannot_be_taken(tmp_path: Path, clock: ManualClock) -> None:
    life = Steps(tmp_path, clock, "n-sigma-v2")
    for _ in range(3):
        life.step(0.5)
    assert reclaimable_milli(life.predict(*PODS)) == 1500


NONSENSE = [
    RuntimeError("broken"),
    RecursionError(),
    SystemExit(3),
    None,
    {},
    [0.1, 1.0],
    {"x": None},
    {"x": float("nan")},
    {"x": [float("nan"), 1.0]},
    {"x": [float("inf"), 1.0]},
    {"x": [-0.1, 1.0]},
    {"x": [0.1]},
    {"x": [0.1, 1.0, 2.0]},
    {"x": [[0.1, 1.0], [0.1, 1.0]]},
    {"x": [[[0.1, 1.0]]]},
    {"x": ["a", "b"]},
    {"x": [1e300, 1.0]},
    {5: [0.1, 1.0]},
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=repr)
@pytest.mark.parametrize("predictor", ["answers", pytest.param("max(answers,n-sigma-v1)", marks=pytest.mark.thorough)])
def test_nonsense_lends_nothing_is_counted_and_shown_and_ends_when_the_model_recovers(
    tmp_path: Path,
    clock: ManualClock,
    third_party: type,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    predictor: str,
    nonsense: object,
) -> None:
    caplog.set_level(logging.ERROR)
    life = Steps(tmp_path, clock, predictor)
    life.step()
    sound = reclaimable_milli(life.step())
    assert sound > 0
    with monkeypatch.context() as patch:
        patch.setattr(third_party, "answer", nonsense)
        for _ in range(3):
            prediction = life.step()
            assert answer(prediction).result == Resources()
            assert answer(prediction).peak.cpu_milli >= 2000
            assert "answers" in prediction.predictor_problem
        assert life.server.model_count > 0
        failures = life.registry.get_sample_value("headroom_agent_predictor_failures_total", {"predictor": "answers"})
        assert failures == 6  # the peak of prod and that of the whole node, three times
        assert caplog.text.count("counted only") == 1
    recovered = life.step()
    assert reclaimable_milli(recovered) == sound
    assert recovered.predictor_problem == ""


def test_a_model_that_fails_to_learn_or_to_save_keeps_no_other_from_it(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bytes:
        raise OSError("no")

    life = Steps(tmp_path, clock, "max(answers,all-time-maximum)")
    for method in ("update", "state", "restore"):
        monkeypatch.setattr(third_party, method, fails)
    for _ in range(3):
        life.step(1.5)
    assert reclaimable_milli(life.predict(*PODS)) == 500
    assert "update" in life.predict(*PODS).predictor_problem
    again = Steps(tmp_path, clock, "all-time-maximum")
    assert reclaimable_milli(again.predict(*PODS)) == 500


def test_a_plug_in_cannot_change_what_others_learn(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddles(_: object, __: object, usages: Floats, ___: float) -> None:
        usages[:] = 0.0

    monkeypatch.setattr(third_party, "update", meddles)
    life = Steps(tmp_path, clock, "max(answers,all-time-maximum)")
    life.step(1.5)
    assert reclaimable_milli(life.step(1.5)) == 500


def test_a_plug_in_cannot_change_what_others_answer_from(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddles(_: object, situation: Situation) -> Candidates:
        situation.requests[:] = 0.0
        return {"x": np.zeros(2)}

    monkeypatch.setattr(third_party, "peak", meddles)
    life = Steps(tmp_path, clock, "max(answers,borg-default)")
    for _ in range(3):
        prediction = life.step()
    assert reclaimable_milli(prediction) == 0
    assert "read-only" in prediction.predictor_problem


def test_only_a_person_at_the_keyboard_can_interrupt(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Steps(tmp_path, clock, "answers")
    life.step()
    life.step()
    monkeypatch.setattr(third_party, "answer", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):  # as ours is the main thread
        life.predict(*PODS)
    with ThreadPoolExecutor() as loop:
        assert "KeyboardInterrupt" in loop.submit(life.predict, *PODS).result().predictor_problem


@pytest.mark.parametrize("name", ["sigma", "percentiles"])
def test_a_plug_in_cannot_change_the_policy_of_others(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def meddles(_: object, parameters: Parameters) -> None:
        getattr(parameters, name)[:] = 0.0

    monkeypatch.setattr(third_party, "__init__", meddles)
    with pytest.raises(InvalidInput, match="read-only"):
        Steps(tmp_path, clock, "max(answers,n-sigma-v2)")


def test_a_plug_in_that_wants_to_exit_when_made_is_refused(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exits(*_: object) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(third_party, "__init__", exits)
    with pytest.raises(InvalidInput, match="SystemExit"):
        Steps(tmp_path, clock, "answers")


@pytest.mark.parametrize("name", ["unmakable", "missing", "nobody", "", "max()", "max(nobody)", "max(n-sigma-v1"])
def test_a_model_that_is_not_there_or_cannot_be_made_is_refused_by_name(
    tmp_path: Path, clock: ManualClock, name: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Steps(tmp_path, clock, name)
    assert caught.value.field == "predictor"
    server = Life(tmp_path, clock).server
    server.apply({"predictPolicy": {"predictor": name}})
    assert server.policy.predictor == "peak-mix"
    assert "predictor" in server.predict([], None).policy_problem


def test_what_a_plug_in_declares_is_shown_and_a_change_of_it_begins_its_record_anew(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Steps(tmp_path, clock, "answers").server.policy
    assert silent.terms(0, ("answers",)) == []
    monkeypatch.setattr(third_party, "uses", frozenset({Uses.SIGMA}), raising=False)
    monkeypatch.setattr(third_party, "default_margin_percent", 12.5, raising=False)
    policy = Steps(tmp_path, clock, "answers").server.policy
    assert [(term.name, term.value, term.unit) for term in policy.terms(0, ("answers",))] == [
        ("sigma", 500, "percent"),
        ("safetyMargin", 1250, "basisPoints"),
    ]
    changed = msgspec.structs.replace(policy, sigma_cpu=6.0)
    assert changed.identity(("answers",)) != policy.identity(("answers",))


@pytest.mark.parametrize(("field", "value"), [("uses", ["sigma"]), ("default_margin_percent", "much")])
def test_a_declaration_that_means_nothing_is_refused(
    tmp_path: Path, clock: ManualClock, third_party: type, monkeypatch: pytest.MonkeyPatch, field: str, value: object
) -> None:
    monkeypatch.setattr(third_party, field, value, raising=False)
    with pytest.raises(InvalidInput, match=f"entry point answers = third_party:Answers .*{field}"):
        Steps(tmp_path, clock, "answers")


def test_the_built_in_models_stand_in_the_group_that_others_enter() -> None:
    group = distribution(DISTRIBUTION).entry_points.select(group=plugins.GROUP.name)
    assert set(plugins.built_in()) == group.names


class Seen(Protocol):
    situations: list[Situation]
    outcomes: list[Outcome]
    steps: list[object]


def witness() -> Seen:
    found: Seen = sys.modules["third_party"].Witness
    return found


def test_a_plug_in_sees_cold_pods_with_what_they_use_and_may_use_and_how_old_they_are(
    tmp_path: Path, clock: ManualClock
) -> None:
    life = Life(tmp_path, clock, predictor="witness", warm_up_samples=1)
    pods = [pod("old", cpu="2", age_seconds=10**6), pod("young", cpu="4", age_seconds=60)]
    for step in range(26):
        present = {"old": Usage(0.5, GIB)} | ({"young": Usage(1.5, GIB)} if step >= 24 else {})
        life.learn(entities(Usage(0.25, GIB), **present), pods, 3600)
    pods[1] = dataclasses.replace(pods[1], limit=(6000.0, 8.0 * GIB), created_at=clock.now() - 3600)
    life.predict(*pods)
    seen = witness().situations[-1]
    assert seen.pods.keys == ("old", "young")
    assert seen.cold.tolist() == [False, True]
    assert seen.pods.means[:, 0] == pytest.approx([0.5, 1.5])
    assert seen.pods.maxima(7)[:, 0] == pytest.approx([0.5, 1.5])
    assert seen.requests[:, 0].tolist() == [2.0, 4.0]
    assert seen.limits[:, 0].tolist() == [np.inf, 6.0]
    assert seen.ages_seconds.tolist() == [25 * 3600, 3600]
    assert seen.time - seen.whole.first_observed[0] == 25 * 3600
    assert seen.system.means[0, 0] == pytest.approx(0.25)
    assert seen.horizons_seconds[0] == 86400


def test_a_plug_in_answers_by_horizon_and_is_told_what_came_of_it(tmp_path: Path, clock: ManualClock) -> None:
    life = Steps(tmp_path, clock, "witness")
    life.step(0.25)
    began = clock.now()
    for _ in range(2 * 120):
        prediction = life.step(0.25 if clock.now() < began + 1800 else 0.75)
    assert answer(prediction).peak.cpu_milli == 1500  # of the first horizon, which is lent for
    outcomes = witness().outcomes
    assert {one.horizon_seconds for one in outcomes} == {3600}  # no day has passed
    assert len(outcomes) == 2  # one an hour
    assert all(one.promised.tolist() == [[0.5, 1e9]] for one in outcomes)
    assert [one.realised[0, 0] for one in outcomes] == [0.75] * 2
    assert outcomes[0].nodes == witness().situations[0].whole.keys


def test_what_waits_to_be_judged_outlives_the_process_and_a_clock_that_is_set(
    tmp_path: Path, clock: ManualClock
) -> None:
    life = Steps(tmp_path, clock, "witness")
    for _ in range(60):
        life.step(0.75)
    life.server.save()
    again = Steps(tmp_path, clock, "witness")
    for _ in range(30):
        again.step(0.25)
    clock.jump(7200)  # no time passes by that
    for _ in range(40):
        again.step(0.25)
    (outcome,) = witness().outcomes[:1]
    assert outcome.realised[0, 0] == 0.75
    assert ("clock", pytest.approx(7200)) in witness().steps


def test_after_a_gap_nothing_is_said_of_promises_that_nobody_watched(tmp_path: Path, clock: ManualClock) -> None:
    life = Steps(tmp_path, clock, "witness")
    for _ in range(10):
        life.step(0.75)
    clock.advance(2 * 3600)
    for _ in range(10):
        life.step(0.25)
    assert witness().outcomes == []


def test_built_in_models_are_loaded_as_any_other_entry_point() -> None:
    for name in plugins.built_in():
        assert isinstance(plugins.load(name)(Parameters()).state(), bytes)
    assert set(plugins.built_in()) >= {"n-sigma-v1", "n-sigma-v2", "percentile", "borg-default", "resource-central"}
