"""What a scrape shows of the autoscaler."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from manager.autoscaler.cloudprovider.contract import ErrorClass, Group, InstanceError
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.reconciliation import NEVER_CAME, UNREGISTERED
from manager.autoscaler.cluster_state.state import (
    AcceptableRange,
    ClusterState,
    GroupBackoff,
    GroupStatus,
    Incident,
    IncidentKind,
    Readiness,
)
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.scale_up.decisions import PodDemand, ScaleUpDecision, ScaleUpOutcome, UnscheduledPods
from manager.autoscaler.scale_up.groups import Skipped
from manager.autoscaler.scale_up.pending_pods import NOT_JUDGED
from manager.autoscaler.settings.modes import Mode
from shared.explanation import ScaleExplanation
from tests.unit.manager.objects import NOW

POOL = GroupStatus(
    Group("pool", 1, 5, 3),
    Mode.RECOMMEND,
    Readiness(ready=2, unready=1),
    AcceptableRange(3, 3, 3),
    healthy=False,
    upcoming=2,
    backoff=GroupBackoff("none left", NOW, 300, NOW + 300, "STOCKOUT"),
)
STATE = ClusterState(
    {"pool": POOL, "nap": replace(POOL, group=Group("nap", 0, 9, 0, autoprovisioned=True), backoff=None)},
    refused={"odd": "no"},
    unmanaged=frozenset({"theirs"}),
    ungrouped=("n9",),
    readiness=Readiness(ready=5, unready=1, not_started=1, long_unregistered=1),
)
SKIPPED = (
    Skipped("a", 'exceeded quota: "big", resources: nodes; exceeded quota: "cluster-wide", resources: cpu, memory'),
    Skipped("b", 'exceeded quota: "cluster-wide", resources: cpu'),
    Skipped("c", "cpu"),
)
DECISION = ScaleUpDecision(
    ScaleUpOutcome.GROW,
    demands=(PodDemand("team", tuple(f"team/{each}" for each in range(10)), schedulable=2, reclaimed=1),),
    skipped=SKIPPED,
    triggered=("team/3", "team/4", "team/5"),
    left=(UnscheduledPods(0, ("team/6", "team/7", "team/8", "team/9"), awaiting=True),),
)
ACTS = (
    Action(ActionKind.INCREASE, "pool", from_size=3, to_size=5, done=True),
    Action(ActionKind.INCREASE, "nap", from_size=0, to_size=3, error="quota"),
    Action(ActionKind.INCREASE, "spare", Mode.RECOMMEND, to_size=4),
    Action(ActionKind.CREATE_GROUP, "nap", done=True),
    Action(ActionKind.DELETE_GROUP, "nap-old", done=True),
    Action(
        ActionKind.DELETE_NODES,
        "pool",
        from_size=5,
        to_size=4,
        nodes=("id-x",),
        explanation=ScaleExplanation(UNREGISTERED),
        done=True,
    ),
    Action(ActionKind.DECREASE_TARGET, "pool", from_size=4, to_size=3, explanation=ScaleExplanation(NEVER_CAME)),
)
INCIDENTS = (
    Incident(IncidentKind.TIMED_OUT, "pool", 2),
    Incident(IncidentKind.CREATION_FAILED, "pool", 3, error=InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT")),
    Incident(IncidentKind.REGISTERED, "pool", 4),
)
MADE = Iteration(
    1,
    NOW,
    STATE,
    skipped_pods={"team/young": "too young", "team/new": NOT_JUDGED},
    decision=DECISION,
    actions=ACTS,
    cost=Cost(3.0, {"pool": 2.0, "": 1.0}, idle=0.5, offered=0.25, used=0.125, unpriced=("n7",)),
    incidents=INCIDENTS,
)


class Scrape:
    """Metrics, and what a scrape of them shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = AutoscalerMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def ours(self, name: str, **labels: str) -> float | None:
        return self.value(f"headroom_autoscaler_{name}", **labels)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def scrape() -> Scrape:
    found = Scrape()
    found.metrics.note(MADE)
    return found


def test_the_cost_is_shown_as_a_whole_and_by_where_it_goes(scrape: Scrape) -> None:
    assert scrape.ours("cost_per_hour") == 3.0
    assert scrape.ours("group_cost_per_hour", group="pool") == 2.0
    assert scrape.ours("group_cost_per_hour", group="") == 1.0
    assert scrape.ours("idle_cost_per_hour") == 0.5
    assert scrape.ours("reclaimed_cost_per_hour", state="offered") == 0.25
    assert scrape.ours("reclaimed_cost_per_hour", state="used") == 0.125
    assert scrape.ours("unpriced_nodes") == 1


@pytest.mark.parametrize(
    ("kind", "count"), [("schedulable", 2), ("reclaimed", 1), ("triggered", 3), ("left", 4), ("skipped", 2)]
)
def test_pending_pods_are_shown_by_what_becomes_of_them(scrape: Scrape, kind: str, count: int) -> None:
    assert scrape.ours("pending_pods", kind=kind) == count


def test_a_group_that_was_deleted_is_counted_for_no_more(scrape: Scrape) -> None:
    assert scrape.ours("nodes_added_total", group="pool") == 2
    scrape.metrics.note(replace(MADE, actions=(Action(ActionKind.DELETE_GROUP, "pool", done=True),), incidents=()))
    assert scrape.ours("nodes_added_total", group="pool") is None
    assert scrape.ours("groups_deleted_total") == 2


def test_every_group_is_shown_with_sizes_nodes_mode_health_and_backoff(scrape: Scrape) -> None:
    sizes = [scrape.ours("group_size", group="pool", bound=each) for each in ("min", "target", "max")]
    assert sizes == [1, 3, 5]
    states = [scrape.ours("group_nodes", group="pool", state=each) for each in ("ready", "unready", "upcoming")]
    assert states == [2, 1, 2]
    assert [scrape.ours("group_mode", group="pool", mode=each) for each in Mode] == [0, 1, 0]
    assert scrape.ours("group_healthy", group="pool") == 0
    assert scrape.ours("group_backoff", group="pool", reason="STOCKOUT") == 1
    assert scrape.ours("group_refused", group="odd") == 1
    assert (scrape.ours("ungrouped_nodes"), scrape.ours("unmanaged_groups")) == (1, 1)
    assert (scrape.ours("nodes", state="ready"), scrape.ours("nodes", state="longUnregistered")) == (5, 1)
    assert (scrape.ours("cluster_healthy"), scrape.ours("blocked")) == (1, 0)


def test_what_is_decided_and_done_is_counted_up(scrape: Scrape) -> None:
    scrape.metrics.note(
        replace(MADE, number=2, blocked_reason="not yet", decision=None, actions=ACTS[:1], incidents=())
    )
    assert scrape.ours("iterations_total", result="decided") == 1
    assert scrape.ours("iterations_total", result="blocked") == 1
    assert scrape.ours("decisions_total", outcome="scale up") == 1
    assert scrape.ours("nodes_added_total", group="pool") == 4
    assert scrape.ours("nodes_removed_total", reason=UNREGISTERED) == 1
    assert scrape.ours("nodes_removed_total", reason=NEVER_CAME) is None
    assert (scrape.ours("groups_created_total"), scrape.ours("groups_deleted_total")) == (1, 1)
    results = [scrape.ours("acts_total", what="increase", result=each) for each in ("done", "failed", "advised")]
    assert results == [2, 1, 1]
    assert scrape.ours("acts_total", what="decrease target", result="left") == 1
    reasons = [scrape.ours("failures_total", reason=each) for each in ("timeout", "OutOfResources", "refused")]
    assert reasons == [2, 3, 3]


def test_the_last_activity_of_each_kind_is_kept(scrape: Scrape) -> None:
    scrape.metrics.note(Iteration(2, NOW + 10))
    assert scrape.ours("last_activity_seconds", activity="main") == NOW + 10
    assert scrape.ours("last_activity_seconds", activity="scaleUp") == NOW


def test_groups_that_are_gone_are_not_shown_and_a_blind_round_makes_nothing_free(scrape: Scrape) -> None:
    scrape.metrics.note(Iteration(2, NOW + 10, blocked_reason="the cloud does not answer"))
    assert scrape.ours("blocked") == 1
    assert scrape.ours("group_size", group="pool", bound="min") is None
    assert scrape.ours("cost_per_hour") is None
    assert scrape.ours("pending_pods", kind="left") is None


def test_steps_are_timed() -> None:
    scrape = Scrape()
    scrape.metrics.took("scaleUp", 0.2)
    assert scrape.ours("function_duration_seconds_sum", function="scaleUp") == 0.2


def test_a_dry_run_counts_as_nothing() -> None:
    scrape = Scrape()
    before = scrape.text
    scrape.metrics.note(replace(MADE, dry_run=True))
    assert scrape.text == before


def test_nothing_is_shown_before_the_first_round() -> None:
    assert Scrape().ours("cost_per_hour") is None
