"""The page's own arithmetic: what the table shows of the nodes, and how a course becomes a plot.

Node.js runs the scripts as they are served; nothing of them is copied here.
"""

import json
import math
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from manager.nodeside.workloads import Order

PAGE = Path(__file__).parents[3] / "manager" / "page"
GIB = 2**30
TIMES = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"]
NODE_JS = shutil.which("node")


needs_node_js = pytest.mark.skipif(NODE_JS is None, reason="needs Node.js to run the page's scripts")


def run(expression: str, **given: object) -> Any:
    """What a function of the page's scripts returns; `given` are its constants."""
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    scripts = "\n".join(
        (PAGE / name).read_text()
        for name in ("course.js", "histogram.js", "spending.js", "nodes.js", "workloads.js", "headline.js")
    )
    program = f"{scripts}\n{{\n{constants}console.log(JSON.stringify({expression}));\n}}"
    assert NODE_JS is not None
    done = subprocess.run([NODE_JS, "-"], input=program, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def amount(cores: float, gib: float) -> dict[str, int]:
    return {"cpu_milli": round(1000 * cores), "memory_bytes": round(gib * GIB)}


def row(name: str, used: float | None = None, **more: Any) -> dict[str, object]:
    return {
        "name": name,
        "reason": "cpu 1 by reclaimable",
        "allocatable": amount(16, 64),
        "requested": amount(8, 32),
        "used": None if used is None else amount(used, 2 * used),
        "predicted_peak": None,
        "mid": amount(4, 8),
        "batch": amount(0, 0),
        "wanted": amount(4, 8),
        "bound": {"cpu": "reclaimable", "memory": "reclaimable"},
        "history_percent": 100,
        **more,
    }


NAMES = "nodes => nodes.map(node => node.name)"


@needs_node_js
def test_a_course_begins_with_what_the_manager_remembers_and_a_node_joins_when_it_is_opened() -> None:
    def series(*cores: float | None) -> dict[str, list[int | None]]:
        milli = [None if each is None else round(1000 * each) for each in cores]
        return {"cpu_milli": milli, "memory_bytes": [None if each is None else GIB for each in milli]}

    def history(*cores: float | None) -> dict[str, object]:
        amounts = ("used", "requested", "predicted_peak", "mid", "prod_used")
        return {"times": TIMES, **{amount: series(*cores) for amount in amounts}}

    found = run(
        """(() => {
          const course = makeCourse();
          recordHistory(course, "", whole);
          record(course, Date.parse("2026-01-01T00:02:00Z"), [["", live], ["a", live]]);
          const before = courseOf(course, "a", "used", "cpu_milli");
          fillHistory(course, "a", ofOne);
          fillHistory(course, "unheard", ofOne);
          return [course.times.length, courseOf(course, "", "used", "cpu_milli"), before,
            courseOf(course, "a", "used", "cpu_milli"), courseOf(course, "a", "mid", "memory_bytes")];
        })()""",
        whole=history(8, None, 6),
        ofOne=history(None, 1, 2),
        live=row("a", used=3.0),
    )
    assert found == [4, [8, None, 6, 3], [None, None, None, 3], [None, 1, 2, 3], [None, 1, 1, 8]]


@needs_node_js
def test_a_sparkline_of_fewer_samples_fills_the_whole_course_and_says_nothing_of_other_amounts() -> None:
    amounts = ("used", "requested", "predicted_peak", "mid", "prod_used")
    told = {"cpu_milli": [1000, 2000, 3000], "memory_bytes": [GIB, GIB, GIB]}
    few = {"cpu_milli": [1000, 3000], "memory_bytes": [GIB, None]}
    found = run(
        """(() => {
          const course = makeCourse();
          recordHistory(course, "", whole);
          record(course, Date.parse("2026-01-01T00:02:00Z"), [["a", live], ["b", live]]);
          fillHistory(course, "a", spark);
          course.begun.add("a").add("b");
          record(course, Date.parse("2026-01-01T00:03:00Z"), [["a", live]]);
          return [courseOf(course, "a", "used", "cpu_milli"), courseOf(course, "a", "requested", "cpu_milli"),
            [...course.begun]];
        })()""",
        whole={"times": TIMES, **dict.fromkeys(amounts, told)},
        spark={"times": TIMES[::2], "used": few, "predicted_peak": few},
        live=row("a", used=4.0),
    )
    assert found == [[1, 1, 3, 4, 4], [None, None, None, 8, 8], ["a"]]


@needs_node_js
def test_the_trend_of_a_total_is_what_it_has_changed_by_since_it_was_first_known() -> None:
    def trend(minutes: list[int], totals: list[float | None]) -> str:
        rows = [None if total is None else row("", used=total) for total in totals]
        found = run(
            """(() => {
              const course = makeCourse();
              minutes.forEach((at, index) => record(course, at * 60000, [["", rows[index] || {}]]));
              return ["used", "mid", "batch"].map(amount => trendOf(course, amount));
            })()""",
            minutes=minutes,
            rows=rows,
        )
        assert found[2] == ""
        assert isinstance(found[0], str)
        return found[0].replace("\N{NO-BREAK SPACE}", " ")  # no line breaks within an amount

    assert trend([0, 5, 10], [2, 4, 3]) == "+1 cores, +2 GiB in 10 min"
    assert trend([0, 5, 90], [None, 4, 3.5]) == "-0.5 cores, -1 GiB in 1.4 h"
    assert trend([0, 5, 30], [3, 4, 3]) == "0 cores, 0 GiB in 30 min"
    assert trend([0, 9], [2, 3]) == ""
    assert trend([0, 5, 30], [3, 4, None]) == ""
    assert trend([0, 30], [None, None]) == ""


@needs_node_js
def test_without_a_memory_a_course_begins_with_the_page() -> None:
    found = run(
        """(() => {
          const course = makeCourse(), nothing = { times: [] };
          recordHistory(course, "", nothing);
          record(course, 1000, [["a", live]]);
          fillHistory(course, "a", nothing);
          return courseOf(course, "a", "used", "cpu_milli");
        })()""",
        live=row("a", used=3.0),
    )
    assert found == [3]


@needs_node_js
def test_the_table_is_sorted_by_any_column_and_what_is_not_known_comes_last() -> None:
    nodes = [row("n10", 3), row("n9"), row("n2", 1), row("n1", 3)]
    ways = run(
        f"""[["name", false], ["used-cpu_milli", false], ["used-memory_bytes", true], ["why", false]]
        .map(([id, isDescending]) => ({NAMES})(sortedNodes(nodes, id, isDescending)))""",
        nodes=nodes,
    )
    assert ways == [
        ["n1", "n2", "n9", "n10"],
        ["n2", "n1", "n10", "n9"],
        ["n1", "n10", "n2", "n9"],
        ["n1", "n2", "n9", "n10"],
    ]


@needs_node_js
def test_every_column_of_amounts_has_one_unit_which_its_heading_names() -> None:
    columns = run(
        "COLUMNS.filter(each => each.isNumber && !each.spark).map(each => [each.title, each.value(node)])",
        node=row("n", 1.5),
    )
    assert ["CPU used, cores", 1.5] in columns
    assert ["Memory Mid, GiB", 8] in columns
    assert all(title.endswith((", cores", ", GiB")) for title, _ in columns)


@needs_node_js
def test_the_filter_finds_names_reasons_and_their_short_words() -> None:
    nodes = [row("web-1"), row("db-1", reason="WEB is degraded"), row("db-2", bound=None)]
    found = run(f"""[" Web", "undecided", "none"].map(text => ({NAMES})(filteredNodes(nodes, text)))""", nodes=nodes)
    assert found == [["web-1", "db-1"], ["db-2"], []]


@needs_node_js
def test_five_thousand_nodes_come_in_pages_of_fifty() -> None:
    pages = run(
        """[0, 99, 100, -1].map(wanted => pageOf([...Array(5000).keys()], wanted))
        .map(({ page, pages, nodes }) => [page, pages, nodes.length, nodes[0]])"""
    )
    assert pages == [[0, 100, 50, 0], [99, 100, 50, 4950], [99, 100, 50, 4950], [0, 100, 50, 0]]
    assert run("pageOf([], 3)") == {"page": 0, "pages": 1, "first": 0, "nodes": []}


@needs_node_js
@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"bound": None}, "undecided"),
        ({}, "peak"),
        ({"bound": {"cpu": "reclaimable_limit", "memory": "reclaimable - buffer"}}, "requests/peak"),
        ({"bound": {"cpu": "prod_requested", "memory": "prod_requested"}}, "prod requested"),
        ({"bound": {"cpu": "reclaimable - prod_slowed_lately", "memory": "cap"}}, "peak/cap"),
        ({"wanted": amount(5, 8)}, "peak ↑"),
        ({"wanted": amount(3, 8)}, "peak ↓"),
        ({"wanted": amount(4.2, 8)}, "peak"),
        ({"wanted": amount(0, 0), "history_percent": 40}, "learning 40 %"),
        ({"prod_slowed": [{"resource": "cpu"}]}, "Prod slowed"),
        ({"bound": {"cpu": "stale", "memory": "stale"}, "reported": None}, "no report yet"),
        (
            {"bound": {"cpu": "stale", "memory": "stale"}, "reported": TIMES[0], "wanted": None, "history_percent": 0},
            "stale",
        ),
    ],
)
def test_why_is_said_in_a_word(more: dict[str, Any], word: str) -> None:
    assert run("shortWhy(node)", node=row("n", **more)) == word


@needs_node_js
def test_a_course_stays_whole_and_bounded_and_keeps_the_newest_sample() -> None:
    course = run(
        """(() => {
          const course = makeCourse();
          for (let poll = 0; poll <= 2000; poll += 1) {
            record(course, 3000 * poll, [["n", { ...node, used: { cpu_milli: poll, memory_bytes: 0 } }]]);
          }
          const of = (amount, key) => courseOf(course, "n", amount, key);
          return { times: course.times, used: of("used", "cpu_milli"), mid: of("mid", "memory_bytes") };
        })()""",
        node=row("n"),
    )
    times = course["times"]
    assert 120 <= len(times) <= 240
    assert (times[0], times[-1]) == (0, 6_000_000)
    steps = [later - sooner for sooner, later in pairwise(times)]
    assert max(steps) <= 2 * min(steps[:-1])
    assert course["used"] == [pytest.approx(time / 3_000_000, rel=1e-5) for time in times]
    assert course["mid"] == [8] * len(times)


@needs_node_js
def test_a_course_has_a_gap_where_nothing_was_known_and_forgets_nodes_that_are_gone() -> None:
    course = run(
        """(() => {
          const course = makeCourse();
          record(course, 0, [["n", node], ["gone", node]]);
          record(course, 3000, null);
          record(course, 6000, [["n", node], ["late", node]]);
          const used = ["n", "late"].map(name => courseOf(course, name, "used", "cpu_milli"));
          return [[...course.byName.keys()], ...used];
        })()""",
        node=row("n", 2),
    )
    assert course == [["n", "late"], [2, None, 2], [None, None, 2]]


@needs_node_js
def test_a_plots_path_breaks_at_a_gap_and_marks_a_lone_sample() -> None:
    box = {"from": 0, "to": 100, "top": 10, "width": 200, "height": 50}
    times, values = [0, 25, 50, 75, 100], [0, 10, None, 5, 20]
    assert run("linePath(times, values, box)", times=times, values=values, box=box) == "M0 50L50 0M150 25L200 0"
    assert run("linePath([0, 50], [null, 5], box)", box=box) == "M100 25h0"
    assert run("areaPath([0, 50], [5, 10], box)", box=box) == "M0 50L0 25L100 0V50Z"
    assert run("linePath([0], [null], box)", box=box) == ""


@needs_node_js
def test_the_crosshair_takes_the_nearest_sample_and_the_axis_has_round_numbers() -> None:
    assert run("[-5, 4, 6, 99].map(time => nearestSample([0, 10, 20], time))") == [0, 0, 1, 2]
    ticks = run("[0.03, 1, 7.3, 16.8, 2016].map(ticksOf)")
    assert ticks[1:] == [[0, 0.25, 0.5, 0.75, 1], [0, 2, 4, 6], [0, 5, 10, 15], [0, 1000, 2000]]
    assert all(len(each) <= 5 and math.isclose(each[0], 0) for each in ticks)


@needs_node_js
def test_a_zoomed_span_stays_around_what_is_pointed_at_and_within_the_course() -> None:
    spans = run(
        """[[course, 0.5, 50], [{ from: 25, to: 75 }, 2, 30], [{ from: 40, to: 60 }, 2, 60], [course, 2, 10]]
        .map(([span, factor, around]) => zoomedSpan(span, factor, around, course))""",
        course={"from": 0, "to": 100},
    )
    assert spans == [{"from": 25, "to": 75}, {"from": 20, "to": 100}, {"from": 20, "to": 60}, None]


@needs_node_js
def test_a_span_with_less_than_two_samples_shows_all_of_them() -> None:
    found = run(
        "[null, { from: 15, to: 45 }, { from: 21, to: 29 }, { from: 19, to: 29 }].map(span => samplesIn(times, span))",
        times=[10, 20, 30, 40],
    )
    assert found == [[0, 4], [1, 4], [0, 4], [0, 4]]


@needs_node_js
def test_costs_stay_whole_and_bounded_and_what_is_held_as_mid_counts_as_avoided() -> None:
    costs = run(
        """(() => {
            const costs = makeCosts();
            for (let time = 0; time < 5000; time += 1) {
                rememberCost(costs, time, { total: time, idle: 1, offered: 2, used: 3 });
            }
            rememberCost(costs, 4999, { total: 0, idle: 0, offered: 0, used: 0 });
            return costs;
        })()"""
    )
    times, values = costs["times"], costs["values"]
    assert (times[0], times[-1]) == (0, 4999)
    assert 60 < len(times) <= 240
    assert values["total"] == times
    assert set(values["avoided"]) == {3}
    assert [len(each) for each in values.values()] == 4 * [len(times)]


@needs_node_js
def test_costs_begin_with_what_the_manager_remembers_and_go_on_with_each_round() -> None:
    history = {"times": TIMES[:2], "total": [4, None], "idle": [1, None], "offered": [2, None], "used": [0.5, None]}
    costs = run(
        """(() => {
            const costs = makeCosts(), now = { total: 5, idle: 1, offered: 2, used: 1 };
            rememberCosts(costs, history);
            for (const time of [1, 2, 2]) rememberCost(costs, Date.parse(times[time]), now);
            return costs;
        })()""",
        history=history,
        times=TIMES,
    )
    assert costs["times"] == run("times.map(time => Date.parse(time))", times=TIMES)
    assert (costs["values"]["total"], costs["values"]["avoided"]) == ([4, None, 5], [0.5, None, 1])


@needs_node_js
def test_the_timeline_has_what_was_done_and_came_and_failed_but_no_marks_that_nothing_comes_of() -> None:
    quiet: dict[str, list[object]] = {"decisions": [], "incidents": [], "leaving": []}

    def act(what: str, reason: str = "", error: str = "") -> dict[str, str]:
        return {"what": what, "reason": reason, "error": error}

    rounds = [
        {**quiet, "time": "2026-01-01T00:02:00Z", "leaving": [{"stage": "gone", "node": "n", "group": "g"}]},
        {
            **quiet,
            "time": "2026-01-01T00:01:00Z",
            "incidents": [{"what": "registered"}, {"what": "timed out"}, {"what": "taken back"}],
        },
        {
            **quiet,
            "time": "2026-01-01T00:00:00Z",
            "decisions": [act("increase"), act("delete"), act("increase", error="no"), act("taint", "soft")],
        },
    ]
    told = "{ isSoft: act => act.reason === 'soft', did: act => act.what, happened: each => each.what }"
    found = run(f"eventsOf(rounds, {told}).map(each => each.lane)", rounds=rounds)
    assert found == ["grew", "shrank", "failed", "came", "failed", "came"]


@needs_node_js
def test_a_page_of_workloads_is_asked_for_by_order_text_and_place() -> None:
    path = run("workloadsPath({ order: 'cpu_used', descending: true, page: 2 }, 'a/b & mid')")
    assert path == "api/v1/workloads?text=a%2Fb+%26+mid&order=cpu_used&descending=true&offset=100&limit=50"
    assert run("pathOf({ namespace: 'shop', kind: 'Job', name: 'a b' })") == "api/v1/workloads/shop/Job/a%20b"


@needs_node_js
def test_every_column_of_workloads_is_an_order_that_the_manager_knows() -> None:
    assert tuple(run("WORKLOAD_COLUMNS.map(each => each.id)")) == get_args(Order)


@needs_node_js
def test_usage_of_some_pods_says_of_how_many() -> None:
    rows = [{"pods": 3, "measured_pods": measured} for measured in (0, 2, 3)]
    assert run("rows.map(partlyMeasured)", rows=rows) == ["", "of 2 of 3 pods", ""]


@needs_node_js
@pytest.mark.parametrize(
    ("used", "promised", "horizon", "broken"),
    [
        ([1, 2, 3], [2, 2, 2], 60, [None, None, 3]),
        ([5, 1, 1], [2, 2, 2], 60, [None, None, None]),
        ([1, 1, 3], [2, 4, 4], 60, [None, None, 3]),
        ([1, 1, 3], [2, 4, 4], 4, [None, None, None]),
        ([1, None, 3], [None, None, 1], 60, [None, None, None]),
    ],
    ids=["above", "no promise before", "a promise still runs", "a promise is over", "nothing known"],
)
def test_a_promise_is_broken_by_what_is_used_within_its_time(
    used: list[float | None], promised: list[float | None], horizon: int, broken: list[float | None]
) -> None:
    given = {"times": [0, 3000, 6000], "used": used, "promised": promised, "horizon": horizon}
    assert run("brokenOf(times, used, promised, horizon)", **given) == broken


HISTOGRAM = {
    "resource": "cpu",
    "bounds": [0, 1000, 1500, 2000],
    "shares": [9000, 0, 1004],
    "percentiles": {"50": 700, "99": 1800},
    "peak": 2250,
}


@needs_node_js
def test_a_histogram_says_how_much_of_the_time_and_how_far_the_promise_is_from_the_last_percentile() -> None:
    found = run("histogramOf(answer)", answer=HISTOGRAM)
    assert found["bars"] == [
        {"from": 0, "to": 1, "percent": 90, "most": 90},
        {"from": 1, "to": 1.5, "percent": 0, "most": 90},
        {"from": 1.5, "to": 2, "percent": 10.04, "most": 100},
    ]
    assert (found["marks"], found["peak"]) == ([["p50", 0.7], ["p99", 1.8]], 2.25)
    said = run(
        """[2250, 900, null].map(peak => distanceOf(histogramOf({ ...answer, peak }), "cores"))""", answer=HISTOGRAM
    )
    assert said == [
        "p50 0.70, p99 1.80 cores; the promised peak of 2.25 is 0.45 (25.00 %) above p99",
        "p50 0.70, p99 1.80 cores; the promised peak of 0.90 is 0.90 (50.00 %) below p99",
        "p50 0.70, p99 1.80 cores; no promised peak is known",
    ]


@needs_node_js
@pytest.mark.parametrize(
    ("peak", "said"),
    [
        (2.2461, "2.25 is 0.45 (25.00 %) above p99"),
        (1.8041, "1.80 is at p99"),
        (10.26, "10.3 is 8.50 (472.22 %) above"),
    ],
)
def test_the_distance_of_a_promised_peak_is_the_difference_of_what_is_shown(peak: float, said: str) -> None:
    found = run("""distanceOf({ marks: [["p99", 1.8041]], peak }, "cores")""", peak=peak)
    assert f"p99 1.80 cores; the promised peak of {said}" in found


@needs_node_js
@pytest.mark.parametrize(
    ("broken", "is_promised", "said"),
    [
        (0, False, "No peak was promised since 1 Jan."),
        (0, True, "In none of 7 samples since 1 Jan was more used than a promise that still ran."),
        (2, True, "In 2 of 7 samples since 1 Jan more was used than a promise that still ran."),
    ],
)
def test_a_course_speaks_of_its_own_samples_and_not_of_every_promise(broken: int, is_promised: bool, said: str) -> None:
    found = run("keptSentence(broken, 7, isPromised, '1 Jan')", broken=broken, isPromised=is_promised)
    assert found.startswith(said)
    assert found.endswith(" which hides short bursts; the table of promises counts every outcome.")


@needs_node_js
@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([], ""),
        ([row("a", mid=amount(4, 8), reclaimable=amount(4, 8))], ""),
        ([row("a", mid=amount(4, 8), reclaimable=amount(9, 8)), row("b", mid=amount(4, 8), reclaimable=None)], "Above"),
        ([row("a", mid=amount(4, 9), reclaimable=amount(4, 8))], "Above reclaimable: a Node shows no small changes"),
        (
            [
                row(
                    "a",
                    mid=amount(4, 9),
                    reclaimable=amount(4, 8),
                    bound={"cpu": "reclaimable + unallocated", "memory": "held"},
                )
            ],
            "The policy also lends more than what is reclaimable",
        ),
    ],
)
def test_more_mid_than_what_is_reclaimable_is_explained(nodes: list[dict[str, object]], says: str) -> None:
    found = run("whyMoreMid(nodes)", nodes=nodes)
    assert (says in found) if says else found == ""


@needs_node_js
def test_a_histogram_of_samples_holds_all_of_them_and_leaves_out_gaps() -> None:
    found = run("histogramOfSamples([null, 3, 1, 1, 7, null], 9)")
    assert len(found["bars"]) == 12
    assert [(bar["from"], bar["percent"]) for bar in found["bars"] if bar["percent"]] == [(1, 50), (3, 25), (6.5, 25)]
    assert (found["bars"][-1]["most"], found["bars"][-1]["to"]) == (100, 7)
    assert (found["marks"], found["peak"]) == ([["p50", 1], ["p95", 7], ["p100", 7]], 9)
    assert run(
        "[[null], [], [0, 0], [2]].map(values => histogramOfSamples(values, null)?.bars.at(-1).most ?? null)"
    ) == [
        None,
        None,
        100,
        100,
    ]


@needs_node_js
def test_the_peak_of_a_workload_is_known_where_that_of_each_pod_is() -> None:
    pods = [{"predicted_peak": amount(1, 2)}, {"predicted_peak": amount(0.5, 1)}]
    assert run("totalPeak(pods)", pods=pods) == amount(1.5, 3)
    assert run("totalPeak(pods)", pods=[*pods, {"predicted_peak": None}]) is None


@needs_node_js
def test_names_of_marks_do_not_lie_on_each_other_and_the_peak_has_its_own() -> None:
    assert run("namedMarks([200, 195, 150, 149, 40], 30)") == [200, 150, 40]
    assert run("[0, 0.001, 0.01, 12.345].map(percentText)") == ["0.00 %", "< 0.01 %", "0.01 %", "12.35 %"]


COST = {"total": 3.0, "idle": 1.25, "offered": 0.5, "used": 0.0, "unpriced": 0, "estimated": 0}


@needs_node_js
@pytest.mark.parametrize(
    ("cost", "sums", "whole"),
    [
        ({}, ["$3.00/h", "$1.25/h", "$0.50/h", "$0.00/h"], "all nodes"),
        ({"estimated": 2}, ["~$3.00/h", "~$1.25/h", "~$0.50/h", "~$0.00/h"], "all nodes, 2 nodes estimated by size"),
        (
            {"estimated": 1, "unpriced": 3, "idle": None},
            ["~$3.00/h", "unknown", "~$0.50/h", "~$0.00/h"],
            "without 3 nodes without a price, 1 node estimated by size",
        ),
    ],
    ids=["known prices", "estimates", "unknown parts"],
)
def test_the_costs_of_now_say_which_rest_on_estimates(cost: dict[str, Any], sums: list[str], whole: str) -> None:
    tiles = run("costTiles(cost)", cost=COST | cost)
    assert [said for _, said, _ in tiles] == sums
    assert tiles[0][2] == whole


@needs_node_js
def test_a_sum_is_marked_if_a_group_in_it_has_estimated_prices() -> None:
    sums = run(
        """(estimatedGroups = new Set(["guessed"]), [money(1.5, ["known"]), money(1.5, ["guessed"]),
          money(-0.25, ["known", "guessed"]), money(null, ["guessed"]), money(2, [])])"""
    )
    assert sums == ["$1.50", "~$1.50", "~$-0.25", "unknown", "$2.00"]
    assert run("[1234.5, 0.25244, 0.00005].map(dollars)") == ["$1,234.50", "$0.2524", "$0.0001"]


def rate(violation: float, target: float = 1.0, outcomes: int = 5000) -> dict[str, object]:
    missed = outcomes >= 1000 and violation > target
    rates = {"violation_percent": violation, "target_violation_percent": target}
    return {**rates, "outcomes": outcomes, "missed": missed}


@needs_node_js
@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        ([], "whether Prod is slowed is not measured"),
        ([None], "whether Prod is slowed is not measured"),
        ([None, 0], "Prod slowed 0 min a day"),
        ([0.34, 12.34, None], "Prod slowed up to 12.3 min a day"),
    ],
)
def test_the_headline_says_for_how_long_prod_is_slowed_on_the_worst_node(
    minutes: list[float | None], said: str
) -> None:
    nodes = [row("", used=1, prod_slowed_minutes_per_day=each) for each in minutes]
    text, _, *alarm = run("slowedPart(nodes)", nodes=nodes)
    assert text == said
    assert any(alarm) == ("up to" in said)


@needs_node_js
@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([], "promise not judged yet (0 of 1,000 outcomes)"),
        ([rate(0.0, outcomes=7), rate(9.0, outcomes=999)], "promise not judged yet (999 of 1,000 outcomes)"),
        ([rate(0.804), rate(0.5), rate(9.0, outcomes=999)], "promise kept (0.8 % of 1 %)"),
        ([rate(1.5), rate(2.0, target=4.0)], "promise missed (1.5 % of 1 %)"),
    ],
    ids=["nothing", "too little", "kept", "missed"],
)
def test_the_headline_judges_the_worst_promise_that_has_enough_outcomes(
    rates: list[dict[str, object]], said: str
) -> None:
    found = run("headlineOf([], rates, null)", rates=rates)
    assert found[1][:2] == [said, "#/prediction"]
    assert found[1][2:] == (["bad-text"] if "missed" in said else [] if "not judged" in said else [""])


@needs_node_js
def test_the_headline_leaves_out_what_is_not_known() -> None:
    unheard = row("late", bound=None, mid=amount(0, 0))
    nodes = [row("a", 1000, allocatable=amount(3000, 64), mid=amount(1500, 8)), unheard]
    said = [text for text, *_ in run("headlineOf(nodes, [], undefined)", nodes=nodes)]
    assert said[0] == "1,500 cores lent of 2,000 idle on 1 of 2 nodes"
    assert said[2:] == ["whether Prod is slowed is not measured", "1 node needs a look"]
    assert run("headlineOf([late], [], null)[0]", late=unheard)[0] == "0 cores lent"
    assert run("headlineOf([], [], cost).length", cost={"total": 0.0, "offered": 0.0, "used": 0.0, "estimated": 0}) == 4


@needs_node_js
def test_the_headlines_worth_is_what_is_offered_and_used_in_a_month() -> None:
    cost = {"total": 9.0, "idle": 1.0, "offered": 4.0, "used": 2.726, "unpriced": 0, "estimated": 0}
    assert run("worthPart(cost)", cost=cost) == [["worth $4,910 a month", "#/cost"]]
    assert run("worthPart(cost)", cost=cost | {"estimated": 1})[0][0] == "worth ~$4,910 a month"


@needs_node_js
@pytest.mark.parametrize(
    ("bound", "looks"),
    [("reclaimable", False), ("disabled", False), ("stale", True), ("unreadable", True), ("failed", True)],
)
def test_a_node_that_lends_nothing_for_want_of_a_report_needs_a_look(bound: str, looks: bool) -> None:
    node = row("n", bound={"cpu": "reclaimable", "memory": bound})
    assert run("needsLook(node)", node=node) is looks
    assert run("filteredNodes([node], A_LOOK).length", node=node) == int(looks)


@needs_node_js
def test_a_long_name_keeps_both_of_its_ends() -> None:
    names = [
        "sim-0",
        "a" * 27,
        "ip-10-0-12-213.eu-central-1.compute.internal",
        "gke-prod-1-default-pool-1-3f2a1b4c-x7k2",
    ]
    assert run("names.map(shortName)", names=names) == [
        *names[:2],
        "ip-10-0-12-213.e…internal",
        "gke-prod-1-defau…b4c-x7k2",
    ]
