"""Renders the text of `headroom --help` for each command as Markdown."""

from collections.abc import Iterator
from typing import Any

import typer.main

from deploy.cli import app

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


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = parameter.opts if is_option else [(parameter.name or "").upper()]
    about = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|").replace("<", "&lt;")
    return f"| {', '.join(f'`{each}`' for each in names)} | {about} |"
