"""The cgroups that a whole cluster runs in: one in each of the machine's hierarchies, by the same name."""

import contextlib
import os
import time
from pathlib import Path

from tests.apiserver.binaries import Unavailable

ROOT = Path("/sys/fs/cgroup")
PREFIX = "headroom-node-"
_COPIED = ("cpuset.cpus", "cpuset.mems")  # empty in a new cgroup of v1, and nothing can run there
_SHARES = 8 * 1024  # of CPU time: a whole cluster counts as eight of the machine's other processes, not as one
_EMPTY_SECONDS = 10.0


def check() -> None:
    """Raises Unavailable where this machine cannot have them."""
    found = hierarchies()
    if not {"cpu", "memory"} <= {part for path in found for part in path.name.split(",")}:
        raise Unavailable(
            "such a node runs on cgroup v1, and the controllers cpu and memory are not mounted as such here"
        )
    for hierarchy in found:
        if not os.access(hierarchy, os.W_OK):
            raise Unavailable(f"no cgroups can be made in {hierarchy}")


def hierarchies() -> list[Path]:
    """Where the machine's hierarchies of v1 are mounted."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [Path(words[4]) for words in lines if words[words.index("-") + 1] == "cgroup"]


def create(name: str) -> None:
    """Makes the cgroup in every hierarchy. Raises OSError."""
    for hierarchy in hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        if (folder / "cgroup.clone_children").exists():
            (folder / "cgroup.clone_children").write_text("1")
        if (folder / "cpu.shares").exists():
            (folder / "cpu.shares").write_text(str(_SHARES))
        for file in _COPIED:
            if (folder / file).exists():
                (folder / file).write_text((hierarchy / file).read_text())


def enter(name: str) -> None:
    """Moves this process there; its children start there."""
    for hierarchy in hierarchies():
        (hierarchy / name / "cgroup.procs").write_text(str(os.getpid()))


def remove(name: str) -> None:
    """Removes it with all that is below, once its last process has ended."""
    deadline = time.monotonic() + _EMPTY_SECONDS
    for hierarchy in hierarchies():
        for top, _, _ in os.walk(hierarchy / name, topdown=False):
            while True:
                with contextlib.suppress(FileNotFoundError):
                    try:
                        Path(top).rmdir()
                    except OSError:
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(0.05)
                        continue
                break


def left_behind() -> set[str]:
    """The names of all that are there."""
    return {folder.name for hierarchy in hierarchies() for folder in hierarchy.glob(f"{PREFIX}*")}
