"""The live table in a terminal of 80 by 24, driven by its keys."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from textual.pilot import Pilot
from textual.widgets import DataTable, Input, RichLog, Static

from deploy.top.screen import Frame, TopApp
from manager.nodeside.answers import Amount, Nodes
from tests.unit.top.test_lines import ROW, changed

NODES = [changed(name=f"sim-{number}", mid=Amount(1000 * number, 0)) for number in range(40)]


class Source:
    """What the table is shown, as a test has it."""

    def __init__(self) -> None:
        self.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:09Z", NODES))

    def look(self) -> Frame:
        return self.now


def used(source: Source, steps: Callable[[TopApp, Pilot[None]], Awaitable[None]], this_node: str = "") -> None:
    """Runs the table without a terminal, until `steps` have been taken."""

    async def run() -> None:
        app = TopApp(source.look, this_node=this_node)
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


def test_a_row_opens_and_follows_what_changes() -> None:
    source = Source()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: "sim-1" in str(app.screen.query_one(Static).render()))
        changed_nodes = [replace(node, reason="by another bound") for node in NODES]
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:10Z", changed_nodes))
        await until(pilot, lambda: "by another bound" in str(app.screen.query_one(Static).render()))
        source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:11Z", NODES[:1]))
        await until(pilot, lambda: "has gone" in str(app.screen.query_one(Static).render()))
        await pilot.press("escape")
        assert names(app) == ["sim-0"]

    used(source, steps)


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
        app = TopApp(source.look)
        async with app.run_test(size=(80, 24)) as pilot:
            assert "waiting" in str(app.query_one("#summary", Static).render())
            source.now = Frame(Nodes("headroom-1", "2026-01-01T00:00:09Z", [ROW]))
            await until(pilot, lambda: names(app) == [ROW.name])

    asyncio.run(run())
