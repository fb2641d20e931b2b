"""What log, Events, metrics, API and plan say of replacements: the same sentences everywhere."""

from dataclasses import replace

from msgspec.structs import replace as with_rules
from prometheus_client import CollectorRegistry, generate_latest

from deploy import plan_nodes
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers, events, group_rows, node_rows
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from shared.kube.events import NORMAL, WARNING, ObjectRef
from tests.unit.manager.test_consolidation_rounds import RULES, Town, config

REPLACED = "2 nodes at 2/h by 1 of cheap at 0.7/h, which saves 949/month"
STATUS = ObjectRef("v1", "ConfigMap", "status", "home", "")


def rounds_of(town: Town, count: int = 12) -> list[Iteration]:
    town.go_on(count)
    return town.seen


def told(made: Iteration) -> list[tuple[str, str, str]]:
    found = events.events(made, STATUS, uids={}, max_nodes_total=0, before=None)
    return [(each.type, each.reason, each.message) for each in found if each.reason == events.CONSOLIDATION]


def test_each_replaced_node_has_its_sentence_and_its_saving() -> None:
    made = rounds_of(Town(), 1)[0]
    row = answers.plan(made).scale_down
    assert row is not None
    assert row.replacement == f"a, b: {REPLACED}"
    assert {each.node: (each.replacement, each.replacement_saves_per_month) for each in row.nodes} == {
        "a": (f"a is replaced: {REPLACED}", 949.0),
        "b": (f"b is replaced: {REPLACED}", 949.0),
        "f": ("", None),
    }
    one = node_rows.node_answer(made, "a")
    assert one is not None
    assert one.answer.replacement == f"a is replaced: {REPLACED}"
    (block,) = [each for each in plan_nodes.blocks(answers.plan(made)) if each and each[0].startswith("Replaced")]
    assert block == [
        f"Replaced nodes: a, b: {REPLACED}",
        f"  a is replaced: {REPLACED}",
        f"  b is replaced: {REPLACED}",
    ]


def test_a_node_that_stays_says_why_and_what_it_would_have_saved() -> None:
    made = rounds_of(Town(config(with_rules(RULES, consolidation_min_savings_percent=90))), 1)[0]
    row = answers.plan(made).scale_down
    assert row is not None
    assert row.replacement == ""
    (of_a,) = [each for each in row.nodes if each.node == "a"]
    assert of_a.replacement == (
        f"a is not replaced, SavesTooLittle: with 1 other node: {REPLACED}: 65 %, less than 90 % of what it costs"
    )
    assert of_a.replacement_saves_per_month == 949.0 / 2
    (block,) = [each for each in plan_nodes.blocks(answers.plan(made)) if each and each[0].startswith("Replaced")]
    assert block[0] == "Replaced nodes: none now"


def test_machines_whose_price_is_only_guessed_are_not_replaced_and_say_so() -> None:
    made = rounds_of(Town(replace(config(), prices="gce")), 1)[0]
    assert made.consolidation is not None
    assert made.consolidation.option is None
    row = answers.plan(made).scale_down
    assert row is not None
    (of_a,) = [each for each in row.nodes if each.node == "a"]
    guess = "Google's prices do not have machine type {}, and one by its size is a guess"
    assert of_a.replacement == (f"a is not replaced, PriceUnknown: its price is not known: {guess.format('dear')}")
    assert of_a.cost_per_hour is not None, "what is reported of costs has the guess in it"
    groups = {each.id: each.price_unknown for each in group_rows.groups(made).groups}
    assert groups["cheap"] == guess.format("cheap")


def test_the_old_and_the_new_nodes_tell_their_parts_while_it_is_under_way() -> None:
    found = [answers.plan(made).scale_down for made in rounds_of(Town())]
    said = {(each.node, each.detail) for row in found if row is not None for each in row.nodes}
    assert ("b", "it is being replaced by cheaper nodes") in said
    assert ("a", "it is replaced by 1 of cheap") in said
    assert ("cheap-0", "it is here to replace dearer nodes") in said
    sentences = [row.replacement for row in found if row is not None]
    assert "draining: a, b by 1 of cheap" in sentences
    assert "the replacement of a, b by 1 of cheap is done" in sentences


def test_the_beginning_and_the_end_are_events() -> None:
    seen = rounds_of(Town())
    begun = replace(seen[0], actions=tuple(replace(each, done=True) for each in seen[0].actions))
    assert told(begun) == [(NORMAL, "Consolidation", "Consolidation: 1 of cheap replaces a, b, which saves 949/month")]
    assert [each for made in seen[1:] for each in told(made)] == [
        (NORMAL, "Consolidation", "Consolidation: the replacement of a, b by 1 of cheap is done")
    ]


def test_one_that_is_given_up_is_a_warning_and_counts_as_failed() -> None:
    town = Town(stockout=True)
    town.go_on_until(lambda here: bool(here.seen[-1].consolidation and here.seen[-1].consolidation.ended))
    ((kind, _, message),) = told(town.seen[-1])
    assert kind == WARNING
    assert "is given up: group cheap failed: no more of them" in message
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    for made in town.seen:
        metrics.note(made)
    text = generate_latest(registry).decode()
    assert 'headroom_autoscaler_replacements_total{reason="Underutilized",result="failed"} 1.0' in text
    metrics.note(rounds_of(Town(config(with_rules(RULES, consolidation_min_savings_percent=90))), 1)[0])
    text = generate_latest(registry).decode()
    assert 'headroom_autoscaler_unreplaceable_nodes{reason="SavesTooLittle"} 2.0' in text
    assert "headroom_autoscaler_replaced_nodes 0.0" in text


def test_what_is_brief_has_the_first_verdicts_of_nodes_that_stay_by_what_their_replacement_would_save() -> None:
    row = answers.plan(
        rounds_of(Town(config(with_rules(RULES, consolidation_min_savings_percent=90))), 1)[0]
    ).scale_down
    assert row is not None
    (model,) = [each for each in row.nodes if each.node == "a"]
    many = [
        replace(model, node=f"n{number:02}", replacement_saves_per_month=float(number))
        for number in range(2 * node_rows.BRIEF_ASKED_ROWS)
    ]
    brief = node_rows.first_rows(replace(row, nodes=many))
    assert brief is not None
    assert [each.node for each in brief.nodes] == [each.node for each in many[::-1][: node_rows.BRIEF_ASKED_ROWS]]
