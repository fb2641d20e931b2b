"""The configuration in force: the last valid version of the file."""

import logging
from pathlib import Path

from msgspec.structs import replace

from manager.autoscaler.cloudprovider.simulated import config
from manager.autoscaler.cloudprovider.simulated.books import Books
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig, SimulatedCloud
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)


class MachineOffer:
    """Raises InvalidInput at the start; a file that becomes invalid later changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cloud: SimulatedCloud = config.load(path)
        self._problem = ""

    def reread(self) -> None:
        """Reports a problem with the file once."""
        problem = ""
        try:
            self.cloud = config.load(self._path)
        except InvalidInput as error:
            problem = str(error)
        if problem and problem != self._problem:
            logger.error("the last good configuration stays: %s", problem)
        self._problem = problem

    def groups(self, books: Books) -> dict[str, GroupConfig]:
        """All groups: those of the file, and created ones, which have the present timing and faults."""
        found = {group.name: group for group in self.cloud.groups}
        pace = self.cloud.autoprovisioning
        for name, entry in books.groups.items():
            if entry.made_of is not None and name not in found:
                found[name] = entry.made_of if pace is None else _paced(entry.made_of, pace)
        return found


def _paced(group: GroupConfig, pace: config.GroupTiming) -> GroupConfig:
    return replace(
        group,
        boot_seconds=pace.boot_seconds,
        ready_seconds=pace.ready_seconds,
        delete_seconds=pace.delete_seconds,
        faults=pace.faults,
    )
