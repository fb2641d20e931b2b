"""Agent and manager answer what their OpenAPI documents describe, and nothing else. Schemathesis makes the requests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_floods import started
from tests.support.apiserver import ApiServer

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.own_decision("agents and the manager describe and answer their own paths"),
]

# What a valid Pod is, Kubernetes describes; here it is an object.
CONFIG = """
[[operations]]
include-path-regex = "^/scheduler/"
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.parametrize("program", ["agent", "manager"])
def test_each_path_answers_as_it_is_described(program: str, process: ApiServer, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config), "run"),
        *("--phases", "examples,coverage", "--generation-deterministic", "--continue-on-failure", "--no-color"),
    ]
    with started(program, process, tmp_path) as target:
        url = f"{target.url}/openapi.json"
        done = subprocess.run([*command, url], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
