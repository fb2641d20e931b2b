"""The simulated cloud of a local cluster: its file, and the manager's flags for it."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from deploy.local.home import Home
from manager.autoscaler.cloudprovider import simulated
from manager.autoscaler.cloudprovider.simulated import config
from manager.autoscaler.cloudprovider.simulated.config import SimulatedCloud

SAMPLE = Path(__file__).parent / "cloud.yaml"
NONE = "none"
SCAN_INTERVAL = "5s"
IDLE = "2m"  # after which unneeded nodes are deleted; a demo does not last long


@dataclass(frozen=True)
class LocalCloud:
    """`file` describes the offered node groups, `flags` are the manager's. The sample comes with pods that need it."""

    file: Path
    is_sample: bool
    flags: tuple[str, ...]


def check(given: str) -> None:
    """Raises InvalidInput for an invalid file."""
    if given not in ("", NONE):
        config.load(Path(given))


def choose(given: str, home: Home) -> LocalCloud | None:
    """Picks the cloud from the command line's `given`: a path, "none", or empty for the sample.

    `home` gets a copy of the sample unless it has one from an earlier start. Raises InvalidInput for an invalid file.
    """
    if given == NONE:
        return None
    file = Path(given).resolve() if given else home.directory / SAMPLE.name
    if not given and not file.exists():
        shutil.copyfile(SAMPLE, file)
    return LocalCloud(file, is_sample=not given, flags=_flags(file, config.load(file)))


def _flags(file: Path, offered: SimulatedCloud) -> tuple[str, ...]:
    """Lets the manager size every group of the file."""
    groups = ",".join(f"{each.min}:{each.max}:{each.name}" for each in offered.groups)
    return (
        *("--cloud-provider", simulated.NAME, "--cloud-config", str(file)),
        *("--scan-interval", SCAN_INTERVAL),
        *("--scale-down-unneeded-time", IDLE, "--scale-down-delay-after-add", IDLE),
        *(("--nodes", groups) if groups else ()),
        *("--capacity-buffer-pod-injection-enabled", "true", "--enable-provisioning-requests", "true"),
        *(("--node-autoprovisioning", "true") if offered.autoprovisioning is not None else ()),
    )
