"""Scripts on the virtual clock, which come to their ends."""

import pytest

from tests.simulation.nursery import Nursery
from tests.simulation.scripts import SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_expects_comes_about(name: str, nursery: Nursery) -> None:
    flags = ("--seed=1", f"--script={name}")
    outcome = nursery.simulate(flags)
    assert outcome.status == 0, f"python -m tests.simulation {' '.join(flags)}\n{outcome.output}"
