"""A second scheduler, with the rights and the configuration of the chart, beside the cluster's own one."""

import base64
import contextlib
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local import identities, kubeconfig
from shared import names
from shared.kube.resources import CONFIGMAPS, EVENTS, LEASES, PODS, SECRETS
from shared.quantity import Resources
from tests.chart.access import in_force
from tests.integration.manager.admission import LOOPBACK, Site
from tests.integration.manager.cloud_rights import upgrade
from tests.integration.manager.conftest import Cluster, StartGuarded
from tests.integration.manager.guarded import Guarded
from tests.integration.manager.test_schedulers import GIB, PATIENT_TIMEOUT, SETTLED_SECONDS, Pods, add_node, report
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import RealApiServer

pytestmark = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")

NODE = "beside"
ANYWHERE = [{"operator": "Exists"}]
NAME = f"{identities.RELEASE}-scheduler"
FALLBACK_SECONDS = 25.0  # another replica takes over after 15 s


class Town:
    """A manager, its webhook, and files for its scheduler."""

    def __init__(self, guarded: Guarded, cluster: Cluster, site: Site, directory: Path) -> None:
        assert isinstance(guarded.server, RealApiServer)
        self.server = guarded.server
        self.guarded = guarded
        self.cluster = cluster
        self.site = site
        self._client = guarded.server.client()
        self._directory = directory
        self.pods = Pods(guarded.server)

    def configuration(self) -> dict[str, Any]:
        """The chart's, with this manager's address and the certificates that a pod mounts."""
        eventually(lambda: "data" in self._client.get(SECRETS, NAME, names.INSTALL_NAMESPACE))
        secret = self._client.get(SECRETS, NAME, names.INSTALL_NAMESPACE)["data"]
        for name in ("tls.crt", "tls.key"):
            (self._directory / name).write_bytes(base64.b64decode(secret[name]))
        (self._directory / "ca.crt").write_text(eventually(self.guarded.authorities))
        text: str = self._client.get(CONFIGMAPS, NAME, names.INSTALL_NAMESPACE)["data"]["scheduler.yaml"]
        document: dict[str, Any] = yaml.safe_load(text.replace("/etc/headroom-tls", str(self._directory)))
        document["extenders"][0] |= {"urlPrefix": f"{self.guarded.url}/scheduler", "httpTimeout": PATIENT_TIMEOUT}
        return document

    def kubeconfig(self) -> Path:
        """By the ServiceAccount's token."""
        path = self._directory / "kubeconfig"
        kubeconfig.write(path, self.server.url, identities.token(self._client, NAME), self.server.ca_file)
        return path

    def holder(self) -> str:
        return str(self._client.get(LEASES, NAME, names.INSTALL_NAMESPACE)["spec"].get("holderIdentity") or "")

    def given(self, name: str) -> str:
        """The scheduler that a new Mid pod gets."""
        self.pods.create(name, cpu_milli=1, node=NODE)
        return self.pods.scheduler_of(name)

    def binds(self, name: str) -> bool:
        return bool(eventually(lambda: self.pods.node_of(name) == NODE, SETTLED_SECONDS))

    def reports(self) -> list[str]:
        found = self._client.list(EVENTS, names.INSTALL_NAMESPACE).items
        return [each["message"] for each in found if each["reason"] == "SchedulerNotRunning"]


@pytest.fixture
def town(start_guarded: StartGuarded, cluster: Cluster, site: Site, tmp_path: Path) -> Iterator[Town]:
    assert isinstance(site.server, RealApiServer)
    upgrade(site.server, {"scheduler.enabled": True, "scheduler.replicas": 0})
    in_force(site.server)
    cluster.configure()
    guarded = start_guarded(
        write_rule="upstream",
        scheduler_name=NAME,
        scheduler_account=NAME,
        scheduler_fallback_seconds=FALLBACK_SECONDS,
        webhook_listen=f"{LOOPBACK}:0",
        webhook_hosts=(LOOPBACK, names.MANAGER_SERVER_NAME),
    )
    site.register(guarded.manager.webhook_address)
    eventually(site.is_called)
    for pod in site.client.list(PODS, site.namespace).items:  # those that it tried with would take the node's room
        site.client.delete(PODS, pod["metadata"]["name"], site.namespace, grace_period_seconds=0)
    town = Town(guarded, cluster, site, tmp_path)
    yield town
    town.pods.clear()
    upgrade(site.server, {"scheduler.enabled": False})


def test_mid_pods_go_through_it_and_are_bound_when_a_replica_dies_and_by_the_clusters_own_when_all_do(
    town: Town, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:

        def start(name: str, document: dict[str, Any], account: Path) -> Any:
            (tmp_path / name).mkdir()
            return stack.enter_context(kube_scheduler.running(document, account, tmp_path / name))

        start("own", {}, town.server.scheduler_kubeconfig)
        add_node(town.cluster, NODE, used="500m", peak_percent=12)
        document, account = town.configuration(), town.kubeconfig()
        first = start("first", document, account)
        leader = eventually(town.holder, SETTLED_SECONDS)
        second = start("second", document, account)

        numbers = itertools.count()
        eventually(lambda: town.given(f"early{next(numbers)}") == NAME, SETTLED_SECONDS)
        assert town.given("mid") == NAME
        assert town.binds("mid")
        assert town.site.create(tolerations=ANYWHERE)["spec"]["schedulerName"] == names.DEFAULT_SCHEDULER

        # Only the manager knows that there is less than the Node shows.
        report(town.cluster, NODE, memory_bytes=GIB - 1)
        shrunk = f"/api/v1/nodes/{NODE}"
        eventually(lambda: town.guarded.answer(shrunk)["resources"]["memory"]["result"] == GIB - 1)
        assert town.cluster.mid(NODE) == Resources(1500, GIB)
        town.pods.create("large", memory_bytes=GIB, node=NODE)
        waiting = eventually(functools.partial(town.pods.why_waiting, "large"), SETTLED_SECONDS)
        assert "1 Mid memory has shrunk: offers 1024 MiB" in waiting

        first.kill()
        assert town.given("after") == NAME
        assert town.binds("after")
        assert town.holder() not in ("", leader)
        assert town.reports() == []

        second.kill()
        eventually(lambda: town.given(f"late{next(numbers)}") == names.DEFAULT_SCHEDULER, SETTLED_SECONDS)
        assert town.given("default") == names.DEFAULT_SCHEDULER
        assert town.binds("default")
        (message,) = eventually(town.reports, SETTLED_SECONDS)
        assert "new Mid and Batch pods keep the default scheduler until it does" in message
