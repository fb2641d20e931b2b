"""What a replay promises through the agent's own predictors, and what it comes to."""

from dataclasses import replace

import numpy as np
import pytest

from agent.backtest import packing, study
from agent.backtest.engine import BacktestPromise
from agent.backtest.recording import RecordedUsage
from agent.backtest.study import Played, RecordedFleet, Trial
from agent.predict_server import policy
from agent.settings import AgentSettings
from shared.errors import HeadroomError, InvalidInput
from shared.node_kind import NodeKind
from tests.unit.backtest import traces

POLICY = policy.from_settings(AgentSettings())


def trial(*models: str, targets: tuple[float, ...] = (1.0,), horizons: tuple[int, ...] = (24,)) -> Trial:
    return Trial(0, models, targets, horizons, POLICY)


def same(one: Played, other: Played) -> bool:
    return (
        np.array_equal(one.requested, other.requested)
        and all(np.array_equal(one.came[hours], other.came[hours], equal_nan=True) for hours in one.came)
        and all(np.array_equal(one.promised[promise], other.promised[promise]) for promise in one.promised)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("churn_hours", [None, 20.0])
def test_every_node_is_promised_the_same_to_the_bit_whatever_else_is_replayed(churn_hours: float | None) -> None:
    fleet = traces.fleet(days=2, churn_hours=churn_hours)
    asked = trial("n-sigma-v2", "percentile", "resource-central", "peak-mix", targets=(1.0, 5.0), horizons=(1, 6))
    whole = study.play(fleet, asked)
    parts = study.joined([study.play(part, asked) for part in fleet.parts(3)])
    assert fleet.schedule.nodes == 3
    assert same(whole, parts)
    assert len(whole.promised) == 3 * 2 + 2 * 2


def owned(fleet: RecordedFleet) -> RecordedFleet:
    """The same, with all series of one workload."""
    return replace(fleet, recorded=replace(fleet.recorded, workloads=np.zeros(len(fleet.recorded.limits), np.intp)))


@pytest.mark.thorough
def test_a_young_pod_has_the_history_of_its_workload_and_other_nodes_have_no_part_in_it() -> None:
    fleet = traces.fleet(days=4, churn_hours=20.0)
    asked = trial("n-sigma-v2", "peak-mix")
    alone, inheriting = study.play(fleet, asked), study.play(owned(fleet), asked)
    parts = study.joined([study.play(part, asked) for part in owned(fleet).parts(3)])
    assert same(inheriting, parts)
    for promise, peaks in inheriting.promised.items():
        before, after = (np.minimum(each, alone.requested)[30:] for each in (alone.promised[promise], peaks))
        if promise.model == "n-sigma-v2":  # which takes a young pod for cold otherwise
            assert after.sum() < 0.9 * before.sum()
        assert not np.array_equal(before, after)
    first_day = slice(0, 24)  # nobody is known for long enough to leave anything to anybody
    of_n_sigma = BacktestPromise("n-sigma-v2", None, 24)
    assert np.array_equal(inheriting.promised[of_n_sigma][first_day], alone.promised[of_n_sigma][first_day])


def test_the_same_fleet_is_judged_the_same_again() -> None:
    asked = trial("n-sigma-v2", "peak-mix")
    assert same(
        study.play(traces.fleet(days=2, churn_hours=30), asked), study.play(traces.fleet(days=2, churn_hours=30), asked)
    )


def test_borg_promises_requests_by_its_ratio_once_pods_are_warm_and_all_of_them_before() -> None:
    played = study.play(traces.fleet(days=2), trial("borg-default"))
    promised = played.promised[BacktestPromise("borg-default", None, 24)]
    warm = 25  # the cold start of a day is over
    assert np.allclose(promised[:23], played.requested[:23])
    assert np.allclose(promised[warm:], played.requested[warm:] / 1.1)


def test_a_policy_changes_what_is_promised() -> None:
    tighter = policy.overridden(POLICY, {"sigmaCPU": "1"})
    fleet = traces.fleet(days=2)
    promise = BacktestPromise("n-sigma-v1", None, 24)
    default = study.play(fleet, trial("n-sigma-v1")).promised[promise]
    changed = study.play(fleet, Trial(0, ("n-sigma-v1",), (1.0,), (24,), tighter)).promised[promise]
    assert (changed[40:] < default[40:]).all()


def test_a_horizon_and_a_target_have_a_result_each_and_models_without_a_target_one() -> None:
    asked = trial("peak-mix", "n-sigma-v2", targets=(1.0, 5.0), horizons=(1, 24))
    found = study.results("here", asked, study.play(traces.fleet(days=3), asked))
    assert [(one.model, one.horizon_hours, one.target_percent) for one in found] == [
        ("peak-mix", 1, 1.0),
        ("peak-mix", 1, 5.0),
        ("peak-mix", 24, 1.0),
        ("peak-mix", 24, 5.0),
        ("n-sigma-v2", 1, None),
        ("n-sigma-v2", 24, None),
    ]
    assert {one.nodes for one in found} == {3}
    assert all(one.predictions == 3 * (72 - 24 - one.horizon_hours) for one in found)
    assert all(0 <= one.savings_percent <= one.oracle_savings_percent + one.violation_percent for one in found)


def test_the_first_week_is_judged_by_itself_where_the_recording_goes_on() -> None:
    asked = trial("n-sigma-v2")
    (long,) = study.results("here", asked, study.play(traces.fleet(days=10), asked))
    (short,) = study.results("here", asked, study.play(traces.fleet(days=4), asked))
    assert long.first_week_violation_percent is not None
    assert short.first_week_violation_percent is None
    assert short.predictions == 3 * (96 - 24 - 24)


def test_a_recording_that_ends_before_any_horizon_is_refused() -> None:
    asked = trial("n-sigma-v2")
    with pytest.raises(HeadroomError, match="36 h of usage are too short"):
        study.results("here", asked, study.play(traces.fleet(days=1, series=12), asked)._replace(at=np.arange(36)))


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InvalidInput, match="no predictor 'guess'"):
        study.play(traces.fleet(days=2), trial("guess"))


def test_nodes_are_of_the_kind_of_their_pods_in_the_middle() -> None:
    limits = np.array([1.0] * 4 + [8.0] * 2 + [1.0] * 9)
    workloads = np.array([0] * 3 + [-1] * 12)
    node = np.array([0] * 4 + [1] * 2 + [2] * 9)
    recorded = RecordedUsage(np.zeros((15, 10)), limits, 0.0, 300.0, workloads)
    fleet = RecordedFleet(recorded, packing.static(node, 10))
    assert study.node_kinds(fleet) == [NodeKind.REPLICAS, NodeKind.FEW_LARGE, NodeKind.MANY_SMALL]
    unknown = RecordedFleet(RecordedUsage(recorded.usage, limits, 0.0, 300.0), fleet.schedule)
    assert study.node_kinds(unknown)[0] == NodeKind.FEW_LARGE
