"""The HTML report: one file that loads nothing, with every plot."""

import re
import xml.etree.ElementTree
from pathlib import Path

import pytest

from tests.support.command_line import Run

TARGETS = ["--model", "peak-mix,n-sigma-v2", "--target", "1,5"]


@pytest.mark.thorough
def test_the_report_is_one_file_with_every_plot_and_the_same_again(
    tmp_path: Path, trace: list[str | Path], backtest: Run
) -> None:
    pages = []
    for name in ("a.html", "b.html"):
        assert backtest(*trace, *TARGETS, "--html", tmp_path / name).status == 0
        pages.append((tmp_path / name).read_text())
    page = pages[0]
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 6
    for picture in pictures:
        assert xml.etree.ElementTree.fromstring(picture).tag.endswith("svg")
    assert page.count("<tr>") == (1 + 3) + (1 + 3)
    for words in ("peak-mix at 1 %", "oracle", "usage", "requested", "Mon", "withdrawn a day", "few large pods"):
        assert words in page
    loaded = re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"|url\(([^#)][^)]*)\)|@import', page)
    assert loaded == []
    assert str(tmp_path) not in page
    timeless = [re.sub(r"[\d.]+ s</td>", "", one) for one in pages]  # all but the CPU time
    assert timeless[0] == timeless[1]


def test_a_report_that_cannot_be_written_is_refused_before_the_replay(
    tmp_path: Path, trace: list[str | Path], backtest: Run
) -> None:
    status, out, err = backtest(*trace, "--html", tmp_path / "gone" / "a.html")
    assert (status, out) == (2, "")
    assert "--html" in err
    assert "no such folder" in err
