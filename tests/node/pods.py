"""Pods of the tests' own on the node."""

import json
from typing import Any

from shared import names
from tests.node.cluster import NodeCluster
from tests.node.images import PROBE
from tests.support import eventually

START_SECONDS = 240.0  # with one CPU in a kernel that others keep waiting

Pod = dict[str, Any]


class Pods:
    """Pods that run the probe."""

    def __init__(self, cluster: NodeCluster, namespace: str = "default") -> None:
        self._cluster = cluster
        self._where = f"--namespace={namespace}"
        self._made: list[str] = []

    def create(
        self, name: str, *arguments: str, tier: str = "", node: str = "", bound: str = "", **resources: Any
    ) -> None:
        """`tier` is a value of the label by which a pod says it is of Mid or Batch; `resources` the container's.

        Without `node`, the scheduler chooses one; a pod that is `bound` to a node never meets the scheduler.
        """
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
            }
            | ({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {})
            | ({"nodeName": bound} if bound else {}),
        }
        self._made.append(name)
        self._cluster.kubectl("apply", self._where, "--filename=-", text=json.dumps(pod))

    def run(self, name: str, *arguments: str, tier: str = "", node: str = "", **resources: Any) -> Pod:
        """The pod once it runs."""
        self.create(name, *arguments, tier=tier, node=node, **resources)
        eventually(lambda: self.get(name)["status"]["phase"] == "Running", START_SECONDS, 0.2)
        return self.get(name)

    def get(self, name: str) -> Pod:
        return dict(json.loads(self._cluster.kubectl("get", "pod", self._where, name, "--output=json")))

    def log(self, name: str) -> str:
        return self._cluster.kubectl("logs", self._where, name)

    def execute(self, name: str, *command: str) -> str:
        """What a command prints that is run in the pod's container; it has to succeed."""
        return self._cluster.kubectl("exec", self._where, name, "--", *command)

    def is_there(self, name: str) -> bool:
        """Also while it ends."""
        return bool(self._cluster.kubectl("get", "pod", self._where, name, "--ignore-not-found", "--output=name"))

    def was_killed_for_memory(self, name: str) -> bool:
        statuses = self.get(name)["status"].get("containerStatuses", [])
        return any(status["state"].get("terminated", {}).get("reason") == "OOMKilled" for status in statuses)

    def resize(self, name: str, **resources: Any) -> None:
        """Changes resources of the pod's container, through the subresource for that."""
        patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
        where = (self._where, "--subresource=resize", "--type=strategic")
        self._cluster.kubectl("patch", "pod", name, *where, f"--patch={json.dumps(patch)}")

    def delete(self) -> None:
        """All of them, at once."""
        if self._made:
            self._cluster.kubectl("delete", "pod", self._where, *self._made, "--ignore-not-found", "--wait", "--now")
            self._made.clear()
