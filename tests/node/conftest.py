"""The cluster with a real node, one for all tests, and the chart on it."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from shared import names
from tests.node.cluster import NodeCluster, Parts
from tests.node.images import PROBE
from tests.node.release import Release, demo_values
from tests.support import eventually

START_SECONDS = 120.0
LENDING_SECONDS = 180.0
# What Mid lives from: a pod that asks for most of the node, and does nothing.
IDLE = {"cpu": "1200m", "memory": "6Gi"}

Pod = dict[str, Any]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    running = NodeCluster(Parts(os.environ), tmp_path_factory.mktemp("node"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def installed(cluster: NodeCluster) -> Release:
    """With the demo's times."""
    values = demo_values()
    values["colocationConfig"]["strategy"]["degradeTimeMinutes"] = 1
    release = Release(cluster, values)
    release.install()
    return release


@pytest.fixture(scope="session")
def lending(installed: Release) -> Release:
    """The node has something to lend."""
    Pods(installed.cluster).run("idle", requests=IDLE)
    eventually(lambda: installed.mid_cpu() > 500, LENDING_SECONDS, 1.0)
    return installed


class Pods:
    """Pods of the tests' own. In kube-system no webhook is asked about them."""

    def __init__(self, cluster: NodeCluster, namespace: str = "default") -> None:
        self._cluster = cluster
        self._where = f"--namespace={namespace}"
        self._made: list[str] = []

    def create(self, name: str, *arguments: str, tier: str = "", **resources: Any) -> None:
        """`tier` is a value of the label by which a pod says it is of Mid or Batch; `resources` the container's."""
        container = {"name": "main", "image": PROBE, "imagePullPolicy": "Never", "resources": resources}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {names.LABEL_PRIORITY_CLASS: tier} if tier else {}},
            "spec": {
                "containers": [container | ({"args": list(arguments)} if arguments else {})],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
            },
        }
        self._made.append(name)
        self._cluster.kubectl("apply", self._where, "--filename=-", text=json.dumps(pod))

    def run(self, name: str, *arguments: str, tier: str = "", **resources: Any) -> Pod:
        """The pod once it runs."""
        self.create(name, *arguments, tier=tier, **resources)
        eventually(lambda: self.get(name)["status"]["phase"] == "Running", START_SECONDS, 0.2)
        return self.get(name)

    def get(self, name: str) -> Pod:
        return dict(json.loads(self._cluster.kubectl("get", "pod", name, self._where, "--output=json")))

    def delete(self) -> None:
        """All of them, at once."""
        if self._made:
            self._cluster.kubectl("delete", "pod", *self._made, self._where, "--ignore-not-found", "--wait", "--now")


@pytest.fixture
def pods(cluster: NodeCluster) -> Iterator[Pods]:
    """Gone after the test."""
    made = Pods(cluster)
    yield made
    made.delete()
