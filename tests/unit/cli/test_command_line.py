"""The command line as kubectl's users expect one: help that fits, suggestions, versions, the plugin."""

import sys
from pathlib import Path

import pytest

from deploy import cli
from deploy.access import ClusterContext
from deploy.local import kubeconfig
from deploy.site import commands
from tests.support.command_line import Run


def test_every_command_is_listed_with_its_whole_sentence_on_a_terminal_of_80_columns(
    headroom: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, said, _ = headroom("--help")
    assert status == 0
    assert "..." not in said.partition("\n")[2]
    assert "Exit status: 0 done, 1 failed, 2 bad usage or bad input." in said
    assert len(said.splitlines()) <= 40


@pytest.mark.parametrize("command", ["plan", "top", "explain", "version"])
def test_help_of_a_command_fits_a_screen(command: str, headroom: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, said, _ = headroom(command, "--help")
    assert status == 0
    assert 3 < len(said.splitlines()) <= 40


def test_all_of_a_daemons_settings_are_shown_to_who_asks(headroom: Run) -> None:
    assert "--scale-down-unneeded-time" not in headroom("plan", "--help").out
    assert "--scale-down-unneeded-time" in headroom("plan", "--help-all").out


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("plna",), "Did you mean 'plan'?"),
        (("top", "--sotr", "mid"), "--sort"),
        (("plan", "--expandr=price"), "did you mean --expander?"),
        (("manager", "--log-levle", "debug"), "did you mean --log-level?"),
    ],
)
def test_what_is_misspelt_is_refused_with_what_may_be_meant(
    arguments: tuple[str, ...], meant: str, headroom: Run
) -> None:
    status, _, said = headroom(*arguments)
    assert status == cli.BAD_INPUT
    assert meant in said
    assert len(said.splitlines()) == 1


def test_nothing_is_suggested_for_what_is_like_nothing(headroom: Run) -> None:
    status, _, said = headroom("plan", "--xyzzy")
    assert (status, "mean" in said) == (cli.BAD_INPUT, False)


def test_the_version_is_said_without_a_cluster(headroom: Run) -> None:
    assert headroom("--version").out.startswith("headroom ")
    assert headroom("version", "--client").out.endswith("this command\n")


def test_a_cluster_that_does_not_answer_leaves_the_commands_own_version(tmp_path: Path, headroom: Run) -> None:
    missing = tmp_path / "missing"
    status, said, _ = headroom("version", "--kubeconfig", missing)
    assert status == 0
    assert "this command" in said
    assert str(missing) in said


def test_as_a_plugin_it_speaks_of_kubectl(headroom: Run) -> None:
    said = headroom("top", "--help", called="/usr/local/bin/kubectl-headroom").out
    assert said.startswith("Usage: kubectl headroom top")


def test_without_the_library_of_the_live_table_it_says_which_one(
    headroom: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "deploy.top.screen", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, _, said = headroom("top", "--manager", "http://127.0.0.1:9")
    assert status == cli.FAILED
    assert "pip install 'headroom-k8s[top]'; `-o wide`" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str, headroom: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "typer.completion._get_shell_name", lambda: shell
    )  # looked for among the parents of the process
    assert "headroom" in headroom("--show-completion").out


def test_kubectl_is_told_the_same_cluster() -> None:
    access = ClusterContext(Path("/a/kubeconfig"), "prod")
    assert access.kubectl_flags() == ["--kubeconfig", "/a/kubeconfig", "--context", "prod"]
    assert ClusterContext().kubectl_flags() == []


def test_the_help_in_the_documentation_is_what_the_command_prints() -> None:
    """`python -m deploy.site.commands` writes it."""
    page = commands.PAGE.read_text()
    assert "$ headroom --help" in page
    assert commands.page_with_help(page) == page
    assert commands.page_with_help(page.replace("  savings ", "  shavings ")) == page


@pytest.mark.parametrize(
    "command",
    [
        "",
        "plan",
        "agent",
        "manager",
        "up",
        "top",
        "page",
        "savings",
        "explain",
        "explain node",
        "prices refresh",
        "forget",
    ],
)
def test_the_short_flag_of_help_works_everywhere(command: str, headroom: Run) -> None:
    done = headroom(*command.split(), "-h")
    assert done.status == 0
    assert "usage:" in done.out.lower()


@pytest.mark.parametrize("command", ["plan", "savings", "top", "page", "version", "cleanup"])
def test_a_kubeconfig_that_is_not_there_is_said_in_one_sentence(
    command: str, headroom: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", _with_kubectl(tmp_path))
    missing = tmp_path / "missing"
    done = headroom(command, "--kubeconfig", missing)
    said = f"kubeconfig: file: '{missing}': there is no such file (the command line names it)"
    assert said in done.err + done.out
    monkeypatch.setenv("KUBECONFIG", str(missing))
    done = headroom(command)
    assert f"kubeconfig: file: '{missing}': there is no such file (KUBECONFIG names it)" in done.err + done.out


def _with_kubectl(folder: Path) -> str:
    kubectl = folder / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text("#!/bin/sh\nexit 1\n")
    kubectl.chmod(0o700)
    return str(kubectl.parent)


@pytest.mark.parametrize("command", ["plan", "savings", "top"])
def test_a_server_that_is_not_there_is_said_without_numbers_or_names_of_classes(
    command: str, headroom: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", _with_kubectl(tmp_path))
    kubeconfig.write(tmp_path / "kubeconfig", "http://127.0.0.1:1", "token")
    done = headroom(command, "--kubeconfig", tmp_path / "kubeconfig")
    assert "no connection to 127.0.0.1:1: connection refused" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "-f", "/no/such"), "-f: file: '/no/such': no such file or directory\n"),
        (("savings", "-f", "/no/such"), "-f: file: '/no/such': no such file or directory\n"),
        (("savings", "-f", "/no/such", "--discounts", "/no/such"), "no such file or directory\n"),
        (("plan", "-o", "xml"), "--output: output: 'xml': expected one of table, json, yaml\n"),
        (("plan", "--manager", "http://127.0.0.1:1"), "/api/v1/plan: connection refused\n"),
    ],
)
def test_errors_are_in_a_users_words(arguments: tuple[str, ...], said: str, headroom: Run) -> None:
    done = headroom(*arguments)
    assert done.status in (1, 2)
    assert done.err.endswith(said)
    assert "Errno" not in done.err
