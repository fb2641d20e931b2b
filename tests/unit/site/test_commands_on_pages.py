"""What the pages name exists: commands with their options, targets of make, modules, flags."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
import typer.main

from agent.settings import AgentSettings
from deploy.cli import app
from deploy.plan import PlanSettings
from manager.daemon_settings import DaemonSettings
from shared import settings
from tests.support.apiserver import ROOT

GENERATED = {ROOT / "docs" / "parity.md", ROOT / "CHANGELOG.md"}
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")} - GENERATED)
OF_SETTINGS: dict[str, type[msgspec.Struct]] = {"agent": AgentSettings, "manager": DaemonSettings, "plan": PlanSettings}
OF_DAEMONS = {"--help", "--help-all", "--config", "-h"}
ABOUT_FLAGS_OF_OTHERS = {
    f"docs/how-to/{each}.md" for each in ("cluster-autoscaler", "escalator", "provisioning-requests")
}
OF_HELM = {"--set", "--values", "--reuse-values", "--reset-then-reuse-values", "--force-conflicts", "--take-ownership"}
OF_BENCHES = {"--against", "--month", "--others", "--rules"}
OF_SIGN_ON = {"--oidc-issuer-url", "--oidc-client-id", "--pass-authorization-header", "--set-authorization-header"} | {
    "--api-route",
    "--cookie-refresh",
    "--provider-ca-file",
}
OF_OTHERS = (
    OF_HELM | OF_BENCHES | OF_SIGN_ON | {"--additional-sync-machine-labels", "--build-arg", "--kube-scheduler-arg"}
)
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
OURS = r"(?:\.venv/bin/)?headroom (?![ \d]|deploy/|oci:)(.*)"
MADE = r"make ([a-z0-9-]+)"
MODULE = r"(?:\.venv/bin/)?python -m ((?:agent|deploy|manager|shared|tests)[\w.]*)"
FLAG = r"(--[a-z][a-z0-9-]+)"


class Named(NamedTuple):
    page: str
    text: str


def _commands_of(text: str) -> Iterator[str]:
    """Lines of blocks without comments, continued ones as one, and spans of code."""
    text = text.replace("\\\n", " ")
    indented = "".join(re.findall(r"^(?: {8,}.+\n)+", text, re.MULTILINE))
    for line in "\n".join((*BLOCK.findall(text), indented)).splitlines():
        yield line.strip().removeprefix("$ ").split(" #")[0].split(" | ")[0]
    yield from re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))


def named(pattern: str) -> list[Named]:
    found = ((page, re.match(pattern, line)) for page in PAGES for line in _commands_of(page.read_text()))
    return sorted({Named(str(page.relative_to(ROOT)), match[1]) for page, match in found if match})


def flags_of(kind: type[msgspec.Struct]) -> set[str]:
    return {"--" + field.name.removesuffix("_seconds").replace("_", "-") for field in settings.fields(kind)}


def options_of(arguments: list[str]) -> set[str]:
    """The options of the command that the arguments name. Raises KeyError for one that there is not."""
    command: Any = typer.main.get_command(app)
    for name in arguments:
        if not hasattr(command, "commands") or name.startswith("-"):
            break
        command = command.commands[name]
    if command.name in OF_SETTINGS:
        short = {"-f", "-o"} if command.name == "plan" else set()
        return flags_of(OF_SETTINGS[command.name]) | OF_DAEMONS | short
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}


def _every_option(command: Any) -> Iterator[str]:
    for each in command.params:
        yield from (*each.opts, *each.secondary_opts)
    for each in getattr(command, "commands", {}).values():
        yield from _every_option(each)


@pytest.mark.parametrize(("page", "line"), named(OURS))
def test_a_command_on_a_page_exists_with_its_options(page: str, line: str) -> None:
    arguments = shlex.split(line.replace("[", "").replace("]", "").replace("...", ""))
    used = {each.partition("=")[0] for each in arguments if re.match(r"--?[a-z]", each)}
    assert used - options_of(arguments) == set()


@pytest.mark.parametrize(("page", "target"), named(MADE))
def test_a_target_of_make_on_a_page_exists(page: str, target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("page", "module"), named(MODULE))
def test_a_module_on_a_page_can_be_run(page: str, module: str) -> None:
    assert importlib.util.find_spec(module)


def test_a_flag_on_a_page_exists() -> None:
    ours = set().union(*map(flags_of, OF_SETTINGS.values()), _every_option(typer.main.get_command(app)), OF_DAEMONS)
    found = [each for each in named(FLAG) if each.page not in ABOUT_FLAGS_OF_OTHERS]
    assert len(found) > 80
    assert [each for each in found if each.text not in ours | OF_OTHERS] == []
