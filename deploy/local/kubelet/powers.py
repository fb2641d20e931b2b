"""What this kubelet may do on this machine, found out once by doing it."""

import logging
from dataclasses import dataclass
from pathlib import Path

from deploy.local.kubelet import process
from deploy.local.kubelet.enter import Plan
from deploy.local.kubelet.process import StartError

logger = logging.getLogger(__name__)

_NOBODY = 65534


@dataclass(frozen=True)
class Powers:
    """`stage`: the folder on which containers' roots are built, None where nothing can be mounted.
    `users`: processes can be started as any user.
    """

    stage: Path | None
    users: bool

    @property
    def mounts(self) -> bool:
        return self.stage is not None


def find_out(directory: Path) -> Powers:
    """Tries everything below `directory`, and says what came of it."""
    stage = directory / "stage"
    stage.mkdir(parents=True, exist_ok=True)
    no_mounts = _problem(Plan("/", told=-1, stage=str(stage)), directory)
    no_users = _problem(Plan("/", told=-1, user=_NOBODY, group=_NOBODY, capabilities=()), directory)
    if no_mounts:
        logger.warning(
            "volumes cannot be mounted, so pods find them below their working directory only, and the paths they name "
            "are missing: %s",
            no_mounts,
        )
    if no_users:
        logger.warning("pods run as the user of this kubelet, whatever their security context says: %s", no_users)
    logger.info(
        "what this kubelet may do was tried out", extra={"mountsVolumes": not no_mounts, "switchesUsers": not no_users}
    )
    return Powers(None if no_mounts else stage, not no_users)


def _problem(plan: Plan, directory: Path) -> str:
    """Why the plan cannot be carried out; nothing if it can."""
    try:
        process.attempt(plan, directory)
    except (StartError, OSError) as error:
        return str(error)
    return ""
