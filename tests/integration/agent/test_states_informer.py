"""What runs on a node, followed on a real API server through whatever happens to it."""

import gc
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.states_informer.informer import StatesInformer
from agent.states_informer.pods import NodePod
from shared.kube.resources import NODES, PODS
from shared.telemetry import Loops
from tests.support import eventually
from tests.support.apiserver import ApiServer

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
