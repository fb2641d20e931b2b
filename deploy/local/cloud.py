"""The simulated cloud a local cluster buys nodes from: its file, and what the manager is told of it."""

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
IDLE = "2m"  # after which nodes that are not needed go again: nobody looks on for long


@dataclass(frozen=True)
class LocalCloud:
    """`file` says what is on offer, `flags` what the manager is told. A sample comes with pods that need it."""

    file: Path
    is_sample: bool
    flags: tuple[str, ...]


def check(given: str) -> None:
    """Raises InvalidInput for a file that means nothing."""
    if given not in ("", NONE):
        config.load(Path(given))


def choose(given: str, home: Home) -> LocalCloud | None:
    """`given` is the command line's: a file of the user's, none, or empty for the sample, of which `home` gets a copy
    unless there is one from last time. Raises InvalidInput for a file that means nothing.
    """
    if given == NONE:
        return None
    file = Path(given).resolve() if given else home.directory / SAMPLE.name
    if not given and not file.exists():
        shutil.copyfile(SAMPLE, file)
    return LocalCloud(file, is_sample=not given, flags=_flags(file, config.load(file)))


def _flags(file: Path, offered: SimulatedCloud) -> tuple[str, ...]:
    """Every group of the file is the manager's to size."""
    groups = ",".join(f"{each.min}:{each.max}:{each.name}" for each in offered.groups)
    return (
        *("--cloud-provider", simulated.NAME, "--cloud-config", str(file)),
        *("--scan-interval", SCAN_INTERVAL),
        *("--scale-down-unneeded-time", IDLE, "--scale-down-delay-after-add", IDLE),
        *(("--nodes", groups) if groups else ()),
        *(("--node-autoprovisioning", "true") if offered.autoprovisioning is not None else ()),
    )
