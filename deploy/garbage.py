"""Disables Python's garbage collector in commands that end soon."""

import gc


def collect_nothing() -> None:
    """Leaves garbage to the end of the process: walking over the objects of a large cluster takes a third of the time,
    and almost none of them are in cycles.
    """
    gc.disable()
