"""SIGTERM and SIGINT as an Event that everything in the process can wait for."""

import queue
import signal
import threading


def event() -> threading.Event:
    """An Event that is set once either signal comes. To be called in the main thread, once.

    A handler runs in the main thread, between any two of its instructions. To set the Event there could find the main
    thread inside `Event.wait`, holding the very lock that `set` needs; a SimpleQueue's `put` may interrupt anything.
    """
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    stop = threading.Event()

    def pass_on() -> None:
        told.get()
        stop.set()

    threading.Thread(target=pass_on, name="termination", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: told.put(received))
    return stop
