"""SIGTERM and SIGINT as an Event that the whole process can wait for."""

import os
import signal
import threading

from shared.stop import Stop

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


def event() -> Stop:
    """An Event that is set once either signal comes. Call it in the main thread, once.

    Python runs handlers in the main thread, between two of its instructions. When that thread is just about to wait, or
    the kernel gives the signal to another thread, the handler would not run until the wait ends. So a separate thread
    sets the Event: the interpreter immediately writes the signal's number into a pipe, which that thread reads.
    """
    stop = Stop()
    heard, told = os.pipe()
    os.set_blocking(told, False)

    def pass_on() -> None:
        while not set(os.read(heard, 64)) & set(_NUMBERS):
            pass
        stop.set()

    threading.Thread(target=pass_on, name="termination", daemon=True).start()
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    for number in _NUMBERS:
        signal.signal(number, lambda _number, _frame: None)
    return stop
