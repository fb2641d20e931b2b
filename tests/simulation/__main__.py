"""`python -m tests.simulation`: runs or replays one seed; see `run.parse`."""

import os
import sys
from pathlib import Path

from tests.simulation import run

if __name__ == "__main__":
    run.parse(sys.argv[1:])  # help and wrong arguments end here, while there is no thread to wait for
    run.prepare()
    with run.home() as home:
        status = run.main(sys.argv[1:], Path(home))
    sys.stdout.flush()
    os._exit(status)  # the interpreter's own end would wait for threads of processes that were killed
