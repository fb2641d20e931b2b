"""`headroom plan` and `savings` of a large cluster from a file: CPU time of the process, beside a bare `json.loads`."""

import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.row import Measure, Row
from tests.bench.timing import HEADROOM, ProcessCost, process_cost

NODES, PODS = 5_000, 150_000
WORKLOADS = 3_000
PENDING_EVERY = 1_000  # so few of the pods wait
CORES, MEMORY_GIB = 16, 64
MADE, REPORTED = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
MOST_RATIO = 2.0
MOST_SAVINGS_SECONDS, MOST_SAVINGS_MIB = 30.0, 953.0  # a gigabyte

_PARSE = "import json, sys; json.loads(open(sys.argv[1], encoding='utf-8').read())"


def measures() -> tuple[Measure, ...]:
    return (_rows,)


def _rows() -> list[Row]:
    """What plans and explanations of a large cluster's dump cost."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        write(path)
        bare = process_cost(sys.executable, "-c", _PARSE, str(path))
        plan = process_cost(*HEADROOM, "plan", "-f", str(path))
        saved = process_cost(*HEADROOM, "savings", "-f", str(path))
        explained = process_cost(*HEADROOM, "explain", "node", "node-00000", "-f", str(path))
        size = f"{NODES:,} nodes, {PODS:,} pods, {path.stat().st_size >> 20} MiB of JSON"
    return [
        _row(f"`headroom plan -f`, {size}", plan, bare, MOST_RATIO),
        _row(f"`headroom savings -f`, {size}", saved, bare, MOST_SAVINGS_SECONDS / bare.cpu_seconds),
        Row("memory of `headroom savings -f`", saved.most_mib, "MiB", MOST_SAVINGS_MIB, "json.loads", bare.most_mib),
        _row(f"`headroom explain node -f`, {size}", explained, bare, None),
    ]


def write(path: Path, nodes: int = NODES, pods: int = PODS) -> None:
    """A dump as `kubectl get nodes,pods -A -o json` prints it."""
    write_list(path, _objects(nodes, pods, random.Random(1)))


def write_list(path: Path, objects: Iterable[dict[str, Any]]) -> None:
    """The objects as kubectl prints a list."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{\n    "apiVersion": "v1",\n    "items": [\n')
        for number, each in enumerate(objects):
            text = json.dumps(each, indent=4).replace("\n", "\n        ")
            file.write(f"{',' if number else ''}\n        {text}")
        file.write('\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n')


def _row(figure: str, cost: ProcessCost, bare: ProcessCost, most_ratio: float | None) -> Row:
    return Row(
        figure,
        cost.cpu_seconds,
        "s of CPU",
        None if most_ratio is None else most_ratio * bare.cpu_seconds,
        "a bare json.loads of the same file",
        bare.cpu_seconds,
        f"{cost.most_mib} MiB at most, json.loads {bare.most_mib} MiB",
    )


def _objects(nodes: int, pods: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(nodes):
        yield _node(number)
    sizes = [
        (chance.choice((50, 100, 250, 400, 500, 1000)), chance.choice((128, 256, 512, 1024, 2048)))
        for _ in range(WORKLOADS)
    ]
    for number in range(pods):
        workload = number % WORKLOADS
        waits = number % PENDING_EVERY == 0
        yield _pod(number, workload, sizes[workload], "" if waits else f"node-{chance.randrange(nodes):05d}")


def _node(number: int) -> dict[str, Any]:
    amounts = {
        "cpu": str(CORES),
        "ephemeral-storage": "98831908Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{MEMORY_GIB << 20}Ki",
        "pods": "110",
    }
    name, pool, zone = f"node-{number:05d}", f"pool-{number % 4}", f"europe-west1-{'bcd'[number % 3]}"
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "n1-standard-16",
        "beta.kubernetes.io/os": "linux",
        "cloud.google.com/gke-nodepool": pool,
        "cloud.google.com/gke-os-distribution": "cos",
        "failure-domain.beta.kubernetes.io/region": "europe-west1",
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "n1-standard-16",
        "topology.kubernetes.io/region": "europe-west1",
        "topology.kubernetes.io/zone": zone,
    }
    conditions = [
        {
            "lastHeartbeatTime": REPORTED,
            "lastTransitionTime": MADE,
            "message": f"kubelet has sufficient memory available and is {kind}",
            "reason": f"Kubelet{kind}",
            "status": "True" if kind == "Ready" else "False",
            "type": kind,
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready")
    ]
    images = [
        {
            "names": [
                f"registry.example/team/app-{each}@sha256:{each:064x}",
                f"registry.example/team/app-{each}:1.{each}",
            ],
            "sizeBytes": 104_857_600 + each,
        }
        for each in range(number % 40, number % 40 + 30)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {
                "container.googleapis.com/instance_id": f"{number:019d}",
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "creationTimestamp": MADE,
            "labels": labels,
            "name": name,
            "resourceVersion": str(90_000_000 + number),
            "uid": f"{number:032x}",
        },
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": f"gce://project/{zone}/{name}"},
        "status": {
            "addresses": [
                {"address": "10.0.0.1", "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "allocatable": {**amounts, "cpu": f"{CORES * 1000 - 110}m"},
            "capacity": amounts,
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": images,
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.33.1", "operatingSystem": "linux"},
        },
    }


def _pod(number: int, workload: int, size: tuple[int, int], node: str) -> dict[str, Any]:
    cpu, memory = size
    made, started = (
        f"2026-01-{1 + number % 28:02d}T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
        for number in (number, number + 7)
    )
    name, app = f"app-{workload}-6d4b75cb6d-{number:06d}", f"app-{workload}"
    image = f"registry.example/team/{app}:1.{workload}"
    token = {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access", "readOnly": True}
    container = {
        "env": [{"name": "SETTING", "value": f"value-{workload}"}],
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "name": "main",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {
            "limits": {"memory": f"{2 * memory}Mi"},
            "requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [token],
    }
    conditions = [
        {"lastProbeTime": None, "lastTransitionTime": started, "status": "True", "type": kind}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    status: dict[str, Any] = {
        "conditions": conditions,
        "containerStatuses": [
            {
                "containerID": f"containerd://{number:064x}",
                "image": image,
                "imageID": f"registry.example/team/{app}@sha256:{workload:064x}",
                "lastState": {},
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": started}},
            }
        ],
        "hostIP": "10.128.0.7",
        "phase": "Running",
        "podIP": "10.0.0.9",
        "qosClass": "Burstable",
        "startTime": made,
    }
    if not node:
        message = "0/5000 nodes are available: 5000 Insufficient cpu."
        unschedulable = {"reason": "Unschedulable", "message": message, "status": "False", "type": "PodScheduled"}
        status = {
            "conditions": [{"lastTransitionTime": made, **unschedulable}],
            "phase": "Pending",
            "qosClass": "Burstable",
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "creationTimestamp": made,
            "generateName": f"{app}-6d4b75cb6d-",
            "labels": {"app": app, "pod-template-hash": "6d4b75cb6d", "team": f"team-{workload % 40}"},
            "name": name,
            "namespace": f"team-{workload % 40}",
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": True,
                    "controller": True,
                    "kind": "ReplicaSet",
                    "name": f"{app}-6d4b75cb6d",
                    "uid": f"{workload:032x}",
                }
            ],
            "resourceVersion": str(80_000_000 + number),
            "uid": f"{number:032x}",
        },
        "spec": {
            "containers": [container],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            **({"nodeName": node} if node else {}),
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": app,
            "serviceAccountName": app,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {
                    "effect": "NoExecute",
                    "key": f"node.kubernetes.io/{each}",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for each in ("not-ready", "unreachable")
            ],
            "volumes": [
                {
                    "name": "kube-api-access",
                    "projected": {
                        "defaultMode": 420,
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        ],
                    },
                }
            ],
        },
        "status": status,
    }
