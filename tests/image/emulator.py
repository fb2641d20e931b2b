"""Debian's Python for arm64 in QEMU's emulation of its user mode, fetched once and unpacked; nothing is installed."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.apiserver import binaries
from tests.apiserver.binaries import Unavailable
from tests.node import tools

ARCHITECTURE = "arm64"
_PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_LIBRARIES = (
    *(f"lib{_PYTHON}-{part}" for part in ("minimal", "stdlib")),
    *("libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libsqlite3-0", "libssl3"),
    *("libstdc++6", "libuuid1", "zlib1g"),
)


def python(environment: Mapping[str, str]) -> list[str]:
    """The words that run the interpreter, of this minor version. Raises Unavailable."""
    cache = binaries.cache_home(environment) / "image"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{_PYTHON}-{ARCHITECTURE}"
    with binaries.locked(cache / f"{ARCHITECTURE}.lock"):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _fetch(unfinished)
            unfinished.rename(target)
    emulator = [str(target / "usr" / "bin" / "qemu-aarch64-static"), "-L", str(target)]
    return [*emulator, str(target / "usr" / "bin" / _PYTHON)]


def _fetch(folder: Path) -> None:
    if platform.machine() != "x86_64":
        raise Unavailable(f"the emulator is that of x86_64, and this is {platform.machine()}")
    packages = ["qemu-user-static", *(f"{name}:{ARCHITECTURE}" for name in (f"{_PYTHON}-minimal", *_LIBRARIES))]
    print(f"fetching {_PYTHON} for {ARCHITECTURE} and its emulator, once", file=sys.stderr, flush=True)
    archives = folder / "debs"
    archives.mkdir(parents=True)
    apt = [*tools.apt_get(folder), *(word for name in ("amd64", ARCHITECTURE) for word in _architecture(name))]
    try:
        subprocess.run([*apt, "update"], check=False)  # one source of several may be away
        subprocess.run([*apt, "download", *packages], cwd=archives, check=True)
        for archive in archives.iterdir():
            subprocess.run(["dpkg", "-x", archive, folder], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{', '.join(packages)} cannot be fetched: {error}") from error
    for name in ("debs", "lists", "archives"):
        shutil.rmtree(folder / name)


def _architecture(name: str) -> tuple[str, str]:
    return "-o", f"APT::Architectures::={name}"
