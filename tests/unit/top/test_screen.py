"""The live table in a terminal of 80 by 24, driven by its keys."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, RichLog, Static

from deploy.top import keys
from deploy.top.keys import NodeKeys
from deploy.top.screen import Frame, TopApp
from manager.nodeside.answers import Amount, Bounds, Nodes
from shared.errors import HeadroomError
from tests.unit.top.test_lines import ROW, changed

NODES = [changed(name=f"sim-{number}", mid=Amount(1000 * number, 0)) for number in range(40)]


class Source:
    """What the table is shown, as a test has it."""

    def __init__(self) -> None:
        self.problem = ""
        self.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:09Z", NODES))

    def look(self) -> Frame:
        return self.now

    def explain(self, node: str) -> str:
        return self._told(f"all terms of {node}")

    def page(self, node: str) -> str:
        return self._told(f"http://manager/#/nodes/{node}")

    def _told(self, text: str) -> str:
        if self.problem:
            raise HeadroomError(self.problem)
        return text


def used(source: Source, steps: Callable[[TopApp, Pilot[None]], Awaitable[None]], this_node: str = "") -> None:
    """Runs the table without a terminal, until `steps` have been taken."""

    async def run() -> None:
        app = TopApp(source.look, NodeKeys(source.explain, source.page), this_node=this_node)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: bool(app.query_one(DataTable).row_count))
            await steps(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        await pilot.pause(0.05)
    raise AssertionError("not so within 30 s")


def names(app: TopApp) -> list[str]:
    return [str(key.value) for key in app.query_one(DataTable).rows]


def test_this_machine_comes_first_and_no_line_is_cut() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        assert names(app)[:3] == ["sim-7", "sim-0", "sim-1"]
        table = app.query_one(DataTable)
        assert table.virtual_size.width <= 78
        assert "40 nodes, by name" in str(app.query_one("#summary", Static).render())

    used(Source(), steps, this_node="sim-7")


def test_keys_sort_and_filter() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("s")
        assert names(app)[:2] == ["sim-39", "sim-38"]
        await pilot.press("slash", *"sim-1", "enter")
        assert app.focused is app.query_one(DataTable)
        assert set(names(app)) == {"sim-1", *(f"sim-1{digit}" for digit in range(10))}
        await pilot.press("escape")
        assert app.query_one(Input).value == ""
        assert len(names(app)) == 40

    used(Source(), steps)


def test_the_first_line_counts_the_nodes_that_need_a_look_and_a_filter_finds_them() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        assert "look" not in str(app.query_one("#summary", Static).render())
        stale, undecided = replace(NODES[3], bound=Bounds("stale", "stale")), replace(NODES[5], bound=None)
        off = replace(NODES[7], bound=Bounds("disabled", "disabled"))
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:10Z", [NODES[0], stale, undecided, off]))
        await until(pilot, lambda: "4 nodes, 2 need a look, by name" in str(app.query_one("#summary", Static).render()))
        await pilot.press("slash", *"a look", "enter")
        assert names(app) == ["sim-3", "sim-5"]

    used(source, steps)


def test_a_row_opens_and_follows_what_changes() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: "sim-1" in str(app.screen.query_one(Static).render()))
        changed_nodes = [replace(node, reason="by another bound") for node in NODES]
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:10Z", changed_nodes))
        await until(pilot, lambda: "by another bound" in str(app.screen.query_one(Static).render()))
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:11Z", NODES[:1]))
        await until(pilot, lambda: "was deleted" in str(app.screen.query_one(Static).render()))
        await pilot.press("escape")
        assert names(app) == ["sim-0"]

    used(source, steps)


def test_e_explains_the_chosen_node_and_o_shows_it_on_the_page() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "e")
        await until(pilot, lambda: str(app.screen.query_one(Static).render()) == "all terms of sim-1")
        await pilot.press("escape", "o")
        await until(pilot, lambda: said(app) == ["http://manager/#/nodes/sim-1"])
        source.problem = "the manager does not answer"
        await pilot.press("o", "e")
        await until(pilot, lambda: said(app)[1:] == [source.problem])
        await until(pilot, lambda: str(app.screen.query_one(Static).render()) == source.problem)
        await pilot.press("e", "down", "down")
        assert app.query_one(DataTable).cursor_row == 3

    used(source, steps)


def said(app: TopApp) -> list[str]:
    return [each.message for each in app._notifications]


def test_keys_of_a_table_without_nodes_do_nothing() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:10Z", []))
        await until(pilot, lambda: not names(app))
        await pilot.press("e", "o")
        assert (len(app.screen_stack), said(app)) == (1, [])

    used(source, steps)


def test_a_node_is_shown_where_the_manager_has_it_and_not_past_its_access_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    address = "http://127.0.0.1:8080/#/nodes/a%2Fb"
    assert (keys.show_on_page("http://127.0.0.1:8080/", "a/b"), opened) == (address, [])
    monkeypatch.setenv("DISPLAY", ":0")
    assert (keys.show_on_page("http://127.0.0.1:8080", "a/b"), opened) == (address, [address])
    told = keys.show_on_page("https://manager:8443", "n1")
    assert "headroom page --manager https://manager:8443" in told
    assert "/#/nodes/n1" in told
    assert len(opened) == 1


def test_the_cursor_stays_on_its_node_when_others_come() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:10Z", [changed(name="a"), *NODES]))
        await until(pilot, lambda: "a" in names(app))
        table = app.query_one(DataTable)
        assert table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value == "sim-2"

    used(source, steps)


def test_what_is_wrong_and_what_happened_is_said_beside_the_last_numbers() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        source.now = Frame(source.now.answer, 60.0, ["the manager does not answer"], ["08:00:00  a node was bought"])
        warnings, notices = app.query_one("#warnings", Static), app.query_one(RichLog)
        await until(pilot, lambda: "does not answer" in str(warnings.render()) and bool(notices.lines))
        assert warnings.display
        assert "a node was bought" in notices.lines[0].text
        assert len(names(app)) == 40

    used(source, steps)


def test_it_ends_when_the_cluster_does() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        source.now = Frame(source.now.answer, is_over=True)
        await until(pilot, lambda: not app.is_running or app._exit)

    used(source, steps)


def test_it_waits_for_a_manager_that_does_not_answer_yet() -> None:
    source = Source()
    source.now = Frame(None)

    async def run() -> None:
        app = TopApp(source.look, NodeKeys(source.explain, source.page))
        async with app.run_test(size=(80, 24)) as pilot:
            assert "waiting" in str(app.query_one("#summary", Static).render())
            source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:09Z", [ROW]))
            await until(pilot, lambda: names(app) == [ROW.name])

    asyncio.run(run())


def test_the_header_keeps_the_places_where_else_to_look() -> None:
    async def run() -> None:
        source, places = Source(), ("page http://127.0.0.1:8080/", "export KUBECONFIG=/tmp/headroom-x/kubeconfig")
        app = TopApp(source.look, NodeKeys(source.explain, source.page), places=places)
        async with app.run_test(size=(80, 24)) as pilot:
            assert "export KUBECONFIG" in str(app.query_one("#summary", Static).render())
            await until(pilot, lambda: bool(app.query_one(DataTable).row_count))
            said = str(app.query_one("#summary", Static).render())
            assert all(place in said for place in places)

    asyncio.run(run())


def test_a_question_mark_shows_every_key_and_goes_again() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        said = str(app.screen.query_one(Static).render())
        bound = [each.key_display or each.key for each in app.BINDINGS if isinstance(each, Binding)]
        assert bound
        assert all(key.lower().removesuffix("ape") in said.lower() for key in bound)
        await pilot.press("escape")
        assert app.screen.query(DataTable)

    used(Source(), steps)


def test_a_reason_that_does_not_fit_is_a_phrase_and_opens_in_full() -> None:
    reason = f"degrade node because {'of something that takes long to say ' * 5}"

    async def run() -> None:
        source = Source()
        source.now = replace(
            source.now, answer=Nodes("headroom-1", "2026-01-01T00:00:09Z", [changed(name="a", reason=reason)])
        )
        app = TopApp(source.look, NodeKeys(source.explain, source.page))
        async with app.run_test(size=(130, 24)) as pilot:
            await until(pilot, lambda: bool(app.query_one(DataTable).row_count))
            table = app.query_one(DataTable)
            shown = str(table.get_row("a")[-1]).rstrip()
            assert shown == "requested less peak"
            assert table.virtual_size.width <= 128
            await pilot.press("enter")
            await until(pilot, lambda: "to say" in " ".join(str(app.screen.query_one(Static).render()).split()))

    asyncio.run(run())
