"""Ctrl-C, as early as anybody can press it."""

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("imported", ["typer", "deploy.access", "deploy.savings.command", "yaml", "deploy.dumps"])
def test_ctrl_c_ends_a_command_without_a_traceback_while_it_is_still_imported(imported: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "deploy.entry", "savings", "-f", "/dev/stdin"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        seen = False
        while not seen and (line := process.stderr.readline()):
            seen = line.split("|")[-1].strip() == imported
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        rest = process.stderr.read()
        process.wait(60)
    assert seen
    assert process.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in rest
    assert "KeyboardInterrupt" not in rest
