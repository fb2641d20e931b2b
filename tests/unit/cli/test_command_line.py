"""The command line as kubectl's users expect one: help that fits, suggestions, versions, the plugin."""

import sys
from pathlib import Path

import pytest

from deploy import cli
from deploy.access import ClusterContext
from tests.support.command_line import Run


def test_every_command_is_listed_with_its_whole_sentence_on_a_terminal_of_80_columns(
    headroom: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, said, _ = headroom("--help")
    assert status == 0
    assert "..." not in said.partition("\n")[2]
    assert "Exit status: 0 done, 1 failed, 2 bad usage or bad input." in said
    assert len(said.splitlines()) <= 30


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
    assert "pip install 'headroom[top]'; `-o wide`" in said


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
