"""Observations of a guard whose deadline a test has made short."""

from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.guard import Guard, Observed
from tests.support import eventually


def observed(guard: Guard) -> Observed:
    """What it sees of a cloud that answers: a busy machine may take longer for that than a short deadline, too."""

    def look() -> Observed | None:
        try:
            return guard.observe()
        except Unavailable:
            return None

    found = eventually(look)
    assert found is not None
    return found
