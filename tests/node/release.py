"""The chart on the node, and what it has brought there."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from deploy.local.identities import CHART, RELEASE
from deploy.local.profile import PROFILES, ProfileName, agent_settings, colocation_config
from shared import names
from tests.node.cluster import NodeCluster
from tests.node.images import HEADROOM
from tests.node.layout import NODE

NAMESPACE = names.INSTALL_NAMESPACE
WAIT = ("--wait", "--timeout", "180s")


def demo_values() -> dict[str, Any]:
    """The image from nowhere but the node; a day of the prediction takes 48 s, and small changes are written."""
    profile = PROFILES[ProfileName.DEMO]
    return {
        "image": {"repository": HEADROOM, "pullPolicy": "Never"},
        "agent": {"settings": yaml.safe_load(agent_settings(profile))},
        "colocationConfig": {"strategy": colocation_config(profile) | {"resourceDiffThreshold": 0.01}},
    }


class Release:
    """The chart's release on a cluster."""

    def __init__(self, cluster: NodeCluster) -> None:
        self.cluster = cluster
        self.values = cluster.layout.directory / "values.yaml"

    def install(self, values: Mapping[str, Any]) -> None:
        """Installs or upgrades, and returns once all pods are ready."""
        self.values.write_text(yaml.safe_dump(dict(values)))
        where = ("--namespace", NAMESPACE, "--create-namespace")
        self.cluster.helm("upgrade", "--install", RELEASE, CHART, *where, "--values", self.values, *WAIT)

    def uninstall(self) -> None:
        """Returns once it is gone."""
        self.cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, *WAIT)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those that are not about to go."""
        selector = f"--selector=app.kubernetes.io/component={component}"
        found = self.cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", selector, "--output=json")
        return [pod for pod in json.loads(found)["items"] if "deletionTimestamp" not in pod["metadata"]]

    def agent(self, path: str) -> Any:
        """An answer of the agent."""
        (pod,) = self.pods("agent")
        return self._asked(pod, 9316, path)

    def manager(self, path: str) -> Any:
        """An answer of one manager."""
        return self._asked(self.pods("manager")[0], 8080, path)

    def _asked(self, pod: Mapping[str, Any], port: int, path: str) -> Any:
        """By the API server's proxy, with the rights of an administrator."""
        target = f"/api/v1/namespaces/{NAMESPACE}/pods/https:{pod['metadata']['name']}:{port}/proxy{path}"
        return json.loads(self.cluster.kubectl("get", "--raw", target))

    def node_metric(self) -> dict[str, Any]:
        """The node's; empty while there is none."""
        found = self.cluster.kubectl("get", "nodemetric", NODE, "--output=json", "--ignore-not-found")
        return dict(json.loads(found)) if found else {}

    def allocatable(self) -> dict[str, str]:
        """Of the Node, as kubelet and manager have it."""
        return dict(json.loads(self.cluster.kubectl("get", "node", NODE, "--output=json"))["status"]["allocatable"])

    def mid_cpu(self) -> int:
        """Milli-cores; 0 where nothing is offered."""
        return int(self.allocatable().get("kubernetes.io/mid-cpu", 0))
