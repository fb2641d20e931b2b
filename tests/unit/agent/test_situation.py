"""A pod that is too young to be judged counts once and is never lent; with a cap none counts beyond what it can use."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import plugins
from agent.predict_server.decay import Floats
from agent.predict_server.models import NSigmaV1, NSigmaV2, Parameters
from agent.predict_server.prediction import NodePrediction
from agent.states_informer.pods import NodePod, describe
from shared.api.core import Container, Pod, PodSpec, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.unit.agent.models import Life, answer, entities, fleet, model_table, situation, train
from tests.unit.agent.pods import NOW, pod

GIB = 2.0**30
SYSTEM = Usage(0.25, GIB)
BUILT_IN = plugins.built_in()
CAPPED = Parameters(sigma=np.array([100.0, 100.0]), sigma_cap_pods=True)
BY_COLD_START = sorted({*BUILT_IN} - {"peak-mix"})  # which has a rule of its own for young pods


def predicted(directory: Path, predictor: str, usages: dict[str, Usage], pods: list[NodePod]) -> NodePrediction:
    life = Life(directory, ManualClock(NOW - 41 * 3600), predictor=predictor)
    old = {one.uid for one in pods if NOW - one.created_at > 86400}
    for hour in range(41):
        life.learn(entities(SYSTEM, **{u: usages[u] for u in usages if u in old or hour == 40}), pods, 3600)
    life.clock.advance(3600)
    return life.predict(*pods)


def test_a_cold_pod_counts_once_though_its_usage_is_in_the_nodes_series_too(tmp_path: Path) -> None:
    pods = [pod("old", cpu="8", age_seconds=10**6), pod("cold", cpu="4", age_seconds=3600)]
    found = predicted(tmp_path, "n-sigma-v2", {"old": Usage(2.0, GIB), "cold": Usage(3.0, GIB)}, pods)
    named = {term.name: term.value for term in answer(found).explanation.cpu.terms if term.source == "predictor"}
    assert named["pods-n-sigma"] == 2000 + 4000 + 250  # and 3 cores are in the node's peak, with their deviation
    assert answer(found).peak.cpu_milli == max(named.values())
    assert answer(found).result.cpu_milli == 12_000 - max(named.values())
    assert found.requests.cold.cpu_milli == 4000


@pytest.mark.parametrize("in_force", ["peak-mix", "n-sigma-v1", "n-sigma-v2"])
@pytest.mark.parametrize("shadows", [(), ("n-sigma-v1",)])
def test_what_is_called_n_sigma_v1_is_one_number_whatever_a_cold_pod_has_requested(
    tmp_path: Path, in_force: str, shadows: tuple[str, ...]
) -> None:
    pods = [pod("old", cpu="8", age_seconds=10**6), pod("cold", cpu="4", age_seconds=600)]
    life = Life(tmp_path, predictor=in_force, shadow_predictors=shadows, cold_start_seconds=3600.0)
    for hour in range(26):
        usages = {"old": Usage(2.0, GIB)} | ({"cold": Usage(0.0, 0.0)} if hour == 25 else {})
        life.learn(entities(**usages), pods, 3600)
    found, models = life.predict(*pods), life.server.peaks(pods)
    assert found.requests.cold.cpu_milli == 4000
    assert {name: models[name] for name in found.n_sigma} == found.n_sigma
    assert found.n_sigma["n-sigma-v1"].cpu_milli == 2000
    if in_force == "n-sigma-v1":
        assert answer(found).peak.cpu_milli == 6000, "a cold pod's request is not lent"


AMOUNT = st.floats(0, 16)
PODS = st.lists(st.tuples(AMOUNT, AMOUNT, st.booleans()), min_size=1, max_size=5)


@given(PODS, st.sampled_from(BY_COLD_START))
def test_no_built_in_model_with_a_cold_start_lends_what_a_cold_pod_has_requested(
    pods: list[tuple[float, float, bool]], name: str
) -> None:
    keys = [f"p{number}" for number in range(len(pods))]
    table = model_table()
    for step in range(3):
        train(
            table,
            entities(**{key: Usage(used, used) for key, (used, _, _) in zip(keys, pods, strict=True)}),
            NOW + step,
        )
    requests = [Usage(asked, asked) for _, asked, _ in pods]
    cold = [key for key, (_, _, is_cold) in zip(keys, pods, strict=True) if is_cold]
    asked_of = situation(table, keys, requests, cold=cold)
    peak = np.max([one[..., :] for one in plugins.load(name)(Parameters()).peak(asked_of).values()], axis=0)
    cold_requests = sum(asked for _, asked, is_cold in pods if is_cold)
    assert (peak.reshape(-1, 2) >= cold_requests * (1 - 1e-3) - 1e-3).all()


@pytest.mark.parametrize("name", BY_COLD_START)
def test_a_cold_pod_is_answered_for_by_every_such_model_with_its_request(tmp_path: Path, name: str) -> None:
    alone = predicted(tmp_path, name, {"cold": Usage(0.5, GIB)}, [pod("cold", cpu="4", age_seconds=3600)])
    assert answer(alone).result == Resources()


def test_a_node_series_does_not_lend_what_a_cold_pod_has_requested_and_the_others_use() -> None:
    table = model_table()
    for step in range(3):
        train(table, entities(SYSTEM, a=Usage(2.0, GIB), b=Usage(0.0, 0.0)), NOW + step)
    peak = NSigmaV1(Parameters()).peak(situation(table, ["a", "b"], [Usage(4.0, GIB), Usage(3.0, GIB)], cold=["b"]))
    assert max(one[0, 0] for one in peak.values()) == pytest.approx(2.0 + 3.0 + 0.25)


def of_pod(table_usages: list[float], request: float, limit: float | None, **of: object) -> Floats:
    """The peak of one pod whose usage was that, with 100 standard deviations above its mean."""
    table = model_table()
    for step, used in enumerate(table_usages):
        train(table, entities(a=Usage(used, used)), NOW + step)
    limits = None if limit is None else [Usage(limit, limit)]
    asked_of = situation(table, ["a"], [Usage(request, request)], limits=limits)
    judged = NSigmaV2(CAPPED).peak(asked_of)
    found: Floats = judged["pods-n-sigma"][0]
    return found


def test_a_pod_counts_for_no_more_than_its_limit() -> None:
    assert of_pod([0.0, 2.0], request=1.0, limit=4.0) == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize(("request_", "expected"), [(1.0, 2.0), (3.0, 3.0)])
def test_a_pod_without_a_limit_counts_for_no_more_than_it_requested_or_ever_used(
    request_: float, expected: float
) -> None:
    assert of_pod([0.0, 2.0], request=request_, limit=None) == pytest.approx([expected, expected])


def test_what_a_pod_without_a_limit_used_is_forgotten_after_a_week() -> None:
    def peak(days: float) -> float:
        table = model_table()
        train(table, entities(a=Usage(5.0, GIB)), NOW)
        for hour in range(int(24 * days)):
            train(table, entities(a=Usage(0.1 + hour % 2, GIB)), NOW + 3600 * (hour + 1))
        asked_of = situation(table, ["a"], [Usage(1.0, GIB)])
        return float(NSigmaV2(CAPPED).peak(asked_of)["pods-n-sigma"][0, 0])

    assert peak(6) == 5.0
    assert peak(9) == pytest.approx(1.1, rel=1e-6)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([{"cpu": "2", "memory": "1Gi"}], (2000, 2**30)),
        ([{"cpu": "2"}, {"cpu": "1", "memory": "1Gi"}], (3000, float("inf"))),
        ([{}], (float("inf"), float("inf"))),
    ],
)
def test_a_pods_limit_is_that_of_its_containers_if_all_have_one(
    limits: list[dict[str, str | int | float]], expected: tuple[float, float]
) -> None:
    containers = tuple(
        Container(name=f"c{number}", resources=ResourceRequirements(limits=one)) for number, one in enumerate(limits)
    )
    described = describe(Pod(metadata=ObjectMeta(uid="u"), spec=PodSpec(containers=containers)))
    assert described.limit == expected


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_node_among_many_gets_the_answer_it_gets_alone_to_the_bit(name: str) -> None:
    draw = np.random.default_rng(7)
    nodes = [[f"{node}/pod-{number}" for number in range(draw.integers(1, 9))] for node in range(5)]
    requests = {uid: Usage(*draw.uniform(0, 8, 2)) for node in nodes for uid in node}
    table = model_table()
    for step in range(20):
        tick: dict[str, Usage] = {}
        for number, pods in enumerate(nodes):
            used = {uid: Usage(*draw.gamma(2, 1, 2)) for uid in pods}
            whole = entities(Usage(*draw.gamma(1, 1, 2)), **used)
            tick |= {key if key in used else f"{number}/{key}": usage for key, usage in whole.items()}
        train(table, tick, NOW + 3600 * step)
    cold = [pods[-1] for pods in nodes]
    made = plugins.load(name)
    together = made(Parameters()).peak(fleet(table, nodes, requests, cold=cold))
    for place, pods in enumerate(nodes):
        alone = made(Parameters()).peak(fleet(table, [pods], requests, cold=cold))
        assert alone.keys() == together.keys()
        for candidate, peak in alone.items():
            assert peak[..., 0, :].tolist() == together[candidate][..., place, :].tolist()


def test_predictors_cannot_change_what_others_see() -> None:
    table = model_table()
    train(table, entities(a=Usage(1.0, GIB)), NOW)
    asked_of = situation(table, ["a"], [Usage(1.0, GIB)])
    arrays = [getattr(asked_of, field.name) for field in dataclasses.fields(asked_of)]
    arrays = [one for one in arrays if isinstance(one, np.ndarray)]
    assert len(arrays) == 6
    assert not any(one.flags.writeable for one in arrays)
    assert series.PROD_PEAK in asked_of.whole.keys
