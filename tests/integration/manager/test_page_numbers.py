"""What the page and `headroom top` say of a node is what the API says, and what kubectl reads from the Node."""

import json
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from deploy.manager_api import ManagerApi
from deploy.top import command as top
from shared import names
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.support import browser, eventually
from tests.support.apiserver import ApiServer, write_kubeconfig
from tests.support.browser import Browser
from tests.support.programs import program

GIB = 1 << 30
NODES = ("n1", "n2")
# The cells of each node by the heading of their column.
CELLS = """(() => {
  const heads = [...document.querySelectorAll("#nodes thead th")].map(each => each.textContent);
  const cells = row => Object.fromEntries(heads.map((head, place) => [head, row.cells[place].textContent]));
  const rows = [...document.querySelectorAll("#nodes .node-row")];
  return Object.fromEntries(rows.map(row => [row.querySelector(".name").textContent, cells(row)]));
})()"""


def shown(value: float) -> str:
    """As the page writes a number."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def offered_by_kubectl(kubeconfig: Path) -> dict[str, tuple[str, str]]:
    command: list[str | Path] = [program("kubectl"), "--kubeconfig", kubeconfig, "get", "nodes", "-o", "json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["items"]
    allocatable = {node["metadata"]["name"]: node["status"]["allocatable"] for node in told}
    return {
        name: (shown(int(of[names.MID_CPU]) / 1000), shown(_bytes(of[names.MID_MEMORY]) / GIB))
        for name, of in allocatable.items()
        if name in NODES and names.MID_CPU in of
    }


def _bytes(quantity: str) -> int:
    for suffix, size in (("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", GIB)):
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * size
    return int(quantity)


def offered_by_api(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {
        row["name"]: (shown(row["mid"]["cpu_milli"] / 1000), shown(row["mid"]["memory_bytes"] / GIB)) for row in rows
    }


def offered_by_terminal(url: str) -> dict[str, tuple[str, str]]:
    with closing(ManagerApi(url)) as api:
        heading, *lines = top.run(api, style="table", sorting="name", containing="").splitlines()
    columns = heading.replace("CPU USED", "CPU-USED").replace("GIB USED", "GIB-USED").split()
    cpu, memory = (place for place, column in enumerate(columns) if column == "MID")
    return {line.split()[0]: (line.split()[cpu], line.split()[memory]) for line in lines}


def test_page_terminal_api_and_kubectl_agree_on_what_each_node_lends(
    server: ApiServer, cluster: Cluster, start_manager: StartManager, tmp_path: Path
) -> None:
    browser.installed()
    cluster.configure()
    manager = start_manager()
    for name in NODES:
        cluster.add_reporting_node(name, at=time.time())
    url = "http://{}:{}".format(*manager.address)
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.connection)
    told = eventually(lambda: found if len(found := offered_by_kubectl(kubeconfig)) == len(NODES) else None)
    assert told is not None
    rows = eventually(
        lambda: rows if offered_by_api(rows := fetch(manager, "/api/v1/nodes").json()["nodes"]) == told else None
    )
    assert rows is not None
    assert offered_by_terminal(url) == told
    opened = Browser(tmp_path)
    try:
        opened.page.open(f"{url}/#/nodes")
        cells = eventually(lambda: found if len(found := opened.page.evaluate(CELLS)) == len(NODES) else None)
        assert cells is not None
        assert {name: (of["CPU Mid, cores"], of["Memory Mid, GiB"]) for name, of in cells.items()} == told
        for row in rows:
            assert cells[row["name"]]["CPU requested, cores"] == shown(row["requested"]["cpu_milli"] / 1000)
            assert cells[row["name"]]["Memory requested, GiB"] == shown(row["requested"]["memory_bytes"] / GIB)
        opened.page.open("about:blank")
        opened.page.open(f"{url}/#/")
        lent = sum(row["mid"]["cpu_milli"] for row in rows) / 1000
        headline = eventually(lambda: opened.page.evaluate("document.querySelector('#headline a')?.textContent"))
        assert headline.startswith(f"{lent:.0f} cores lent")
    finally:
        opened.close()
