"""Our predicates beside kube-scheduler's filters, node by node, on random clusters."""

from pathlib import Path

import pytest

from tests.integration.manager.conftest import Cluster
from tests.support import scheduler_differential
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")

SEED = 7
PODS = 500


def test_the_predicates_find_the_nodes_that_kube_scheduler_finds(
    server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    with scheduler_differential.running(server, tmp_path, SEED) as differential:
        count = differential.compare(PODS)
    assert not count.differences, "\n".join(count.differences)
    assert count.pods >= PODS
    assert 0.4 <= count.with_a_node / count.pods <= 0.75, "neither answer is the rule"
