"""A mount namespace in which packages are installed that the machine itself lacks.

`python -m tests.node.mounts TOOLS COMMAND ARGS...` runs COMMAND there, in the namespace that it is started in. What is
written below /usr and /etc stays in memory and goes with the namespace.
"""

import os
import subprocess
import sys
from pathlib import Path

SCRATCH = Path("/mnt")
"""Where the namespace's own memory is mounted; the machine's folder of that name is not touched."""

_OVERLAID = ("usr", "etc")


def overlay_tools(tools: Path) -> None:
    """Lays the packages' files in `tools` over this machine's."""
    mount("tmpfs", SCRATCH, "-t", "tmpfs")
    for name in _OVERLAID:
        overlay(Path("/", name), SCRATCH / name, tools / name)


def overlay(target: Path, scratch: Path, *above: Path) -> None:
    """`target` with the folders `above` over it, and what is written to it in `scratch`."""
    for part in ("upper", "work"):
        (scratch / part).mkdir(parents=True)
    lower = ":".join(map(str, (*above, target)))
    mount("overlay", target, "-t", "overlay", "-o", f"lowerdir={lower},upperdir={scratch}/upper,workdir={scratch}/work")


def mount(source: str | Path, target: Path, *options: str) -> None:
    """As the command of this name. Raises CalledProcessError."""
    subprocess.run(["mount", *options, str(source), str(target)], check=True)


if __name__ == "__main__":
    tools, *command = sys.argv[1:]
    overlay_tools(Path(tools))
    os.execvp(command[0], command)
