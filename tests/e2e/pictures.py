"""`python -m tests.e2e.pictures http://127.0.0.1:8080`: takes the pictures of the docs from a running manager.

`make run ARGS="--nodes 8"` has the cluster that they show, once its headline says that the promise is kept.
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image

from deploy.access import ClusterContext
from deploy.manager_api import ManagerApi
from deploy.top import command, keys
from deploy.top.screen import Frame, TopApp
from manager.nodeside.answers import Nodes
from tests.support import eventually
from tests.support.apiserver import ROOT
from tests.support.browser import Browser, Page

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT, NODE = 1280, 900, "sim-0"
COLUMNS, LINES = 100, 17
MARGIN = 8
COLOURS = 256  # text and lines of few hues: a third of the size, and no difference to be seen
REMOTE_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    url = sys.argv[1].rstrip("/")
    with tempfile.TemporaryDirectory() as directory:
        shown = Browser(Path(directory))
        try:
            for scheme, file in (("light", "page.png"), ("dark", "page-dark.png")):
                shown.page.prefer(scheme)
                take(shown.page, f"{url}/#/", "#course", file)
            shown.page.prefer("light")
            take(shown.page, f"{url}/#/nodes/{NODE}", "#nodes .detail .resources", "nodes.png")
        finally:
            shown.close()
    (IMAGES / "table.svg").write_text(REMOTE_FONTS.sub("", asyncio.run(table(url))), encoding="utf-8")


def take(page: Page, url: str, last: str, file: str) -> None:
    """The page from its top to the end of element `last`, once all of it is drawn."""
    page.resize(WIDTH, HEIGHT)
    page.open("about:blank")
    page.open(url)
    # The freshness is what a room draws last.
    eventually(lambda: page.evaluate("document.getElementById('freshness').textContent.includes('newest report')"))
    bottom = f"scrollTo(0, 0), document.querySelector('{last}')?.getBoundingClientRect().bottom ?? 0"
    page.resize(WIDTH, MARGIN + round(eventually(lambda: page.evaluate(bottom))))
    picture = IMAGES / file
    page.picture(picture)
    with Image.open(picture) as taken:
        taken.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )


async def table(url: str) -> str:
    """The live table as SVG."""
    api = ManagerApi(url, ClusterContext(None))
    app = TopApp(lambda: Frame(api.read(command.PATH, Nodes)), keys.of_manager(api))
    async with app.run_test(size=(COLUMNS, LINES)) as pilot:
        while app.row(NODE) is None:
            await pilot.pause(0.1)
        await pilot.pause()
        return app.export_screenshot(title="headroom top")


if __name__ == "__main__":
    main()
