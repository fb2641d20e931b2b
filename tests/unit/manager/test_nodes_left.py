"""Why a node is still here: one answer, whoever is asked."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from deploy import plan_table
from manager.autoscaler.cluster_state.actions import LIKELY_TO_GO, Action, ActionKind
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers, events, group_rows, node_rows, node_status, status
from manager.autoscaler.reporting.answers import NodesLeft, Plan
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.reporting.node_rows import NodeLeft
from manager.autoscaler.scale_down import removal_status
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionProgress,
    DeletionStage,
    NodeStanding,
    ScaleDownReason,
)
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.taints import TO_BE_REMOVED
from manager.autoscaler.utilization.decisions import ScanDecision as Scan
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from shared.api.core import Taint
from shared.explanation import ScaleExplanation
from shared.kube.events import ObjectRef
from tests.support import schemas
from tests.unit.manager import rounds, utilized
from tests.unit.manager.objects import NOW
from tests.unit.manager.utilized import nodes, pod, rules_of, seen

STATUS = ObjectRef("v1", "ConfigMap", "status", "kube-system")
MADE = rounds.shrinking()


def said(answer: object) -> Any:
    return json.loads(msgspec.json.encode(answer))


def scanned(scan: Scan, **more: Any) -> dict[str, tuple[str, str]]:
    """By node, what is said of a group after this scan."""
    stays = node_status.node_statuses(Iteration(1, NOW, scans=(scan,), **more))
    return {name: (each.standing, each.detail) for name, each in stays.items()}


@pytest.mark.parametrize(
    ("node", "standing", "reason", "detail"),
    [
        ("empty", "goes", "", "it is empty"),
        ("idle", "unneeded", "NotUnneededLongEnough", "not needed for 1m0s, and is deleted after more than 10m0s"),
        ("stuck", "needed", "BlockedByPod", "pod ns/bare no controller would make it again (NotReplicated)"),
        ("alone", "needed", "NotAutoscaled", "it belongs to no node group that may shrink"),
        ("way", "leaving", "CurrentlyBeingDeleted", "draining: underutilized, waits for ns/slow"),
        ("lost", "gone", "", "gone: underutilized"),
        (
            "full",
            "needed",
            "NotUnderutilized",
            "its deletion failed: a budget keeps ns/db; 75.0% of its cpu is requested, more than 50.0%",
        ),
        (
            "jobs0",
            "needed",
            "other nodes of its group are deleted first",
            "other nodes of its group are deleted first; below the lower threshold: 0.0 % of cpu",
        ),
        ("jobs1", "unneeded", "below the lower threshold", "is tainted now: below the lower threshold: 0.0 % of cpu"),
    ],
)
def test_every_node_has_one_answer_and_it_is_the_same_everywhere(
    node: str, standing: str, reason: str, detail: str
) -> None:
    found = node_rows.node_answer(MADE, node)
    assert found is not None
    assert (found.answer.standing, found.answer.reason, found.answer.detail) == (standing, reason, detail)
    plan = answers.plan(MADE)
    assert plan.scale_down is not None
    assert [row for row in plan.scale_down.nodes if row.node == node] == [found.answer]
    table = plan_table.render(plan, group_rows.groups(MADE), all_nodes=True)
    assert node == "lost" or any(node in line and detail in line for line in table.splitlines()) or node == "way"
    assert list(schemas.problems(said(found), schemas.published("node_left"))) == []


@pytest.mark.parametrize(("file", "kind"), [("nodes_left", NodesLeft), ("node_left", NodeLeft)])
def test_the_published_schemas_are_those_of_the_answers(file: str, kind: type) -> None:
    assert schemas.published(file) == msgspec.json.schema(kind)


@pytest.mark.parametrize("made", [MADE, rounds.held("not leading"), rounds.everything(), None])
def test_answers_keep_to_the_published_schemas(made: Iteration | None) -> None:
    answer = answers.nodes_answer(None, "c") if made is None else answers.nodes_answer(answers.plan(made))
    assert list(schemas.problems(said(answer), schemas.published("nodes_left"))) == []


def test_nodes_are_counted_and_those_that_could_go_are_priced() -> None:
    found = node_rows.scale_down_row(replace(MADE, scans=()))
    assert found is not None
    assert (found.goes, found.unneeded, found.leaving, found.needed, found.unjudged) == (1, 1, 1, 3, 0)
    assert (found.saved_per_hour, found.savable_per_hour) == (16.0, 32.0)
    with_scan = node_rows.scale_down_row(MADE)
    assert with_scan is not None
    assert with_scan.savable_per_hour is None, "nobody knows what jobs1 costs"
    assert [row.node for row in found.nodes][:3] == ["empty", "idle", "way"]
    assert {row.reason: (row.count, row.nodes) for row in found.stay}["BlockedByPod"] == (1, ["stuck"])


def test_what_goes_is_told_with_what_it_saves() -> None:
    plan = answers.plan(MADE)
    assert [(row.what, row.nodes, row.cost_per_hour) for row in plan.decisions] == [
        ("remove nodes", -1, -16.0),
        ("taint", 0, 0.0),
    ]
    assert plan.cost_per_hour.added == -16.0


def test_when_a_node_may_go_and_where_its_pods_would_is_told() -> None:
    found = node_rows.node_answer(MADE, "idle")
    assert found is not None
    assert (found.answer.unneeded_since, found.answer.ripe_at) == ("2023-11-14T22:12:20Z", "2023-11-14T22:22:20Z")
    assert (found.moves, found.answer.pods) == ({"ns/web": "alone"}, 1)
    waiting = node_rows.node_answer(MADE, "way")
    assert waiting is not None
    assert waiting.waits_for == ("ns/slow",)
    of_scan = node_rows.node_answer(MADE, "jobs0")
    assert of_scan is not None
    assert of_scan.scan is not None
    assert (of_scan.scan.group, of_scan.scan.thresholds.upper, of_scan.scan.taint) == ("jobs", 40, ["jobs1"])


def test_what_a_round_did_not_look_at_says_why() -> None:
    blind = replace(MADE, scale_down=None, scans=(), leaving=(), actions=())
    for made, why in (
        (replace(blind, blocked_reason="the cloud does not answer"), "nothing is decided: the cloud does not answer"),
        (replace(blind, decision=ScaleUpDecision(ScaleUpOutcome.GROW)), node_status.GROWING),
        (blind, node_status.NOT_LOOKED_AT),
    ):
        stays = node_status.node_statuses(made)
        assert {(each.standing, each.detail) for each in stays.values()} == {(NodeStanding.UNJUDGED, why)}
        assert set(stays) == {"empty", "idle", "full", "stuck"}


def test_what_is_brief_leaves_out_what_stays_and_counts_it() -> None:
    plan = answers.plan(MADE)
    short, brief = answers.without_untouched_nodes(plan).scale_down, answers.brief(plan).scale_down
    assert short is not None
    assert brief is not None
    assert plan.scale_down is not None
    assert (
        [row.node for row in short.nodes]
        == [row.node for row in brief.nodes]
        == ["empty", "idle", "jobs1", "way", "lost"]
    )
    assert [row.count for row in brief.stay] == [row.count for row in plan.scale_down.stay]


def test_a_scan_says_of_its_marked_nodes_why_they_are_still_there() -> None:
    there = (
        *nodes(6),
        *nodes(1, "early", tainted_for=5),
        *nodes(1, "held", tainted_for=100),
        *nodes(1, "ripe", tainted_for=100),
        *nodes(1, "kept", tainted_for=100, no_delete="mine"),
        *nodes(1, "forced", force=True),
        *nodes(1, "c", cordoned=True),
    )
    pods = [pod("p", 10, "held0"), *(pod(f"q{at}", 500, f"n{at}") for at in range(6))]
    found = scanned(utilized.decided(rules_of(), seen(there, *pods)))
    assert found["early0"] == (NodeStanding.UNNEEDED, "tainted, within its soft grace period")
    assert found["held0"] == (NodeStanding.UNNEEDED, "tainted, holds pods, 1 of them")
    assert found["ripe0"] == (NodeStanding.GOES, "tainted, empty for long enough")
    assert found["kept0"] == (NodeStanding.UNNEEDED, "tainted, protected from deletion")
    assert found["forced0"] == (NodeStanding.GOES, "tainted, forced, and empty")
    assert found["c0"] == (NodeStanding.NEEDED, "cordoned, so the autoscaler does not change it")
    assert found["n0"] == (NodeStanding.NEEDED, "between the thresholds: 50.0 % of cpu")


def test_a_scan_says_what_comes_back_and_that_a_lock_keeps_what_is_tainted() -> None:
    busy = seen((*nodes(2), *nodes(1, "t", tainted_for=5)), pod("p", 4000))
    assert scanned(utilized.decided(rules_of(), busy))["t0"] == (
        NodeStanding.NEEDED,
        "its taint is removed: above the scale-up threshold: 200.0 % of cpu",
    )
    held = utilized.decided(rules_of("escalator"), busy, Memory(lock=ScaleLock(NOW - 10, 4)))
    assert scanned(held)["t0"] == (NodeStanding.UNNEEDED, "tainted, within its soft grace period")


def test_a_dry_scan_says_would() -> None:
    found = scanned(utilized.decided(rules_of(dry_mode=True), seen(nodes(3))))
    assert found["n2"][1].startswith("would be tainted: ")


def test_scale_down_has_the_word_on_nodes_that_no_scan_takes_away() -> None:
    scan = utilized.decided(rules_of(), seen(nodes(2, "full")))
    made = replace(MADE, scale_down=rounds.unneeded(), scans=(scan,), leaving=())
    assert node_status.node_statuses(made)["full"].reason == "NotUnderutilized"


def test_a_taint_of_any_age_can_be_told() -> None:
    odd = replace(nodes(1)[0], taints=(Taint(TO_BE_REMOVED, "9" * 19),))
    made = Iteration(1, NOW, scans=(utilized.decided(rules_of(), seen((odd, *nodes(3, "x")))),))
    found = node_rows.node_answer(made, "n0")
    assert found is not None
    assert found.answer.unneeded_since is None


def test_a_scan_stands_until_the_next_of_its_group_as_long_as_groups_are_seen() -> None:
    (first,) = MADE.scans
    other = replace(first, group="other")
    assert replace(MADE, scans=()).latest_scans((first,)) == (first,)
    assert replace(MADE, scans=(other,)).latest_scans((first,)) == (first, other)
    assert Iteration(2, NOW, blocked_reason="not leading").latest_scans((first,)) == ()
    decision_log = DecisionLog()
    decision_log.note(MADE)
    decision_log.note(replace(MADE, number=2, scans=()))
    assert decision_log.latest is not None
    assert decision_log.latest.scans == (first,)


def test_what_is_done_with_nodes_is_told_on_them_and_on_the_status() -> None:
    told = [(each.regarding.kind, each.regarding.name, *each[1:]) for each in events.events(MADE, STATUS)]
    assert told == [
        ("ConfigMap", "status", "Normal", "ScaleDownEmpty", 'Scale-down: removing empty node "empty"'),
        (
            "ConfigMap",
            "status",
            "Normal",
            "TaintedNodes",
            "Utilization: tainted nodes jobs1 of group jobs-nodes: below the lower threshold",
        ),
        ("Node", "way", "Normal", "ScaleDown", "marked the node as toBeDeleted/unschedulable"),
        ("Pod", "slow", "Normal", "ScaleDown", "deleting pod for node scale down"),
        ("ConfigMap", "status", "Normal", "ScaleDown", "Scale-down: node lost removed with drain"),
        ("Node", "lost", "Normal", "ScaleDown", "marked the node as toBeDeleted/unschedulable"),
        ("Node", "lost", "Normal", "ScaleDown", "nodes removed by cluster autoscaler"),
        (
            "ConfigMap",
            "status",
            "Warning",
            "ScaleDownFailed",
            "Scale-down: node full is not deleted: a budget keeps ns/db",
        ),
        ("Node", "full", "Warning", "ScaleDownFailed", "failed to remove the node: a budget keeps ns/db"),
    ]


def test_how_far_a_node_is_on_its_way_is_told_once() -> None:
    still = replace(MADE, actions=(), leaving=MADE.leaving[:1])
    assert events.events(still, STATUS, before=MADE) == []
    further = replace(still, leaving=(replace(MADE.leaving[0], stage=DeletionStage.GONE, kind=ScaleDownReason.EMPTY),))
    assert [each.message for each in events.events(further, STATUS, before=still)] == [
        "Scale-down: empty node way removed",
        "nodes removed by cluster autoscaler",
    ]
    again = replace(still, leaving=(replace(MADE.leaving[0], since=NOW),))
    assert len(events.events(again, STATUS, before=still)) == 2, "it goes for the second time"


def test_a_drained_node_is_told_with_its_pods() -> None:
    drained = rounds.unneeded(memory=removal_status.ScaleDownHistory({"idle": 0.0}))
    action = Action(
        ActionKind.REMOVE_NODES,
        "pool",
        from_size=4,
        to_size=3,
        nodes=("idle",),
        explanation=ScaleExplanation("not needed"),
        done=True,
    )
    made = replace(MADE, scale_down=drained, leaving=(), actions=(action,))
    (told,) = events.events(made, STATUS)
    assert told.message == "Scale-down: removing node idle, utilization: 0.25, pods to reschedule: ns/web"


@pytest.mark.parametrize(
    ("action", "reason", "message"),
    [
        (
            Action(ActionKind.REMOVE_NODES, "pool", nodes=("empty",)),
            "RecommendedScaleDown",
            "Scale-down: empty node empty would be removed",
        ),
        (
            Action(ActionKind.TAINT, "jobs-nodes", nodes=("jobs1",), explanation=ScaleExplanation("too few pods")),
            "RecommendedScaleDown",
            "Utilization: nodes jobs1 of group jobs-nodes would be tainted: too few pods",
        ),
        (
            Action(ActionKind.UNTAINT, "jobs-nodes", nodes=("jobs1",), explanation=ScaleExplanation("too many pods")),
            "RecommendedScaleUp",
            "Utilization: nodes jobs1 of group jobs-nodes would be untainted: too many pods",
        ),
    ],
)
def test_what_is_only_recommended_would_be_done(action: Action, reason: str, message: str) -> None:
    made = replace(MADE, actions=(replace(action, mode=Mode.RECOMMEND),), leaving=())
    assert [(each.reason, each.message) for each in events.events(made, STATUS)] == [(reason, message)]
    assert events.events(replace(made, actions=(replace(action, mode=Mode.OBSERVE),)), STATUS) == []
    (failed,) = events.events(replace(made, actions=(replace(action, error="forbidden"),)), STATUS)
    assert failed.type == "Warning"
    assert "forbidden" in failed.message
    assert events.events(replace(made, dry_run=True), STATUS) == []


def test_marks_of_nodes_that_are_likely_to_go_are_no_event() -> None:
    soft = Action(ActionKind.TAINT, "pool", nodes=("idle",), explanation=ScaleExplanation(LIKELY_TO_GO), done=True)
    for action in (soft, replace(soft, done=False, error="conflict"), replace(soft, done=False, mode=Mode.RECOMMEND)):
        assert events.events(replace(MADE, actions=(action,), leaving=()), STATUS) == []
        assert (
            node_status.node_statuses(replace(MADE, actions=(action,)))["idle"]
            == node_status.node_statuses(MADE)["idle"]
        )


def test_nodes_that_a_scan_deletes_are_told_as_scaled_down() -> None:
    scan = utilized.decided(rules_of(), seen((*nodes(3), *nodes(1, "ripe", tainted_for=100)), pod("p", 1500)))
    action = Action(
        ActionKind.DELETE_NODES,
        "jobs-nodes",
        from_size=4,
        to_size=3,
        nodes=("ripe0",),
        explanation=ScaleExplanation("empty"),
        done=True,
    )
    made = Iteration(1, NOW, scans=(scan,), actions=(action,))
    (told,) = events.events(made, STATUS)
    assert (told.reason, told.message) == ("ScaleDown", "Scale-down: nodes ripe0 of group jobs-nodes removed: empty")
    advised = replace(made, actions=(replace(action, done=False, mode=Mode.RECOMMEND),))
    assert [each.reason for each in events.events(advised, STATUS)] == ["RecommendedScaleDown"]


class Scrape:
    def __init__(self, *made: Iteration) -> None:
        self._registry = CollectorRegistry()
        metrics = AutoscalerMetrics(self._registry)
        for each in made:
            metrics.note(each)

    @property
    def text(self) -> str:
        return generate_latest(self._registry).decode()

    def ours(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"headroom_autoscaler_{name}", labels)


def test_a_scrape_shows_who_could_go_who_stays_and_who_is_on_the_way() -> None:
    scrape = Scrape(MADE)
    assert scrape.ours("unneeded_nodes", group="pool") == 2
    for reason in ("BlockedByPod", "NotAutoscaled", "NotUnderutilized", "NotUnneededLongEnough"):
        assert scrape.ours("unremovable_nodes", reason=reason) == 1
    assert (scrape.ours("leaving_nodes", stage="draining"), scrape.ours("leaving_nodes", stage="marking")) == (1, 0)
    assert scrape.ours("savable_cost_per_hour") == 32.0
    assert scrape.ours("scale_down_in_cooldown") == 0
    assert scrape.ours("scan_utilization_percent", group="jobs", resource="cpu") == 0
    assert scrape.ours("scan_delta", group="jobs") == -5
    assert scrape.ours("scan_nodes", group="jobs", state="untainted") == 2
    assert scrape.ours("scan_locked", group="jobs") == 0
    assert scrape.ours("last_activity_seconds", activity="scaleDown") == NOW


def test_removals_are_counted_once_by_kind_and_result_with_their_pods() -> None:
    begun = replace(MADE, scale_down=rounds.unneeded(memory=removal_status.ScaleDownHistory({"idle": 0.0})))
    begun = replace(begun, actions=(Action(ActionKind.REMOVE_NODES, "pool", nodes=("idle",), done=True),), leaving=())
    way = DeletionProgress("idle", "pool", ScaleDownReason.UNDERUTILIZED, DeletionStage.DRAINING, NOW, ("ns/web",))
    between = replace(begun, scale_down=None, actions=(), leaving=(way,))
    gone = replace(between, leaving=(replace(way, stage=DeletionStage.GONE, waits_for=()),))
    over = replace(between, leaving=())
    scrape = Scrape(begun, between, gone, over)
    assert scrape.ours("node_removals_total", kind="underutilized", result="done") == 1
    assert scrape.ours("evicted_pods_total", result="done") == 1
    failed = replace(between, leaving=(replace(way, stage=DeletionStage.FAILED, error="a budget"),))
    scrape = Scrape(begun, between, failed, over)
    assert scrape.ours("node_removals_total", kind="underutilized", result="failed") == 1
    assert scrape.ours("evicted_pods_total", result="done") == 0


def test_a_round_in_which_groups_grow_hides_nothing_and_a_follower_shows_nothing() -> None:
    grown = replace(MADE, scale_down=None, scans=(), leaving=())
    assert Scrape(MADE, grown).ours("unneeded_nodes", group="pool") == 2
    assert Scrape(MADE, grown).ours("scan_delta", group="jobs") == -5
    follower = Scrape(MADE, Iteration(2, NOW, blocked_reason="not leading"))
    assert follower.ours("unneeded_nodes", group="pool") is None
    assert follower.ours("scan_delta", group="jobs") is None


def test_what_keeps_all_nodes_for_a_while_is_shown() -> None:
    cooling = replace(MADE, scale_down=rounds.unneeded(happened=CooldownTimestamps(added=NOW - 60)))
    found = node_rows.scale_down_row(cooling)
    assert found is not None
    assert found.cooldown == "nodes were added not long ago; nothing is deleted for another 9m0s"
    assert Scrape(cooling).ours("scale_down_in_cooldown") == 1


def test_the_status_counts_candidates_of_cluster_and_groups() -> None:
    written = status.autoscaler_status(MADE)
    assert written.cluster_wide is not None
    assert (written.cluster_wide.scale_down.status, written.cluster_wide.scale_down.candidates) == (
        "CandidatesPresent",
        2,
    )
    assert [each.scale_down.candidates for each in written.node_groups] == [2]
    after = status.autoscaler_status(replace(MADE, scale_down=None), written)
    assert after.node_groups[0].scale_down.status == "NoCandidates"


def test_a_way_that_ended_is_news_and_needed_nodes_are_not_kept(tmp_path: Path) -> None:
    decision_log = DecisionLog(str(tmp_path / "decisions"))
    quiet = replace(MADE, actions=(), leaving=())
    for number, made in enumerate([quiet, quiet, replace(quiet, leaving=MADE.leaving[1:2])], start=1):
        decision_log.note(replace(made, number=number))
    assert [each.iteration for each in decision_log.iterations()] == [3, 1]
    kept = msgspec.json.decode((tmp_path / "decisions").read_bytes().splitlines()[0], type=Plan).scale_down
    assert kept is not None
    assert {row.standing for row in kept.nodes} == {"goes", "unneeded"}
    assert sum(row.count for row in kept.stay if row.standing == "needed") == 4
    assert decision_log.plan() == answers.plan(replace(quiet, number=3, leaving=MADE.leaving[1:2]))


def test_the_table_counts_by_reason_and_names_the_rest_on_request() -> None:
    plan = answers.plan(MADE)
    table = plan_table.render(plan, group_rows.groups(MADE))
    for words in (
        "3 nodes could be deleted, 1 of them now (16.0000 $/h, 11,680 $/month):",
        "Nodes being deleted:",
        "way   pool   draining",
        "jobs: jobs1 would be tainted",
    ):
        assert words in table
    assert "5 nodes are not deleted" not in table
    assert plan.scale_down is not None
    many = replace(plan, scale_down=replace(plan.scale_down, nodes=plan.scale_down.nodes[:1] * 30))
    groups = group_rows.groups(MADE)
    assert "and 10 more: 10 goes (more of them: --top N, --all-nodes)" in plan_table.render(many, groups)
    assert "--all-nodes" not in plan_table.render(many, groups, all_nodes=True)


LEAVING = st.builds(
    DeletionProgress,
    node=st.sampled_from(["empty", "idle", "full", "way", "jobs0"]),
    group=st.just("pool"),
    kind=st.sampled_from(ScaleDownReason),
    stage=st.sampled_from(DeletionStage),
    since=st.just(NOW),
    waits_for=st.lists(st.just("ns/web"), max_size=5).map(tuple),
    error=st.sampled_from(["", "a budget"]),
)
SCANS = st.builds(
    lambda count, marked, cpu, prefix: utilized.decided(
        rules_of(min_nodes=0),
        seen((*nodes(count, prefix), *nodes(marked, "marked", tainted_for=100)), pod("p", cpu)),
    ),
    st.integers(0, 5),
    st.integers(0, 3),
    st.integers(0, 9000),
    st.sampled_from(["jobs", "full", "idle"]),
)


@given(
    leaving=st.lists(LEAVING, max_size=4),
    scans=st.lists(SCANS, max_size=2),
    actions=st.lists(st.sampled_from(MADE.actions), max_size=2),
    looked=st.booleans(),
    held=st.sampled_from(["", "the cloud does not answer"]),
)
def test_whatever_a_round_says_every_node_has_one_answer_and_is_counted_once(
    leaving: list[DeletionProgress], scans: list[Scan], actions: list[Action], looked: bool, held: str
) -> None:
    made = replace(MADE, leaving=tuple(leaving), scans=tuple(scans), actions=tuple(actions), blocked_reason=held)
    made = made if looked else replace(made, scale_down=None)
    found = node_rows.scale_down_row(made)
    assert found is not None
    names = [row.node for row in found.nodes]
    assert len(names) == len(set(names))
    scanned_nodes = {
        each.name for scan in scans for listed in (scan.classes.untainted, scan.classes.tainted) for each in listed
    }
    judged = set() if made.scale_down is None else set(made.scale_down.statuses)
    assert set(names) == {*MADE.state.groups["pool"].nodes, *judged, *scanned_nodes, *(each.node for each in leaving)}
    gone = sum(row.standing == NodeStanding.GONE for row in found.nodes)
    assert found.goes + found.unneeded + found.leaving + found.needed + found.unjudged + gone == len(names)
    assert sum(row.count for row in found.stay) == found.unneeded + found.needed + found.unjudged
    assert all(row.reason or row.detail for row in found.nodes)
    plan = answers.plan(made)
    assert list(schemas.problems(said(plan), schemas.published("plan"))) == []
    for name in names:
        assert node_rows.node_answer(made, name) is not None
    plan_table.render(plan, group_rows.groups(made), all_nodes=True)
    events.events(made, STATUS)
