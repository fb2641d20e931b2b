"""The default wheel holds what a cluster needs, and the command that is in it works without the local cluster."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OPERATORS_COMMANDS = {file.name for file in (ROOT / "deploy").glob("*.py")} - {
    "chart_files.py",
    "crds.py",
    "krew.py",
    "values_schema.py",
}
OPERATORS_COMMANDS |= {
    f"{folder}/{file.name}"
    for folder in ("backtest", "prices", "savings", "top")
    for file in (ROOT / "deploy" / folder).glob("*.py")
}

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
    assert {file.parts[0] for file in files} == {"agent", "deploy", "manager", "shared", "headroom-0.1.0.dist-info"}
    assert {str(file.relative_to("deploy")) for file in files if file.parts[0] == "deploy"} == OPERATORS_COMMANDS
    for part in ("agent", "manager", "shared"):
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
