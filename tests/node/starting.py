"""A cluster in which pods come up.

A ready node does not show that they do: seldom, on a busy machine, a control plane of Kubernetes 1.36 that has just
begun brings no pod to its node for minutes, while all of its programs say that they are well. Such a cluster ends, and
another one takes its place.
"""

import sys
from pathlib import Path

from tests.node.cluster import Failed, NodeCluster, Parts
from tests.node.pods import Pods
from tests.support import eventually

ATTEMPTS = 3
CANARY = "canary"


def started(parts: Parts, logs: Path, port: int = 0) -> NodeCluster:
    """Ready, with the logs of its programs in a folder below `logs`. Raises Failed."""
    for attempt in range(ATTEMPTS):
        folder = logs / f"start-{attempt}"
        folder.mkdir()
        cluster = NodeCluster(parts, folder, port)
        try:
            _run_canary(cluster)
            return cluster
        except AssertionError as error:
            print(f"no pod comes up ({error}):\n{cluster.state()}", file=sys.stderr, flush=True)
            cluster.close()
        except BaseException:
            cluster.close()
            raise
    raise Failed(f"no pod came up in any of {ATTEMPTS} clusters; logs: {logs}")


def _run_canary(cluster: NodeCluster) -> None:
    """Returns once a pod has run that the scheduler placed. Raises AssertionError."""
    account = ("get", "serviceaccount", "default", "--ignore-not-found", "--output=name")
    eventually(lambda: cluster.kubectl(*account))  # without it no pod is admitted
    pods = Pods(cluster)
    pods.run(CANARY)
    pods.delete()
