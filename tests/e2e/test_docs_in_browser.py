"""The documentation's site as people read it: from a folder, on a screen and on a phone."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import browser, eventually
from tests.support.apiserver import ROOT
from tests.support.browser import Browser, Page

pytestmark = [pytest.mark.thorough, pytest.mark.own_decision("no API server is asked")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    browser.installed()
    directory = tmp_path_factory.mktemp("site") / "site"
    program = Path(sys.executable).with_name("properdocs")
    subprocess.run([program, "build", "--quiet", "--strict", "--site-dir", directory], cwd=ROOT, check=True)
    return directory


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    shown = Browser(tmp_path)
    yield shown.page
    shown.close()


def searched(page: Page, text: str) -> list[str]:
    """What the search shows of a text that is typed."""
    page.evaluate(
        f"""(() => {{
          const input = document.querySelector("input[type=search]");
          for (const value of ["", "{text}"]) {{
            input.value = value;
            input.dispatchEvent(new Event("input"));
          }}
        }})()"""
    )
    lines = "[...document.querySelectorAll('#search-results h3, #search-results > p')].map(each => each.textContent)"
    found: list[str] = eventually(lambda: page.evaluate(lines))
    return found


@pytest.mark.parametrize("at", ["index.html", "how-to/install.html"])
def test_the_search_works_from_a_folder(page: Page, site: Path, at: str) -> None:
    page.open((site / at).as_uri())
    assert "Install" in searched(page, "insta")
    assert searched(page, "zzyzx") == ["Nothing found"]
    assert searched(page, "a:b ^~ threshold")  # no syntax of its own
    searched(page, "withdrawals")
    link = page.evaluate("document.querySelector('#search-results a').href")
    assert Path(link.removeprefix("file://").partition("#")[0]).is_file()
    assert page.problems == []


def test_each_symptom_is_among_the_first_that_a_search_finds(page: Page, site: Path) -> None:
    titles = re.findall(r"^## (.+)$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    page.open((site / "index.html").as_uri())
    assert len(titles) > 5
    assert [title for title in titles if title not in searched(page, title.lower())[:3]] == []


def test_pages_for_users_come_before_lists(page: Page, site: Path) -> None:
    page.open((site / "index.html").as_uri())
    for text, for_users in (("metrics", "operations.html"), ("expander", "how-to/extend.html")):
        searched(page, text)
        found = page.evaluate("[...document.querySelectorAll('#search-results a')].map(each => each.href)")
        places = [each.removeprefix(f"{site.as_uri()}/").partition("#")[0] for each in found]
        lists = [place for place, each in enumerate(places) if each.startswith("reference/")]
        assert places.index(for_users) < min(lists)


def test_a_search_without_its_index_says_so(page: Page, site: Path, tmp_path: Path) -> None:
    index = site / "search" / "search_index.js"
    kept = index.rename(tmp_path / "kept.js")
    try:
        page.open((site / "index.html").as_uri())
        assert searched(page, "install") == ["The search does not work: search/search_index.js cannot be loaded."]
    finally:
        kept.rename(index)
    assert "Install" in searched(page, "install")


@pytest.mark.parametrize("at", ["index.html", "tutorial.html", "how-to/install.html"])
def test_on_a_phone_a_page_begins_with_its_text_and_the_list_of_pages_opens(page: Page, site: Path, at: str) -> None:
    page.resize(390, 844)
    page.open((site / at).as_uri())
    assert page.evaluate("document.querySelector('main h1').getBoundingClientRect().top") < 250
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    pages = "document.querySelector('nav > ul').checkVisibility()"
    assert page.evaluate(pages) is False
    page.evaluate("document.querySelector('nav .pages input').click()")
    assert page.evaluate(pages) is True


def test_on_a_screen_the_list_of_pages_is_beside_the_text(page: Page, site: Path) -> None:
    page.resize(1280, 900)
    page.open((site / "tutorial.html").as_uri())
    assert page.evaluate("document.querySelector('nav > ul').checkVisibility()") is True
    assert page.evaluate("document.querySelector('nav .pages').checkVisibility()") is False


@pytest.mark.parametrize(("scheme", "file"), [("light", "page.png"), ("dark", "page-dark.png")])
def test_the_front_page_has_its_picture_in_both_schemes(page: Page, site: Path, scheme: str, file: str) -> None:
    page.prefer(scheme)
    page.open((site / "index.html").as_uri())
    picture = "document.querySelector('main picture img')"
    assert eventually(lambda: page.evaluate(f"{picture}.naturalWidth")) > 1000
    assert page.evaluate(f"{picture}.currentSrc").endswith(f"/images/{file}")
    assert page.problems == []
