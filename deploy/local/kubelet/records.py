"""Stores the kubelet's knowledge of its containers on disk, so that a kubelet killed at any time finds them again.

Each pod has one file, which is always replaced as a whole. An unreadable file is set aside: the kubelet finds its
processes by their cgroup or variable and ends them, and the pod starts anew.
"""

import logging
import os
from pathlib import Path

import msgspec

from deploy.local.kubelet.lifecycle import Record
from shared.names import KubeQoS

logger = logging.getLogger(__name__)


class PodFile(msgspec.Struct, frozen=True):
    """One pod's containers by name. `acknowledged_at`: when a kubelet first saw the pod, in Unix seconds."""

    uid: str
    namespace: str
    name: str
    qos: KubeQoS
    acknowledged_at: float
    records: dict[str, Record]


class Records:
    """The files below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def load(self) -> dict[str, PodFile]:
        """The files of all pods by uid."""
        found: dict[str, PodFile] = {}
        for path in sorted(self._directory.glob("*.json")):
            try:
                pod_file = msgspec.json.decode(path.read_bytes(), type=PodFile)
            except (OSError, msgspec.MsgspecError) as error:
                logger.warning("state of a pod set aside: %s", error, extra={"file": str(path)})
                path.rename(path.with_suffix(".unreadable"))
                continue
            found[pod_file.uid] = pod_file
        return found

    def save(self, pod_file: PodFile) -> None:
        """Writes the file; it is durable when this returns."""
        target = self._path(pod_file.uid)
        temporary = target.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(pod_file))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def forget(self, uid: str) -> None:
        self._path(uid).unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        return self._directory / f"{uid}.json"
