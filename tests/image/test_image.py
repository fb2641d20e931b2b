"""The images as their Dockerfile makes them, in plain folders, and run from there as they run in a cluster.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import yaml
from packaging.utils import canonicalize_name

from deploy.image import locked
from shared.plugins import DISTRIBUTION
from tests.image import dockerfile
from tests.image.dockerfile import PlainFolder
from tests.support import eventually
from tests.unit.local.test_wheel import OPERATORS_COMMANDS

ROOT = Path(__file__).parents[2]
LARGEST_MIB = {"agent": 120, "manager": 240}  # without the base
PAGE = ROOT / "docs" / "image.md"
API = "headroom_api"  # what plug-ins that are added to an image import
ONLY_ELSEWHERE = {"colorama"}  # on Windows
AS_ROOT = os.geteuid() == 0


@dataclass(frozen=True)
class Image:
    """A finished image: its folder "/", what it adds to its base, and how it is run."""

    component: str
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

    def command(self, *words: str) -> list[str]:
        """A command under the image's own user where this process may choose one, without any privilege."""
        ids = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--bounding-set=-all"]
        return [*(("setpriv", "--no-new-privs", *ids) if AS_ROOT else ()), *words]

    def files(self) -> list[Path]:
        """Everything in it that is no folder."""
        return [Path(top) / name for top, _, names in os.walk(self.added) for name in names]


@pytest.fixture(scope="module", params=locked.COMPONENTS)
def image(request: pytest.FixtureRequest) -> Iterator[Image]:
    mask = os.umask(0o022)
    root = Path(tempfile.mkdtemp(prefix="headroom-image-"))
    root.chmod(0o755)  # its user has to come in, whom pytest's own folders keep out
    try:
        file = dockerfile.parse((ROOT / "deploy" / "Dockerfile").read_text())
        folder = PlainFolder(root, ROOT, file)
        final = file.stage(request.param)
        folder.build(final)
        instructions = [each for stage in file.lineage(final) for each in stage.instructions]
        (user,), (entrypoint,), (stop,) = (
            [each for each in instructions if each.keyword == word] for word in ("USER", "ENTRYPOINT", "STOPSIGNAL")
        )
        yield Image(
            component=request.param,
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


def test_it_holds_exactly_the_locked_versions_of_its_group_and_of_what_those_need(image: Image) -> None:
    lock = locked.pins(locked.LOCK.read_text())
    chosen = locked.closure(locked.requirements(image.component), lock)
    pinned = {line.split()[0] for pin in chosen for line in pin.lines[:1]}
    others = {f"{found.name}=={found.version}" for found in image.distributions.values() if found.name != DISTRIBUTION}
    found = {canonicalize_name(name) + "==" + version for name, _, version in (each.partition("==") for each in others)}
    assert found <= pinned
    assert {pin.name for pin in chosen} - set(image.distributions) <= ONLY_ELSEWHERE
    assert not {"pip", "kubernetes", "pytest", "hatchling"} & set(image.distributions)


def test_every_file_belongs_to_a_package_and_none_names_the_folders_of_the_build(image: Image) -> None:
    packages = image.site_packages
    recorded = {image.added / "pyvenv.cfg", image.added / "bin" / "headroom"}
    for distribution in image.distributions.values():
        recorded |= {Path(str(file.locate())).resolve() for file in distribution.files or []}
    recorded |= {Path(importlib.util.cache_from_source(str(file))) for file in recorded if file.suffix == ".py"}
    strangers = set(image.files()) - recorded
    assert {file.name.rstrip("0123456789.") for file in strangers if file.parent == image.added / "bin"} == {"python"}
    assert not [file for file in strangers if file.parent != image.added / "bin"]

    assert not list(packages.rglob("direct_url.json"))
    for trace in (str(image.root / name).encode() for name in ("context", "source")):
        assert not [file for file in image.files() if trace in file.read_bytes()]


def test_of_headroom_it_holds_its_own_packages_and_nothing_of_the_tests(image: Image) -> None:
    parts = {"agent": {"agent", "shared"}, "manager": {"deploy", "manager", "shared"}}[image.component] | {API}
    context = image.root / "context"
    own = {file.relative_to(image.site_packages) for file in image.site_packages.rglob("*.py")}
    own = {file for file in own if (context / file.parts[0]).is_dir()}
    assert {file.parts[0] for file in own} == parts
    commands = {file for file in own if file.parts[0] == "deploy"}
    assert {str(file.relative_to("deploy")) for file in commands} == (
        OPERATORS_COMMANDS if "deploy" in parts else set()
    )
    for part in parts - {"deploy"}:
        assert {file.relative_to(context) for file in (context / part).rglob("*.py")} <= own


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
    told = re.search(rf"^\| `{image.component}` \|.*\| (\d+) MiB \|$", PAGE.read_text(), re.MULTILINE)
    assert told
    assert abs(int(said[1]) - int(told[1])) <= 0.05 * int(told[1])
    mib = sum(file.lstat().st_size for file in image.files()) / 2**20
    record_property(f"{image.component}_mib_without_base", round(mib))
    assert mib < LARGEST_MIB[image.component]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("agent", "."), ". is there already"),
        (("enforcer", "unheard-of"), "not enforcer"),
        (("agent", "unheard-of", "s390x"), "not s390x"),
        ((), "usage: "),
    ],
)
def test_a_build_of_what_is_there_or_unknown_is_refused(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    build = [str(ROOT / "deploy" / "image" / "build.sh"), *arguments]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert why in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_entry_point_says_how_it_is_used(image: Image) -> None:
    assert f"usage: headroom {image.component}" in ran(image, *image.entrypoint, "--help").stdout.lower()


def test_a_kubeconfig_that_takes_the_official_client_is_refused_with_the_reason(image: Image) -> None:
    kubeconfig = image.root / "kubeconfig-exec"
    document = _nowhere()
    document["users"] = [{"name": "reader", "user": {"exec": {"command": "login"}}}]
    kubeconfig.write_text(yaml.safe_dump(document))
    done = ran(image, *image.entrypoint, "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0", status=2)
    assert "needs the package kubernetes" in done.stderr


def test_only_the_managers_image_has_the_command_line_and_that_runs_cleanup(image: Image) -> None:
    script = image.added / "bin" / "headroom"
    assert script.exists() is (image.component == "manager")
    if image.component == "manager":
        assert "usage: headroom cleanup" in ran(image, "headroom", "cleanup", "--help").stdout.lower()
        assert "`make run` starts it in a checkout" in ran(image, "headroom", "up", status=2).stderr
        missing = ran(image, "headroom", "backtest", "/etc/hostname", status=1).stderr
        assert "this needs the package agent, which is not installed" in missing


def ran(image: Image, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """What comes of a command in the image."""
    done = subprocess.run(
        image.command(*words), cwd="/", env=image.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    return done


def test_it_runs_as_its_user_is_healthy_and_changes_nothing_in_it(image: Image) -> None:
    before = snapshot(image)
    state = image.root / "state"
    state.mkdir()
    kubeconfig = image.root / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(_nowhere()))
    if AS_ROOT:
        os.chown(state, image.user, image.user)
    arguments = ["--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"]
    arguments += ["--state-dir", str(state / "agent")] if image.component == "agent" else []
    log = image.root / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            image.command(*image.entrypoint, *arguments), cwd="/", env=image.environment, stdout=errors, stderr=errors
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
        "users": [{"name": "reader", "user": {"token": "none"}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "reader"}}],
        "current-context": "nowhere",
    }
