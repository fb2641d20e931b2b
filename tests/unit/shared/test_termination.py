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

# A signal that the main thread does not take is taken by another one, and interrupts no wait of the main thread's.
WAITING = """
import signal
from shared import termination
stop = termination.event()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
print("ready", flush=True)
stop.wait()
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [PROGRAM, WAITING])
def test_a_signal_is_heard_wherever_the_main_thread_is(number: signal.Signals, program: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "ended\n")
