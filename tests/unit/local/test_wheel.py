"""The default wheel holds what a cluster needs, and the command that is in it works without the local cluster."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from shared.plugins import DISTRIBUTION

ROOT = Path(__file__).parents[3]
OPERATORS_COMMANDS = {file.name for file in (ROOT / "deploy").glob("*.py")} - {
    "chart_files.py",
    "crds.py",
    "values_schema.py",
}
OPERATORS_COMMANDS |= {
    f"{folder}/{file.name}"
    for folder in ("backtest", "check", "prices", "savings", "support", "top")
    for file in (ROOT / "deploy" / folder).glob("*.py")
}

PACKAGES = {"agent", "deploy", "headroom_api", "manager", "shared"}

MISSING = (
    "headroom: up: the local cluster is not part of this installation; "
    "`make run` starts it in a checkout of the repository"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip does."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "installed")
    return directory / "installed"


def headroom(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Its command, with the packages it depends on and nothing of this checkout."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "deploy.cli", *arguments]
    return subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_has_nothing_of_the_embedded_cluster(installed: Path) -> None:
    files = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert {file.parts[0] for file in files} == {*PACKAGES, "headroom_k8s-0.1.0.dist-info"}
    assert {str(file.relative_to("deploy")) for file in files if file.parts[0] == "deploy"} == OPERATORS_COMMANDS
    assert {path.parent.name for path in files if path.name == "py.typed"} == PACKAGES - {"deploy"}
    for part in PACKAGES - {"deploy"}:
        assert {path.relative_to(ROOT) for path in (ROOT / part).rglob("*.py")} <= files


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        *(
            pytest.param((command, "--help"), marks=pytest.mark.thorough)
            for command in ("agent", "manager", "plan", "cleanup", "backtest")
        ),
    ],
)
def test_what_a_cluster_and_its_operator_call_works_without_the_embedded_cluster(
    installed: Path, arguments: tuple[str, ...]
) -> None:
    done = headroom(installed, *arguments)
    assert done.returncode == 0, done.stderr
    assert "usage: headroom" in done.stdout.lower() or "usage: python -m deploy.cli" in done.stdout.lower()


def test_plan_works_from_files_without_the_embedded_cluster(installed: Path, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
    cloud = str(ROOT / "deploy" / "local" / "cloud.yaml")
    done = headroom(installed, "plan", "-f", str(pod), "--cloud-config", cloud, "--nodes", "0:5:general")
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_up_says_in_one_line_where_the_local_cluster_is_had(installed: Path) -> None:
    done = headroom(installed, "up", "--for", "10s", "--nodes", "2")
    assert (done.returncode, done.stderr.strip(), done.stdout) == (2, MISSING, "")
    assert " up " not in headroom(installed, "--help").stdout


def test_every_hint_and_example_names_the_package_as_it_is_published() -> None:
    sources = [file for part in (*PACKAGES, "docs", "examples") for file in (ROOT / part).rglob("*")]
    texts = [file.read_text("utf-8") for file in sources if file.suffix in (".py", ".md", ".toml", ".yaml")]
    named = {name for text in texts for name in re.findall(r"pip install '([^'\[]+)", text)}
    assert named == {DISTRIBUTION}
    examples = [tomllib.loads(file.read_text()) for file in sources if file.name == "pyproject.toml"]
    assert len(examples) >= 3
    assert all(DISTRIBUTION in example["project"]["dependencies"] for example in examples)
