"""`headroom recommend` asks an agent what the pods of its node used."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import cli
from shared.kube.resources import CONFIGMAPS, PODS
from tests.integration.agent.node import GIB, Node, get
from tests.support import eventually

pytestmark = pytest.mark.embedded_only("the endpoints are the agent's own")

KINDS = ("pod", "workload")


def test_what_an_agent_has_measured_for_seconds_is_shown_and_lowers_nothing(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{node.name}-owner"}}
    made = node.client.create(CONFIGMAPS, body, "default")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": made.name, "uid": made.uid, "controller": True}
    node.add_pod("web", ownerReferences=[owner])
    agent = node.agent()
    listed: list[Any] = node.client.list(PODS).items
    of_node = [pod for pod in listed if pod["spec"].get("nodeName") == node.name]
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": [{**pod, "kind": "Pod"} for pod in of_node]}))

    def has_samples() -> bool:
        answers = [get(agent, f"api/v1/aggregate?kind={kind}&metric=cpu&window=168h&agg=count") for kind in KINDS]
        return all(any((each["value"] or 0) >= 2 for each in answer.json()["values"]) for answer in answers)

    eventually(lambda: get(agent, "readyz").status_code == 200)
    eventually(has_samples)
    told = get(agent, "api/v1/aggregate?kind=workload&metric=cpu&window=168h&agg=max").json()["values"]
    assert [each["labels"] for each in told] == [{"namespace": "default", "workload": f"default/ConfigMap/{made.name}"}]
    url = "http://{}:{}".format(*agent.address)
    assert (cli.app(["recommend", "-f", str(path), "--agent", url, "-o", "json"], standalone_mode=False) or 0) == 0
    (row,) = json.loads(capsys.readouterr().out)["containers"]
    assert (row["source"], row["cpu"]["used_most"], row["memory"]["used_most"]) == ("agents", 500, GIB)
    assert 2 <= row["points"] < 3600
    assert row["days"] < 0.05
    assert not row["changes"]
