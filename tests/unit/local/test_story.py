"""The demo's story: its lines come in order, each when what it says has happened, and only once."""

from dataclasses import replace

from deploy.local import story
from deploy.local.story import Scene
from manager.nodeside.answers import Amount, Bounds, NodeRow, Nodes
from manager.nodeside.node_prediction import PromiseRow

GIB = 1 << 30
ROW = NodeRow(
    name="sim-0",
    simulated=True,
    allocatable=Amount(16_000, 64 * GIB),
    requested=Amount(15_000, 37 * GIB),
    used=Amount(3_000, 20 * GIB),
    predicted_peak=Amount(7_000, 21 * GIB),
    reclaimable=Amount(8_000, 15 * GIB),
    mid=Amount(8_000, 15 * GIB),
    batch=Amount(0, 0),
    reason="",
    reported="2026-01-01T00:00:00Z",
    report_reason="Periodic",
    wanted=Amount(8_000, 15 * GIB),
    bound=Bounds("reclaimable", "reclaimable"),
    history_percent=100,
    prod_used=Amount(3_000, 20 * GIB),
)
MACHINE = replace(ROW, name="vm", simulated=False, mid=Amount(0, 9 * GIB))


def scene(used: int = 3_000, mid: int = 8_000, outcomes: int = 0, broken: int = 0, peak: int = 7_000) -> Scene:
    row = replace(ROW, prod_used=Amount(used, 0), mid=Amount(mid, 15 * GIB), predicted_peak=Amount(peak, 21 * GIB))
    share = 100 * broken / outcomes if outcomes else None
    promises = [
        PromiseRow("cpu", 48, 11_000, 1.0, outcomes, share, 50.0),
        PromiseRow("cpu", 2, 11_000, 1.0, outcomes, share, 50.0),
        PromiseRow("memory", 2, GIB, 1.0, outcomes, 100.0, 50.0),
    ]
    return Scene(Nodes("demo", "2026-01-01T00:00:09Z", [row, MACHINE]), promises)


def told(*scenes: Scene) -> list[str]:
    telling = story.begin("sim-0", "simulated/burner", 1)
    lines = [next(telling)]
    for each in scenes:
        try:
            lines.append(telling.send(each))
        except StopIteration:
            break
    return [line for line in lines if line]


STARTING = Scene(Nodes("demo", "2026-01-01T00:00:09Z", []))
IDLE, BUSY = scene(), scene(used=5_000, peak=11_000)
WITHDRAWN = scene(used=6_000, mid=4_500)
BROKEN = scene(used=6_000, mid=4_500, outcomes=40, broken=2)
KEPT = scene(used=6_000, mid=4_500, outcomes=61, broken=2)


def test_each_chapter_is_told_once_and_in_order() -> None:
    lines = told(STARTING, IDLE, IDLE, IDLE, BUSY, BUSY, WITHDRAWN, WITHDRAWN, BROKEN, BROKEN, KEPT, KEPT)
    assert [line.partition(".")[0] for line in lines] == [
        "All 2 nodes report",
        "sim-0: pod simulated/burner requests 4 cores and is idle for a minute",
        "sim-0: pod simulated/burner gets busy",
        "sim-0: 3",
        "sim-0: a promise is broken",
        "sim-0: promises are kept again",
    ]
    assert "nodes lend 8.0 cores and 24 GiB" in lines[0]
    assert lines[2].endswith("Prod pods use 5.0 cores, up from 3.0 cores, and their predicted peak is 11.0 cores")
    assert lines[3].startswith("sim-0: 3.5 cores are withdrawn from Mid pods, and 4.5 cores stay on offer")
    assert "in 2 of 40 hours" in lines[4]
    assert "in the last 21 hours; 2 of 61 promises were broken, and the target is 1 %" in lines[5]


def test_nothing_is_told_before_all_nodes_report_and_offer() -> None:
    silent = replace(ROW, mid=Amount(0, 0), reported=None, bound=Bounds("stale", "stale"))
    waiting = Scene(Nodes("demo", "2026-01-01T00:00:09Z", [silent, MACHINE]))
    assert told(STARTING, waiting, waiting) == []


def test_a_promise_that_is_broken_later_starts_the_count_of_kept_ones_again() -> None:
    again = scene(used=6_000, mid=4_500, outcomes=55, broken=3)
    before = (IDLE, IDLE, IDLE, BUSY, WITHDRAWN, WITHDRAWN, BROKEN)
    assert len(told(*before, again, KEPT)) == len(told(*before))
    later = scene(used=6_000, mid=4_500, outcomes=80, broken=3)
    assert "in the last 25 hours; 3 of 80 promises" in told(*before, again, later)[-1]


def test_a_node_that_is_gone_stops_the_story_and_ends_nothing() -> None:
    gone = Scene(Nodes("demo", "2026-01-01T00:00:09Z", [MACHINE]))
    assert len(told(IDLE, IDLE, IDLE, gone, gone)) == 2
