"""What keys of the live table do with the chosen node."""

import os
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from deploy import explain
from deploy.manager_api import ManagerApi


@dataclass(frozen=True)
class NodeKeys:
    """Both are called in a thread, and raise HeadroomError.

    `explain` returns every term of what the node offers; `page` shows it in a browser, and returns where it is.
    """

    explain: Callable[[str], str]
    page: Callable[[str], str]


def of_manager(api: ManagerApi) -> NodeKeys:
    """By this manager's answers."""
    return NodeKeys(lambda name: explain.asked(api, name, "table"), lambda name: show_on_page(api.url, name))


def show_on_page(url: str, node: str) -> str:
    """Opens the node on the page of the manager at `url` where there is a display. Returns what to open otherwise."""
    path = f"#/nodes/{quote(node, safe='')}"
    if url.startswith("https:"):
        return f"`headroom page --manager {url}` opens the page with your rights. This node is there at /{path}"
    address = f"{url.rstrip('/')}/{path}"
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)  # without a display it might be one that takes the terminal
    return address
