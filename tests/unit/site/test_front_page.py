"""The figures of the front page are those of their sources, and the page on upgrades knows this version."""

import re
import tomllib

from tests.support.apiserver import ROOT

WORDS_A_MINUTE = 200
ROW = re.compile(r"^\| (\*\*.+) \| \[\w+\]\(([\w./-]+)(?:#([\w-]+))?\) \|$", re.MULTILINE)


def _section(text: str, anchor: str) -> str:
    """What stands below the heading of an anchor; all of it without one."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    title = next((each for each in titles if re.sub(r"\W+", "-", each.lower()) == anchor), None)
    assert title or not anchor, anchor
    return text.partition(f" {title}\n")[2].partition("\n## ")[0] if title else text


def test_each_measured_figure_is_in_its_source() -> None:
    rows = ROW.findall((ROOT / "README.md").read_text())
    assert len(rows) == 3
    for row, page, anchor in rows:
        source = _section((ROOT / page).read_text(), anchor)
        figures = re.findall(r"\d+\.\d+", row)
        assert len(figures) > 1
        assert [each for each in figures if not re.search(rf"(?<![\d.]){re.escape(each)}(?![\d.])", source)] == []


def test_the_page_on_upgrades_has_notes_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    notes = (ROOT / "docs" / "how-to" / "upgrade.md").read_text().partition("## Notes by version")[2]
    assert f"\n### {version}\n" in notes


def test_what_operators_are_to_read_takes_a_quarter_of_an_hour() -> None:
    pages = re.findall(
        r"\]\((.+?)\)", (ROOT / "README.md").read_text().partition("For operators")[2].partition("\n* ")[0]
    )
    words = [word for page in pages for word in re.findall(r"[A-Za-z]{2,}", (ROOT / page).read_text())]
    assert len(pages) == 5
    assert len(words) <= 15 * WORDS_A_MINUTE
