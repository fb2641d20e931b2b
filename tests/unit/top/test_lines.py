"""Each node is one line that fits a terminal of 80 columns, and says in a word why it offers what it offers."""

from dataclasses import replace
from typing import Any

import pytest

from deploy.top import detail, lines
from deploy.top.history import MOST_SAMPLES, ShownHistory
from deploy.top.nodes import Sorting, chosen, total
from manager.nodeside import answers
from manager.nodeside.answers import Amount, Bounds, NodeRow, Nodes, ProdWaitRow
from manager.nodeside.decisions import KnownNode
from manager.nodeside.noderesource import explain, report
from manager.nodeside.noderesource.explain import Known
from manager.pods import NodeRequests
from shared.api.colocation import ColocationStrategy, NodeStrategy
from shared.api.nodemetric import NodeMetric
from tests.unit.manager.objects import NOW, metric, node

GIB = 1 << 30
ROW = NodeRow(
    name="general-hdzbs",
    simulated=False,
    allocatable=Amount(16_000, 64 * GIB),
    requested=Amount(11_000, 36 * GIB),
    used=Amount(3_150, 20 * GIB),
    predicted_peak=Amount(5_504, 21 * GIB),
    reclaimable=Amount(5_496, 15 * GIB),
    mid=Amount(5_496, 15 * GIB),
    batch=Amount(0, 0),
    reason="cpu 5496m by reclaimable (requested 11, peak 5504m), memory 15.00 GiB by reclaimable",
    wanted=Amount(5_496, 15 * GIB),
    bound=Bounds("reclaimable", "reclaimable"),
    reported="2026-01-01T00:00:00Z",
    report_reason="Periodic",
    history_percent=100,
)


def changed(**fields: Any) -> NodeRow:
    return replace(ROW, **fields)


def answer(*rows: NodeRow, time: str = "2026-01-01T00:00:09Z") -> Nodes:
    return Nodes("headroom-1", time, list(rows))


def printed(width: int, *rows: NodeRow) -> list[str]:
    found = answer(*rows)
    shown = lines.columns(found, width)
    return [lines.header(shown), *(lines.line(shown, row) for row in found.nodes)]


def test_a_line_has_the_numbers_below_their_headings() -> None:
    assert printed(80, ROW) == [
        "NODE          CPU USED  PEAK   MID GIB USED  PEAK   MID  AGE WHY",
        "general-hdzbs     3.15  5.50  5.50     20.0  21.0  15.0   9s peak",
    ]


def test_requests_capacity_and_the_whole_reason_come_where_there_is_room() -> None:
    heading, line = printed(200, ROW)
    half = "USED PEAK REQ ALLOC MID"
    assert " ".join(heading.split()) == f"NODE CPU {half} GIB {half} AGE WHY"
    assert line.endswith(ROW.reason)
    assert " 11.0  16.0 " in line


@pytest.mark.parametrize(
    ("width", "why"), [(80, "peak"), (120, "requested less peak"), (160, "requested less peak"), (200, ROW.reason)]
)
def test_the_reason_is_whole_at_every_width(width: int, why: str) -> None:
    heading, line = printed(width, ROW)
    assert line[heading.index("WHY") :] == why


def test_a_phrase_says_which_resource_is_decided_by_what() -> None:
    by_cap = changed(bound=Bounds("reclaimable - buffer", "cap"), wanted=Amount(1_000, 15 * GIB))
    assert lines.why_in_short(by_cap) == "CPU: requested less peak and buffer; memory: cap of the policy ↓"
    taught = changed(bound=Bounds("reclaimable - prod_slowed_lately - buffer", "cap"))
    assert lines.why(taught) == "peak/cap"
    assert lines.why_in_short(taught) == (
        "CPU: requested less peak and buffer, less since Prod was slowed; memory: cap of the policy"
    )
    assert lines.why_in_short(changed(history_percent=37, wanted=Amount(0, 0), mid=Amount(0, 0))) == "learning 37%"


@pytest.mark.parametrize("name", ["n", "ip-10-0-23-117.eu-central-1.compute.internal-and-some-more"])
def test_no_line_is_longer_than_the_terminal(name: str) -> None:
    large = Amount(9_999_000, 9_999 * GIB)
    row = changed(name=name, used=large, predicted_peak=large, mid=large, bound=Bounds("reclaimable", "cap"))
    assert all(len(line) <= 80 for line in printed(80, row))


def test_what_reads_a_pipe_gets_whole_names() -> None:
    name = "ip-10-0-23-117.eu-central-1.compute.internal-and-some-more"
    found = answer(changed(name=name), ROW)
    shown = lines.columns(found, 80, cut=False)
    long, short = (lines.line(shown, row) for row in found.nodes)
    assert long.split()[0] == name
    assert long.index(" 3.15") == short.index(" 3.15")


def test_a_long_name_is_cut_in_the_middle_and_stays_distinct() -> None:
    assert lines.shortened("ip-10-0-23-117.internal", 12) == "ip-10-…ernal"
    assert lines.shortened("short", 12) == "short"


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (ROW, "peak"),
        (changed(bound=Bounds("reclaimable", "cap")), "peak/cap"),
        (changed(bound=Bounds("stale", "stale")), "stale"),
        (changed(bound=Bounds("stale", "stale"), reported=None), "no report yet"),
        (changed(bound=Bounds("unreadable", "unreadable")), "unreadable"),
        (changed(bound=Bounds("disabled", "disabled")), "off"),
        (changed(bound=Bounds("disabled", "disabled"), reported=None), "off"),
        (changed(bound=None), "undecided"),
        (changed(history_percent=37, wanted=Amount(0, 0), mid=Amount(0, 0)), "learning 37%"),
        (changed(history_percent=37), "peak"),
        (changed(wanted=Amount(7_000, 15 * GIB)), "peak ↑"),
        (changed(wanted=Amount(2_000, 15 * GIB)), "peak ↓"),
        (changed(wanted=Amount(5_500, 15 * GIB)), "peak"),
        (changed(history_percent=None), "peak"),
    ],
)
def test_a_word_says_what_decides_and_where_it_is_going(row: NodeRow, word: str) -> None:
    assert lines.why(row) == word


@pytest.mark.parametrize(
    ("reported", "enable", "short", "in_full"),
    [
        (None, True, "no report yet", "no report yet"),
        (metric(age_seconds=None), True, "no report yet", "no report yet"),
        (metric(age_seconds=1000), True, "stale", "the NodeMetric is 1000 s old, the limit is 900 s"),
        (metric(age_seconds=-100), True, "stale", "the NodeMetric is dated 100 s into the future"),
        (None, False, "off", "colocation is off"),
        (metric(age_seconds=0), False, "off", "colocation is off"),
    ],
)
def test_a_node_that_offers_nothing_says_so_in_few_words(
    reported: NodeMetric | None, enable: bool, short: str, in_full: str
) -> None:
    strategy = NodeStrategy(ColocationStrategy(enable=enable), enabled=enable)
    read = None if reported is None else report.read(reported)
    decision = explain.decide(node(), read, Known(), strategy, NOW)
    row = answers.row(KnownNode(node(), NodeRequests(), decision, None))
    assert (lines.why(row), lines.why_in_full(row)) == (short, in_full)
    assert detail.text(row, [], 100).endswith(f"Why: {in_full}")


SLOWED = ProdWaitRow("cpu", 43.0, 1.0, "2026-01-01T00:00:00Z", "Prod pods wait too long for cpu since midnight: 43 %")


def test_a_node_whose_prod_is_slowed_says_so_with_share_and_time() -> None:
    row = changed(prod_slowed=[SLOWED, replace(SLOWED, resource="memory", wait_percent=None)])
    assert printed(80, row)[1].endswith(" 9s Prod slowed")
    assert lines.why_in_short(row) == (
        "Prod slowed: cpu 43 % since 2026-01-01T00:00:00Z, memory - since 2026-01-01T00:00:00Z"
    )
    assert chosen([ROW, row], Sorting.NAME, containing="slowed") == [row]
    assert detail.text(changed(prod_slowed=[SLOWED]), [], 80).endswith(f"Why: {SLOWED.sentence}; {ROW.reason}")


def test_a_reason_that_has_the_sentence_does_not_repeat_it() -> None:
    row = changed(prod_slowed=[SLOWED], reason=f"cpu 0 by held; nothing more is lent: {SLOWED.sentence}")
    assert lines.why_in_full(row) == row.reason


@pytest.mark.parametrize("bound", [None, *(Bounds(each, each) for each in ("stale", "disabled", "unreadable"))])
def test_a_report_that_does_not_count_slows_nothing(bound: Bounds | None) -> None:
    assert "slowed" not in lines.why(changed(prod_slowed=[SLOWED], bound=bound))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0, "0s"), (119.9, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (200_000, "2d")],
)
def test_an_age_fits_four_characters(seconds: float | None, shown: str) -> None:
    assert lines.age(seconds) == shown


def test_an_age_goes_on_while_the_manager_is_silent() -> None:
    shown = lines.columns(answer(ROW), 80, silent_seconds=30.0)
    assert " 39s " in lines.line(shown, ROW)


def test_what_is_not_known_is_a_dash() -> None:
    unknown = changed(used=None, predicted_peak=None, reported=None)
    (_, line) = printed(80, unknown)
    assert line.split() == ["general-hdzbs", "-", "-", "5.50", "-", "-", "15.0", "-", "peak"]


def test_nodes_are_sorted_as_people_count_with_this_machine_first() -> None:
    rows = [changed(name=name) for name in ("sim-10", "sim-2", "zebra")]
    assert [row.name for row in chosen(rows, Sorting.NAME, "zebra")] == ["zebra", "sim-2", "sim-10"]
    small, none = changed(name="b", mid=Amount(1, 0)), changed(name="a", mid=Amount(0, 0))
    assert [row.name for row in chosen([none, small, ROW], Sorting.MID, "a")] == ["general-hdzbs", "b", "a"]
    full, unknown = changed(name="full", used=Amount(1, 30 * GIB)), changed(name="a", used=None)
    assert [row.name for row in chosen([unknown, ROW, full], Sorting.MEMORY)] == ["full", "general-hdzbs", "a"]


def test_a_filter_looks_at_names_and_reasons() -> None:
    rows = [changed(name="a", reason="by cap"), changed(name="Gpu-1"), changed(name="c")]
    assert [row.name for row in chosen(rows, Sorting.NAME, containing="gpu")] == ["Gpu-1"]
    assert [row.name for row in chosen(rows, Sorting.NAME, containing="CAP")] == ["a"]
    silent = changed(name="b", bound=Bounds("stale", "stale"), reason="the NodeMetric is 1000 s old")
    assert chosen([*rows, silent], Sorting.NAME, containing="stale") == [silent]


def test_totals_leave_out_what_is_not_known() -> None:
    assert total([ROW, changed(used=None)], lambda row: row.used) == Amount(3_150, 20 * GIB)


@pytest.mark.parametrize(
    ("values", "top", "shown"),
    [([], 0, ""), ([0, 0], 0, "  "), ([0, 4, 8], 8, " ▄█"), ([1, 2], 0, "▄█"), ([9], 3, "█")],
)
def test_a_sparkline_is_drawn_by_the_scale_of_what_there_is(values: list[float], top: float, shown: str) -> None:
    assert lines.sparkline(values, 10, top) == shown


def test_a_sparkline_shows_the_newest_values() -> None:
    assert lines.sparkline([8, 8, 0, 4], 2, 8) == " ▄"


def test_history_keeps_the_newest_samples_of_nodes_that_are_there() -> None:
    history = ShownHistory()
    for second in range(MOST_SAMPLES + 5):
        history.add(answer(changed(used=Amount(second, 0)), time=f"2026-01-01T00:00:00.{second:03}Z"))
    history.add(answer(changed(used=Amount(999, 0)), time=f"2026-01-01T00:00:00.{MOST_SAMPLES + 4:03}Z"))
    kept = history.of(ROW.name)
    assert [row.used.cpu_milli for row in kept if row.used] == list(range(5, MOST_SAMPLES + 5))
    history.add(answer(changed(name="another")))
    assert history.of(ROW.name) == []


def test_the_detail_tells_the_course_the_wish_and_the_whole_reason() -> None:
    row = changed(wanted=Amount(7_000, 15 * GIB), history_percent=37)
    past = [changed(used=Amount(milli, 0)) for milli in (0, 8_000, 16_000)]
    text = detail.text(row, past, 80)
    assert "CPU, allocatable 16" in text
    assert " ▄█" in text
    assert "Wanted: 7 and 15.00 GiB" in text
    assert "37 % of the cold start" in text
    assert text.endswith(f"Why: {ROW.reason}")
    assert "Learning" not in detail.text(ROW, past, 80)
