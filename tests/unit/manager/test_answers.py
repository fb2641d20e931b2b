"""What the autoscaler answers: every term of every option, and the schemas that are published of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from deploy import plan_table
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.reporting import answers, group_rows
from manager.autoscaler.reporting.answers import Decisions, Plan
from manager.autoscaler.reporting.group_rows import Groups
from manager.autoscaler.reporting.rows import row_of
from manager.autoscaler.scale_up.decisions import Cap, ExpanderStep
from shared.api.core import Taint
from shared.quantity import Amounts
from tests.support import schemas
from tests.unit.manager import rounds
from tests.unit.manager.rounds import decided, group, pending

ROUNDS: dict[str, Callable[[], Iteration]] = {
    "everything": rounds.everything,
    "without prices": rounds.unpriced,
    "held": lambda: rounds.held("no node is ready"),
    "nothing to do": lambda: rounds.round_of(),
    "nodes that go": rounds.shrinking,
}


def said(answer: object) -> Any:
    return json.loads(msgspec.json.encode(answer))


@pytest.mark.parametrize(("file", "kind"), [("plan", Plan), ("groups", Groups), ("decisions", Decisions)])
def test_the_published_schemas_are_those_of_the_answers(file: str, kind: type) -> None:
    assert schemas.published(file) == msgspec.json.schema(kind)


@pytest.mark.parametrize("case", ROUNDS)
def test_answers_keep_to_the_published_schemas(case: str) -> None:
    made = ROUNDS[case]()
    plan = answers.plan(made)
    assert list(schemas.problems(said(plan), schemas.published("plan"))) == []
    assert list(schemas.problems(said(group_rows.groups(made)), schemas.published("groups"))) == []
    brief = [answers.brief(plan)]
    assert list(schemas.problems(said(Decisions("c", plan, brief, brief)), schemas.published("decisions"))) == []


def test_a_row_has_what_is_given_and_else_the_attributes_of_its_source() -> None:
    cap = Cap("a", "quota", wanted=3, allowed=2)
    assert row_of(Cap, cap, limit="another") == Cap("a", "another", wanted=3, allowed=2)
    with pytest.raises(AttributeError, match="wanted"):
        row_of(Cap, ExpanderStep("price", ("a",)), group="a", limit="quota")


def test_groups_of_a_round_that_decided_nothing_say_why() -> None:
    assert said(group_rows.groups(rounds.held("no answer")))["blocked_reason"] == "no answer"
    assert said(group_rows.groups(rounds.everything()))["blocked_reason"] == ""


def test_before_the_first_round_there_is_nothing_to_say() -> None:
    assert list(schemas.problems(said(group_rows.no_groups("c")), schemas.published("groups"))) == []
    assert said(Decisions("c", None, [], [])) == {"cluster": "c", "latest": None, "iterations": [], "earlier": []}


def test_an_answer_with_a_key_too_few_or_too_many_would_be_noticed() -> None:
    answer = said(answers.plan(rounds.everything()))
    del answer["options"][0]["rank"]["unfitness"]
    answer["decisions"][0]["extra"] = answer["cost_per_hour"]["total"] = "1"
    assert {each.partition(": ")[0] for each in schemas.problems(answer, schemas.published("plan"))} == {
        "$.options[0].rank",
        "$.decisions[0].extra",
        "$.cost_per_hour.total",
    }


def test_every_term_of_the_rank_is_told_and_multiplies_up_to_it() -> None:
    plan = answers.plan(rounds.everything())
    assert [each.chosen for each in plan.options] == [True, False], "the best comes first"
    for option in plan.options:
        rank = option.rank
        assert rank is not None
        ratio = (rank.nodes_price + rank.stabilization_price) / (rank.pods_price + rank.stabilization_price)
        assert rank.stabilized_ratio == pytest.approx(ratio)
        assert rank.rank == pytest.approx(rank.suppressed_unfitness * ratio * rank.new_group_factor)
        assert option.node_price == pytest.approx(rank.nodes_price / option.nodes)
    assert plan.preferred_cpu_milli == 1000


def test_decisions_say_what_they_cost_and_what_that_makes_of_the_whole() -> None:
    plan = answers.plan(rounds.everything())
    (decision,) = plan.decisions
    chosen = plan.options[0]
    assert (decision.what, decision.group, decision.nodes) == ("increase", chosen.group, chosen.nodes)
    assert chosen.node_price is not None
    assert decision.cost_per_hour == pytest.approx(chosen.node_price * chosen.nodes)
    assert plan.cost_per_hour.added == decision.cost_per_hour


def test_every_pending_pod_is_accounted_for() -> None:
    plan = answers.plan(rounds.everything())
    for row in plan.pending:
        assert row.on_nodes + row.reclaimed + row.triggered + row.unplaced == len(row.pods) == row.count
    assert [(row.triggered, row.unplaced, row.requests) for row in plan.pending] == [
        (0, 1, {"cpu": 100_000}),
        (5, 0, {"cpu": 1000}),
    ]


def test_unplaced_pods_have_one_reason_for_all_groups_that_share_it() -> None:
    (row,) = answers.plan(rounds.everything()).unplaced
    assert (row.pods, row.awaiting) == (("ns/huge-0000",), False)
    assert [(each.reasons, each.groups) for each in row.reasons] == [
        (("Insufficient cpu",), ["big", "small"]),
        (("max node group size reached",), ["full"]),
    ]


def test_without_prices_options_say_that_they_have_no_rank() -> None:
    plan = answers.plan(rounds.round_of([group("a", 4)], [pending(1)], pricing=None, expanders=("most-pods",)))
    assert [(each.rank, each.node_price, bool(each.problem)) for each in plan.options] == [(None, None, True)]
    assert (plan.decisions[0].cost_per_hour, plan.cost_per_hour.added) == (None, None)
    unpriced = answers.plan(rounds.unpriced()).cost_per_hour
    assert (unpriced.unpriced, len(unpriced.unpriced_nodes)) == (30, 10)


def test_the_expander_that_dropped_an_option_is_named() -> None:
    states = [group("a", 4), group("b", 8), group("c", 1)]
    plan = answers.plan(rounds.round_of(states, [pending(1, 8)], expanders=("least-nodes",)))
    assert {each.group: (each.kept_by, each.dropped_by) for each in plan.options} == {
        "a": ([], "least-nodes"),
        "b": (["least-nodes"], ""),
        "c": ([], "least-nodes"),
    }


def test_an_expander_that_failed_says_why_in_the_answer_and_in_the_table() -> None:
    made = rounds.everything()
    assert made.decision is not None
    step = ExpanderStep("grpc", ("big", "small"), "no answer within 5 s")
    plan = answers.plan(replace(made, decision=replace(made.decision, steps=(step,))))
    assert said(plan)["steps"] == [{"expander": "grpc", "groups": ["big", "small"], "problem": "no answer within 5 s"}]
    assert "Expander grpc left all of them: no answer within 5 s" in plan_table.render(plan, group_rows.groups(made))


def test_a_group_that_would_be_created_is_told_with_its_labels() -> None:
    spec = GroupSpec("m", "nodeautoprovisioning", {"team": "web"}, (Taint("dedicated", "web", "NoSchedule"),))
    new = group("nodeautoprovisioning-m", 4, spec=spec)
    made = rounds.round_of([new], [pending(1)])
    (option,) = answers.plan(made).options
    assert (option.exists, option.labels, option.taints) == (False, {"team": "web"}, ["dedicated=web:NoSchedule"])


def test_a_group_that_was_created_meanwhile_costs_what_its_option_did() -> None:
    spec = GroupSpec("m", "nodeautoprovisioning")
    made = rounds.round_of([group("nodeautoprovisioning-m", 4, spec=spec)], [pending(1)])
    actions = (
        Action(ActionKind.CREATE_GROUP, "nodeautoprovisioning-m-x", to_size=1, done=True),
        Action(ActionKind.INCREASE, "nodeautoprovisioning-m-x", to_size=1, max_size=100, done=True),
    )
    plan = answers.plan(replace(made, actions=actions))
    assert [(each.nodes, each.cost_per_hour) for each in plan.decisions] == [(0, 0.0), (1, plan.options[0].node_price)]
    undone = answers.plan(replace(made, actions=(replace(actions[0], done=False),)))
    assert undone.cost_per_hour.added == plan.cost_per_hour.added == plan.options[0].node_price


def test_later_decisions_of_a_round_speak_of_the_same_classes() -> None:
    states = [group("small", 2, most=1), group("big", 8, most=1)]
    first = decided(states[:1], [pending(1, 3, "web"), pending(4, 1, "db")], least_cost_mix=False)
    more = decided(states[1:], [pending(4, 1, "db"), pending(1, 1, "web")], least_cost_mix=False)
    plan = answers.plan(
        Iteration(1, 0.0, decision=first, further=(more,), actions=rounds.actions(first) + rounds.actions(more))
    )
    assert list(schemas.problems(said(plan), schemas.published("plan"))) == []
    assert [each.group for each in plan.further[0].options] == ["big"]
    names = [row.pods[0].partition("/")[2].partition("-")[0] for row in plan.pending]
    assert [names[each.position] for each in plan.further[0].options[0].classes] == ["db", "web"]


def test_groups_tell_what_has_become_of_what_was_asked_for() -> None:
    found = group_rows.groups(rounds.everything())
    (row,) = found.groups
    assert (row.id, row.upcoming, row.nodes.unregistered) == ("small", 2, 2)
    assert row.request is not None
    assert row.backoff is not None
    assert row.request.since < row.backoff.until
    assert [(each.code, each.instances) for each in row.errors] == [("RESOURCE_POOL_EXHAUSTED", 2)]
    assert row.cost_per_hour == found.cost_per_hour.by_group["small"]
    assert [(each.group, each.reason) for each in found.refused] == [
        ("lost", "the node group exists in the registry but not in the cloud")
    ]


class FreePods(FilePricing):
    """Where pods are worth nothing, no node is worth its price."""

    def pod_price(self, requests: Amounts) -> float:
        return 0.0


def test_a_rank_without_bound_is_null() -> None:
    made = rounds.round_of([group("a", 4)], [pending(1)], pricing=FreePods())
    rank = answers.plan(made).options[0].rank
    assert rank is not None
    assert (rank.stabilized_ratio, rank.rank) == (None, None)
    assert list(schemas.problems(said(answers.plan(made)), schemas.published("plan"))) == []
