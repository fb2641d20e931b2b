"""Observations of a guard whose deadline a test has made short."""

from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from tests.support import eventually


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
