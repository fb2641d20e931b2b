"""The workflow that releases a tag."""

import os
import subprocess
from pathlib import Path

import yaml

from tests.apiserver import binaries
from tests.image import registry
from tests.support.programs import do_without

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def test_actionlint_finds_nothing_in_the_workflow() -> None:
    try:
        program = binaries.built_once(registry.ACTIONLINT, os.environ, folder="image")
    except binaries.Unavailable as error:
        do_without(str(error))
    done = subprocess.run([program, WORKFLOW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_makes_the_release_by_make_alone() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["release"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands[-1].startswith("make release VERSION=")
    assert [command.split()[:2] for command in commands[:-1]] == [["go", "install"], ["crane", "auth"]]
