"""The image as its Dockerfile makes it, in a plain folder, and run from there as it runs in a cluster.

Packages are downloaded as `make setup` does, and pip keeps them; nothing is mocked and no container engine is needed.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.image import dockerfile
from tests.image.dockerfile import PlainFolder
from tests.support import eventually
from tests.unit.local.test_wheel import OPERATORS_COMMANDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LARGEST_MIB = 270  # without the base; a package that brings much more than it is used for shows here
AS_ROOT = os.geteuid() == 0


@dataclass(frozen=True)
class Image:
    """A finished image: its folder "/", what it adds to its base, and how it is run."""

    root: Path
    added: Path
    environment: dict[str, str]
    entrypoint: list[str]
    user: int
    stop_signal: signal.Signals
    output: str

    @property
    def site_packages(self) -> Path:
        (found,) = self.added.glob("lib/python3.*/site-packages")
        return found

    @property
    def distributions(self) -> dict[str, importlib.metadata.Distribution]:
        found = importlib.metadata.distributions(path=[str(self.site_packages)])
        return {canonicalize_name(distribution.name): distribution for distribution in found}

    def command(self, *arguments: str) -> list[str]:
        """The entry point, under the image's own user where this process may choose one, without any privilege."""
        ids = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--bounding-set=-all"]
        return [*(("setpriv", "--no-new-privs", *ids) if AS_ROOT else ()), *self.entrypoint, *arguments]

    def files(self) -> list[Path]:
        """Everything in it that is no folder."""
        return [Path(top) / name for top, _, names in os.walk(self.added) for name in names]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    mask = os.umask(0o022)
    root = Path(tempfile.mkdtemp(prefix="headroom-image-"))
    root.chmod(0o755)  # its user has to come in, whom pytest's own folders keep out
    try:
        file = dockerfile.parse((ROOT / "deploy" / "Dockerfile").read_text())
        folder = PlainFolder(root, ROOT, file)
        folder.build()
        final = file.stages[-1]
        (user,), (entrypoint,), (stop,) = (final.all(word) for word in ("USER", "ENTRYPOINT", "STOPSIGNAL"))
        yield Image(
            root=root,
            added=root / "opt" / "headroom",
            environment=folder.environment(final),
            entrypoint=dockerfile.exec_form(entrypoint),
            user=int(user.value.partition(":")[0]),
            stop_signal=signal.Signals[stop.value],
            output=folder.output,
        )
    finally:
        os.umask(mask)
        shutil.rmtree(root)


def snapshot(image: Image) -> dict[Path, tuple[int, int]]:
    """Every file with its size and time of change, the base's among them."""
    files = (
        Path(top) / name
        for part in (image.added, image.root / "usr")
        for top, _, names in os.walk(part)
        for name in names
    )
    return {file: (status.st_size, status.st_mtime_ns) for file in files for status in [file.lstat()]}


def test_it_holds_exactly_what_headroom_needs_at_run_time(image: Image) -> None:
    installed = image.distributions
    needed, reached = set(), {("headroom", extra) for extra in ("", "grpc", "aws")}
    while reached:
        name, extra = reached.pop()
        needed.add((name, extra))
        for text in installed[name].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = canonicalize_name(requirement.name)
                reached |= {(wanted, also) for also in ("", *requirement.extras)} - needed
    assert set(installed) == {name for name, _ in needed}
    assert not {"pip", "pytest", "mypy", "ruff", "hypothesis", "hatchling"} & set(installed)


def test_every_version_is_the_locked_one(image: Image) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([a-z0-9-]+==[^\s;]+)", lock, re.MULTILINE)) | {f"headroom=={PROJECT['version']}"}
    assert {f"{name}=={found.version}" for name, found in image.distributions.items()} <= locked


def test_every_file_belongs_to_a_package_and_none_names_the_folders_of_the_build(image: Image) -> None:
    recorded = {image.added / "pyvenv.cfg"}
    for distribution in image.distributions.values():
        recorded |= {Path(str(file.locate())).resolve() for file in distribution.files or []}
    recorded |= {Path(importlib.util.cache_from_source(str(file))) for file in recorded if file.suffix == ".py"}
    strangers = set(image.files()) - recorded
    assert {file.name.rstrip("0123456789.") for file in strangers if file.parent == image.added / "bin"} == {"python"}
    assert not [file for file in strangers if file.parent != image.added / "bin"]

    assert not [file for file in image.files() if file.name == "direct_url.json"]
    for trace in (str(image.root / name).encode() for name in ("context", "source")):
        assert not [file for file in image.files() if trace in file.read_bytes()]


def test_of_headroom_it_holds_the_four_packages_and_nothing_of_the_tests(image: Image) -> None:
    files = {Path(str(file)) for file in image.distributions["headroom"].files or []}
    tops = {file.parts[0] for file in files}
    assert tops == {"..", "agent", "deploy", "manager", "shared", f"headroom-{PROJECT['version']}.dist-info"}
    commands = {file for file in files if file.parts[0] == "deploy" and "__pycache__" not in file.parts}
    assert {str(file.relative_to("deploy")) for file in commands} == OPERATORS_COMMANDS
    context = image.root / "context"
    for part in ("agent", "deploy", "manager", "shared"):
        modules = {file.relative_to(context) for file in (context / part).rglob("*.py")}
        assert {file for file in modules if file.parts[0] != "deploy" or file in commands} <= files


def test_its_user_may_read_all_and_write_nothing(image: Image) -> None:
    for part in (image.added, image.root / "usr"):
        for top, _, names in os.walk(part):
            for path in (Path(top), *(Path(top) / name for name in names)):
                status = path.lstat()
                assert status.st_uid != image.user, path
                assert status.st_gid != image.user, path
                if not stat.S_ISLNK(status.st_mode):
                    assert not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
                    assert status.st_mode & stat.S_IROTH, path


def test_every_module_is_compiled_and_the_bytecode_never_compared_with_its_source(image: Image) -> None:
    modules = [file for file in [*image.files(), *(image.root / "usr").rglob("*.py")] if file.suffix == ".py"]
    assert len(modules) > 1000
    for module in modules:
        flags = int.from_bytes(Path(importlib.util.cache_from_source(str(module))).read_bytes()[4:8], "little")
        assert flags == 0b01, module  # a hash, and not to be checked


def test_its_size_is_said_and_stays_reasonable(image: Image, record_property: Callable[[str, object], None]) -> None:
    said = re.search(rf"^(\d+)M\t{re.escape(str(image.added))}$", image.output, re.MULTILINE)
    assert said, image.output
    told = re.search(r"(\d+) MiB without the base by `du`", (ROOT / "docs" / "image.md").read_text())
    assert told
    assert abs(int(said[1]) - int(told[1])) <= 0.05 * int(told[1])
    mib = sum(file.lstat().st_size for file in image.files()) / 2**20
    record_property("image_mib_without_base", round(mib))
    assert mib < LARGEST_MIB


def test_a_second_build_into_the_same_folder_is_refused(image: Image) -> None:
    done = subprocess.run(
        [ROOT / "deploy" / "image" / "build.sh", image.added], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith(f"{image.added} is there already")


@pytest.mark.parametrize("arguments", [("--help",), ("agent", "--help"), ("manager", "--help"), ()])
def test_the_entry_points_say_how_they_are_used(image: Image, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        image.command(*arguments), cwd="/", env=image.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert " ".join(("usage: headroom", *arguments[:-1])) in done.stdout.lower()


def test_it_has_no_local_cluster_and_says_where_that_is(image: Image) -> None:
    done = subprocess.run(
        image.command("up", "--for", "1s"), cwd="/", env=image.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "`make run` starts it in a checkout" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("half", ["agent", "manager"])
def test_a_half_runs_as_the_images_user_is_healthy_and_changes_nothing_in_it(image: Image, half: str) -> None:
    before = snapshot(image)
    state = image.root / f"state-{half}"
    state.mkdir()
    kubeconfig = image.root / f"kubeconfig-{half}"
    kubeconfig.write_text(yaml.safe_dump(_nowhere()))
    if AS_ROOT:
        os.chown(state, image.user, image.user)
    arguments = [half, "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"]
    arguments += ["--state-dir", str(state / "agent")] if half == "agent" else []
    log = image.root / f"log-{half}"
    with log.open("w") as errors:
        process = subprocess.Popen(
            image.command(*arguments), cwd="/", env=image.environment, stdout=errors, stderr=errors
        )
    try:
        port = eventually(lambda: _port(process, log))
        answer = httpx.get(f"http://127.0.0.1:{port}/healthz")
        assert answer.status_code == 200, answer.text
        if AS_ROOT:
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(r"^Uid:" + 4 * rf"\s{image.user}" + "$", status, re.MULTILINE), status
            assert re.search(r"^CapEff:\s0+$", status, re.MULTILINE), status
        process.send_signal(image.stop_signal)
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert snapshot(image) == before


def _port(process: subprocess.Popen[bytes], log: Path) -> int | None:
    """Where the process listens, once it does."""
    assert process.poll() is None, log.read_text()
    connections = psutil.Process(process.pid).net_connections("tcp")
    return next((found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN), None)


def _nowhere() -> dict[str, object]:
    """A kubeconfig whose server nobody is: health must not depend on it."""
    return {
        "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "nobody", "user": {"token": "none"}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
        "current-context": "nowhere",
    }
