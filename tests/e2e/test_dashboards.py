"""The dashboards show something: a real Prometheus scrapes a running cluster, and no panel stays empty."""

import json
import math
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from shared import names
from shared.kube.resources import NODES
from tests.e2e.conftest import RunningCluster
from tests.support import eventually
from tests.support.local_http import LOCAL_HTTP
from tests.support.programs import program

FILES = Path(__file__).parents[2] / "deploy" / "helm" / "headroom" / "files"
RULES = FILES / "rules.yaml"
DASHBOARDS = [json.loads(path.read_text("utf-8")) for path in sorted((FILES / "dashboards").iterdir())]
SCRAPE_SECONDS = 2
# A day of the simulated nodes takes 48 s, and a promise for a day is judged after it.
PATIENCE_SECONDS = 400.0


class Prometheus:
    """A real server over the agents and the manager of a cluster. `nodes` are those that a dashboard of one node shows:
    one that lives through days in minutes, and one whose agent is a process of its own.
    """

    nodes = ""

    def __init__(self, directory: Path, targets: list[dict[str, Any]]) -> None:
        directory.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        configuration = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [each for each in targets if each["labels"]["job"] == job]}
                for job in ("headroom-agent", "headroom-manager")
            ],
        }
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(configuration))
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    "--log.level=warn",
                ],
                cwd=directory,
                stdout=log,
                stderr=log,
            )
        eventually(self._is_ready)

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The vector of one PromQL expression now."""
        answer = LOCAL_HTTP.get(f"{self.url}/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        return list(answer.json()["data"]["result"])

    def rule_problems(self) -> list[str]:
        groups = LOCAL_HTTP.get(f"{self.url}/api/v1/rules").json()["data"]["groups"]
        return [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return LOCAL_HTTP.get(f"{self.url}/-/ready").status_code == 200
        except httpx.HTTPError:
            return False


def targets(running: RunningCluster) -> list[dict[str, Any]]:
    """As the chart's monitors name them."""
    agents = {running.node: running.agent_url.removeprefix("http://")}
    for node in running.client.list(NODES).items:
        address = node["metadata"].get("annotations", {}).get(names.ANNOTATION_AGENT_ADDRESS)
        if address:
            agents[node["metadata"]["name"]] = address
    manager = {
        "targets": [running.manager_url.removeprefix("http://")],
        "labels": {"job": "headroom-manager"},
    }
    return [manager] + [
        {"targets": [address], "labels": {"job": "headroom-agent", "node": name}}
        for name, address in sorted(agents.items())
    ]


@pytest.fixture
def prometheus(start: Callable[..., RunningCluster], tmp_path: Path) -> Iterator[Prometheus]:
    program("prometheus")
    running = start(tmp_path / "cluster", "--nodes", "3")

    def agents() -> list[dict[str, Any]]:
        found = targets(running)
        return found if len(found) == 5 else []

    server = Prometheus(tmp_path / "prometheus", eventually(agents, PATIENCE_SECONDS))
    server.nodes = f"sim-0|{running.node}"
    yield server
    server.stop()


def substituted(expression: str, nodes: str) -> str:
    """As Grafana asks it, with everything chosen and `nodes` for the dashboard of one node."""
    chosen = expression.replace("$node", nodes).replace("$job", ".+").replace("$instance", ".+")
    return chosen.replace("$__rate_interval", f"{10 * SCRAPE_SECONDS}s")


@pytest.mark.thorough
@pytest.mark.own_decision("Prometheus asks agents and the manager, and no API server")
def test_no_panel_of_a_running_cluster_is_empty_and_no_rule_fails(prometheus: Prometheus) -> None:
    panels = [(board["uid"], panel) for board in DASHBOARDS for panel in board["panels"] if panel["type"] != "row"]
    waiting = {
        (board, panel["title"], target["legendFormat"]): substituted(target["expr"], prometheus.nodes)
        for board, panel in panels
        for target in panel["targets"]
    }

    def shown() -> bool:
        for key, expression in list(waiting.items()):
            values = [float(sample["value"][1]) for sample in prometheus.ask(expression)]
            if values and not all(map(math.isnan, values)):
                del waiting[key]
        return not waiting

    try:
        eventually(shown, PATIENCE_SECONDS, 1.0)
    except AssertionError:
        pytest.fail(f"empty: {waiting}")
    assert prometheus.rule_problems() == []
    assert prometheus.ask("up == 0") == []
    for board, panel in panels:
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            series = prometheus.ask(substituted(target["expr"], prometheus.nodes))
            assert all(named <= sample["metric"].keys() for sample in series if sample["metric"]), (
                board,
                panel["title"],
            )
