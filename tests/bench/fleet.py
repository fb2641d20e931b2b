"""The objects of a large cluster, as API servers write them: made on demand, all different, all of real size."""

import msgspec

from shared import durations
from shared.api.nodemetric_spec import MetricCollectPolicy, NodeMetricSpec

NOW = 1_700_000_000.0
PODS_REPORTED = 44  # makes a NodeMetric of 12 kB, with what an agent reports beside them


def page(items: list[bytes], *, version: int = 1, following: int | None = None) -> bytes:
    """One answer to a list request."""
    meta = {"resourceVersion": str(version), **({"continue": str(following)} if following else {})}
    return b'{"metadata":%b,"items":[%b]}' % (msgspec.json.encode(meta), b",".join(items))


def event(kind: str, item: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), item)


def node(index: int, version: int = 1, mid: tuple[int, int] | None = None) -> bytes:
    native = {"cpu": "32", "memory": f"{131_000_000 + index}Ki", "pods": "110", "ephemeral-storage": "95Gi"}
    listed = native if mid is None else native | dict(zip(_MID, map(str, mid), strict=True))
    conditions = [
        {"type": name, "status": "False", "reason": f"KubeletHas{name}", "message": f"kubelet says {name} is fine"}
        for name in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/team/image-{i}@sha256:{i:064x}"], "sizeBytes": i} for i in range(20)]
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"node-{index}",
                "uid": f"{index:032x}",
                "resourceVersion": str(version),
                "labels": {f"example.com/label-{i}": f"value-{i}" for i in range(12)},
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"example://node-{index}"},
            "status": {"capacity": listed, "allocatable": listed, "conditions": conditions, "images": images},
        }
    )


SPEC = NodeMetricSpec(MetricCollectPolicy(aggregate_duration_seconds=300, report_interval_seconds=60))


def node_metric(
    index: int, *, version: int = 1, at: float = NOW, round_: int = 0, spec: NodeMetricSpec = SPEC
) -> bytes:
    """The report of a node; those of another round differ in every number, the sums by less than a tenth."""
    step = index + 7 * round_
    pod_step = index + 7 * round_ % 29
    pods = [
        {
            "name": f"service-{i % 7}-6f7d8c9b5d-{index:05d}-{i}",
            "namespace": f"team-{i % 5}",
            "podUsage": _resources(101 + pod_step % 5000 + i, (1 << 28) + 4096 * (step + i)),
            "priority": "koord-prod",
            "qos": "LS",
            "extensions": {"note": "x" * 60},
        }
        for i in range(PODS_REPORTED)
    ]
    aggregated = [
        {
            "duration": f"{minutes}m0s",
            "usage": {p: _resources(8000 + step % 5000, 40 << 30) for p in ("avg", "p50", "p95")},
        }
        for minutes in (5, 10, 30)
    ]
    return msgspec.json.encode(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": f"node-{index}", "uid": f"{index:032x}", "resourceVersion": str(version)},
            "spec": spec,
            "status": {
                "updateTime": durations.timestamp(at),
                "nodeMetric": {
                    "nodeUsage": _resources(9000 + step % 5000, 48 << 30),
                    "systemUsage": _resources(300 + step % 100, 2 << 30),
                    "aggregatedNodeUsages": aggregated,
                },
                "podsMetric": pods,
                "prodReclaimableMetric": {"resource": _resources(7000 + step % 5000, (12 << 30) + step)},
                "prodPeakMetric": {"resource": _resources(11_000 + step % 5000, 50 << 30)},
            },
        }
    )


def pod(index: int, node_index: int, slot: int) -> bytes:
    """The pod in that slot of a node, of those that its NodeMetric names."""
    name = b"service-%d-6f7d8c9b5d-%05d-%d" % (slot % 7, node_index, slot)
    head = b'{"metadata":{"name":"%b","namespace":"team-%d","uid":"00000000-0000-4000-8000-%012x",' % (
        name,
        slot % 5,
        index,
    )
    return head + b'"resourceVersion":"%d",' % (index + 1) + _POD_META + b'"nodeName":"node-%d",' % node_index + _POD


def _resources(cpu_milli: int, memory_bytes: int) -> dict[str, object]:
    return {"resources": {"cpu": f"{cpu_milli}m", "memory": f"{memory_bytes >> 10}Ki"}}


def _rest(value: dict[str, object]) -> bytes:
    """The members of an object that is open already, to its end."""
    return msgspec.json.encode(value)[1:]


_MID = ("kubernetes.io/mid-cpu", "kubernetes.io/mid-memory")
_INNER: dict[str, dict[str, str]] = {f"f:inner-{i}": {} for i in range(3)}
_FIELDS = {f"f:field-{i}": _INNER for i in range(16)}
_POD_META = (
    _rest(
        {
            "generateName": "service-6f7d8c9b5d-",
            "creationTimestamp": "2023-11-14T20:00:00Z",
            "labels": {"app": "service", "pod-template-hash": "6f7d8c9b5d", "example.com/team": "one"},
            "annotations": {"example.com/config-hash": "c" * 64, "example.com/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "service-6f7d8c9b5d",
                    "uid": "r" * 36,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2023-11-14T20:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": _FIELDS,
                }
                for manager in ("kube-controller-manager", "kubelet")
            ],
        }
    )
    + b',"spec":{'
)
_CONTAINERS = [
    {
        "name": name,
        "image": f"registry.example/team/{name}:1.2.3",
        "env": [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(8)],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "token", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    for name in ("main", "proxy")
]
_POD = (
    _rest(
        {
            "containers": _CONTAINERS,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{what}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for what in ("not-ready", "unreachable")
            ],
            "priority": 9000,
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        }
    )[:-1]
    + b'},"status":'
    + msgspec.json.encode(
        {
            "phase": "Running",
            "conditions": [
                {
                    "type": name,
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2023-11-14T20:00:01Z",
                }
                for name in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "10.1.2.3",
            "podIP": "10.4.5.6",
            "startTime": "2023-11-14T20:00:01Z",
            "containerStatuses": [
                {
                    "name": each["name"],
                    "state": {"running": {"startedAt": "2023-11-14T20:00:05Z"}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": each["image"],
                    "imageID": "sha256:" + "d" * 64,
                    "containerID": "containerd://" + "e" * 64,
                    "started": True,
                }
                for each in _CONTAINERS
            ],
            "qosClass": "Burstable",
        }
    )
    + b"}"
)
