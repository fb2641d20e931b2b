"""A directory of files that is replaced whole: a reader sees all of the old ones or all of the new ones.

As in Kubernetes' own volumes, what a pod sees are links into `..data`, itself a link to a directory with the time in
its name, which is swapped by one rename.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.local.kubelet.files import File, Files

DATA = "..data"
_NEXT = "..data_tmp"

_DIRECTORY_MODE = 0o755
_GROUP_READS = 0o440
_GROUP_LISTS = 0o050
_GROUP_INHERITED = 0o2000


def write(directory: Path, files: Files, *, group: int | None = None) -> bool:
    """Makes `directory` hold `files` and nothing else, all of the group if there is one; False if it did already.

    Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(_DIRECTORY_MODE)
    if not (directory / _NEXT).is_symlink() and _held(directory) == _wanted(files, group):
        return False
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime())
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=directory))
    for path, file in files.items():
        _write_file(fresh / path, file, group)
    _open_to(fresh, group)
    next_link = directory / _NEXT
    next_link.unlink(missing_ok=True)
    next_link.symlink_to(fresh.name)
    next_link.replace(directory / DATA)
    _link(directory, {Path(path).parts[0] for path in files})
    for left in directory.glob("..*"):  # the last one, and whatever was cut off before it was linked
        if left.is_dir() and not left.is_symlink() and left != fresh:
            shutil.rmtree(left, ignore_errors=True)
    return True


def _wanted(files: Files, group: int | None) -> dict[str, tuple[bytes, int]]:
    return {str(Path(path)): (file.content, _mode(file, group)) for path, file in files.items()}


def _held(directory: Path) -> dict[str, tuple[bytes, int]] | None:
    """What is there now; None when it is not what `write` leaves behind."""
    data = directory / DATA
    if not data.is_dir():
        return None
    held = {
        str(path.relative_to(data)): (path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in data.rglob("*")
        if path.is_file()
    }
    names = {Path(path).parts[0] for path in held}
    return held if names == {link.name for link in _links(directory)} else None


def _write_file(path: Path, file: File, group: int | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    if file.owner is not None and os.geteuid() == 0:
        os.chown(path, file.owner, -1)
    if group is not None and os.geteuid() == 0:
        os.chown(path, -1, group)
    path.chmod(_mode(file, group))  # last: a change of owner takes bits away


def _mode(file: File, group: int | None) -> int:
    return file.mode if group is None else file.mode | _GROUP_READS


def _open_to(fresh: Path, group: int | None) -> None:
    """Lets others into the directories, which were made for nobody but us."""
    for directory in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
        if group is not None and os.geteuid() == 0:
            os.chown(directory, -1, group)
        directory.chmod(_DIRECTORY_MODE if group is None else _DIRECTORY_MODE | _GROUP_LISTS | _GROUP_INHERITED)


def _links(directory: Path) -> Iterator[Path]:
    """What the pod sees."""
    return (path for path in directory.iterdir() if not path.name.startswith(".."))


def _link(directory: Path, names: set[str]) -> None:
    for link in _links(directory):
        if link.name not in names:
            link.unlink()
    for name in names:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{DATA}/{name}")
