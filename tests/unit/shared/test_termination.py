"""A process told to end hears it, wherever its main thread is."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
from shared import termination
stop = termination.event()
print("ready", flush=True)
while not stop.wait(0): pass
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_by_a_main_thread_that_always_asks(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "ended\n")
