"""Programs that tests need and a machine may lack: what is not checked stands at the end, and how to get it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apiserver import binaries
from tests.support import programs

ROOT = Path(__file__).parents[3]


@pytest.fixture
def fresh(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine on which nothing is installed, and nothing has been built."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", binaries.VARIABLE_ASSETS)}
    return {**kept, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_what_was_not_checked_without_a_program_ends_the_run_with_how_to_get_it(fresh: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-p",
        "no:cacheprovider",
        "tests/chart/test_examples.py",
        "-k",
        "test_a_nodepool_and_the_node_class_that_it_names_may_be_read",
    ]
    done = subprocess.run(command, cwd=ROOT, env=fresh, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "NOT CHECKED" in line)
    assert line.endswith(f"tests, as helm is not installed: {programs.how_to_get('helm')}")
    assert "make test` builds it" in line


def test_without_go_a_missing_program_is_said_and_fails_nothing(fresh: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.apiserver", "helm"]
    done = subprocess.run(command, cwd=ROOT, env=fresh, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == "no helm: helm is not in KUBEBUILDER_ASSETS or on PATH, and there is no Go to build it with\n"


def test_a_program_that_is_installed_is_not_built(tmp_path: Path, fresh: dict[str, str]) -> None:
    installed = tmp_path / "helm"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o700)
    assert binaries.provided("helm", fresh) == installed
