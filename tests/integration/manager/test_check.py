"""`headroom check` of a real API server, with and without what it asks for."""

import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from deploy import cli
from deploy.access import ClusterContext
from deploy.check import command
from deploy.check.findings import Finding, Verdict
from shared.kube.resources import DAEMONSETS, DEPLOYMENTS, NODES
from tests.integration.manager.admission import Site
from tests.integration.manager.conftest import Cluster, StartManager, StartWebhook
from tests.integration.manager.test_cluster_commands import labelled
from tests.support import eventually
from tests.support.apiserver import ApiServer, write_kubeconfig


def checked(server: ApiServer, tmp_path: Path, cluster: Cluster, url: str = "http://127.0.0.1:9") -> dict[str, Finding]:
    """The findings by their check."""
    access = ClusterContext(write_kubeconfig(tmp_path / "kubeconfig", server.connection))
    found = command.report(access, namespace=cluster.namespace, manager=url, service="headroom-manager")
    return {each.check: each for each in found.findings}


def test_before_an_installation_nothing_is_bad(server: ApiServer, cluster: Cluster, tmp_path: Path) -> None:
    found = checked(server, tmp_path, cluster)
    assert not [each for each in found.values() if each.status is Verdict.BAD]
    assert found["kubernetes"].status is Verdict.GOOD
    assert (found["rights"].status, found["clock"].status) == (Verdict.GOOD, Verdict.GOOD)
    assert (found["leader"].status, found["webhook"].status) == (Verdict.UNKNOWN, Verdict.UNKNOWN)


def test_a_running_manager_and_reports_are_found(
    server: ApiServer, cluster: Cluster, start_manager: StartManager, tmp_path: Path
) -> None:
    cluster.configure()
    manager = start_manager(leader_elect=True, identity="one")
    cluster.add_reporting_node("n1", at=time.time())
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    server.client().patch(NODES, "n1", ready, subresource="status")
    eventually(lambda: cluster.mid("n1") is not None)
    url = "http://{}:{}".format(*manager.address)
    found = checked(server, tmp_path, cluster, url)
    assert found["leader"].detail == "one leads"
    assert found["definition"].status is Verdict.GOOD
    assert "no scheduler has asked this manager" in found["scheduler extender"].detail
    assert found["reports"].detail == "1 node reported in the last 5 minutes"


def test_a_manager_whose_address_is_given_is_asked_although_no_lease_names_it(
    server: ApiServer, cluster: Cluster, start_manager: StartManager, tmp_path: Path
) -> None:
    cluster.configure()
    manager = start_manager()
    with closing(httpx.Client(base_url="http://{}:{}".format(*manager.address))) as http:
        pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "main"}]}}
        http.post("/scheduler/filter", json={"Pod": pod, "NodeNames": []}).raise_for_status()
    found = checked(server, tmp_path, cluster, "http://{}:{}".format(*manager.address))
    assert found["leader"].status is Verdict.UNKNOWN
    assert found["scheduler extender"].detail == "schedulers have sent 1 request"


def test_a_webhook_is_good_if_a_mid_pod_would_be_translated(
    server: ApiServer, site: Site, cluster: Cluster, start_webhook: StartWebhook, tmp_path: Path
) -> None:
    replica = start_webhook()
    site.register(replica.webhook.address)
    eventually(site.is_called)
    assert checked(server, tmp_path, cluster)["webhook"].status is Verdict.GOOD
    replica.close()
    eventually(lambda: checked(server, tmp_path, cluster)["webhook"].status is Verdict.BAD)


def test_pods_that_are_not_ready_fail_the_command(
    server: ApiServer, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = server.add_namespace()
    labelled(server.client(), namespace, DAEMONSETS, "DaemonSet", "agent", "0.1.0")
    labelled(server.client(), namespace, DEPLOYMENTS, "Deployment", "manager", "99.0.0")
    found = checked(server, tmp_path, cluster)
    assert found["manager"].status is Verdict.BAD
    assert cli.check(kubeconfig=tmp_path / "kubeconfig", namespace=cluster.namespace, manager="http://127.0.0.1:9") == 1
    assert "checks are bad" in capsys.readouterr().out
    for resource, name in ((DAEMONSETS, "agent"), (DEPLOYMENTS, "manager")):
        server.client().delete(resource, name, namespace)
