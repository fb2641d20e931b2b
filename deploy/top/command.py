"""`headroom top`: polls the manager for the table, or prints it once without a terminal."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from deploy.manager_api import ManagerApi
from deploy.rendering import structured
from deploy.top import freshness, lines, progress
from deploy.top.nodes import Sorting, chosen
from manager.nodeside.answers import Nodes
from shared.errors import HeadroomError

PATH = "/api/v1/nodes"


class Following:
    """Polls the manager, and keeps its last answer while it gives none."""

    def __init__(self, read: Callable[[], Nodes], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._monotonic = monotonic
        self._answer: Nodes | None = None
        self._at = 0.0

    def look(self) -> tuple[Nodes | None, float, str]:
        """The newest answer, its age in seconds, and why there is no newer one."""
        problem = ""
        try:
            self._answer, self._at = self._read(), self._monotonic()
        except HeadroomError as error:
            problem = str(error)
        return self._answer, self._monotonic() - self._at if self._answer else 0.0, problem


def run(api: ManagerApi, *, style: str, sorting: str, containing: str) -> str:
    """The text to print; empty after a live table. Raises HeadroomError."""
    if style == "table" and sys.stdout.isatty():
        _live(api, Sorting(sorting), containing)
        return ""
    answer = api.read(PATH, Nodes)
    rows = chosen(answer.nodes, Sorting(sorting), containing=containing)
    if style == "name":
        return "\n".join(f"node/{row.name}" for row in rows)
    if style in ("json", "yaml"):
        return structured(replace(answer, nodes=rows), style)
    shown = lines.columns(answer, lines.WIDE if style == "wide" else lines.NARROW, cut=False)
    return "\n".join([lines.header(shown), *(lines.line(shown, row) for row in rows)])


def printed_table(answer: Nodes, silent_seconds: float, warnings: Sequence[str], progress: str = "") -> str:
    """The whole table, with reasons in full, what nodes still wait for, and an empty line."""
    shown = lines.columns(answer, lines.WIDE, silent_seconds, cut=False)
    rows = [lines.line(shown, row) for row in chosen(answer.nodes, Sorting.NAME)]
    stale = [f"STALE: {warning}" for warning in warnings]
    caption = [f"{time.strftime('%H:%M:%S')}  {answer.cluster}", *([progress] if progress else []), *stale, ""]
    return "\n".join([lines.header(shown), *rows, *caption])


def _live(api: ManagerApi, sorting: Sorting, containing: str) -> None:
    try:
        from deploy.top import keys
        from deploy.top.screen import Frame, TopApp  # the terminal library takes a while to load
    except ImportError as error:
        problem = "the live table needs textual: pip install 'headroom-k8s[top]'; `-o wide` prints the table without"
        raise HeadroomError(problem) from error

    following = Following(lambda: api.read(PATH, Nodes))

    def look() -> Frame:
        answer, silent_seconds, problem = following.look()
        warnings = [problem] if problem else freshness.late_loops(api)
        return Frame(answer, silent_seconds, warnings, progress=progress.starting(answer))

    TopApp(look, keys.of_manager(api), sorting=sorting, containing=containing).run()
