"""A cluster that starts says how far it is, and what its nodes wait for."""

from dataclasses import replace

import pytest

from agent.settings import AgentSettings
from deploy.local.simulated import fleet
from deploy.top import progress
from deploy.top.command import printed_table
from manager.nodeside.answers import Amount, Bounds, NodeRow, Nodes
from manager.nodeside.noderesource import explain

NOTHING, SOME = Amount(0, 0), Amount(1000, 1 << 30)
LENDS = NodeRow(
    name="host",
    simulated=False,
    allocatable=SOME,
    requested=SOME,
    used=SOME,
    predicted_peak=SOME,
    reclaimable=SOME,
    mid=SOME,
    batch=NOTHING,
    reason="why",
    reported="2026-01-01T00:00:00Z",
    report_reason="Periodic",
    wanted=SOME,
    bound=Bounds("reclaimable", "reclaimable"),
    history_percent=100,
)
BARE = replace(LENDS, mid=NOTHING, wanted=NOTHING)
NEW = replace(BARE, bound=Bounds(explain.STALE, explain.STALE), reported=None)


def nodes(*simulated: NodeRow) -> Nodes:
    rows = [replace(row, name=f"sim-{number}", simulated=True) for number, row in enumerate(simulated)]
    return Nodes("headroom-1", "2026-01-01T00:00:07Z", [LENDS, *rows])


@pytest.mark.parametrize(
    ("row", "reporting", "waits_for"),
    [
        (replace(BARE, bound=None), 2, "a decision"),
        (NEW, 1, "their first report"),
        (replace(NEW, reported="2026-01-01T00:00:00Z"), 2, "a newer report"),
        (replace(BARE, history_percent=40), 2, "more history"),
        (replace(BARE, wanted=SOME), 2, "the write to their Node"),
    ],
)
def test_a_node_without_mid_says_what_it_waits_for(row: NodeRow, reporting: int, waits_for: str) -> None:
    said = f"{reporting} of 2 nodes report; 1 offer Mid; the others wait for {waits_for} (1)"
    assert progress.starting(nodes(row), 1) == said


def test_nodes_that_are_not_there_yet_count_and_the_commonest_reason_comes_first() -> None:
    said = progress.starting(nodes(NEW, LENDS), 5)
    assert (
        said == "2 of 6 nodes report; 2 offer Mid; the others wait for their registration (3), their first report (1)"
    )


def test_before_the_manager_answers_all_nodes_wait_for_it() -> None:
    assert progress.starting(None, 300) == "0 of 301 nodes report; 0 offer Mid; they wait for the manager"


@pytest.mark.parametrize("row", [LENDS, BARE, replace(BARE, bound=Bounds(explain.DISABLED, explain.DISABLED))])
def test_nothing_is_said_once_no_node_waits_even_where_one_has_nothing_to_lend(row: NodeRow) -> None:
    assert progress.starting(nodes(row), 1) == ""


def test_the_line_stands_below_the_printed_table_while_nodes_wait() -> None:
    waiting = "1 of 2 nodes report; ..."
    assert printed_table(nodes(NEW), 0.0, [], waiting).split("\n")[-2:] == [waiting, ""]


def test_hundreds_of_agents_in_one_process_sample_and_predict_less_often_and_a_few_do_not() -> None:
    demo = AgentSettings(check_prediction_interval_seconds=2, reporting_interval_seconds=20)
    assert fleet.spaced(demo, 50) == demo
    many, most = fleet.spaced(demo, 300), fleet.spaced(demo, 1000)
    assert (many.collect_interval_seconds, many.check_prediction_interval_seconds) == (2.0, 10)
    assert (most.collect_interval_seconds, most.check_prediction_interval_seconds) == (5.0, 20)
