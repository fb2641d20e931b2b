"""The chart on the node, and what it has brought there."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from deploy.local.identities import CHART, RELEASE
from deploy.local.options import ProfileName
from deploy.local.profile import PROFILES, agent_settings, colocation_config
from shared import durations, names, quantity
from shared.kube.resources import CLUSTERCOLOCATIONPROFILES, NODEMETRICS
from tests.node.cluster import Failed, NodeCluster
from tests.node.images import HEADROOM, ROOT
from tests.node.layout import NODE
from tests.support import eventually

NAMESPACE = names.INSTALL_NAMESPACE
AGENT_PORT = 9316
MANAGER_PORT = 8080
# A kernel in user mode does not know what others take of the machine: Prod seems to wait, and nothing would be lent.
NEVER_PERCENT = 100
DEFINITIONS = {
    f"customresourcedefinition.apiextensions.k8s.io/{each}" for each in (NODEMETRICS, CLUSTERCOLOCATIONPROFILES)
}
ENFORCER = {"enforcer": {"enabled": True}}

BY_MEDIAN = {
    "predictor": "percentile",
    "cpuPercentile": 50,
    "memoryPercentile": 50,
    "safetyMarginPercent": 0,
    "coldStartPeriodSeconds": 7200,  # of the prediction: 4 s of the demo's time
}
"""A prediction that a moment's load does not change, and that lends of new pods at once."""


@dataclass(frozen=True)
class Told:
    """An Event about an object of this name, at a time in Unix seconds."""

    name: str
    seconds: float
    message: str


WAIT = ("--wait", "--timeout", "300s")
GONE_SECONDS = 180.0


def demo_values() -> dict[str, Any]:
    """The images from nowhere but the node; a day of the prediction takes 48 s, and small changes are written."""
    profile = PROFILES[ProfileName.DEMO]
    return {
        "image": {"repository": HEADROOM, "pullPolicy": "Never"},
        "agent": {"settings": yaml.safe_load(agent_settings(profile))},
        "colocationConfig": {
            "strategy": colocation_config(profile) | {"resourceDiffThreshold": 0.01},
            "thresholds": {"clusterStrategy": {"prodWaitThresholdPercent": NEVER_PERCENT}},
        },
    }


def quick_values() -> dict[str, Any]:
    """The demo's, with reports that nobody has to wait for, the least degrade time, and lending by the median: how much
    is lent is not what is tested here, and whatever makes the machine busy for a while would put it off.
    """
    values = demo_values()
    values["agent"]["settings"] |= {"reportingInterval": 8, "forceUpdateInterval": 5}
    quick = {"metricReportIntervalSeconds": 8, "updateTimeThresholdSeconds": 5, "degradeTimeMinutes": 1}
    values["colocationConfig"]["strategy"] |= quick | {"nodePredictPolicy": BY_MEDIAN}
    return values


class Release:
    """The chart's release on a cluster."""

    def __init__(self, cluster: NodeCluster, values: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self._values = values

    def install(self, chart: str | Path = CHART, *options: str | Path) -> None:
        """Installs or upgrades, over what tests have written, and returns once all pods are ready."""
        where = ("--namespace", NAMESPACE, "--create-namespace")
        file = self.cluster.layout.directory / "values.yaml"
        file.write_text(yaml.safe_dump(dict(self._values)))
        values = (*options, "--values", file)
        try:
            self.cluster.helm("upgrade", "--install", RELEASE, chart, *where, "--force-conflicts", *values, *WAIT)
        except Failed as error:
            raise Failed(f"{error}\n{self.cluster.state()}") from error

    def uninstall(self) -> None:
        """Returns once it is gone, and with it the pods, which Helm does not wait for."""
        self.cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, *WAIT)
        kinds = ("get", "pods,replicasets", f"--namespace={NAMESPACE}", "--output=name")
        eventually(lambda: f"/{RELEASE}-" not in self.cluster.kubectl(*kinds), GONE_SECONDS, 0.5)

    def remains(self) -> set[str]:
        """Objects of the release, and what is on Nodes by its hand."""
        kinds = "all,configmaps,secrets,leases,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
        wide = "clusterroles,clusterrolebindings,crds,mutatingwebhookconfigurations,validatingwebhookconfigurations"
        found = self.cluster.kubectl("get", kinds, f"--namespace={NAMESPACE}", "--output=name").split()
        found += self.cluster.kubectl("get", f"{wide},validatingadmissionpolicies", "--output=name").split()
        for node in json.loads(self.cluster.kubectl("get", "nodes", "--output=json"))["items"]:
            found += [f"condition {item['type']}" for item in node["status"]["conditions"]]
            found += [f"resource {name}" for part in ("capacity", "allocatable") for name in node["status"][part]]
            found += [f"annotation {name}" for name in node["metadata"].get("annotations", {})]
        words = ("headroom", "koordinator", "kubernetes.io/mid", "kubernetes.io/batch")
        return {line for line in found if any(word in line for word in words)}

    def command(self, *words: str) -> str:
        """What `headroom` prints as an administrator's command; it has to succeed."""
        command = [sys.executable, "-m", "deploy.cli", *words, "--kubeconfig", str(self.cluster.kubeconfig)]
        path = f"{self.cluster.layout.assets}{os.pathsep}{os.environ['PATH']}"
        variables = os.environ | {"PATH": path}
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"headroom {' '.join(words)}: {done.stderr}\n{done.stdout}")
        return done.stdout

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those that are not about to go."""
        selector = f"--selector=app.kubernetes.io/component={component}"
        found = self.cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", selector, "--output=json")
        return [pod for pod in json.loads(found)["items"] if "deletionTimestamp" not in pod["metadata"]]

    def agent(self, path: str) -> Any:
        """An answer of the agent to an administrator."""
        (pod,) = self.pods("agent")
        return self._asked(pod, AGENT_PORT, path).json()

    def manager_metric(self, sample: str) -> float:
        """A sample of /metrics, by its name without `headroom_manager_` and its labels, summed over all replicas."""
        texts = [self._asked(pod, MANAGER_PORT, "/metrics").text for pod in self.pods("manager")]
        lines = [line for text in texts for line in text.splitlines()]
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"headroom_manager_{sample} "))

    def manager_log(self) -> str:
        """Of all replicas."""
        pods = [pod["metadata"]["name"] for pod in self.pods("manager")]
        return "\n".join(self.cluster.kubectl("logs", f"--namespace={NAMESPACE}", name) for name in pods)

    def _asked(self, pod: Mapping[str, Any], container_port: int, path: str) -> httpx.Response:
        with self.cluster.forwarded(NAMESPACE, pod["metadata"]["name"], container_port) as port:
            token = {"Authorization": f"Bearer {self.cluster.layout.token}"}
            # Agents make certificates of their own, as kubelets do, and managers have theirs for the Service's name.
            answer = httpx.get(f"https://127.0.0.1:{port}{path}", headers=token, verify=False, trust_env=False)
        return answer.raise_for_status()

    def process(self, pod: Mapping[str, Any], container: str = "") -> int:
        """A process of a pod's container, the first unless another is named, as the node counts."""
        name = container or pod["spec"]["containers"][0]["name"]
        ids = {each["name"]: each.get("containerID", "") for each in pod["status"]["containerStatuses"]}
        if ids[name] and (pids := self.cluster.pod_cgroup(pod).container(ids[name]).processes):
            return pids[0]
        raise Failed(f"no process of {name} in {pod['metadata']['name']}")

    def restarts(self) -> int:
        """Of all containers of the release."""
        pods = [*self.pods("agent"), *self.pods("manager")]
        return sum(container["restartCount"] for pod in pods for container in pod["status"]["containerStatuses"])

    def reported_at(self) -> str:
        """When the agent last reported."""
        return str(self.node_metric().get("status", {}).get("updateTime", ""))

    def wait_for_report(self) -> None:
        """Until there is another one."""
        before = self.reported_at()
        eventually(lambda: self.reported_at() > before, 60, 0.5)

    def samples(self) -> int:
        """Training steps of the model that answers."""
        return int(self.node_metric().get("status", {}).get("prediction", {}).get("samples", 0))

    def node_metric(self, node: str = NODE) -> dict[str, Any]:
        """The node's; empty while there is none."""
        found = self.cluster.kubectl("get", "nodemetric", node, "--output=json", "--ignore-not-found")
        return dict(json.loads(found)) if found else {}

    def configure(self, key: str, value: Mapping[str, Any]) -> None:
        """Writes a key of the policy's ConfigMap, which the manager follows live."""
        patch = {"data": {key: json.dumps(value)}}
        where = (names.CONFIG_MAP, f"--namespace={NAMESPACE}", "--type=merge")
        self.cluster.kubectl("patch", "configmap", *where, f"--patch={json.dumps(patch)}")

    def condition(self, type_: str, node: str = NODE) -> dict[str, str]:
        """The Node's, empty while it has none of this type."""
        found = json.loads(self.cluster.kubectl("get", "node", node, "--output=json"))
        return next((dict(each) for each in found["status"]["conditions"] if each["type"] == type_), {})

    def wait_for_heartbeats(self, count: int) -> None:
        """Until kubelet has written the Node's status so often."""
        seen = {self.condition("Ready")["lastHeartbeatTime"]}

        def enough() -> bool:
            seen.add(self.condition("Ready")["lastHeartbeatTime"])
            return len(seen) > count

        eventually(enough, 120, 0.5)

    def events(self, reason: str) -> list[str]:
        """What the Events of a reason say, of whatever object."""
        found = self.cluster.kubectl("get", "events", "--all-namespaces", "--output=json")
        return [each["message"] for each in json.loads(found)["items"] if each.get("reason") == reason]

    def told(self, reason: str) -> list[Told]:
        """The Events of a reason about pods, the first comes first."""
        found = json.loads(self.cluster.kubectl("get", "events", "--all-namespaces", "--output=json"))["items"]
        events = [
            Told(each["involvedObject"]["name"], durations.instant(each["firstTimestamp"]), each["message"])
            for each in found
            if each.get("reason") == reason
        ]
        return sorted(events, key=lambda event: event.seconds)

    def allows_disruption(self, budget: str) -> int | None:
        """How many pods the budget lets go now; None until its controller has looked."""
        status = json.loads(self.cluster.kubectl("get", "poddisruptionbudget", budget, "--output=json"))["status"]
        return status["disruptionsAllowed"] if status.get("currentHealthy") else None

    def allocatable(self, node: str = NODE) -> dict[str, str]:
        """Of the Node, as kubelet and manager have it."""
        return dict(json.loads(self.cluster.kubectl("get", "node", node, "--output=json"))["status"]["allocatable"])

    def capacity(self, node: str = NODE) -> dict[str, str]:
        """Of the Node, as kubelet and manager have it."""
        return dict(json.loads(self.cluster.kubectl("get", "node", node, "--output=json"))["status"]["capacity"])

    def mid_cpu(self, node: str = NODE) -> int:
        """Milli-cores; 0 where nothing is offered."""
        return quantity.whole(self.allocatable(node).get(names.MID_CPU, 0))
