"""What an object works out once."""

import threading

from shared.cached_property import cached_property
from tests.support import PATIENCE_SECONDS


class _Meeting:
    """Whose value takes two threads at once, each with an object of its own."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier
        self.asked = 0

    @cached_property
    def place(self) -> int:
        """Where."""
        self.asked += 1
        return self._barrier.wait()


def test_two_objects_do_not_wait_for_each_other() -> None:
    barrier = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    meetings = [_Meeting(barrier), _Meeting(barrier)]
    found: list[int] = []
    threads = [threading.Thread(target=lambda each=each: found.append(each.place), daemon=True) for each in meetings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1]


def test_it_is_worked_out_once_and_kept() -> None:
    meeting = _Meeting(threading.Barrier(1))
    assert (meeting.place, meeting.place, meeting.asked) == (0, 0, 1)
    assert _Meeting.place.__doc__ == "Where."
