"""Runs tests of real cgroups on cgroup v2: `python -m tests.cgroup2 [TESTS...]`.

A kernel of Debian's boots in an emulated machine (QEMU without KVM, so neither rights nor a device are needed) whose
whole file system is one archive in memory: this interpreter, its packages, this repository. Whatever cgroups the
machine itself has, the tests there find a pure v2 tree with all controllers. It is ten to twenty times slower.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from tests.apiserver.binaries import Unavailable, cache_home, locked
from tests.cgroup2.archive import Archive
from tests.node import tools

REPOSITORY = Path(__file__).parents[2]
TESTS = ("--thorough", "tests/integration/agent/test_enforcer.py", "tests/integration/agent/test_usage.py")
PACKAGES = {
    "busybox-static": "busybox",
    "linux-image-cloud-amd64": "vmlinuz",  # in no search path, so always fetched
    "qemu-system-x86": "qemu-system-x86_64",
}
PROGRAMS = ("cat", "env", "mount", "setpriv", "sh", "unshare")
# What the tests do without, by folder: tools of development, clouds, plots, and what only commands read.
WITHOUT = frozenset(
    {
        ".git",
        ".venv",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "test",
        "idlelib",
        "ensurepip",
        "site-packages",  # within the standard library's folder; the interpreter's own is named on its path
        os.path.basename(sysconfig.get_config_var("LIBPL")),
        "kubernetes",
        "mypy",
        "mypyc",
        "ruff",
        "pip",
        "moto",
        "botocore",
        "boto3",
        "polars",
        "_polars_runtime_32",
        "matplotlib",
        "fontTools",
        "PIL",
        "pillow.libs",
        "grpc",
        "dask",
        "distributed",
    }
)
MEMORY_MIB = 3072
TIMEOUT_SECONDS = 1200.0  # of a machine that hangs

_STATUS = re.compile(r"exit status (\d+)")
_CONTROL = re.compile(r"\x1bc|\x1b\[[?0-9;]*[A-Za-ln-z]|\r")  # what the firmware clears the screen with; colours stay


def main(arguments: list[str]) -> int:
    try:
        if platform.machine() != "x86_64":
            raise Unavailable(f"the emulated machine is an x86_64 one, and this one is {platform.machine()}")
        cache = cache_home(os.environ) / "cgroup2"
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / "lock"):
            parts = tools.unpacked(cache, PACKAGES)
        with tempfile.TemporaryDirectory(prefix="headroom-cgroup2-") as folder:
            archive = Path(folder, "initramfs")
            _pack(archive, parts, arguments or list(TESTS))
            return _run(parts, archive)
    except Unavailable as error:
        print(f"no cgroup v2 here: {error}", file=sys.stderr)
        return 1


def _pack(target: Path, parts: Path, tests: Iterable[str]) -> None:
    with target.open("wb") as file:
        archive = Archive(file)
        for name in ("proc", "sys", "dev", "tmp", "run"):
            archive.folder(name)
        archive.add(REPOSITORY / "tests/cgroup2/init", "init")
        archive.add(_program("busybox", parts), "bin/busybox")
        programs = [_program(name, parts) for name in PROGRAMS]
        interpreter = Path(os.path.realpath(sys.executable))
        for name, program in zip(PROGRAMS, programs, strict=True):
            archive.add(program, f"usr/bin/{name}")
        archive.link("bin/sh", "/usr/bin/sh")
        archive.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65532:65532::/:/bin/sh\n")
        archive.add(interpreter)
        paths = [path for path in map(Path, sys.path) if path.is_dir()]
        for path in {REPOSITORY, *paths}:
            archive.tree(path, WITHOUT)
        for library in _libraries([interpreter, *programs, *_extensions(paths)]):
            archive.add(library)
        # What this interpreter finds by its virtual environment, that one finds by its path.
        environment = {
            "HOME": "/tmp",
            "PYTHON": str(interpreter),
            "PYTHONPATH": os.pathsep.join(map(str, [REPOSITORY, *paths])),
            "REPOSITORY": str(REPOSITORY),
            "TESTS": " ".join(tests),
        }
        archive.text("environment", "".join(f"export {name}='{value}'\n" for name, value in environment.items()))
        archive.close()


def _program(name: str, parts: Path) -> Path:
    found = shutil.which(name) or next((str(each) for each in parts.glob(f"**/bin/{name}")), None)
    if found is None:
        raise Unavailable(f"{name} is missing")
    return Path(found)


def _extensions(paths: Iterable[Path]) -> list[Path]:
    return sorted(
        file
        for path in paths
        for file in path.rglob("*.so*")
        if file.is_file() and not WITHOUT.intersection(file.relative_to(path).parts)
    )


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    """The shared libraries that the dynamic linker would load, the linker itself included."""
    said = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"(/\S+) \(0x", said)}


def _run(parts: Path, archive: Path) -> int:
    kernel = next((parts / "boot").glob("vmlinuz-*"), None)
    if kernel is None:
        raise Unavailable(f"no kernel in {parts}")
    emulator = _program("qemu-system-x86_64", parts)
    command = [
        str(emulator),
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-smp",
        "2",
        "-m",
        str(MEMORY_MIB),
        "-nographic",
    ]
    command += [
        "-no-reboot",
        "-nic",
        "none",
        "-L",
        str(parts / "usr/share/qemu"),
        "-L",
        str(parts / "usr/share/seabios"),
    ]
    command += ["-kernel", str(kernel), "-initrd", str(archive), "-append", "console=ttyS0 panic=-1 rdinit=/init quiet"]
    libraries = os.pathsep.join(map(str, (parts / "usr/lib/x86_64-linux-gnu", parts / "lib/x86_64-linux-gnu")))
    environment = os.environ | {"LD_LIBRARY_PATH": libraries}
    status = None
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as machine:
        assert machine.stdout is not None
        watchdog = threading.Timer(TIMEOUT_SECONDS, machine.kill)
        watchdog.start()
        for line in machine.stdout:
            print(_CONTROL.sub("", line), end="", flush=True)
            if found := _STATUS.match(line):
                status = int(found[1])
        watchdog.cancel()
    if status is None:
        print("the machine ended before its tests did", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
