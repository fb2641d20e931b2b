"""The chart on the node, and what it has brought there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from deploy.local.identities import CHART, RELEASE
from deploy.local.profile import PROFILES, ProfileName, agent_settings, colocation_config
from shared import names
from tests.node.cluster import Failed, NodeCluster
from tests.node.images import HEADROOM
from tests.node.layout import NODE

NAMESPACE = names.INSTALL_NAMESPACE
AGENT_PORT = 9316
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

    def __init__(self, cluster: NodeCluster, values: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self._values = cluster.layout.directory / "values.yaml"
        self._values.write_text(yaml.safe_dump(dict(values)))

    def install(self) -> None:
        """Installs or upgrades, and returns once all pods are ready."""
        where = ("--namespace", NAMESPACE, "--create-namespace")
        self.cluster.helm("upgrade", "--install", RELEASE, CHART, *where, "--values", self._values, *WAIT)

    def uninstall(self) -> None:
        """Returns once it is gone."""
        self.cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, *WAIT)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those that are not about to go."""
        selector = f"--selector=app.kubernetes.io/component={component}"
        found = self.cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", selector, "--output=json")
        return [pod for pod in json.loads(found)["items"] if "deletionTimestamp" not in pod["metadata"]]

    def agent(self, path: str) -> Any:
        """An answer of the agent to an administrator."""
        (pod,) = self.pods("agent")
        with self.cluster.forwarded(NAMESPACE, pod["metadata"]["name"], AGENT_PORT) as port:
            token = {"Authorization": f"Bearer {self.cluster.layout.token}"}
            # An agent makes its own certificate, as a kubelet does.
            answer = httpx.get(f"https://127.0.0.1:{port}{path}", headers=token, verify=False, trust_env=False)
        return answer.raise_for_status().json()

    def process(self, pod: Mapping[str, Any]) -> Path:
        """The folder in the machine's /proc of the process that a pod of the release runs."""
        for file in self.cluster.pod_cgroup("cpu", pod).glob("*/cgroup.procs"):
            for pid in file.read_text().split():
                if "headroom" in Path(f"/proc/{pid}/cmdline").read_text():
                    return Path(f"/proc/{pid}")
        raise Failed(f"no process of {pod['metadata']['name']}")

    def restarts(self) -> int:
        """Of all containers of the release."""
        pods = [*self.pods("agent"), *self.pods("manager")]
        return sum(container["restartCount"] for pod in pods for container in pod["status"]["containerStatuses"])

    def reported_at(self) -> str:
        """When the agent last reported."""
        return str(self.node_metric().get("status", {}).get("updateTime", ""))

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
