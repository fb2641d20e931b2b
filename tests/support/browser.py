"""A headless Chromium, driven over its DevTools protocol (https://chromedevtools.github.io/devtools-protocol)."""

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import websocket

from tests.support import eventually
from tests.support.local_http import LOCAL_HTTP

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
START_SECONDS = 120.0
ANSWER_SECONDS = 120.0
# Where only root runs, as in a container, there is no sandbox; nothing but our own page is opened.
SANDBOX = ("--no-sandbox",) if os.geteuid() == 0 else ()
KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "ArrowDown": 40,
}  # DOM key, and Windows' code


def installed() -> str:
    """The browser's path. Without one the test is skipped."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no browser is installed (one of {', '.join(NAMES)}; Debian: apt-get install chromium)")


class Browser:
    """One process with one tab, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        """In an empty directory."""
        self._log = directory / "log"
        quiet = ("--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking")
        command = [installed(), "--headless=new", *SANDBOX, *quiet, "--disable-dev-shm-usage", "--hide-scrollbars"]
        profile = directory / "profile"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
                stdout=log,
                stderr=log,
                env=os.environ | {"HOME": str(directory)},
            )
        try:
            self.page = Page(eventually(lambda: self._address(profile / "DevToolsActivePort"), START_SECONDS))
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        self.page.close()
        self._end()

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _address(self, file: Path) -> str:
        """The tab's; empty until it is known."""
        assert self.process.poll() is None, self._log.read_text(errors="replace")
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) < 2:
            return ""
        try:
            tabs = LOCAL_HTTP.get(f"http://127.0.0.1:{lines[0]}/json", timeout=ANSWER_SECONDS).json()
        except httpx.HTTPError:
            return ""
        return next((each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page"), "")


class Page:
    """What a person does with a page, and what the page says of it. Sizes and places are in CSS pixels."""

    def __init__(self, url: str) -> None:
        self._socket = websocket.create_connection(url, timeout=ANSWER_SECONDS, suppress_origin=True)
        self._ids = itertools.count(1)
        self.problems: list[str] = []  # errors and warnings of the console, and what could not be loaded
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """The answer of one command."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := json.loads(self._socket.recv())).get("id") != number:
            self._note(message)
        assert "error" not in message, f"{method}: {message['error']}"
        return dict(message["result"])

    def close(self) -> None:
        self._socket.close()

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        eventually(
            lambda: self.evaluate(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")
        )

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript, awaited."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, f"{expression}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, scheme: str) -> None:
        """The colours: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """One of `KEYS`."""
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """A PNG of the viewport, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(taken["data"]))

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{told['type']}: {[each.get('value') for each in told['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {told['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.problems.append(f"{told['entry']['level']}: {told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Network.loadingFailed" and not told.get("canceled"):
            self.problems.append(f"not loaded: {told}")
