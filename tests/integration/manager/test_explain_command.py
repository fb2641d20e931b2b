"""`headroom explain node` on a live cluster: by the manager's own ConfigMap, or by the manager itself."""

import json
import time
from pathlib import Path

import pytest

from deploy import explain
from deploy.access import ClusterContext
from deploy.nodeside import ConfigKey
from shared import names
from shared.errors import HeadroomError, InvalidInput
from shared.kube.resources import CONFIGMAPS
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.support import eventually
from tests.support.apiserver import ApiServer, write_kubeconfig


def test_the_policy_is_that_of_the_config_map_named(
    server: ApiServer, cluster: Cluster, start_manager: StartManager, tmp_path: Path
) -> None:
    elsewhere = server.add_namespace()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine", "namespace": elsewhere},
        "data": {names.CONFIG_KEY_COLOCATION: '{"enable": true, "midCPUThresholdPercent": 10}'},
    }
    cluster.client.create(CONFIGMAPS, body, elsewhere)
    cluster.configure(midCPUThresholdPercent=20)
    start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.connection)
    for key, cpu in ((None, 800), (ConfigKey(elsewhere, "mine"), 400), (ConfigKey(elsewhere), 0)):
        said = explain.node("n1", files=[], access=ClusterContext(kubeconfig), style="json", config_key=key)
        assert json.loads(said)["resources"]["cpu"]["result"] == cpu


def test_a_node_that_the_cluster_does_not_have_is_named(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.connection)
    with pytest.raises(InvalidInput, match=r"Node: 'n2': there is no such node$"):
        explain.node("n2", files=[], access=ClusterContext(kubeconfig), style="table")


def test_a_manager_that_is_asked_tells_what_it_has_written(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: fetch(manager, "/api/v1/nodes/n1").json()["last_write"])
    url = "http://{}:{}/".format(*manager.address)
    # It looks again when it sees what it has written.
    eventually(
        lambda: json.loads(explain.by_manager("n1", url, style="json")) == fetch(manager, "/api/v1/nodes/n1").json()
    )
    assert "Mid cpu (by" in explain.by_manager("n1", url, style="table")
    with pytest.raises(HeadroomError, match="there is no Node 'n2'"):
        explain.by_manager("n2", url, style="json")
