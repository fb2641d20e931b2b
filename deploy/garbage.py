"""Python's garbage collector under commands that end soon."""

import gc


def collect_nothing() -> None:
    """Leaves garbage to the command's end: walking over the objects of a large cluster again and again takes a third of
    its time, and next to none of them are in cycles.
    """
    gc.disable()
