"""SIGTERM and SIGINT as an Event that everything in the process can wait for."""

import os
import signal
import threading

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


def event() -> threading.Event:
    """An Event that is set once either signal comes. To be called in the main thread, once.

    Python runs handlers in the main thread, between two of its instructions. A signal that comes when that is just
    about to wait, or that the kernel gives to another thread, would not be heard before something else ends the wait.
    So a thread of its own sets the Event: to that the interpreter writes the signal's number at once, down a pipe.
    """
    stop = threading.Event()
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
