"""The live table on a terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult, ScreenStackError
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, RichLog, Static
from textual.widgets.data_table import RowKey

from deploy.top import detail, lines
from deploy.top.history import ShownHistory
from deploy.top.keys import NodeKeys
from deploy.top.nodes import Sorting, chosen, total
from manager.nodeside.answers import NodeRow, Nodes
from shared.errors import HeadroomError

REFRESH_SECONDS = 1.0
NOTICE_LINES = 5
SCROLLBAR = 2
_KEYS = (
    ("Up, Down", "choose a node"),
    ("Enter", "the chosen node; Esc goes back"),
    ("e", "every term of what the chosen node offers"),
    ("o", "the chosen node on the manager's page"),
    ("s", "sort by the next column"),
    ("/", "only nodes with a text in their name or reason"),
    ("Esc", "all nodes again"),
    ("?", "these keys"),
    ("q, Ctrl-C", "quit"),
)


@dataclass(frozen=True)
class Frame:
    """The content of the screen: the manager's last answer, its age, and what is wrong with it.

    `progress` says what the nodes of a starting cluster still wait for.
    """

    answer: Nodes | None
    silent_seconds: float = 0.0
    warnings: Sequence[str] = ()
    notices: Sequence[str] = ()
    is_over: bool = False
    progress: str = ""


class TopApp(App[None]):
    """The nodes of one cluster. `look` is called in a thread, each second."""

    TITLE = "Headroom"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    #summary {{ height: auto; max-height: 8; padding: 0 1; }}
    #warnings {{ height: auto; max-height: 3; padding: 0 1; color: $text-error; }}
    #nodes {{ height: 1fr; }}
    #notices {{ height: {NOTICE_LINES}; display: none; }}
    #filter {{ display: none; }}
    NodeDetail, NodeTerms, Keys {{ align: center middle; }}
    ModalScreen > VerticalScroll {{ padding: 0 1; background: $surface; width: 90%; border: round $primary; }}
    NodeDetail > VerticalScroll, NodeTerms > VerticalScroll {{ height: 90%; }}
    Keys > VerticalScroll {{ height: auto; max-width: 60; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
        Binding("e", "explain", "Explain"),
        Binding("o", "page", "Page"),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "all", "All nodes", show=False),
        Binding("question_mark", "keys", "Keys", key_display="?"),
    ]

    def __init__(
        self,
        look: Callable[[], Frame],
        node: NodeKeys,
        *,
        this_node: str = "",
        sorting: Sorting = Sorting.NAME,
        containing: str = "",
        places: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._places = places
        self._look = look
        self._node = node
        self._this_node = this_node
        self._sorting = sorting
        self._containing = containing
        self._shown = Frame(None)
        self._columns: tuple[str, ...] = ()
        self.history = ShownHistory()

    def compose(self) -> ComposeResult:
        yield Static("\n".join(["waiting for the manager", *self._places]), id="summary", markup=False)
        yield Static("", id="warnings", markup=False)
        yield DataTable[str](id="nodes", cursor_type="row", zebra_stripes=True, cell_padding=0)
        yield RichLog(id="notices", wrap=True, markup=False, max_lines=200)
        yield Input(placeholder="part of a name or reason; Enter keeps it, Escape drops it", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        self._refresh_look()
        self.set_interval(REFRESH_SECONDS, self._refresh_look)

    @work(thread=True, exclusive=True)
    def _refresh_look(self) -> None:
        look = self._look()
        self.call_from_thread(self._show, look)

    def _show(self, look: Frame) -> None:
        if look.is_over:
            self.exit()
            return
        try:
            notices = self.query_one(RichLog)
        except (NoMatches, ScreenStackError):
            return  # the table was closed during the request
        if look.answer is not None:
            self.history.add(look.answer)
        self._shown = look
        for notice in look.notices:
            notices.display = True
            notices.write(notice)
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        answer = self._shown.answer
        if answer is None:
            if self._shown.progress:
                self.query_one("#summary", Static).update("\n".join([self._shown.progress, *self._places]))
            return
        rows = chosen(answer.nodes, self._sorting, self._this_node, self._containing)
        self.query_one("#summary", Static).update(self._summary(answer, len(rows)))
        warnings = self.query_one("#warnings", Static)
        warnings.update("\n".join(self._shown.warnings))
        warnings.display = bool(self._shown.warnings)
        shown = lines.columns(answer, self.size.width - SCROLLBAR, self._shown.silent_seconds)
        self._fill(shown, rows)

    def _summary(self, answer: Nodes, shown: int) -> str:
        nodes = answer.nodes
        used, peak, mid = (total(nodes, of) for of in (lambda r: r.used, lambda r: r.predicted_peak, lambda r: r.mid))
        allocatable = total(nodes, lambda row: row.allocatable)
        which = (
            f"{shown} of {len(nodes)} nodes with {self._containing!r}" if self._containing else f"{len(nodes)} nodes"
        )
        looks = sum(map(lines.needs_look, nodes))
        which += f", {looks} {lines.A_LOOK if looks == 1 else 'need a look'}" if looks else ""
        cores = [f"{each.cpu_milli / 1000:.1f}" for each in (used, allocatable, peak, mid)]
        gib = [f"{each.memory_bytes / lines.GIB:.1f}" for each in (used, allocatable, peak, mid)]
        amounts = [
            f"{unit:<5} used {values[0]} of {values[1]}, peak {values[2]}, Mid {values[3]} on offer"
            for unit, values in (("cores", cores), ("GiB", gib))
        ]
        progress = [self._shown.progress] if self._shown.progress else []
        return "\n".join([f"{answer.cluster}  {which}, by {self._sorting}", *self._places, *amounts, *progress])

    def _fill(self, shown: Sequence[lines.TableColumn], rows: Sequence[NodeRow]) -> None:
        """Changes only the cells that differ; other rows, or another order, are rewritten around the cursor."""
        table: DataTable[str] = self.query_one(DataTable)
        headings = tuple(column.heading for column in shown)
        cells = {row.name: [_aligned(column, column.text(row)) for column in shown] for row in rows}
        if headings == self._columns and [key.value for key in table.rows] == list(cells):
            for name, texts in cells.items():
                for at, text in enumerate(texts):
                    if table.get_cell(name, str(at)) != text:
                        table.update_cell(name, str(at), text)
            return
        cursor = self._selected()
        table.clear(columns=True)
        self._columns = headings
        for at, column in enumerate(shown):
            table.add_column(_aligned(column, column.heading), key=str(at))
        for name, texts in cells.items():
            table.add_row(*texts, key=name)
        if cursor in cells:
            table.move_cursor(row=list(cells).index(cursor))

    def _selected(self) -> str:
        table: DataTable[str] = self.query_one(DataTable)
        if not table.row_count:
            return ""
        key: RowKey = table.coordinate_to_cell_key(table.cursor_coordinate).row_key
        return key.value or ""

    def action_sort(self) -> None:
        self._sorting = self._sorting.next
        self._redraw()

    def action_filter(self) -> None:
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def action_explain(self) -> None:
        if name := self._selected():
            self.push_screen(NodeTerms(name, self._node.explain))

    def action_page(self) -> None:
        if name := self._selected():
            self._show_page(name)

    @work(thread=True, exclusive=True, group="page")
    def _show_page(self, name: str) -> None:
        try:
            self.call_from_thread(self.notify, self._node.page(name), markup=False)
        except HeadroomError as error:
            self.call_from_thread(self.notify, str(error), severity="error", markup=False)

    def action_keys(self) -> None:
        self.push_screen(Keys())

    def action_all(self) -> None:
        self.query_one(Input).value = ""
        self._leave_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._containing = event.value
        self._redraw()

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one(Input).display = False
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self, event: "DataTable.RowSelected") -> None:
        self.push_screen(NodeDetail(event.row_key.value or ""))

    def row(self, name: str) -> NodeRow | None:
        """The row last shown for the node."""
        nodes = self._shown.answer.nodes if self._shown.answer else []
        return next((row for row in nodes if row.name == name), None)


class Keys(ModalScreen[None]):
    """What each key does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "Back", key_display="Esc")
    ]

    def compose(self) -> ComposeResult:
        lines = [f"{key:<12} {what}" for key, what in _KEYS]
        with VerticalScroll():
            yield Static("\n".join(lines), markup=False)


class NodeDetail(ModalScreen[None]):
    """One node; it follows the table's refreshes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Back", key_display="Esc")]

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", markup=False)

    def on_mount(self) -> None:
        self._refresh_text()
        self.set_interval(REFRESH_SECONDS, self._refresh_text)

    def _refresh_text(self) -> None:
        app = self.app
        assert isinstance(app, TopApp)
        row = app.row(self._node)
        width = self.query_one(VerticalScroll).size.width
        self.query_one(Static).update(
            detail.text(row, app.history.of(self._node), width) if row else f"{self._node} was deleted"
        )


class NodeTerms(ModalScreen[None]):
    """Every term of what one node offers, as of when it was opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,e", "dismiss", "Back", key_display="Esc")]

    def __init__(self, node: str, explain: Callable[[str], str]) -> None:
        super().__init__()
        self._node = node
        self._explain = explain

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("asking the manager", markup=False)

    def on_mount(self) -> None:
        self._ask()

    @work(thread=True)
    def _ask(self) -> None:
        try:
            text = self._explain(self._node)
        except HeadroomError as error:
            text = str(error)
        self.app.call_from_thread(self._say, text)

    def _say(self, text: str) -> None:
        if self.is_attached:  # else it was closed during the request
            self.query_one(Static).update(text)


def _aligned(column: lines.TableColumn, text: str) -> str:
    """The text padded with the space that the table does not put between its columns."""
    return f"{text.rjust(column.width)} " if column.right else f"{text.ljust(column.width)} "
