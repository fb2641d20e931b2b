"""What runs on a node, followed on a real API server through whatever happens to it."""

import gc
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.states_informer.host_applications import NodeSLOFollower
from agent.states_informer.informer import StatesInformer
from agent.states_informer.pods import NodePod
from agent.states_informer.refusals import Refusals
from shared.api.nodeslo import CgroupBase, HostApplication
from shared.clock import ManualClock
from shared.kube import kinds
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, NODESLOS, PODS
from shared.kube.retry import ONCE
from shared.telemetry import Loops
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.custom_kinds import CRDS

ours = pytest.mark.own_decision("the same events empty the same cache, whichever API server sent them")

WAVES, WAVE = 10, 30
MAX_GROWTH_BYTES = 256 << 10


@pytest.fixture
def loops() -> Iterator[Loops]:
    made = Loops()
    yield made
    made.close()


def pod(node: str, name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"name": name, "namespace": "default", "annotations": {"padding": "x" * 16384}}
    spec = {"nodeName": node, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@ours
@pytest.mark.thorough
def test_hundreds_of_pods_that_come_and_go_leave_nothing_behind(server: ApiServer, loops: Loops) -> None:
    client, node = server.client(), f"node-{uuid.uuid4().hex[:8]}"
    client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    states = StatesInformer(client, node, registry=CollectorRegistry(), on_spec=lambda _: None)
    states.start(loops)
    eventually(lambda: states.synced)

    def come_and_go(pool: ThreadPoolExecutor, wave: int) -> int:
        """Memory in use afterwards, in bytes."""
        names = [f"{node}-{wave}-{number}" for number in range(WAVE)]
        list(pool.map(lambda name: client.create(PODS, pod(node, name), "default"), names))
        eventually(lambda: len(states.pods()) == WAVE)
        list(pool.map(lambda name: client.delete(PODS, name, "default", grace_period_seconds=0), names))
        eventually(lambda: not states.pods())
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            in_use = [come_and_go(pool, wave) for wave in range(WAVES)]
    finally:
        tracemalloc.stop()
    assert in_use[-1] - in_use[2] < MAX_GROWTH_BYTES, in_use  # the 210 of these waves take 3 MB and more
    # The informer may just be telling that the last one has gone.
    eventually(
        lambda: not [one for one in gc.get_objects() if isinstance(one, NodePod) and one.pod.spec.node_name == node]
    )


def test_a_node_slo_is_followed_once_the_cluster_has_the_kind(server: ApiServer, loops: Loops) -> None:
    node, clock = f"node-{uuid.uuid4().hex[:8]}", ManualClock()
    heard: list[tuple[HostApplication, ...]] = []
    follower = NodeSLOFollower(
        Client(server.connection, "test", retry=ONCE, clock=clock),
        node,
        Refusals(CollectorRegistry()),
        on_change=heard.append,
    )
    follower.start(loops)
    client = server.client()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    kind = {"kind": "NodeSLO", "listKind": "NodeSLOList", "plural": "nodeslos", "singular": "nodeslo"}
    spec = {"group": NODESLOS.group, "scope": "Cluster", "names": kind, "versions": [version]}
    name = f"{NODESLOS.plural}.{NODESLOS.group}"
    client.create(
        CRDS,
        {"apiVersion": CRDS.api_version, "kind": "CustomResourceDefinition"}
        | {"metadata": {"name": name}, "spec": spec},
    )
    application = {
        "name": "nginx",
        "priority": "koord-prod",
        "qos": "LS",
        "cgroupPath": {"base": "CgroupRoot", "parentDir": "host-latency-sensitive", "relativePath": "nginx/"},
    }
    slo = {
        "apiVersion": NODESLOS.api_version,
        "kind": "NodeSLO",
        "metadata": {"name": node},
        "spec": {"hostApplications": [application], "cpuBurstStrategy": {"policy": "none"}},
    }

    def created() -> bool:
        try:
            client.create(NODESLOS, slo)
        except NotFound:
            return False  # the kind is not served yet
        return True

    eventually(created)

    def told() -> bool:
        clock.advance(kinds.ABSENT_SECONDS)
        return bool(heard)

    eventually(told)
    ((found,),) = heard
    assert (found.name, found.priority, found.qos) == ("nginx", "koord-prod", "LS")
    assert found.cgroup_path is not None
    assert found.cgroup_path.base is CgroupBase.ROOT
    client.patch(NODESLOS, node, {"spec": {"hostApplications": None}})
    eventually(lambda: heard[-1] == ())
    client.delete(CRDS, name)
