"""What users do in a simulated cluster, and what must come of it: each script is a test on the virtual clock.

`python -m tests.simulation --seed=1 --script=NAME` runs one. Its seed draws the order in which tasks go on.
"""

import gc
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.simulation import scripts_of_removal, scripts_of_scale_up
from tests.simulation.town import Town
from tests.simulation.virtual import WORLD, Process

SCRIPTS: dict[str, Callable[[Town], None]] = {
    each.__name__: each for each in (*scripts_of_scale_up.SCRIPTS, *scripts_of_removal.SCRIPTS)
}
LONGEST_SECONDS = 86_400.0


def play(name: str, directory: Path, seed: int) -> int:
    """0 if the script comes to its end."""
    ended: list[int] = []

    def run() -> None:
        try:
            SCRIPTS[name](Town(directory, seed))
            ended.append(0)
        except Exception:
            print(traceback.format_exc())
            ended.append(1)

    gc.disable()
    WORLD.spawn(run, "script", Process("script"))
    WORLD.run(LONGEST_SECONDS, lambda: bool(ended))
    return ended[0] if ended else 1
