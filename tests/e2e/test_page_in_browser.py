"""The manager's page as people see and use it: a headless Chromium opens the page of a running cluster."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import RunningCluster
from tests.support import browser, eventually
from tests.support.browser import Browser, Page

LEARNING_SECONDS = 240.0
MEMORY_SECONDS = 120.0  # the manager takes a sample each 20 s
NODES = 4  # three simulated ones and this machine
TEXT_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
SHAPE_CONTRAST = 3.0  # WCAG 2.2, 1.4.11
NODE = "sim-0"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.own_decision("the page asks the manager, and no API server"),
]

# The contrast of each visible text, and of each line, bar and mark of a plot, by computed styles. What is hidden or
# disabled has none.
CONTRASTS = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = colour => channels(colour).slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = of => {
    for (let each = of; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (channels(colour)[3] === 255) return colour;
    }
    return "white";
  };
  const contrast = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const found = [];
  const add = (kind, what, colour, of) => found.push({ kind, what, contrast: contrast(colour, ground(of)) });
  for (const each of document.querySelectorAll("body *")) {
    if (!each.checkVisibility({ visibilityProperty: true }) || each.disabled || each.closest("noscript")) continue;
    const style = getComputedStyle(each), of = each.closest("svg")?.parentElement ?? each;
    const isText = [...each.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (each.matches("path.line")) add("shape", each.getAttribute("class"), style.stroke, of);
    else if (each.matches("rect.bar, circle.mark")) add("shape", each.getAttribute("class"), style.fill, of);
    else if (isText && !each.matches("title")) {
      const colour = each.matches("text") ? style.fill : style.color;
      add("text", `${each.tagName} ${each.textContent.trim().slice(0, 40)}`, colour, of);
    }
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def url(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a manager whose agents have learned enough to promise a peak, and whose autoscaler has decided."""
    browser.installed()
    running = RunningCluster(cluster_kind, tmp_path_factory.mktemp("page"), "--nodes", "3", "-o", "json")
    try:
        eventually(
            lambda: all(running.nodes().get(f"sim-{i}", {}).get("predicted_peak") for i in range(3)), LEARNING_SECONDS
        )
        yield running.manager_url
    finally:
        running.stop()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    shown = Browser(tmp_path_factory.mktemp("browser"))
    yield shown.page
    shown.close()


@pytest.fixture
def page(url: str, tab: Page) -> Iterator[Page]:
    """Anew in a window of 1280 by 900, in the room of the nodes."""
    tab.open("about:blank")
    tab.problems.clear()
    tab.resize(1280, 900)
    tab.prefer("light")
    tab.open(f"{url}/#/nodes")
    until(tab, "document.querySelector('#nodes .node-row')")
    yield tab
    assert tab.problems == [], "of the console"


ROOMS = {
    "": "#course .plot path.line",
    "nodes": "#nodes .node-row",
    "workloads": "#workloads .node-row",
    "autoscaler": "#history li",
    "cost": "#spending .plot path.line",
}


def show(page: Page, room: str) -> None:
    page.evaluate(f"(() => {{ location.hash = '#/{room}'; }})()")
    until(page, f"ROOMS.{room or 'overview'}.at && document.querySelector('{ROOMS[room]}')?.checkVisibility()")
    said = (
        "newest report" if room in ("", "nodes") else "as of"
    )  # the last of what a room draws, which may move the rest
    until(page, f"document.getElementById('freshness').textContent.includes('{said}')")


def until(page: Page, expression: str) -> Any:
    return eventually(lambda: page.evaluate(f"(found => found instanceof Node || found)({expression})"))


def middle_of(page: Page, element: str) -> tuple[float, float]:
    """Where it is in the window, after it was scrolled there."""
    x, y = page.evaluate(
        f"""(element => {{
          element.scrollIntoView({{ block: "center", behavior: "instant" }});
          const {{ left, top, width, height }} = element.getBoundingClientRect();
          return [left + width / 2, top + height / 2];
        }})({element})"""
    )
    return x, y


def row_of(node: str) -> str:
    """The row of a node that is shown, as JavaScript."""
    rows = "[...document.querySelectorAll('#nodes .node-row')]"
    return f"{rows}.find(row => row.querySelector('.name').textContent === '{node}')"


def button_of(node: str) -> str:
    return f"{row_of(node)}.querySelector('.name')"


def is_open(page: Page, node: str) -> bool:
    return bool(page.evaluate(f"{button_of(node)}.getAttribute('aria-expanded') === 'true'"))


def open_by_click(page: Page, node: str) -> None:
    page.click(*middle_of(page, f"{row_of(node)}.lastElementChild"))
    eventually(lambda: is_open(page, node))
    until(page, "document.querySelector('#nodes .detail .plot path.line')")
    until(page, "document.querySelector('#nodes .detail .terms')")


def unfold(page: Page) -> None:
    """What stands below the terms of the node that is open."""
    page.evaluate("(() => { document.querySelector('#nodes .detail td > details').open = true; })()")
    until(page, "document.querySelector('#nodes .detail .bar')?.checkVisibility()")


def test_a_row_opens_wherever_it_is_clicked_and_closes_again(page: Page) -> None:
    open_by_click(page, NODE)
    assert page.evaluate("location.hash") == f"#/nodes/{NODE}"
    page.click(*middle_of(page, f"{row_of(NODE)}.lastElementChild"))
    eventually(lambda: not is_open(page, NODE))
    assert page.evaluate("document.querySelector('#nodes .detail')") is None


def test_all_can_be_done_by_keyboard_and_the_focus_is_seen(page: Page) -> None:
    page.evaluate("document.getElementById('filter').focus()")
    focused = "document.activeElement"
    for _ in range(60):
        page.press("Tab")
        outline = page.evaluate(
            f"(style => [style.outlineStyle, parseFloat(style.outlineWidth)])(getComputedStyle({focused}))"
        )
        assert outline[0] != "none", page.evaluate(f"{focused}.outerHTML.slice(0, 200)")
        assert outline[1] >= 1
        if page.evaluate(f"{focused} === {button_of(NODE)}"):
            break
    else:
        pytest.fail("no Tab leads to the node")
    page.press("Enter")
    eventually(lambda: is_open(page, NODE))
    unfold(page)

    plot = "document.querySelector('#nodes .detail .plot')"
    histogram = "document.querySelector('#nodes .detail .plot:has(.bar)')"
    page.evaluate(f"{plot}.querySelector('svg').focus()")
    until(page, f"{plot}.querySelectorAll('table').length && {plot}.querySelector('.readout').textContent")
    page.press("ArrowLeft")
    assert page.evaluate(f"{plot}.querySelectorAll('.crosshair').length") == 1
    assert page.evaluate(f"{plot}.querySelector('.readout').getAttribute('aria-live')") == "polite"
    page.press("Tab")
    page.evaluate(f"{histogram}.querySelector('svg').focus()")
    page.press("ArrowRight")
    said = page.evaluate(f"{histogram}.querySelector('svg').getAttribute('aria-label')")
    assert "% of the time; at most" in said


def test_a_phone_shows_mid_of_each_node_without_scrolling_sideways(page: Page) -> None:
    page.resize(400, 800)
    sideways = "document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate("innerWidth") == 400
    assert page.evaluate(sideways) <= 0
    for room in ("workloads", "nodes"):
        show(page, room)
        selector = f"#{room}"
        inner = page.evaluate(
            f"(box => box.scrollWidth - box.clientWidth)(document.querySelector('{selector}').parentElement)"
        )
        assert inner <= 0, room
    cells = page.evaluate(
        """[...document.querySelectorAll("#nodes .node-row")]
        .map(row => [...row.querySelectorAll("td.offered:not(.desk)")].map(cell => {
          const { left, right } = cell.getBoundingClientRect();
          return [cell.textContent, left, right];
        }))"""
    )
    assert len(cells) >= NODES
    for both in cells:
        assert len(both) == 2, "Mid's cpu and memory"
        assert all(text and 0 <= left < right <= 400 for text, left, right in both)
    open_by_click(page, NODE)
    assert page.evaluate(sideways) <= 0


def test_on_a_phone_the_source_of_each_term_has_the_width_of_the_page(page: Page) -> None:
    page.resize(390, 844)
    open_by_click(page, NODE)
    until(page, "document.querySelectorAll('#nodes .detail .terms').length >= 4")
    widths = """[...document.querySelectorAll("#nodes .detail .terms tr")].map(line =>
      [line.querySelector(".source").getBoundingClientRect().width, line.getBoundingClientRect().width])"""
    found = page.evaluate(widths)
    assert len(found) > 20
    assert all(source >= 250 and source >= 0.9 * line for source, line in found), found


def test_windows_of_promises_are_as_long_as_the_agents_own(page: Page) -> None:
    """A day of its prediction takes 48 seconds, so that 28 of them take 22.4 minutes."""
    open_by_click(page, NODE)
    unfold(page)
    shown = "document.querySelector('#nodes .detail').innerText"
    eventually(lambda: "Outcomes in at most 22.4 min" in page.evaluate(shown), LEARNING_SECONDS)
    said = page.evaluate(shown)
    assert "next 48 s" in said
    assert "28 days" not in said
    assert "in at most the last 48 s" in said
    assert " samples since " in said
    assert "No promise was broken" not in said


def open_workload(page: Page) -> None:
    show(page, "workloads")
    page.evaluate("document.querySelector('#workloads .node-row .name').click()")
    until(page, "document.querySelector('#workloads .detail .bar')")
    until(page, "document.querySelector('#workloads .pods .name')")


def test_a_workload_shows_its_usage_over_time_and_how_often_how_much(page: Page) -> None:
    open_workload(page)
    detail = "document.querySelector('#workloads .detail')"
    titles = page.evaluate(f"[...{detail}.querySelectorAll('.plot figcaption')].map(each => each.textContent.trim())")
    assert [title.split(": ")[1] for title in titles] == [
        "CPU, cores Show all",
        "Memory, GiB Show all",
        "how often how much CPU is used, cores",
        "how often how much memory is used, GiB",
    ]
    assert page.evaluate(f"{detail}.querySelectorAll('path.line.used').length") >= 2
    said = page.evaluate(f"{detail}.querySelector('.readout').textContent")
    assert ": used " in said
    assert "requested " in said
    page.resize(400, 800)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_each_mark_of_the_timeline_is_told_below_it(page: Page) -> None:
    show(page, "autoscaler")
    until(page, "document.querySelector('#timeline .mark')")
    lines = "[...document.querySelectorAll('#history li')].map(each => each.children[1].textContent)"
    assert page.evaluate(f"{lines}.length === Math.min(50, document.querySelectorAll('#timeline .mark').length)")
    assert "Scaled up" in page.evaluate(lines)


def drawn(page: Page, part: str, script: str, of: object) -> str:
    """What a part of the page says of an answer, and nothing if it is hidden; before the next refresh."""
    shown: str = page.evaluate(
        f"""(() => {{
          {script}({json.dumps(of)});
          const part = document.getElementById("{part}");
          return part.checkVisibility() ? part.innerText : "";
        }})()"""
    )
    return " ".join(shown.split())


def test_spare_room_and_requests_are_shown_with_their_terms_where_there_are_any(page: Page) -> None:
    rank = {"nodes_price": 0.4, "pods_price": 0.2, "rank": 7.477}
    option = {"group": "big", "chosen": True, "nodes": 2, "pods": 3, "rank": rank}
    cap = {"group": "big", "allowed": 2, "wanted": 3, "limit": "max node group size reached"}
    decision = {"comparison": None, "options": [option], "caps": [cap]}
    show(page, "autoscaler")
    none: dict[str, list[object]] = {"buffers": [], "buffer_decisions": [], "requests": [], "request_decisions": []}
    row = {
        **{"buffer": "shop/web", "requests": {"cpu": 3000}, "chunks": 6, "wanted": 8, "limited_by": ["cap"]},
        **{"on_nodes": 1, "on_mid": 1, "triggered": 3, "unplaced": 1},
        "reasons": [{"groups": ["small"], "reasons": ["Insufficient cpu"]}],
    }
    told = drawn(page, "buffers-part", "drawReserved", {**none, "buffers": [row], "buffer_decisions": [decision]})
    assert "shop/web 3 cpu 6 of 8, by quota cap 1 1 3 1 small: Insufficient cpu" in told
    assert "2 x big for 3 chunks: C $0.40/h, T $0.20/h, rank 7.477" in told
    assert "big gets 2 of 3 nodes: max node group size reached." in told
    asked = {"request": "jobs/r", "provisioning_class": "check-capacity.x", "pods": 6, "consumed": 2, "state": "booked"}
    answered = {**none, "requests": [{**asked, "reason": "CapacityIsFound", "message": "there is room"}]}
    told = drawn(page, "requests-part", "drawReserved", answered)
    assert "jobs/r check-capacity 6 2 booked CapacityIsFound: there is room" in told
    assert drawn(page, "buffers-part", "drawReserved", none) == ""
    assert drawn(page, "requests-part", "drawReserved", None) == ""


def test_interruptions_and_replacements_are_shown_where_there_are_any(page: Page) -> None:
    row = {
        **{"node": "n1", "group": "g", "interruption": "SpotInterruption (taint t)", "standing": "needed"},
        **{"reason": "", "detail": "the cloud takes it", "replacement": "", "replacement_reason": ""},
        "replacement_saves_per_month": None,
    }
    show(page, "autoscaler")
    saves: dict[str, object] = {**row, "interruption": "", "replacement": "n1 is replaced: by 1 of cheap"}
    saves |= {"replacement_reason": "Underutilized", "replacement_saves_per_month": 94.9}
    held = {**saves, "node": "n9", "replacement": "n9 is not replaced", "replacement_saves_per_month": 99.0}
    held["replacement_saves_at_most"] = True
    told = drawn(page, "interrupted-part", "drawDisruption", {"nodes": [row], "replacement": ""})
    assert "n1 g SpotInterruption (taint t) count as pending now needed" in told
    told = drawn(page, "replaced-part", "drawDisruption", {"nodes": [held, saves], "replacement": ""})
    assert "None is replaced now." in told
    assert "n1 g Underutilized $94.90 n1 is replaced: by 1 of cheap" in told
    assert told.index("n9 g Underutilized ≤ $99.00 n9 is not replaced") > told.index("n1 g")
    for part in ("interrupted-part", "replaced-part"):
        assert drawn(page, part, "drawDisruption", {"nodes": [], "replacement": ""}) == ""
        assert drawn(page, part, "drawDisruption", None) == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_plots_stand_out_in_both_schemes(page: Page, scheme: str) -> None:
    page.prefer(scheme)
    open_by_click(page, NODE)
    unfold(page)
    found = page.evaluate(CONTRASTS)
    for room in ("", "cost", "autoscaler"):
        show(page, room)
        found += page.evaluate(CONTRASTS)
    open_workload(page)
    found += page.evaluate(CONTRASTS)
    assert {"bar", "line used", "line predicted_peak", "line percentile"} <= {each["what"] for each in found}
    faint = [each for each in found if each["contrast"] < (TEXT_CONTRAST if each["kind"] == "text" else SHAPE_CONTRAST)]
    assert faint == []


def named_plots(page: Page) -> list[str]:
    """The titles of the plots that are shown. Each has a name for readers of screens, and a table behind it."""
    images = "[...document.querySelectorAll('svg[role=img]:not(.none)')].filter(each => each.checkVisibility())"
    assert page.evaluate(f"{images}.length") > 0
    assert page.evaluate(f"{images}.filter(svg => !svg.getAttribute('aria-label')).map(svg => svg.outerHTML)") == []
    plots = "[...document.querySelectorAll('.plot')].filter(each => each.checkVisibility())"
    titles: list[str] = page.evaluate(
        f"""{plots}.map(plot => {{
          plot.querySelector("details").open = true;
          return plot.querySelector("figcaption").textContent;
        }})"""
    )
    sizes = f"""{plots}.map(plot => [plot.querySelectorAll("thead th").length,
    plot.querySelectorAll("tbody tr").length])"""
    eventually(lambda: all(heads >= 2 and lines >= 1 for heads, lines in page.evaluate(sizes)))
    return titles


def test_every_plot_has_a_name_and_a_table_behind_it(page: Page) -> None:
    open_by_click(page, NODE)
    unfold(page)
    plots = named_plots(page)
    for room in ("", "cost"):
        show(page, room)
        plots += named_plots(page)
    open_workload(page)
    plots += named_plots(page)
    assert len(set(plots)) == len(plots) >= 9, plots
    assert all(name.strip().split(", ")[-1].startswith(("cores", "GiB", "$")) for name in plots), plots


def test_a_page_that_was_just_opened_shows_what_the_manager_remembers_of_each_node(page: Page, url: str) -> None:
    remembered = "fetch('api/v1/history').then(answer => answer.json()).then(past => past.times.length)"
    eventually(lambda: page.evaluate(remembered) > 3, MEMORY_SECONDS, interval_seconds=2.0)
    page.open("about:blank")
    page.open(f"{url}/#/nodes")
    points = """[...document.querySelectorAll("#nodes .spark")].map(svg =>
      svg.querySelector(".line.used").getAttribute("d").split("L").length)"""
    eventually(lambda: (found := page.evaluate(points)) and min(found) > 3)
    assert page.evaluate("course.times.filter(time => time > course.remembered).length") <= 3
    asked = "performance.getEntriesByType('resource').filter(each => each.name.includes('api/v1/history/nodes'))"
    assert page.evaluate(f"{asked}.length") == 1
