"""The help of each command ends with examples that the command itself accepts."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from agent.settings import AgentSettings
from deploy.cli import app
from deploy.plan import PlanSettings
from manager.daemon_settings import DaemonSettings
from shared import settings
from tests.support.command_line import Run

WITH_SETTINGS: dict[str, Any] = {"agent": AgentSettings, "manager": DaemonSettings, "plan": PlanSettings}
WIDTH = 80


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from _paths(each, (*path, name))


def _commands(example: str) -> list[list[str]]:
    """The arguments of each `headroom` of a line, without what it is piped to and from."""
    parts = [shlex.split(each) for each in example.split("|")]
    return [part[1:] for part in parts if part[0] == "headroom"]


def _parse(arguments: list[str]) -> None:
    """Parses as the command line does, and runs nothing."""
    command: Any = typer.main.get_command(app)
    context = None
    while arguments and hasattr(command, "commands"):
        context = command.make_context(command.name or "headroom", [], parent=context, resilient_parsing=True)
        _, command, arguments = command.resolve_command(context, arguments)
    if command.name in WITH_SETTINGS:
        settings.load(WITH_SETTINGS[command.name], program="", description="", argv=arguments, environment={})
    else:
        command.make_context(command.name, arguments, parent=context)


@pytest.mark.parametrize("path", list(_paths(typer.main.get_command(app))), ids=" ".join)
def test_help_ends_with_one_to_three_examples_that_parse(
    path: tuple[str, ...], headroom: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    _, _, text = headroom(*path, "--help").out.partition("Examples:\n")
    lines = [line.strip() for line in text.partition("\n\n")[0].splitlines()]
    explanations, examples = lines[0::2], lines[1::2]
    assert 1 <= len(examples) <= 3
    assert len(explanations) == len(examples)
    assert all(each.startswith("# ") for each in explanations)
    assert all(len(f"    {line}") <= WIDTH for line in lines)
    for example in examples:
        parsed = _commands(example)
        assert parsed
        for arguments in parsed:
            assert tuple(arguments[: len(path)]) == path
            _parse(arguments)


@pytest.mark.parametrize("example", ["headroom top --sort size", "headroom plan --top none", "headroom forget node"])
def test_an_example_that_the_command_refuses_does_not_parse(example: str) -> None:
    with pytest.raises(Exception, match=r"size|none|nodes"):
        _parse(_commands(example)[0])


def test_examples_that_read_no_cluster_work(headroom: Run) -> None:
    assert headroom("version", "--client").status == 0
    assert headroom("prices", "show").status == 0
