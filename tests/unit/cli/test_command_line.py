"""The command line as kubectl's users expect one: help that fits, suggestions, versions, the plugin."""

import sys
from pathlib import Path

import pytest

from deploy import cli
from deploy.access import ClusterContext


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, called: str = "headroom") -> int:
    """The exit status of the command."""
    monkeypatch.setattr(sys, "argv", [called, *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_every_command_is_listed_with_its_whole_sentence_on_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    assert "..." not in said.partition("\n")[2]
    assert "Exit status: 0 done, 1 failed, 2 bad usage or bad input." in said
    assert len(said.splitlines()) <= 30


@pytest.mark.parametrize("command", ["plan", "top", "explain", "version"])
def test_help_of_a_command_fits_a_screen(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, command, "--help") == 0
    assert 3 < len(capsys.readouterr().out.splitlines()) <= 40


def test_all_of_a_daemons_settings_are_shown_to_who_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "plan", "--help") == 0
    assert "--scale-down-unneeded-time" not in capsys.readouterr().out
    assert run(monkeypatch, "plan", "--help-all") == 0
    assert "--scale-down-unneeded-time" in capsys.readouterr().out


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
    arguments: tuple[str, ...], meant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *arguments) == cli.BAD_INPUT
    said = capsys.readouterr().err
    assert meant in said
    assert len(said.splitlines()) == 1


def test_nothing_is_suggested_for_what_is_like_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "plan", "--xyzzy") == cli.BAD_INPUT
    assert "mean" not in capsys.readouterr().err


def test_the_version_is_said_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("headroom ")
    assert run(monkeypatch, "version", "--client") == 0
    assert capsys.readouterr().out.endswith("this command\n")


def test_a_cluster_that_does_not_answer_leaves_the_commands_own_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert run(monkeypatch, "version", "--kubeconfig", str(missing)) == 0
    said = capsys.readouterr().out
    assert "this command" in said
    assert str(missing) in said


def test_as_a_plugin_it_speaks_of_kubectl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "top", "--help", called="/usr/local/bin/kubectl-headroom") == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl headroom top")


def test_without_the_library_of_the_live_table_it_says_which_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "deploy.top.screen", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(monkeypatch, "top", "--manager", "http://127.0.0.1:9") == cli.FAILED
    assert "pip install 'headroom[top]'; `-o wide`" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        "typer.completion._get_shell_name", lambda: shell
    )  # looked for among the parents of the process
    assert run(monkeypatch, "--show-completion") == 0
    assert "headroom" in capsys.readouterr().out


def test_kubectl_is_told_the_same_cluster() -> None:
    access = ClusterContext(Path("/a/kubeconfig"), "prod")
    assert access.kubectl_flags() == ["--kubeconfig", "/a/kubeconfig", "--context", "prod"]
    assert ClusterContext().kubectl_flags() == []
