"""One explanation of a scale decision serves the log, Events, the API and `headroom plan`."""

from dataclasses import replace

from deploy import plan_table
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.reporting import answers, events, group_rows, node_status
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.scale_up.decisions import explain_growth
from shared import explanation
from shared.kube.events import ObjectRef
from tests.unit.manager import rounds
from tests.unit.manager.rounds import group, pending

CUT = '2 pending pods; 2 of 3 nodes: exceeded quota: "cluster-wide", resources: cpu'


def test_a_growth_that_a_quota_cuts_has_one_explanation_everywhere() -> None:
    made = rounds.round_of([group("a", 2)], [pending(2, 3)], bounds={"cpu": ResourceBounds(0, 4)})
    assert made.decision is not None
    (increase,) = made.decision.increases
    why = explain_growth(made.decision, "a", increase.nodes, increase.max_size)
    assert (why.reason, why.bound, why.result) == (CUT, "allowed", 2)
    rank = answers.plan(made).options[0].rank
    assert rank is not None
    assert rank.rank is not None
    assert explanation.sentence(why.terms) == (
        f"triggered 2 pods, rank {round(rank.rank, 3):g}, maxSize 100 nodes, wanted 3 nodes, allowed 2 nodes"
    )
    action = Action(ActionKind.INCREASE, "a", from_size=0, to_size=2, max_size=100, explanation=why, done=True)
    made = replace(made, actions=(action,))
    (row,) = answers.plan(made).decisions
    assert (row.reason, row.bound, tuple(row.terms)) == (why.reason, why.bound, why.terms)
    log = DecisionLog()
    log.note(made)
    assert log.iterations()[0].decisions == [row], "the log line says the same, and can be read again"
    said = events.events(made, ObjectRef("v1", "ConfigMap", "status", "ns"))
    assert [each.message for each in said if each.reason == "ScaledUpGroup"] == [
        f"Scale-up: setting group a size to 2 instead of 0 (max: 100): {CUT}",
        f"Scale-up: group a size set to 2 instead of 0 (max: 100): {CUT}",
    ]
    assert CUT in plan_table.render(answers.plan(made), group_rows.groups(made))


def test_a_group_that_gets_all_it_wants_is_bound_by_its_pods() -> None:
    made = rounds.round_of([group("a", 2)], [pending(2, 3)])
    assert made.decision is not None
    why = explain_growth(made.decision, "a", 3, 100)
    assert (why.reason, why.bound, why.result) == ("3 pending pods", "triggered", 3)


def test_a_node_that_stays_says_what_was_compared() -> None:
    rows = node_status.node_statuses(rounds.shrinking())
    said = {
        name: (rows[name].reason, explanation.sentence(rows[name].terms)) for name in ("full", "idle", "empty", "jobs1")
    }
    assert said == {
        "full": ("NotUnderutilized", "utilization 75 %, utilizationThreshold 50 %"),
        "idle": ("NotUnneededLongEnough", "utilization 25 %, unneeded 1m0s, unneededTime 10m0s"),
        "empty": ("", "utilization 0 %"),
        "jobs1": (
            "below the lower threshold",
            "cpuUtilization 0 %, memoryUtilization 0 %, lowerThreshold 10 %, upperThreshold 40 %, "
            "scaleUpThreshold 70 %, untainted 2 nodes",
        ),
    }


def test_a_group_at_its_minimum_says_its_sizes() -> None:
    decision = rounds.unneeded(groups={"pool": rounds.shrinking_pool(least=4)})
    why = decision.statuses["empty"].explanation
    assert (why.bound, why.result) == ("NodeGroupMinSizeReached", 0)
    assert explanation.sentence(why.terms) == "utilization 0 %, targetSize 4 nodes, deleting 0 nodes, minSize 4 nodes"
