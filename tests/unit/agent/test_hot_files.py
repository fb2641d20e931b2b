"""Files read in one go say what each of them would say alone."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.metrics_advisor.files import Descriptors, HotFile, HotFiles


def files(paths: Sequence[Path], kept_open: int) -> list[HotFile]:
    descriptors = Descriptors(kept_open)
    return [HotFile(str(path), descriptors) for path in paths]


@pytest.mark.parametrize("kept_open", [0, 2, 3], ids=["none kept open", "some kept open", "all kept open"])
def test_one_that_is_gone_or_makes_no_sense_takes_no_other_with_it(tmp_path: Path, kept_open: int) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text("1\n")
    read = files(paths, kept_open)
    together = HotFiles(read, int)
    assert [together.read() for _ in range(3)] == [[1, 1, 1]] * 3
    for number, path in enumerate(paths):
        path.write_text(f"{number}\n")
    assert together.read() == [0, 1, 2]
    paths[1].write_text("lots\n")
    for _ in range(2):
        first, second, third = together.read()
        assert (first, math.isnan(second), third) == (0, True, 2)
    paths[1].write_text("7\n")
    assert together.read() == [0, 7, 2]
    for file in read:
        file.close()


def test_one_that_was_never_there_is_not_a_number(tmp_path: Path) -> None:
    assert all(map(math.isnan, HotFiles(files([tmp_path / "missing"], 1), int).read()))


def test_of_no_files_nothing_is_read() -> None:
    together = HotFiles([], int)
    assert [together.read(), together.read(), len(together)] == [[], [], 0]
