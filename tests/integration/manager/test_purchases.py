"""Nodes that are bought as the plan says get the pods that it promises, by the real kube-scheduler."""

from pathlib import Path

import pytest

from tests.integration.manager.conftest import Cluster
from tests.support import purchases
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")

SEED = 1
ROUNDS = 10


def test_every_promised_pod_is_bound_and_no_node_stays_idle(
    server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    with purchases.running(server, tmp_path, SEED) as buyer:
        bought = buyer.buy(ROUNDS)
    assert not bought.problems, "\n".join(bought.problems)
    assert bought.promised >= ROUNDS
