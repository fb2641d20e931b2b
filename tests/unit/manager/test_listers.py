"""What the autoscaler keeps of the cluster it follows."""

from typing import Any

import msgspec
import pytest

from manager.autoscaler import listers
from shared.api import pods
from shared.api.core import Pod

SPEC = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
STATUS = {
    "phase": "Running",
    "nominatedNodeName": "n",
    "conditions": [
        {"type": "PodScheduled", "status": "True"},
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
        {"type": "Ready", "status": "True"},
    ],
}


@pytest.mark.parametrize(("in_force", "kept"), [("1", ["PodScheduled"]), ("4", ["PodScheduled", "PodResizePending"])])
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_of_a_pods_status_is_kept_what_says_what_it_holds(in_force: str, kept: list[str], field: str) -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {**SPEC, "initContainers": [sidecar]}
    reported = {"name": spec[field][0]["name"], "resources": {"requests": {"cpu": in_force}}}
    status = {**STATUS, f"{field.removesuffix('s')}Statuses": [reported]}
    given = msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)
    slim = listers.slim_pod(given)
    assert pods.requests(slim) == pods.requests(given) == {"cpu": 1000 + int(in_force) * 1000}
    assert [each.type for each in slim.status.conditions or ()] == kept
    assert (slim.status.phase, slim.status.nominated_node_name) == ("Running", "n")
    assert bool(slim.status.container_statuses or slim.status.init_container_statuses) == (in_force != "1")
