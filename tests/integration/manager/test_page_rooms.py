"""The rooms of the manager's page in a headless Chromium, over clusters of 9 and of 300 nodes."""

import base64
import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import browser, eventually
from tests.support.browser import Browser, Page
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager import page_manager
from tests.unit.manager.objects import NOW

SMALL, LARGE = 9, 300
MINUTE_MILLISECONDS = 60_000
NODE = page_manager.name_of(3)
STALE = page_manager.name_of(1)
ROOMS = {
    "": "#headline a",
    "nodes": "#nodes .node-row",
    "workloads": "#workloads .node-row",
    "prediction": "#kept tbody tr",
    "autoscaler": "#history li",
    "cost": "#spending path.line",
}
WINDOWS = [(1280, 900), (390, 844)]
# Words that stand below each other letter by letter: an element with text that is no wider than two letters of it.
LETTER_BY_LETTER = """[...document.querySelectorAll("main *, section *")]
  .filter(each => each.checkVisibility() && !each.closest("svg, details:not([open]) > :not(summary)"))
  .filter(each => [...each.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim().length > 4))
  .filter(each => each.getBoundingClientRect().width < 2 * parseFloat(getComputedStyle(each).fontSize))
  .map(each => each.outerHTML.slice(0, 100))"""

pytestmark = pytest.mark.own_decision("the page asks the manager, and no API server")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    browser.installed()
    shown = Browser(tmp_path_factory.mktemp("browser"))
    yield shown.page
    shown.close()


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[int, str]]:
    browser.installed()
    with contextlib.ExitStack() as stack:
        yield {nodes: stack.enter_context(page_manager.served(nodes)) for nodes in (SMALL, LARGE)}


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    tab.open("about:blank")
    tab.problems.clear()
    tab.resize(1280, 900)
    tab.prefer("light")
    yield tab
    assert tab.problems == [], "of the console"


def until(page: Page, expression: str) -> Any:
    return eventually(lambda: page.evaluate(f"(found => found instanceof Node || found)({expression})"))


def enter(page: Page, url: str, room: str = "") -> None:
    page.open("about:blank")
    page.open(f"{url}/#/{room}")
    until(page, f"document.querySelector('{ROOMS[re.split('[/?]', room)[0]]}')")


def click(page: Page, element: str) -> None:
    """One action of a reader: a click in the middle of the element, which has to be there."""
    until(page, element)
    x, y = page.evaluate(
        f"""(element => {{
          element.scrollIntoView({{ block: "center", behavior: "instant" }});
          const {{ left, top, width, height }} = element.getClientRects()[0];
          return [left + width / 2, top + height / 2];
        }})({element})"""
    )
    page.click(x, y)


def link(words: str) -> str:
    return f"[...document.querySelectorAll('a')].find(each => each.textContent.includes('{words}'))"


def text_of(page: Page, selector: str) -> str:
    return " ".join(str(page.evaluate(f"document.querySelector({selector!r}).innerText")).split())


def answer(url: str, path: str) -> Any:
    return LOCAL_HTTP.get(f"{url}/api/v1/{path}").json()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS, ids=["laptop", "phone"])
@pytest.mark.parametrize("nodes", [SMALL, LARGE])
def test_each_room_shows_itself_alone_and_nothing_wraps_by_letter(
    page: Page, urls: dict[int, str], nodes: int, window: tuple[int, int], scheme: str
) -> None:
    page.resize(*window)
    page.prefer(scheme)
    for room, shown in ROOMS.items():
        enter(page, urls[nodes], room)
        visible = "[...document.querySelectorAll('[data-room]')].filter(each => each.checkVisibility())"
        assert page.evaluate(f"{visible}.map(each => each.dataset.room)") == [room or "overview"]
        assert page.evaluate("document.querySelector('#rooms [aria-current]').hash") == f"#/{room}"
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, room
        assert page.evaluate(f"document.querySelector('{shown}').checkVisibility()"), room
        assert page.evaluate(LETTER_BY_LETTER) == [], room


def test_a_room_loads_only_what_it_shows(page: Page, urls: dict[int, str]) -> None:
    loads = {
        "nodes": {"status", "history", "nodes", "history/nodes"},
        "workloads": {"status", "workloads"},
        "prediction": {"status", "prediction"},
        "autoscaler": {"status", "groups", "decisions"},
        "cost": {"status", "groups", "costs", "costs/namespaces"},
    }
    script = """performance.getEntriesByType("resource").map(each => new URL(each.name).pathname)
      .filter(path => path.startsWith("/api/v1/")).map(path => path.slice(8))"""
    for room, paths in loads.items():
        enter(page, urls[SMALL], room)
        assert set(page.evaluate(script)) <= paths, room


@pytest.mark.thorough
@pytest.mark.parametrize("room", ["", "nodes", "cost"])
def test_a_tab_receives_less_than_5_kb_a_second_in_its_first_minute(tmp_path: Path, room: str) -> None:
    """The answer about 300 nodes differs each time. The page itself counts, too. The tab has a virtual clock, which
    goes on at once while nothing is being loaded, and stops after a minute: no other test can use this tab.
    """
    loaded = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]"""
    browser.installed()
    seconds = itertools.count()
    with (
        page_manager.served(LARGE, now=lambda: NOW + next(seconds)) as url,
        contextlib.closing(Browser(tmp_path)) as shown,
    ):
        page = shown.page
        enter(page, url, room)
        left = max(1.0, MINUTE_MILLISECONDS + 100 - page.evaluate("performance.now()"))
        page.call("Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=left)
        eventually(lambda: page.evaluate("performance.now()") > MINUTE_MILLISECONDS, 120.0)
        received = page.evaluate(f"{loaded}.reduce((sum, each) => sum + each.transferSize, 0)")
        answers = page.evaluate(f"{loaded}.filter(each => each.name.includes('/api/')).length")
    assert page.problems == [], "of the console"
    assert answers > 8
    assert received < 60 * 5000


def test_the_overview_of_a_large_cluster_fits_a_laptop(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    until(page, "document.querySelector('#course path.line')")
    assert page.evaluate("document.documentElement.scrollHeight") <= 900


def test_a_screen_shows_twenty_nodes_each_on_one_line(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE], "nodes")
    rows = "[...document.querySelectorAll('#nodes .node-row')].map(each => each.getBoundingClientRect())"
    assert page.evaluate(f"{rows}.filter(each => each.bottom <= innerHeight).length") >= 20
    name = "document.querySelector('#nodes .name')"
    assert page.evaluate(f"{name}.title.split('\\n')[0]") == page_manager.name_of(0)
    assert page.evaluate(f"{name}.ariaLabel") == page_manager.name_of(0)
    assert page.evaluate(f"{name}.textContent") == "ip-10-0-0-0.eu-c…internal"


def test_rows_can_be_compact_and_the_browser_remembers_it(page: Page, urls: dict[int, str]) -> None:
    rows = "[...document.querySelectorAll('#nodes .node-row')].map(each => each.getBoundingClientRect())"
    visible = f"{rows}.filter(each => each.bottom <= innerHeight).length"
    enter(page, urls[LARGE], "nodes")
    before = page.evaluate(visible)
    click(page, "document.getElementById('density')")
    eventually(lambda: page.evaluate(visible) >= 1.25 * before)
    enter(page, urls[LARGE], "nodes")
    assert page.evaluate(visible) >= 1.25 * before
    assert page.evaluate("document.getElementById('density').ariaPressed") == "true"
    click(page, "document.getElementById('density')")
    eventually(lambda: page.evaluate(visible) == before)


def test_a_printed_room_has_every_node_and_nothing_to_click(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE], "nodes")
    page.prefer("dark")
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    try:
        assert page.evaluate("document.querySelectorAll('#nodes .node-row').length") == LARGE
        assert page.evaluate("document.getElementById('rooms').checkVisibility()") is False
        assert page.evaluate("document.getElementById('filter').checkVisibility()") is False
        assert page.evaluate("document.getElementById('count').checkVisibility()") is True
        colours = [
            page.evaluate(f"getComputedStyle({element}).{what}")
            for element in ("document.body", "document.querySelector('#nodes td')")
            for what in ("color", "backgroundColor")
        ]
        assert (colours[:3], colours[3]) == (["rgb(0, 0, 0)", "rgb(255, 255, 255)", "rgb(0, 0, 0)"], "rgba(0, 0, 0, 0)")
        assert page.evaluate("getComputedStyle(document.querySelector('.scroll:has(#nodes)')).overflowX") == "visible"
    finally:
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.call("Emulation.setEmulatedMedia", media="")
    assert page.evaluate("document.querySelectorAll('#nodes .node-row').length") == 50


def test_what_is_folded_is_printed_and_folded_again(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[SMALL], "autoscaler")
    assert page.evaluate("document.getElementById('rank-terms').open") is False
    printed = page.call("Page.printToPDF", printBackground=True)["data"]
    assert base64.b64decode(printed).startswith(b"%PDF-")
    eventually(lambda: page.evaluate("document.getElementById('rank-terms').open") is False)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.getElementById('rank-terms').open") is True
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.getElementById('rank-terms').open") is False


def test_the_headline_says_what_the_api_says(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    told = answer(urls[LARGE], "nodes")["nodes"]
    lent = sum(node["mid"]["cpu_milli"] for node in told) / 1000
    idle = sum(node["allocatable"]["cpu_milli"] - node["used"]["cpu_milli"] for node in told) / 1000
    cost = answer(urls[LARGE], "groups")["cost_per_hour"]
    worst = max(answer(urls[LARGE], "prediction")["rates"], key=lambda rate: rate["violation_percent"])
    stale = sum(node["bound"]["cpu"] == "stale" for node in told)
    assert cost["offered"] > 0
    estimated = "~" if cost["estimated"] else ""
    parts = page.evaluate("[...document.querySelectorAll('#headline a')].map(each => each.textContent)")
    assert parts == [
        f"{lent:,.0f} cores lent of {idle:,.0f} idle",
        f"worth {estimated}${730 * (cost['offered'] + cost['used']):,.0f} a month",
        f"promise {'missed' if worst['missed'] else 'kept'} ({worst['violation_percent']:.3g} % of 1 %)",
        "whether Prod is slowed is not measured",
        f"{stale} nodes need a look",
    ]


def test_what_has_not_changed_is_not_drawn_anew_under_a_click(page: Page, urls: dict[int, str]) -> None:
    for room, kept in (("", "#headline a"), ("prediction", "#worst a"), ("autoscaler", "#pending td")):
        enter(page, urls[SMALL], room)
        until(page, f"document.querySelector('{kept}')")
        page.evaluate(f"(() => {{ window.before = document.querySelector('{kept}'); ROOMS[place.room].at = ''; }})()")
        until(page, "ROOMS[place.room].at")
        assert page.evaluate(f"window.before === document.querySelector('{kept}')"), room


def test_the_overview_names_the_nodes_that_need_a_look_and_why(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    told = {node["name"]: node["reason"] for node in answer(urls[LARGE], "nodes")["nodes"]}
    until(page, "document.querySelector('#looks li')?.checkVisibility()")
    lines = page.evaluate(
        "[...document.querySelectorAll('#looks li')].map(li => [li.firstChild.title, li.lastChild.data])"
    )
    assert lines == [[name, f": {told[name]}"] for name in map(page_manager.name_of, (1, 101, 201))]
    click(page, "document.querySelector('#looks a')")
    until(page, f"document.querySelector('#nodes .detail') && location.hash === '#/nodes/{STALE}'")


def test_every_part_of_the_headline_leads_to_its_room(page: Page, urls: dict[int, str]) -> None:
    for words, room in (
        ("cores lent", "nodes"),
        ("worth", "cost"),
        ("promise", "prediction"),
        ("slowed", "nodes"),
        ("a look", "nodes"),
    ):
        enter(page, urls[LARGE])
        click(page, f"[...document.querySelectorAll('#headline a')].find(each => each.textContent.includes('{words}'))")
        until(page, f"document.querySelector('[data-room={room}]').checkVisibility()")
    names = "[...document.querySelectorAll('#nodes .name')].map(each => each.ariaLabel)"
    eventually(lambda: page.evaluate(names) == [page_manager.name_of(number) for number in (1, 101, 201)])


@pytest.mark.parametrize("hash_", [f"#{NODE}", f"#/nodes/{NODE}"], ids=["of before", "path"])
def test_a_link_to_a_node_opens_it(page: Page, urls: dict[int, str], hash_: str) -> None:
    page.open("about:blank")
    page.open(f"{urls[LARGE]}/{hash_}")
    until(page, "document.querySelector('#nodes .detail .terms')")
    assert page.evaluate("location.hash") == f"#/nodes/{NODE}"
    assert text_of(page, "#nodes .detail .sentence").startswith("It lends cpu 3.5, memory 4 GiB as Mid, of cpu 16")
    assert page.evaluate("document.querySelectorAll('#nodes .detail').length") == 1


def test_a_link_to_a_node_that_is_gone_says_so_until_another_room_is_entered(page: Page, urls: dict[int, str]) -> None:
    page.open(f"{urls[SMALL]}/#/nodes/gone%2Fnode")
    eventually(lambda: text_of(page, "#notices") == "The cluster has no node gone/node.")
    assert page.evaluate("document.querySelectorAll('#nodes .node-row').length") == SMALL
    click(page, "document.querySelector('#rooms a[href=\"#/workloads\"]')")
    eventually(lambda: text_of(page, "#notices") == "")


def test_a_name_that_is_no_link_of_ours_shows_the_overview(page: Page, urls: dict[int, str]) -> None:
    for hash_ in ("#/nowhere", "#/constructor", "#/%E0%A4%A"):
        page.open("about:blank")
        page.open(f"{urls[SMALL]}/{hash_}")
        until(page, "document.querySelector('#headline a')?.checkVisibility()")


def test_rooms_are_reached_by_keyboard_alone(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[SMALL])
    for room in ("nodes", "workloads", "prediction", "autoscaler", "cost"):
        page.evaluate("document.getElementById('links').lastElementChild.focus()")
        for _ in range(10):
            page.press("Tab")
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            if page.evaluate("document.activeElement.hash") == f"#/{room}":
                break
        page.press("Enter")
        until(page, f"document.querySelector('{ROOMS[room]}')?.checkVisibility()")


# Roles whose elements a screen reader announces by their names.
NAMED = {"button", "link", "combobox", "searchbox", "table", "navigation", "region", "image", "img", "heading"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_screen_reader_hears_a_name_for_all_that_it_stops_at(page: Page, urls: dict[int, str], room: str) -> None:
    enter(page, urls[SMALL], room)
    page.call("Accessibility.enable")
    nodes = [each for each in page.call("Accessibility.getFullAXTree")["nodes"] if not each["ignored"]]
    found = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in nodes]
    assert [role for role, name in found if role in NAMED and not name.strip()] == []
    assert ("heading", "Headroom") in found
    assert ("navigation", "Rooms") in found
    assert ("region", room.capitalize() or "Overview") in found
    rooms = {"Overview", "Nodes", "Workloads", "Prediction", "Autoscaler", "Cost"}
    assert rooms <= {name for role, name in found if role == "link"}
    assert "status" in {role for role, _ in found}, "what changes is announced"


def test_finding_the_node_that_lends_least_and_why_takes_three_actions(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    heading = "[...document.querySelectorAll('#nodes .sort')].find(each => each.textContent === 'CPU Mid, cores')"
    click(page, "document.querySelector('#rooms a[href=\"#/nodes\"]')")
    click(page, heading)
    eventually(lambda: page.evaluate(f"{heading}.closest('th').ariaSort") == "descending")
    click(page, heading)
    least = min(answer(urls[LARGE], "nodes")["nodes"], key=lambda node: node["mid"]["cpu_milli"])
    first = "document.querySelector('#nodes .node-row')"
    eventually(lambda: page.evaluate(f"{first}.querySelector('.name').ariaLabel") == least["name"])
    assert page.evaluate(f"{first}.querySelector('.why').title") == least["reason"]


def test_bare_pods_alike_are_one_row_that_opens_to_each_of_them(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE], "workloads?lab/")
    names = "[...document.querySelectorAll('#workloads .node-row .name')].map(each => each.textContent)"
    eventually(lambda: page.evaluate(names) == ["lab/burner-*"])
    click(page, "document.querySelector('#workloads .node-row .name')")
    until(page, "document.querySelector('#workloads .pods .name')")
    assert page.evaluate("document.querySelector('#workloads .pods .name').disabled") is False
    click(page, "document.querySelector('#workloads .pods .name')")
    until(page, "document.querySelectorAll('#workloads .detail path.line.used').length >= 4")


def test_finding_why_a_pod_waits_takes_one_action(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    click(page, "document.querySelector('#rooms a[href=\"#/autoscaler\"]')")
    until(page, "document.querySelector('#pending tbody tr')")
    (unplaced,) = answer(urls[LARGE], "decisions")["latest"]["unplaced"]
    assert unplaced["reasons"][0]["reasons"][0] in text_of(page, "#pending")


def test_finding_whether_promises_held_takes_one_action(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    click(page, link("promise "))
    until(page, "document.querySelector('#kept tbody tr')")
    lines = page.evaluate("[...document.querySelectorAll('#kept tbody tr')].map(row => row.innerText)")
    for rate, line in zip(answer(urls[LARGE], "prediction")["rates"], lines, strict=False):
        assert rate["resource"] in line
        assert f"{rate['violation_percent']:.3g} %" in line
        assert f"{rate['outcomes']:,}" in line
        assert line.split()[-1] == ("no" if rate["missed"] else "yes")


def test_finding_what_is_bought_next_takes_one_action(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    click(page, "document.querySelector('#rooms a[href=\"#/autoscaler\"]')")
    (bought,) = answer(urls[LARGE], "decisions")["latest"]["decisions"]
    said = f"increase {bought['group']} from {bought['from_size']} to {bought['to_size']} nodes"
    eventually(lambda: said in text_of(page, "#autoscaler-state"))


def test_finding_what_a_team_costs_takes_one_action(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE])
    click(page, "document.querySelector('#rooms a[href=\"#/cost\"]')")
    until(page, "document.querySelector('#teams tbody tr')")
    lines = page.evaluate("[...document.querySelectorAll('#teams tbody tr')].map(row => row.innerText.split('\\t'))")
    told = answer(urls[LARGE], "costs/namespaces")["namespaces"]
    assert {row["namespace"] for row in told} == {"shop", "data", "lab"}
    estimated = "~" if answer(urls[LARGE], "groups")["cost_per_hour"]["estimated"] else ""
    assert lines == [
        [row["namespace"], *(f"{estimated}${730 * row[part]:,.2f}" for part in ("requested", "used"))] for row in told
    ]
    click(page, "document.querySelector('#teams a')")
    until(page, "document.querySelector('#workloads .node-row')?.checkVisibility()")
    assert page.evaluate("document.getElementById('workloads-filter').value") == f"{told[0]['namespace']}/"


def test_a_team_may_be_a_label_chosen_by_keyboard_with_a_link_of_its_own(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE], "cost")
    until(page, "document.querySelector('#teams tbody tr')")
    page.evaluate("document.getElementById('team').focus()")
    page.press("ArrowDown")
    until(page, "location.hash === '#/cost?team'")
    first_cells = "[...document.querySelectorAll('#teams tbody td:first-child')].map(each => each.innerText)"
    told = answer(urls[LARGE], "costs/labels?key=team")["values"]
    assert {row["value"] for row in told} == {"storefront", "analytics", None}
    said = [row["value"] or "without the label team" for row in told]
    eventually(lambda: page.evaluate(first_cells) == said)
    enter(page, urls[LARGE], "cost?team")
    eventually(lambda: page.evaluate(first_cells) == said)
    assert page.evaluate("document.getElementById('team').value") == "team"
    enter(page, urls[LARGE], "cost?no%20key")
    until(page, "document.querySelector('#teams a')")
    assert page.evaluate("document.getElementById('team').value") == ""


def test_the_worst_nodes_of_prediction_come_first_and_lead_to_themselves(page: Page, urls: dict[int, str]) -> None:
    enter(page, urls[LARGE], "prediction")
    worst = answer(urls[LARGE], "prediction")["worst_nodes"]
    links = "[...document.querySelectorAll('#worst a')]"
    assert page.evaluate(f"{links}.map(each => each.title)") == [row["node"] for row in worst]
    causes = page.evaluate("[...document.querySelectorAll('#worst tbody tr')].map(each => each.lastChild.textContent)")
    assert causes == [row["cause"].lower() for row in worst]
    assert "growing" in causes
    click(page, f"{links}[0]")
    until(page, "document.querySelector('#nodes .detail .terms')")
    assert page.evaluate("location.hash") == f"#/nodes/{worst[0]['node']}"


def test_a_manager_that_ends_is_named_and_what_it_said_stays(page: Page) -> None:
    with page_manager.served(SMALL) as url:
        enter(page, url, "nodes")
        until(page, "document.getElementById('freshness').textContent")
    eventually(lambda: "The manager does not answer" in text_of(page, "#notices"))
    assert "Below is what it said at" in text_of(page, "#notices")
    assert page.evaluate("document.querySelectorAll('#nodes .node-row').length") == SMALL
    page.open("about:blank")
    page.problems.clear()  # the browser tells of it, too
