"""Records what this version writes and answers, for the tests of the next ones: `python -m tests.skew`.

A local cluster runs until its node is judged. Names of this machine are replaced.
"""

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from deploy import crds
from manager.autoscaler.http.plan_request import PlanRequest
from shared.kube.resources import NODEMETRICS
from tests.e2e.conftest import START_SECONDS, RunningCluster
from tests.skew import recordings
from tests.support import eventually
from tests.support.local_http import LOCAL_HTTP
from tests.support.schemas import published

NODE = "worker-1"
PLAN = "/api/v1/plan"
MANAGERS = ("/api/v1/status", "/api/v1/nodes", f"/api/v1/nodes/{NODE}", "/api/v1/groups", PLAN, "/healthz")
AGENTS = ("/api/v1/node", "/api/v1/prediction")


def answers(url: str, paths: tuple[str, ...], node: str) -> dict[str, Any]:
    found = {}
    for path in paths:
        question = {"method": "POST", "json": {}} if path == PLAN else {"method": "GET"}
        answer = LOCAL_HTTP.request(url=url + path.replace(NODE, node), **question)
        found[path] = answer.raise_for_status().json()
    return found


def of_cluster(folder: Path) -> dict[str, Any]:
    """What is written and answered in a local cluster."""
    cluster = RunningCluster("embedded", folder, "--nodes", "0")
    try:
        node = cluster.node
        eventually(lambda: cluster.nodes().get(node, {}).get("used"), START_SECONDS, 0.5)
        eventually(lambda: "podsMetric" in cluster.client.get(NODEMETRICS, node)["status"], START_SECONDS, 1.0)
        metric = cluster.client.get(NODEMETRICS, node)
        metric["metadata"].pop("managedFields", None)
        found = {
            "node_metric": metric,
            "manager": answers(cluster.manager_url, MANAGERS, node),
            "agent": answers(cluster.agent_url.removesuffix("/docs"), AGENTS, node),
        }
        return dict(json.loads(re.sub(rf"(?<![\w.-]){re.escape(node)}(?![\w-])", NODE, json.dumps(found))))
    finally:
        cluster.stop()


def without_descriptions(schema: Any) -> Any:
    """The schema without what only people read."""
    if isinstance(schema, Mapping):
        words = ("description", "title")
        return {
            key: without_descriptions(each)
            for key, each in schema.items()
            if key not in words or not isinstance(each, str)
        }
    return [without_descriptions(each) for each in schema] if isinstance(schema, list) else schema


def schemas() -> dict[str, Any]:
    """What this version promises of its definitions and answers, and accepts as a question."""
    found = {f"crd {name}": crds.definition(name)["spec"]["versions"][0]["schema"] for name in crds.RESOURCES}
    found |= {name: published(name) for name in ("nodes", "explain", "groups", "plan")}
    found["plan request"] = msgspec.json.schema(PlanRequest)
    return {name: without_descriptions(schema) for name, schema in found.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        recorded = {"version": recordings.CURRENT, **of_cluster(Path(directory)), "schemas": schemas()}
    file = recordings.FOLDER / f"{recordings.CURRENT}.json"
    file.write_text(json.dumps(recorded, separators=(",", ":"), sort_keys=True) + "\n")
    print(file, file=sys.stderr)
