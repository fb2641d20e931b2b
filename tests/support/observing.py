"""Guards of real providers, and observations of one whose deadline a test has made short."""

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cloudprovider.plugin import ProviderRequest
from shared import names
from shared.telemetry import Loops
from tests.support import eventually


def guarded(cloud: str, file: Path, ownership: Ownership, *, writes: bool = True, **request: Any) -> Guard:
    """The provider of that name behind its guard, with the file and the rest of a `ProviderRequest`."""
    loops = Loops(CollectorRegistry()) if writes else None
    given = {"namespace": names.INSTALL_NAMESPACE, "loops": loops, **request}
    return Guard(plugin.build(cloud, ProviderRequest(config=file, **given)), ownership)


def observed(guard: Guard) -> CloudObservation:
    """What it sees of a cloud that answers: a busy machine may take longer for that than a short deadline, too."""

    def look() -> CloudObservation | None:
        try:
            return guard.observe()
        except Unavailable:
            return None

    found = eventually(look)
    assert found is not None
    return found
