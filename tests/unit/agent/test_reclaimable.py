"""Nothing unknown is ever lent, and never more than was requested or than the node has above the peak."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import lenders, percentile, reclaimable
from agent.predict_server.histories import History
from agent.predict_server.lenders import Requests
from agent.predict_server.percentile import PercentilePod, class_level, pod_level
from agent.predict_server.prediction import NODE_UNKNOWN, PODS_UNKNOWN, UNTRAINED
from agent.predict_server.reclaimable import Inputs
from agent.states_informer.informer import LocalNode
from agent.states_informer.pods import NodePod
from shared import explanation
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.support import certain
from tests.unit.agent.models import Life, answer, entities, owned, reclaimable_milli
from tests.unit.agent.pods import NOW, pod

GIB = 2**30
COLD_START = 86400.0
NODE, REQUESTED, NONE = Resources(8000, 16 * GIB), Resources(6000, 8 * GIB), Resources()
CANDIDATES = {"n-sigma-v1": Resources(1500, GIB), "pods-n-sigma": Resources(1000, 2 * GIB)}


def inputs(
    *,
    allocatable: Resources = NODE,
    requested: Resources = REQUESTED,
    cold: Resources = NONE,
    candidates: Mapping[str, Resources] = CANDIDATES,
    ratio_percent: int = 100,
) -> Inputs:
    return Inputs(
        allocatable=allocatable,
        requests=Requests(requested, cold),
        history=History(Usage(1.0, GIB), Usage(0.1, GIB / 16), samples=10, first_observed=NOW - 100),
        candidates=candidates,
        ratio_percent=ratio_percent,
        now=NOW,
    )


@pytest.mark.parametrize(
    ("case", "expected_cpu", "bound"),
    [
        (inputs(), 4500, "requested"),
        (inputs(allocatable=Resources(4000, GIB)), 2500, "allocatable"),
        (inputs(cold=Resources(2000, 0)), 4500, "requested"),  # what it counts for is in the predictor's peak
        (inputs(ratio_percent=50), 1500, "requested"),
        (inputs(candidates={"x": Resources(7500, GIB)}), 0, "peak"),
        (inputs(requested=Resources()), 0, "peak"),
    ],
)
def test_the_formula_and_its_bound(case: Inputs, expected_cpu: int, bound: str) -> None:
    answer = reclaimable.compute(case)
    assert (answer.result.cpu_milli, answer.explanation.cpu.bound) == (expected_cpu, bound)
    assert answer.explanation.cpu.result == expected_cpu


def test_no_claim_says_what_is_missing(tmp_path: Path) -> None:
    life, pods = Life(tmp_path, cold_start_seconds=0), [pod("web")]
    assert life.predict(*pods).unclaimed is UNTRAINED
    for _ in range(2):
        life.learn(entities(web=Usage(0.5, GIB)), pods)
    assert life.predict(*pods).reclaimable is not None
    for known_pods, known_node, missing in ((pods, None, NODE_UNKNOWN), (None, life.node, PODS_UNKNOWN)):
        prediction = life.server.predict(known_pods, known_node)
        assert (prediction.reclaimable, prediction.unclaimed) == (None, missing)


AMOUNTS = st.builds(Resources, st.integers(0, 100_000), st.integers(0, 2**40))
PEAKS = st.dictionaries(st.text(min_size=1), AMOUNTS, min_size=1, max_size=4)


@given(AMOUNTS, AMOUNTS, AMOUNTS, PEAKS, st.integers(0, 100))
def test_never_negative_nor_above_requested_nor_above_allocatable_less_the_peak(
    allocatable: Resources, requested: Resources, cold: Resources, candidates: dict[str, Resources], ratio: int
) -> None:
    case = inputs(allocatable=allocatable, requested=requested, cold=cold, candidates=candidates, ratio_percent=ratio)
    answer = reclaimable.compute(case)
    for result, asked, room in zip(answer.result, requested, allocatable.minus(answer.peak), strict=True):
        assert 0 <= result <= min(asked, max(0, room))
    for candidate in candidates.values():
        assert all(peak >= least for peak, least in zip(answer.peak, candidate, strict=True))


@given(AMOUNTS, PEAKS, AMOUNTS)
def test_a_higher_peak_never_frees_more(
    allocatable: Resources, candidates: dict[str, Resources], more: Resources
) -> None:
    lower = reclaimable.compute(inputs(allocatable=allocatable, candidates=candidates))
    raised = {name: amount.plus(more) for name, amount in candidates.items()}
    higher = reclaimable.compute(inputs(allocatable=allocatable, candidates=raised))
    assert all(high <= low for high, low in zip(higher.result, lower.result, strict=True))


LENDERS = st.lists(st.builds(PercentilePod, AMOUNTS, st.booleans(), st.booleans(), st.none() | AMOUNTS), max_size=6)


@given(AMOUNTS, LENDERS, AMOUNTS, st.integers(0, 100))
def test_koordinators_rule_too_keeps_within_what_was_requested_and_what_each_level_leaves(
    allocatable: Resources, lending: list[PercentilePod], class_peak: Resources, ratio: int
) -> None:
    answer = percentile.by_pod_and_class(inputs(allocatable=allocatable, ratio_percent=ratio), lending, class_peak)
    levels = (pod_level(lending, ratio), class_level(lending, class_peak, ratio))
    for resource in range(2):
        requested = sum(one.request[resource] for one in lending if one.holds_request)
        room = min(allocatable[resource] - level.unreclaimable[resource] for level in levels)
        assert 0 <= answer.result[resource] <= min(requested, max(0, room))
        assert answer.peak[resource] == max(level.peak[resource] for level in levels)


@pytest.mark.parametrize(
    ("described", "observed_since", "requested", "cold"),
    [
        (pod(), NOW - 2 * COLD_START, 1000, 0),
        (pod(age_seconds=60), NOW - 60, 1000, 1000),
        (pod(), NOW - 60, 1000, 1000),
        (pod(), NOW - COLD_START, 1000, 1000),
        (pod(), None, 1000, 1000),
        (pod(priority=7500), None, 0, 0),
        (pod(priority=5500), None, 0, 0),
        (pod(priority=None), None, 1000, 1000),
        (pod(phase="Succeeded"), None, 0, 0),
        (pod(terminating=True), None, 0, 0),
    ],
    ids=[
        "old and long observed",
        "young",
        "old but only now observed",
        "exactly the cold start",
        "never observed",
        "mid",
        "batch",
        "no class but requests",
        "finished",
        "terminating",
    ],
)
def test_whose_request_counts_and_who_is_cold(
    described: NodePod, observed_since: float | None, requested: int, cold: int
) -> None:
    lending = lenders.lenders(
        [described],
        lambda _: observed_since,
        lambda _: 100,
        NOW,
        cold_start_seconds=COLD_START,
        warm_up_samples=2,
    )
    got = lenders.requests(lending)
    assert (got.requested.cpu_milli, got.cold.cpu_milli) == (requested, cold)


SYSTEM = Usage(0.25, GIB)


def life_of(directory: Path, **settings: object) -> Life:
    """Of a smaller node, long enough ago for a day of history."""
    life = Life(directory, ManualClock(NOW - 30 * 3600), **settings)
    life.node = LocalNode(NODE)
    return life


def train(life: Life, pods: list[NodePod], usages: dict[str, Usage], times: int = 1, every: float = 30) -> None:
    for _ in range(times):
        life.learn(usages, pods, every)


def test_a_rollout_inherits_its_workloads_history(tmp_path: Path) -> None:
    life = life_of(tmp_path, predictor="n-sigma-v2")
    old = owned(pod("old", age_seconds=40 * 3600), "StatefulSet", "web")
    workload = series.of_workload("default/StatefulSet/web")
    usage = Usage(0.5, GIB / 4)
    train(life, [old], {**entities(SYSTEM, old=usage), workload: usage}, times=30, every=3600)
    assert reclaimable_milli(life.predict(old)) == 1000 - 500 - 250 == 250
    new = owned(pod("new", age_seconds=0), "StatefulSet", "web")
    assert life.predict(new).requests.cold.cpu_milli == 1000  # it has not been seen yet
    train(life, [new], {**entities(SYSTEM, new=usage), workload: usage}, times=2)
    heir, stranger = life.predict(new), life.predict(pod("new", age_seconds=0))
    assert (heir.requests.cold.cpu_milli, reclaimable_milli(heir)) == (0, 250)
    assert (stranger.requests.cold.cpu_milli, reclaimable_milli(stranger)) == (1000, 0)


def test_a_workload_is_remembered_for_a_week_and_a_pod_for_half_an_hour(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    workload = series.of_workload("default/StatefulSet/web")
    train(life, [], {**entities(gone=SYSTEM), workload: SYSTEM})
    known = life.server.model_count
    train(life, [], entities(), times=2, every=1000)
    assert life.server.histograms("gone") is None
    assert life.server.model_count == known - 1
    train(life, [], entities(), every=7 * 86400 - 2100)
    assert life.server.histograms(workload) is not None
    train(life, [], entities(), every=200)
    assert life.server.histograms(workload) is None


def test_a_storm_of_short_lived_pods_leaves_a_bounded_number_of_models(tmp_path: Path) -> None:
    life = life_of(tmp_path, checkpoint_interval_seconds=3600.0)
    stays = [pod("stays")]
    for minute in range(10):
        storm = {f"{minute}-{number}": SYSTEM for number in range(1000)}
        train(life, stays, entities(stays=SYSTEM, **storm), every=60)
        life.cache.retain_pods({"stays"})
    assert life.server.model_count <= 4096 + 1000 + len(series.NODE_ENTITIES) + 1
    assert life.server.histograms("stays") is not None
    assert life.server.histograms("0-0") is None
    assert life.server.histograms("9-0") is not None


def test_before_the_warm_up_is_over_nothing_is_claimed(tmp_path: Path) -> None:
    life = life_of(tmp_path, predictor="n-sigma-v2", warm_up_samples=3, cold_start_seconds=0.0)
    web = pod("web", age_seconds=40 * 3600)
    for claimed in (None, None, 750):
        train(life, [web], entities(web=SYSTEM))
        prediction = life.predict(web)
        assert (prediction.reclaimable and prediction.reclaimable.result.cpu_milli) == claimed


def test_parameters_that_are_no_whole_percents_are_explained_as_they_are(tmp_path: Path) -> None:
    life = life_of(
        tmp_path, predictor="max(n-sigma-v1,percentile)", cpu_percentile=99.9, sigma_cpu=2.345, sigma_memory=3.0
    )
    web = pod("web", age_seconds=40 * 3600)
    train(life, [web], entities(SYSTEM, web=Usage(0.5, GIB / 2)), times=3)
    explained = answer(life.predict(web)).explanation
    said = explanation.sentence(explained.cpu.terms)
    assert "sigma 234.5 %" in said
    assert "percentile 99.9 %" in said
    assert "sigma 300 %" in explanation.sentence(explained.memory.terms)


@pytest.mark.parametrize("predictor", ["n-sigma-v1", "n-sigma-v2", "percentile", "max(n-sigma-v2,percentile)"])
def test_every_step_of_the_answer_is_explained(tmp_path: Path, predictor: str) -> None:
    life = life_of(tmp_path, predictor=predictor, reclaim_ratio_percent=90, cold_start_seconds=3600.0)
    warm, cold = pod("warm", cpu="3", age_seconds=40 * 3600), pod("cold", cpu="2", age_seconds=40 * 3600)
    train(life, [warm], entities(SYSTEM, warm=Usage(0.5, GIB / 2)), times=3, every=3600)
    train(life, [warm, cold], entities(SYSTEM, warm=Usage(0.5, GIB / 2), cold=Usage(0.1, GIB / 2)), times=3)
    found = answer(life.predict(warm, cold))
    explained = found.explanation.cpu
    terms = {term.name: term for term in explained.terms}
    assert (terms["requested"].value, terms["reclaimRatio"].value, terms["allocatable"].value) == (5000, 90, 8000)
    assert (terms["coldRequest"].value, terms["coldRequest"].source) == (2000, "pod default/cold")
    assert terms["coldRequests"].value == 2000
    winner = terms["predictedPeak"]
    candidates = [term for term in explained.terms if term.source == "predictor"]
    assert winner.value == max(term.value for term in candidates) == terms[winner.source].value
    assert {term.name for term in candidates} == {
        "n-sigma-v1": {"n-sigma-v1", "cold-pods"},
        "n-sigma-v2": {"n-sigma-v1", "pods-n-sigma"},
        "percentile": {"percentile-pods", "percentile-classes"},
        "max(n-sigma-v2,percentile)": {"n-sigma-v1", "pods-n-sigma", "percentile-pods", "percentile-classes"},
    }[predictor]
    assert ("sigma" in terms) == ("n-sigma" in predictor)
    assert ("percentile" in terms) == ("percentile" in predictor)
    assert explained.result == found.result.cpu_milli
    if predictor == "percentile":
        assert explained.bound in {"percentile-pods", "percentile-classes"}
        assert explained.result == min(
            min(terms[f"reclaimable {level}"].value, terms[f"room above {level}"].value)
            for level in ("percentile-pods", "percentile-classes")
        )
    else:
        assert terms["peak"].value == winner.value
        assert explained.result == max(0, min(4500, 8000) - terms["peak"].value)


def test_the_more_models_are_asked_the_less_is_lent(tmp_path: Path) -> None:
    web = pod("web", cpu="4", age_seconds=40 * 3600)
    found = {}
    for predictor in ("n-sigma-v1", "n-sigma-v2", "max(n-sigma-v2,borg-default)"):
        life = life_of(tmp_path / predictor, predictor=predictor, cold_start_seconds=0.0)
        for cores in (0.2, 0.4, 0.3):
            train(life, [web], entities(SYSTEM, web=Usage(cores, GIB / 8)))
        found[predictor] = reclaimable_milli(life.predict(web))
    assert found["n-sigma-v1"] >= found["n-sigma-v2"] > found["max(n-sigma-v2,borg-default)"] > 0


@pytest.mark.parametrize(("training_input", "milli"), [("mean", 195), ("p90", 100), ("p95", 1000), ("max", 1000)])
def test_what_an_intervals_samples_are_to_a_model_can_be_set(tmp_path: Path, training_input: str, milli: int) -> None:
    life = life_of(tmp_path, training_input=training_input, warm_up_samples=1)
    for second in range(20):
        life.sample(entities(web=Usage(1.0 if second in (3, 9) else 0.1, GIB)))
    life.server.train([])
    prod = certain(life.predict().prod)
    assert prod.mean.cpu_cores * 1000 == pytest.approx(milli, abs=5.1)
