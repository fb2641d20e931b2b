"""What the tests of the simulation share."""

from collections.abc import Iterator

import pytest

from tests.simulation.nursery import Nursery

PATIENCE_SECONDS = 600


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(PATIENCE_SECONDS)
    yield nursery
    nursery.close()
