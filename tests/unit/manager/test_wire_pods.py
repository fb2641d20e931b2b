"""What the manager keeps of a pod for its autoscaler, and which parts of pods it holds once."""

from typing import Any

import msgspec
import pytest

from manager import wire_pods
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
    slim = wire_pods.slim_pod(given)
    assert pods.requests(slim) == pods.requests(given) == {"cpu": 1000 + int(in_force) * 1000}
    assert [each.type for each in slim.status.conditions or ()] == kept
    assert (slim.status.phase, slim.status.nominated_node_name) == ("Running", "n")
    assert bool(slim.status.container_statuses or slim.status.init_container_statuses) == (in_force != "1")


def made_by(template: dict[str, Any], name: str, node: str, **annotations: str) -> Pod:
    """A pod of a controller, as it comes from the API server: a token's volume of its own among its volumes."""
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    metadata = {
        "name": name,
        "namespace": "x",
        "uid": name,
        "labels": {"app": "web"},
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", **annotations},
        "ownerReferences": [owner],
    }
    token = {"name": f"kube-api-access-{name}", "projected": {}}
    spec = {**template, "nodeName": node, "volumes": [{"name": "data", "emptyDir": {}}, token]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, Pod)


@pytest.mark.parametrize(
    "name",
    [
        "karpenter.sh/do-not-disrupt",
        "controller.kubernetes.io/pod-deletion-cost",
        "autoscaling.x-k8s.io/consume-provisioning-request",
    ],
)
def test_annotations_that_decide_about_a_node_are_kept(name: str) -> None:
    slim = wire_pods.slim_pod(made_by({}, "web-1", "a", **{name: "true", "cni.example/address": "x"}))
    assert slim.metadata.annotation(name) == "true"
    assert slim.metadata.annotation("cni.example/address") is None


def test_pods_of_one_template_hold_their_common_parts_once() -> None:
    template = {"containers": SPEC["containers"], "tolerations": [{"key": "a"}], "nodeSelector": {"pool": "a"}}
    one, other = (
        wire_pods.slim_pod(made_by(template, name, node, **{"cni.example/address": name}))
        for name, node in (("web-1", "a"), ("web-2", "b"))
    )
    assert (one.metadata.name, one.spec.node_name) == ("web-1", "a")
    assert (other.metadata.name, other.spec.node_name) == ("web-2", "b")
    for part in ("labels", "annotations", "owner_references"):
        assert getattr(one.metadata, part)
        assert getattr(one.metadata, part) is getattr(other.metadata, part)
    for part in ("containers", "tolerations", "node_selector", "volumes"):
        assert getattr(one.spec, part)
        assert getattr(one.spec, part) is getattr(other.spec, part)


def test_what_decides_about_a_pod_is_as_the_api_server_says_it() -> None:
    given = made_by(
        {
            "containers": [{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": 0.5}}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
            "topologySpreadConstraints": [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}],
            "priority": 7,
        },
        "web-1",
        "a",
    )
    found = wire_pods.slim_pod(given)
    volumes = tuple(each for each in given.spec.volumes or () if each.projected is None)
    assert (found.metadata, found.spec) == (given.metadata, msgspec.structs.replace(given.spec, volumes=volumes))


def test_a_pod_with_an_amount_beyond_64_bits_is_kept_as_it_is() -> None:
    given = made_by({"containers": [{"name": "c", "resources": {"requests": {"cpu": 10**30}}}]}, "web-1", "a")
    assert wire_pods.slim_pod(given).spec.containers == given.spec.containers
