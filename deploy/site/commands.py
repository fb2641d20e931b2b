"""Renders the text of `headroom --help` for each command as Markdown.

`python -m deploy.site.commands` writes that of `headroom` itself into the page about the command line.
"""

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from deploy import examples
from deploy.cli import app
from deploy.site import ROOT

PAGE = ROOT / "docs" / "how-to" / "command-line.md"
WIDTH = 80
_BLOCK = re.compile(r"(?<=\n```\n\$ headroom --help\n).*?(?=\n```\n)", re.DOTALL)
_ELSEWHERE = {"agent": "agent.md", "manager": "manager.md", "plan": "manager.md"}


def sections() -> Iterator[str]:
    """A section for each command."""
    yield from _sections(typer.main.get_command(app), "headroom")


def _sections(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _sections(each, f"{path} {name}")
        return
    yield f"## `{path}`"
    yield " ".join((command.help or "").split("\n\n")[0].split())
    name = path.split()[-1]
    if name in _ELSEWHERE:
        yield f"Its flags are [settings]({_ELSEWHERE[name]})."
        return
    rows = [_row(each) for each in command.params if each.name != "help"]
    if rows:
        yield "\n".join(("| option | meaning |", "| --- | --- |", *rows))
    if command.epilog:
        yield f"```\n{command.epilog.partition(examples.UNWRAPPED)[2]}\n```"


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = parameter.opts if is_option else [(parameter.name or "").upper()]
    about = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|").replace("<", "&lt;")
    return f"| {', '.join(f'`{each}`' for each in names)} | {about} |"


def page_with_help(page: str) -> str:
    """The page about the command line, with the present text of `headroom --help`."""
    command = typer.main.get_command(app)
    with command.make_context(
        "headroom", [], resilient_parsing=True, terminal_width=WIDTH, max_content_width=WIDTH
    ) as of:
        text = command.get_help(of)
    return _BLOCK.sub(lambda _: text, page)


if __name__ == "__main__":
    PAGE.write_text(page_with_help(PAGE.read_text()))
