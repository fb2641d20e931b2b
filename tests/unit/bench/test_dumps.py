"""The dump that plans are measured on is one as kubectl prints it, and there is something to decide in it."""

import json
from pathlib import Path

from deploy import plan
from tests.bench import dumps


def test_the_measured_dump_is_a_cluster_that_can_be_planned(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    dumps.write(path, nodes=20, pods=300)
    found = json.loads(plan.main(["-f", str(path), "-o", "json"]))
    assert sum(row["count"] for row in found["pending"]) == 1
    assert len(found["scale_down"]["nodes"]) == 20
    assert found["scale_down"]["savable_per_hour"] > 0
    assert {row["group"] for row in found["scale_down"]["nodes"]} == {f"pool-{number}" for number in range(4)}
    pods = [each for each in json.loads(path.read_text())["items"] if each["kind"] == "Pod"]
    assert len(pods) == 300
    assert all(4_000 < len(json.dumps(each, indent=4)) < 6_000 for each in pods if each["spec"].get("nodeName"))
