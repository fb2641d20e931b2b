"""Makes releases on a registry of this machine, as `make release` does."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VERSIONED = {
    "pyproject.toml": 'version = "{}"',
    "deploy/Dockerfile": "ARG VERSION={}",
    "deploy/helm/headroom/Chart.yaml": "{}",
}
"""Where the version is said, by file."""
PASSWORD = "of the tests' key"


@dataclass(frozen=True)
class Released:
    """A release in `folder`, on the registry at `address`, signed with the key whose public half is `public_key`."""

    folder: Path
    address: str
    repository: str
    public_key: Path
    programs: dict[str, Path]
    folders: Path

    @property
    def digests(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "digests.json").read_text()))

    def reference(self, name: str) -> str:
        return f"{self.repository}/{name}@{self.digests[name]}"

    def run(self, *words: str | Path, status: int = 0) -> str:
        """What a program prints that comes with `programs`, and errors."""
        done = subprocess.run(
            [self.programs[str(words[0])], *words[1:]],
            env=environment(self.programs),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == (status != 0), done.stderr
        return done.stdout


def environment(programs: dict[str, Path]) -> dict[str, str]:
    folders = {str(path.parent) for path in programs.values()}
    path = os.pathsep.join([*folders, str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "COSIGN_PASSWORD": PASSWORD, "PYTHONPATH": ""}


def checkout(folder: Path, version: str = VERSION) -> Path:
    """The files of this work tree as a commit of their own, since a release takes no others."""
    git = ("git", "-c", "user.name=tests", "-c", "user.email=tests@example.com")
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    for name in files.stdout.decode().splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for name, place in VERSIONED.items():
        text = (folder / name).read_text("utf-8")
        (folder / name).write_text(text.replace(place.format(VERSION), place.format(version)), "utf-8")
    dates = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"}
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "all")):
        subprocess.run([*git, *words], cwd=folder, check=True, env=os.environ | dates)
    return folder


def cloned(released: Released, name: str) -> Path:
    """Another checkout of the commit that was released."""
    source, target = released.folders / "source", released.folders / name
    subprocess.run(["git", "clone", "--quiet", source, target], check=True)
    return target


def make(
    programs: dict[str, Path], source: Path, *arguments: str, version: str = VERSION
) -> subprocess.CompletedProcess[str]:
    """In a checkout of `version`."""
    command = [sys.executable, "-m", "deploy.image.release", f"--version={version}", *arguments]
    return subprocess.run(command, cwd=source, env=environment(programs), capture_output=True, text=True, check=False)


def make_key(programs: dict[str, Path], folder: Path) -> None:
    """cosign.key and cosign.pub in the folder."""
    command = [str(programs["cosign"]), "generate-key-pair"]
    subprocess.run(command, cwd=folder, env=environment(programs), check=True, capture_output=True)
