"""The kernel of a node that has one of its own: Linux in user mode (UML), a process like any other.

Built once, unpatched, from Debian's source: the kernel's own defaults for UML, and over them the lines of the file
`config`. The program links nothing but this machine's libc, and has no modules.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.apiserver.binaries import Unavailable
from tests.node import tools

CONFIG = Path(__file__).with_name("config")
PREFIX = "linux-source-"
SOURCE = f"{PREFIX}7.2"
SUITE = "forky"  # of Debian: the first that has this source, or a newer one once it has moved on
KEPT = 2
PROGRAMS = {"bc": "bc", "bison": "bison", "flex": "flex", "m4": "m4"}
"""Packages by the program that shows that they are there: what a kernel is built with, beside gcc and make."""

_VERSIONED = re.compile(rf"{PREFIX}(\d+\.\d+)")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def built(cache: Path) -> Path:
    """The program, named after all that it is built from. Raises Unavailable."""
    key = hashlib.sha256(SOURCE.encode() + CONFIG.read_bytes()).hexdigest()[:16]
    target = cache / f"linux-{key}"
    if target.exists():
        os.utime(target)
        return target
    for program in ("gcc", "make"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not on PATH, and the kernel of such a node has to be built")
    for old in sorted(cache.glob("linux-*"), key=lambda path: path.stat().st_mtime)[: -(KEPT - 1)]:
        old.unlink()
    folder = cache / "linux.unfinished"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        _build(folder, tools.unpacked(cache, PROGRAMS)).rename(target)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"no kernel can be built: {error}") from error
    shutil.rmtree(folder)
    return target


def _build(folder: Path, unpacked: Path) -> Path:
    """In `folder`, with its sources there, too."""
    source, output = _unpacked_source(folder), folder / "output"
    print(f"building a kernel from {source.name}, once; this takes some 15 minutes", file=sys.stderr, flush=True)
    output.mkdir()
    own = {"BISON_PKGDATADIR": f"{unpacked}/usr/share/bison", "M4": f"{unpacked}/usr/bin/m4"}
    environment = {
        "PATH": f"{unpacked}/usr/bin:{os.environ['PATH']}",
        "HOME": str(folder),
        **{name: path for name, path in own.items() if Path(path).exists()},
    }

    def make(*goals: str) -> None:
        words = ["make", "--silent", f"--directory={source}", "ARCH=um", f"O={output}", *goals]
        subprocess.run(words, env=environment, check=True, stdout=sys.stderr)

    make("defconfig")
    configuration = output / ".config"
    # Without modules, what would have been one would be built in.
    lines = [line for line in configuration.read_text().splitlines() if not line.endswith("=m")]
    configuration.write_text("\n".join([*lines, CONFIG.read_text()]))
    make("olddefconfig")
    lost = _wanted() - set(configuration.read_text().splitlines())
    if lost:
        raise Unavailable(f"the kernel of {source.name} cannot have {', '.join(sorted(lost))}")
    make(f"-j{len(os.sched_getaffinity(0))}", "linux")
    program = output / "linux"
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    print(f"Linux {said.stdout.strip()}", file=sys.stderr, flush=True)
    return program


def _wanted() -> set[str]:
    """Lines of the configuration, which Kconfig drops silently where they do not fit together."""
    return {line for line in CONFIG.read_text().splitlines() if line}


def _chosen(names: list[str]) -> str:
    """The source that is known to do, or else the newest one."""
    versions = {tuple(map(int, found[1].split("."))): found[0] for found in map(_VERSIONED.fullmatch, names) if found}
    if not versions:
        raise Unavailable(f"Debian's {SUITE} has no package {PREFIX}...")
    return SOURCE if SOURCE in versions.values() else versions[max(versions)]


def _unpacked_source(folder: Path) -> Path:
    """By a package list of its own: it comes from another suite than this machine's packages."""
    if not Path(_KEYRING).exists():
        raise Unavailable(f"{_KEYRING} is missing, by which packages of Debian's {SUITE} are known")
    (folder / "sources.list").write_text(f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian {SUITE} main\n")
    apt = tools.apt_get(folder, SourceList=folder / "sources.list", SourceParts=folder / "none")
    subprocess.run([*apt, "update"], check=True, stdout=sys.stderr)
    names = subprocess.run(["apt-cache", *apt[1:], "pkgnames", PREFIX], check=True, capture_output=True, text=True)
    source = _chosen(names.stdout.split())
    subprocess.run([*apt, "download", source], cwd=folder, check=True, stdout=sys.stderr)
    (package,) = folder.glob(f"{source}_*.deb")
    subprocess.run(["dpkg", "-x", package, folder / "package"], check=True)
    archive = folder / "package/usr/src" / f"{source}.tar.xz"
    subprocess.run(["tar", "--extract", f"--file={archive}", f"--directory={folder}"], check=True)
    return folder / source
