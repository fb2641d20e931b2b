"""A backtest of what an agent has seen of its node: by its API and by its state folder, which say the same."""

import time
from pathlib import Path

import numpy as np
import pytest

from agent.main import METRIC_CACHE_DIRECTORY
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Usage
from agent.metric_cache.storage import Disk
from deploy.backtest import agents
from deploy.backtest.prometheus import Period
from deploy.backtest.samples import on_grid
from deploy.backtest.server import Access, PrometheusServer
from shared.api.core import Pod
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.kube.resources import PODS
from tests.integration.agent.node import Node, get
from tests.support import eventually
from tests.unit.agent.models import entities

DAYS, DAY_SECONDS = 2, 86_400


def lived(node: Node, uid: str) -> None:
    """Fills the state folder with days of a pod that takes turns of an hour between half a core and two."""
    clock = ManualClock(time.time() - DAYS * DAY_SECONDS)
    cache = MetricCache(disk=Disk(node.state_dir / METRIC_CACHE_DIRECTORY, node.name), clock=clock)
    for minute in range(DAYS * DAY_SECONDS // 60):
        clock.advance(60)
        cores = 0.5 if minute // 60 % 2 else 2.0
        cache.append(cache.second(), entities(**{uid: Usage(cores, 2.0**30)}))
    cache.close()


@pytest.mark.embedded_only("the source is the agent's own")
def test_api_and_state_folder_tell_the_same_week(node: Node) -> None:
    node.add_pod("web")
    uid = node.client.get(PODS, f"{node.name}-web", "default", into=Pod).metadata.uid
    lived(node, uid)
    agent = node.agent()
    eventually(lambda: get(agent, "readyz").status_code == 200)
    now = time.time()
    with PrometheusServer("http://{}:{}".format(*agent.address), Access()) as server:
        by_api = agents.of_api(server, "cpu", Period(now - 30 * DAY_SECONDS, now, 300.0))
    agent.close()
    by_folder = agents.of_folder(node.state_dir, "cpu")
    assert (by_api.names, by_folder.names) == ([f"default/{node.name}-web"], [uid])
    assert by_api.nodes == by_folder.nodes == [node.name]
    assert (by_api.cores.tolist(), by_api.memory_bytes.tolist()) == ([2.0], [2.0**32])
    one, other = on_grid(by_api), on_grid(by_folder)
    assert one.interval_seconds == other.interval_seconds == 300.0
    assert one.usage.shape[1] > 288 * DAYS - 30
    assert {0.5, 2.0} <= set(np.round(one.usage[~np.isnan(one.usage)], 6).tolist())
    known = ~np.isnan(one.usage[0])
    assert np.allclose(one.usage[0][known], other.usage[0][: len(known)][known], atol=1e-5)


def test_a_folder_without_state_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no checkpoint in it can be read"):
        agents.of_folder(tmp_path, "cpu")
