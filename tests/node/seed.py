"""A containerd's folder that has the images already: imported once, then linked into every node that starts.

`python -m tests.node.seed FOLDER IMAGE...` makes it, in a mount namespace that has the tools.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.apiserver.binaries import Unavailable
from tests.node import tools
from tests.node.images import ROOT
from tests.node.mounts import SCRATCH
from tests.support import eventually

KEPT = 2
DISK_SIZE = "16G"  # holes for the most part
_DATABASES = "*.db"  # all that containerd changes in place; layers and blobs are only ever added and removed


def made(cache: Path, unpacked_tools: Path, images: Sequence[Path]) -> Path:
    """The folder with these archives in it. Raises Unavailable."""
    key = hashlib.sha256("\n".join([unpacked_tools.name, *(image.name for image in images)]).encode()).hexdigest()
    target = cache / f"containerd-{key[:16]}"
    if target.exists():
        os.utime(target)
        return target
    for old in sorted(cache.glob("containerd-*"), key=lambda path: path.stat().st_mtime)[: -(KEPT - 1)]:
        shutil.rmtree(old)
        disk_of(old).unlink(missing_ok=True)
    unfinished = cache / "containerd.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    print("importing the images into containerd, once", file=sys.stderr, flush=True)
    importing: list[str | Path] = [sys.executable, "-m", "tests.node.seed", unfinished, *images]
    try:
        subprocess.run(tools.command(unpacked_tools, *importing), cwd=ROOT, check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"containerd cannot import the images: {error}") from error
    unfinished.rename(target)
    return target


def disk_of(seed: Path) -> Path:
    """Where the disk with the seed is."""
    return seed.with_name(f"disk-{seed.name}.ext4")


def disk(seed: Path) -> Path:
    """An image of a disk whose folder `containerd` is the seed's, made where it is missing. Raises Unavailable."""
    target = disk_of(seed)
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=seed.parent) as folder:
        plant(seed, Path(folder, "containerd"))
        unfinished = target.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-E", "root_owner=0:0", "-d", folder, unfinished, DISK_SIZE], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"no disk can be made: {error}") from error
    unfinished.rename(target)
    return target


def plant(seed: Path, target: Path) -> None:
    """Makes `target` the same, without copying what never changes where both are on one file system."""
    near = seed.stat().st_dev == target.parent.stat().st_dev
    subprocess.run(["cp", "--archive", *(["--link"] if near else []), str(seed), str(target)], check=True)
    for database in target.rglob(_DATABASES) if near else ():
        if database.parent.parent == target:
            database.unlink()
            shutil.copy(seed / database.relative_to(target), database)


def _import(folder: Path, images: Sequence[str]) -> None:
    socket, configuration = SCRATCH / "containerd.sock", SCRATCH / "containerd.toml"
    disabled = '["io.containerd.grpc.v1.cri"]'
    configuration.write_text(
        f'version = 2\nroot = "{folder}"\nstate = "{SCRATCH}/containerd"\ndisabled_plugins = {disabled}\n'
        f'[grpc]\n  address = "{socket}"\n'
    )
    with subprocess.Popen(["containerd", f"--config={configuration}", "--log-level=error"]) as containerd:
        try:
            eventually(socket.exists)
            for image in images:
                address = f"--address={socket}"
                subprocess.run(["ctr", address, "--namespace=k8s.io", "images", "import", image], check=True)
        finally:
            containerd.terminate()


if __name__ == "__main__":
    _import(Path(sys.argv[1]), sys.argv[2:])
