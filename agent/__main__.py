"""`python -m agent`."""

import gc
import sys


def start() -> int:
    """The garbage collector rests until all is imported, as that is there to stay: a tenth of the start's CPU time."""
    gc.disable()
    from agent.main import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
