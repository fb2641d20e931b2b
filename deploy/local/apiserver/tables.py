"""Server-side printing: objects as the Tables that `kubectl get` shows, and as bare metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from deploy.local.apiserver import jsonpath
from deploy.local.apiserver.kinds import Column, Kind
from deploy.local.apiserver.objects import Json, JsonObject, dig, unix_seconds

Cell = Callable[[JsonObject], Json]
PrinterColumn = tuple[str, str, int, Cell]  # name, type, priority (1: wide only), value

_NONE = "<none>"
_ENDED = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def age(text: Json, now: float | None = None) -> str:
    """How long ago a time is, as kubectl says it: 5s, 3m10s, 4h, 12d; <unknown> for what is none."""
    try:
        seconds = int((time.time() if now is None else now) - unix_seconds(text))
    except (TypeError, ValueError, AttributeError):
        return "<unknown>"
    return duration(max(0, seconds))


def duration(seconds: int) -> str:
    """Whole seconds as kubectl prints them: the finer unit only while the coarser one is small, a year of 365 days."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, days = divmod(days, 365)
    return f"{years}y{days}d" if days and years < 8 else f"{years}y"


def _at(*path: str, default: Json = _NONE) -> Cell:
    def cell(obj: JsonObject) -> Json:
        found = dig(obj, *path)
        return default if found in (None, "", {}, []) else found

    return cell


def _text(*path: str) -> Cell:
    """An int-or-string as text."""
    return lambda obj: str(_at(*path, default="N/A")(obj))


def _age_of(obj: JsonObject) -> str:
    return age(dig(obj, "metadata", "creationTimestamp"))


def _node_status(node: JsonObject) -> str:
    ready = _condition(node, "Ready")
    text = {"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if ready else "Unknown")
    return text + (",SchedulingDisabled" if dig(node, "spec", "unschedulable") else "")


def _condition(obj: JsonObject, name: str) -> str:
    conditions = dig(obj, "status", "conditions") or ()
    return next((item.get("status", "") for item in conditions if item.get("type") == name), "")


def _node_roles(node: JsonObject) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = dig(node, "metadata", "labels") or {}
    return ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))) or _NONE


def _node_address(kind: str) -> Cell:
    def cell(node: JsonObject) -> str:
        addresses = dig(node, "status", "addresses") or ()
        return next((item["address"] for item in addresses if item.get("type") == kind), _NONE)

    return cell


def _pod_ready(pod: JsonObject) -> str:
    statuses = dig(pod, "status", "containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(dig(pod, 'spec', 'containers') or ())}"


def _pod_status(pod: JsonObject) -> str:
    if dig(pod, "metadata", "deletionTimestamp"):
        return "Terminating"
    reason = dig(pod, "status", "reason") or dig(pod, "status", "phase") or "Unknown"
    for state in (status.get("state") or {} for status in dig(pod, "status", "containerStatuses") or ()):
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if terminated and not terminated.get("reason"):
            signal = terminated.get("signal")
            reason = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
        reason = waiting.get("reason") or terminated.get("reason") or reason
    return str(reason)


def _pod_restarts(pod: JsonObject) -> str:
    """How often containers restarted and, if the last one says when it ended, how long ago that was."""
    statuses = dig(pod, "status", "containerStatuses") or ()
    count = sum(status.get("restartCount", 0) for status in statuses)
    ended = [dig(status, "lastState", "terminated", "finishedAt") for status in statuses]
    last = max(filter(None, ended), default=None)
    return f"{count} ({age(last)} ago)" if count and last else str(count)


def _readiness_gates(pod: JsonObject) -> str:
    gates = dig(pod, "spec", "readinessGates") or ()
    met = sum(_condition(pod, gate["conditionType"]) == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else _NONE


def _event_last_seen(event: JsonObject) -> str:
    first = event.get("firstTimestamp") or event.get("eventTime")
    return age(dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or first)


def _event_object(event: JsonObject) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_source(event: JsonObject) -> str:
    source = event.get("source") or {}
    parts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(part for part in parts if part)


def _ready_of(ready: str, wanted: str) -> Cell:
    return lambda obj: f"{dig(obj, 'status', ready) or 0}/{dig(obj, 'spec', wanted) or 0}"


def _count(*path: str) -> Cell:
    return _at(*path, default=0)


def _keys(*fields: str) -> Cell:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


def _selector(*path: str) -> Cell:
    def cell(obj: JsonObject) -> str:
        selector: JsonObject = dig(obj, *path) or {}
        labels = selector.get("matchLabels", selector)
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE

    return cell


def _service_ports(service: JsonObject) -> str:
    ports = dig(service, "spec", "ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or _NONE


def _external_addresses(service: JsonObject) -> str:
    spec: JsonObject = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    given = dig(service, "status", "loadBalancer", "ingress") or ()
    addresses = [item.get("ip") or item.get("hostname") or "" for item in given] + list(spec.get("externalIPs") or ())
    return ",".join(addresses) or ("<pending>" if spec.get("type") == "LoadBalancer" else _NONE)


def _job_status(job: JsonObject) -> str:
    for name, shown in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if _condition(job, name) == "True":
            return shown
    return "Terminating" if dig(job, "metadata", "deletionTimestamp") else "Running"


def _job_completions(job: JsonObject) -> str:
    done, wanted = dig(job, "status", "succeeded") or 0, dig(job, "spec", "completions")
    parallel = dig(job, "spec", "parallelism") or 0
    if wanted is not None:
        return f"{done}/{wanted}"
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: JsonObject) -> str:
    begun, ended = dig(job, "status", "startTime"), dig(job, "status", "completionTime")
    if not begun:
        return ""
    return age(begun, unix_seconds(ended) if ended else None)


def _access_modes(part: str) -> Cell:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return lambda obj: ",".join(short.get(mode, "") for mode in dig(obj, part, "accessModes") or ())


def _volume_phase(obj: JsonObject) -> str:
    gone = dig(obj, "metadata", "deletionTimestamp")
    return "Terminating" if gone else str(dig(obj, "status", "phase") or "")


def _volume_claim(volume: JsonObject) -> str:
    claim = dig(volume, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _bound_role(binding: JsonObject) -> str:
    role: JsonObject = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(binding: JsonObject) -> str:
        found = [item for item in binding.get("subjects") or () if item.get("kind") == kind]
        return ", ".join(
            f"{item['namespace']}/{item['name']}" if "namespace" in item else item["name"] for item in found
        )

    return cell


def _param_kind(policy: JsonObject) -> str:
    kind = dig(policy, "spec", "paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"


def _param_ref(binding: JsonObject) -> str:
    reference = dig(binding, "spec", "paramRef")
    if not reference:
        return "<unset>"
    return "/".join(filter(None, (reference.get("namespace"), reference.get("name")))) or "<selector>"


def _containers(field: str) -> Cell:
    def cell(obj: JsonObject) -> str:
        found = dig(obj, "spec", "template", "spec", "containers") or ()
        return ",".join(str(container.get(field, "")) for container in found)

    return cell


_NAME: PrinterColumn = ("Name", "string", 0, _at("metadata", "name"))
_AGE: PrinterColumn = ("Age", "string", 0, _age_of)
_SELECTOR: PrinterColumn = ("Selector", "string", 1, _selector("spec", "selector"))
_IMAGES: tuple[PrinterColumn, ...] = (
    ("Containers", "string", 1, _containers("name")),
    ("Images", "string", 1, _containers("image")),
    _SELECTOR,
)
_BINDING: tuple[PrinterColumn, ...] = (
    _NAME, ("Role", "string", 0, _bound_role), _AGE, ("Users", "string", 1, _subjects("User")),
    ("Groups", "string", 1, _subjects("Group")), ("ServiceAccounts", "string", 1, _subjects("ServiceAccount")),
)  # fmt: skip
_WEBHOOKS: tuple[PrinterColumn, ...] = (_NAME, ("Webhooks", "integer", 0, _keys("webhooks")), _AGE)
_COLUMNS: Mapping[str, tuple[PrinterColumn, ...]] = {
    "Node": (
        _NAME, ("Status", "string", 0, _node_status), ("Roles", "string", 0, _node_roles), _AGE,
        ("Version", "string", 0, _at("status", "nodeInfo", "kubeletVersion", default="")),
        ("Internal-IP", "string", 1, _node_address("InternalIP")),
        ("External-IP", "string", 1, _node_address("ExternalIP")),
        ("OS-Image", "string", 1, _at("status", "nodeInfo", "osImage", default="<unknown>")),
        ("Kernel-Version", "string", 1, _at("status", "nodeInfo", "kernelVersion", default="<unknown>")),
        ("Container-Runtime", "string", 1, _at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>")),
    ),
    "Pod": (
        _NAME, ("Ready", "string", 0, _pod_ready), ("Status", "string", 0, _pod_status),
        ("Restarts", "string", 0, _pod_restarts), _AGE, ("IP", "string", 1, _at("status", "podIP")),
        ("Node", "string", 1, _at("spec", "nodeName")),
        ("Nominated Node", "string", 1, _at("status", "nominatedNodeName")),
        ("Readiness Gates", "string", 1, _readiness_gates),
    ),
    "Namespace": (_NAME, ("Status", "string", 0, _at("status", "phase")), _AGE),
    "ConfigMap": (_NAME, ("Data", "string", 0, _keys("data", "binaryData")), _AGE),
    "Secret": (_NAME, ("Type", "string", 0, _at("type")), ("Data", "string", 0, _keys("data")), _AGE),
    "ServiceAccount": (_NAME, _AGE),
    "Event": (
        ("Last Seen", "string", 0, _event_last_seen), ("Type", "string", 0, _at("type", default="")),
        ("Reason", "string", 0, _at("reason", default="")), ("Object", "string", 0, _event_object),
        ("Subobject", "string", 1, _at("involvedObject", "fieldPath", default="")),
        ("Source", "string", 1, _event_source), ("Message", "string", 0, _at("message", default="")),
        ("First Seen", "string", 1, lambda event: age(event.get("firstTimestamp") or event.get("eventTime"))),
        ("Count", "string", 1, _at("count", default=1)),
        ("Name", "string", 1, _at("metadata", "name")),
    ),
    "Lease": (_NAME, ("Holder", "string", 0, _at("spec", "holderIdentity", default="")), _AGE),
    "Service": (
        _NAME, ("Type", "string", 0, _at("spec", "type")), ("Cluster-IP", "string", 0, _at("spec", "clusterIP")),
        ("External-IP", "string", 0, _external_addresses), ("Port(s)", "string", 0, _service_ports),
        _AGE, _SELECTOR,
    ),
    "PodDisruptionBudget": (
        _NAME, ("Min Available", "string", 0, _text("spec", "minAvailable")),
        ("Max Unavailable", "string", 0, _text("spec", "maxUnavailable")),
        ("Allowed Disruptions", "integer", 0, _count("status", "disruptionsAllowed")), _AGE,
    ),
    "Deployment": (
        _NAME, ("Ready", "string", 0, _ready_of("readyReplicas", "replicas")),
        ("Up-to-date", "string", 0, _count("status", "updatedReplicas")),
        ("Available", "string", 0, _count("status", "availableReplicas")), _AGE, *_IMAGES,
    ),
    "ReplicationController": (
        _NAME, ("Desired", "integer", 0, _count("spec", "replicas")),
        ("Current", "integer", 0, _count("status", "replicas")),
        ("Ready", "integer", 0, _count("status", "readyReplicas")), _AGE, *_IMAGES,
    ),
    "ReplicaSet": (
        _NAME, ("Desired", "integer", 0, _count("spec", "replicas")),
        ("Current", "integer", 0, _count("status", "replicas")),
        ("Ready", "integer", 0, _count("status", "readyReplicas")), _AGE, *_IMAGES,
    ),
    "StatefulSet": (_NAME, ("Ready", "string", 0, _ready_of("readyReplicas", "replicas")), _AGE, *_IMAGES[:2]),
    "DaemonSet": (
        _NAME, ("Desired", "integer", 0, _count("status", "desiredNumberScheduled")),
        ("Current", "integer", 0, _count("status", "currentNumberScheduled")),
        ("Ready", "integer", 0, _count("status", "numberReady")),
        ("Up-to-date", "integer", 0, _count("status", "updatedNumberScheduled")),
        ("Available", "integer", 0, _count("status", "numberAvailable")),
        ("Node Selector", "string", 0, _selector("spec", "template", "spec", "nodeSelector")), _AGE, *_IMAGES,
    ),
    "Job": (
        _NAME, ("Status", "string", 0, _job_status), ("Completions", "string", 0, _job_completions),
        ("Duration", "string", 0, _job_duration), _AGE, *_IMAGES,
    ),
    "PersistentVolume": (
        _NAME, ("Capacity", "string", 0, _at("spec", "capacity", "storage", default="")),
        ("Access Modes", "string", 0, _access_modes("spec")),
        ("Reclaim Policy", "string", 0, _at("spec", "persistentVolumeReclaimPolicy", default="")),
        ("Status", "string", 0, _volume_phase), ("Claim", "string", 0, _volume_claim),
        ("StorageClass", "string", 0, _at("spec", "storageClassName", default="")),
        ("VolumeAttributesClass", "string", 0, _at("spec", "volumeAttributesClassName", default="<unset>")),
        ("Reason", "string", 0, _at("status", "reason", default="")), _AGE,
        ("VolumeMode", "string", 1, _at("spec", "volumeMode", default="<unset>")),
    ),
    "PersistentVolumeClaim": (
        _NAME, ("Status", "string", 0, _volume_phase), ("Volume", "string", 0, _at("spec", "volumeName", default="")),
        ("Capacity", "string", 0, _at("status", "capacity", "storage", default="")),
        ("Access Modes", "string", 0, _access_modes("status")),
        ("StorageClass", "string", 0, _at("spec", "storageClassName", default="")),
        ("VolumeAttributesClass", "string", 0, _at("spec", "volumeAttributesClassName", default="<unset>")), _AGE,
        ("VolumeMode", "string", 1, _at("spec", "volumeMode", default="<unset>")),
    ),
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "NetworkPolicy": (_NAME, ("Pod-Selector", "string", 0, _selector("spec", "podSelector")), _AGE),
    "ValidatingAdmissionPolicy": (
        _NAME, ("Validations", "integer", 0, lambda obj: len(dig(obj, "spec", "validations") or ())),
        ("ParamKind", "string", 0, _param_kind), _AGE,
    ),
    "ValidatingAdmissionPolicyBinding": (
        _NAME, ("PolicyName", "string", 0, _at("spec", "policyName")), ("ParamRef", "string", 0, _param_ref), _AGE,
    ),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "PriorityClass": (
        _NAME, ("Value", "integer", 0, _count("value")),
        ("Global-Default", "boolean", 0, _at("globalDefault", default=False)), _AGE,
        ("PreemptionPolicy", "string", 0, _at("preemptionPolicy")),
    ),
    "CustomResourceDefinition": (_NAME, ("Created At", "date", 0, _at("metadata", "creationTimestamp"))),
}  # fmt: skip


def _custom_column(column: Column) -> PrinterColumn:
    def cell(obj: JsonObject) -> Json:
        found = jsonpath.find(obj, column.json_path)
        if column.type == "string" and type(found) is int:  # int-or-string
            return str(found)
        return age(found) if found is not None and column.type == "date" else found

    return (column.name, column.type, column.priority, cell)


def columns_of(kind: Kind) -> tuple[PrinterColumn, ...]:
    if kind.custom:
        return (_NAME, *(_custom_column(column) for column in kind.columns))
    return _COLUMNS.get(kind.kind, (_NAME, ("Created At", "date", 0, _at("metadata", "creationTimestamp"))))


def table(
    kind: Kind, objects: Sequence[JsonObject], list_meta: JsonObject, include_object: str = "Metadata"
) -> JsonObject:
    """A meta.k8s.io/v1 Table; `include_object` is None, Metadata or Object."""
    columns = columns_of(kind)
    definitions = [
        {"name": name, "type": type_, "format": "name" if name == "Name" else "", "description": "", "priority": wide}
        for name, type_, wide, _ in columns
    ]
    rows = [
        {"cells": [cell(obj) for _, _, _, cell in columns], **_row_conditions(kind, obj)}
        | {"object": _row_object(obj, include_object)}
        for obj in objects
    ]
    return {
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta,
        "columnDefinitions": definitions, "rows": rows,
    }  # fmt: skip


def _row_conditions(kind: Kind, obj: JsonObject) -> JsonObject:
    """What a row says of a pod that has ended."""
    message = _ENDED.get(dig(obj, "status", "phase")) if kind.kind == "Pod" else None
    if message is None:
        return {}
    reason = dig(obj, "status", "phase")
    return {"conditions": [{"type": "Completed", "status": "True", "reason": reason, "message": message}]}


def _row_object(obj: JsonObject, include_object: str) -> JsonObject | None:
    if include_object == "None":
        return None
    return obj if include_object == "Object" else partial(obj)


def partial(obj: JsonObject) -> JsonObject:
    """An object's metadata alone."""
    meta = obj["metadata"]
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
