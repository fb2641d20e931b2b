"""The kubectl plugin is what krew installs, and runs from where krew puts it."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import krew
from shared.errors import InvalidInput
from tests.support.programs import program

ROOT = Path(__file__).parents[3]
URL = "https://example.com/headroom/v0.1.0/{}.tar.gz"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headroom as pip puts it into a folder; the packages it depends on are those of the tests."""
    folder = tmp_path_factory.mktemp("packages")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder / "installed")], check=True)
    return folder / "installed"


@pytest.fixture(scope="module")
def plugin(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell with the plugin, as krew leaves it: a link in a folder of PATH, files elsewhere."""
    folder = tmp_path_factory.mktemp("krew")
    krew.archive(packages, folder / "headroom.tar.gz")
    store, links = folder / "store" / "headroom" / "v0.1.0", folder / "bin"
    store.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", folder / "headroom.tar.gz", "-C", store], check=True)
    links.mkdir()
    (links / krew.EXECUTABLE).symlink_to(store / krew.EXECUTABLE)
    (links / krew.PYTHON).symlink_to(sys.executable)
    dependencies = os.pathsep.join(each for each in sys.path if each.endswith("site-packages"))
    return os.environ | {"PATH": f"{links}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": dependencies}


def test_the_archives_command_runs_through_krews_link(plugin: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [krew.EXECUTABLE, "--version"], cwd=tmp_path, env=plugin, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("headroom 0.1.0\n", 0), done.stderr


def test_kubectl_finds_it(plugin: dict[str, str], tmp_path: Path) -> None:
    command = [str(program("kubectl")), "headroom", "top", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=plugin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: kubectl headroom top")


def test_an_archive_is_the_same_each_time_and_has_the_licence(packages: Path, tmp_path: Path) -> None:
    (packages / "bin").mkdir(exist_ok=True)
    (packages / "bin" / "headroom").write_text("names the interpreter that made it")
    sums = {krew.archive(packages, tmp_path / name) for name in ("one.tar.gz", "other.tar.gz")}
    assert len(sums) == 1
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        names = tar.getnames()
        assert tar.getmember(krew.EXECUTABLE).mode == 0o755
    assert {"LICENSE", "packages/deploy/cli.py"} <= set(names)
    assert not [name for name in names if name.startswith(("packages/bin", "/")) or ".." in name]


def printed(capsys: pytest.CaptureFixture[str], tmp_path: Path, *platforms: str) -> Any:
    arguments = []
    for each in platforms:
        file = tmp_path / f"{each.replace('/', '-')}.tar.gz"
        file.write_bytes(each.encode())
        arguments.append(f"{each}={URL.format(each.replace('/', '-'))}={file}")
    assert krew.main(["manifest", "v0.1.0", "https://example.com/headroom", *arguments]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_a_manifest_keeps_krews_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = printed(capsys, tmp_path, *krew.PLATFORMS)
    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", found["metadata"]["name"])
    spec = found["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    assert max(map(len, (spec["description"] + spec["caveats"]).splitlines())) <= 80
    for platform in spec["platforms"]:
        assert set(platform) == {"selector", "uri", "sha256", "bin"}
        assert set(platform["selector"]["matchLabels"]) == {"os", "arch"}
        assert re.fullmatch("[0-9a-f]{64}", platform["sha256"])
        assert platform["bin"] == krew.EXECUTABLE
    assert len({str(platform["selector"]) for platform in spec["platforms"]}) == len(krew.PLATFORMS)


def test_a_manifest_names_each_archive_by_its_checksum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (platform,) = printed(capsys, tmp_path, "linux/arm64")["spec"]["platforms"]
    assert platform["uri"] == "https://example.com/headroom/v0.1.0/linux-arm64.tar.gz"
    done = subprocess.run(["sha256sum", tmp_path / "linux-arm64.tar.gz"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == platform["sha256"]


@pytest.mark.parametrize(
    ("version", "homepage", "archives", "field"),
    [
        ("0.1.0", "https://example.com/", [("linux/amd64", URL, "0" * 64)], "VERSION"),
        ("v0.1.0", "example.com", [("linux/amd64", URL, "0" * 64)], "HOMEPAGE"),
        ("v0.1.0", "https://example.com/", [], "OS/ARCH"),
        ("v0.1.0", "https://example.com/", [("linux/amd64", URL, "0" * 64)] * 2, "OS/ARCH"),
        ("v0.1.0", "https://example.com/", [("windows/amd64", URL, "0" * 64)], "OS/ARCH"),
        ("v0.1.0", "https://example.com/", [("linux/amd64", "http://example.com/x", "0" * 64)], "URL"),
    ],
)
def test_what_krew_would_refuse_is_refused_here(
    version: str, homepage: str, archives: list[tuple[str, str, str]], field: str
) -> None:
    with pytest.raises(InvalidInput, match=f"{field}:"):
        krew.manifest(version, homepage, archives)


def test_a_folder_without_the_command_is_no_plugin(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no headroom"):
        krew.archive(tmp_path, tmp_path / "x.tar.gz")
    assert krew.main([]) == 2
