"""Debian's packages that a node and its images need, unpacked into the cache where the machine lacks them.

Nothing is installed: they are laid over the machine's own files in a mount namespace (see `mounts`).
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.apiserver.binaries import Unavailable

PROGRAMS = {
    "buildah": "buildah",
    "containerd": "containerd",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "debootstrap": "debootstrap",
    "runc": "runc",
}
"""Packages by the program that shows that they are there."""


def unpacked(cache: Path, programs: Mapping[str, str] = PROGRAMS) -> Path:
    """The folder with the files of all that is missing here. Raises Unavailable."""
    missing = sorted(name for name, program in programs.items() if shutil.which(program) is None)
    key = hashlib.sha256("\n".join([*missing, Path("/etc/os-release").read_text()]).encode()).hexdigest()[:16]
    target = cache / f"tools-{key}"
    if target.exists():
        return target
    unfinished = target.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for part in ("usr", "etc"):
        (unfinished / part).mkdir(parents=True)
    if missing:
        print(f"fetching {', '.join(missing)} with what they need, once", file=sys.stderr, flush=True)
        _fetch(missing, unfinished)
    unfinished.rename(target)
    return target


def command(tools: Path, *words: str | Path) -> list[str]:
    """The command as run where the tools are: in a mount namespace of its own, on the machine's network."""
    here = [sys.executable, "-m", "tests.node.mounts", str(tools)]
    return ["unshare", "--mount", "--propagation", "private", *here, *map(str, words)]


def apt_get(folder: Path, **more: str | Path) -> list[str]:
    """The command by a package list of its own in `folder`, which leaves the machine's as it is. Raises Unavailable."""
    if shutil.which("apt-get") is None:
        raise Unavailable("no apt-get to fetch packages with")
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    own = {
        "Dir::State::lists": folder / "lists",
        "Dir::Cache::archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",  # of the machine's list of what is installed, which is only read
        **{f"Dir::Etc::{name}": value for name, value in more.items()},
    }
    return ["apt-get", "--quiet=2", *(word for name, value in own.items() for word in ("-o", f"{name}={value}"))]


def _fetch(packages: list[str], folder: Path) -> None:
    try:
        apt = apt_get(folder)
        subprocess.run([*apt, "update"], check=False)  # one source of several may be away
        subprocess.run([*apt, "install", "--download-only", "--yes", "--no-install-recommends", *packages], check=True)
        for archive in sorted((folder / "archives").glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(folder / "unpacked")], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{', '.join(packages)} cannot be fetched: {error}") from error
    shutil.copytree(folder / "unpacked", folder, symlinks=True, dirs_exist_ok=True)
    for name in ("unpacked", "lists", "archives"):
        shutil.rmtree(folder / name, ignore_errors=True)
