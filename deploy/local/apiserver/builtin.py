"""Defaults and rules of the built-in kinds: what a stored object always has, and what it may not be."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deploy.local.apiserver import metadata, quantities, selectors, status
from deploy.local.apiserver.objects import JsonObject, copy, dig
from deploy.local.apiserver.status import FieldError
from shared import quantity

_POD_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used "
    "for validation is '[0-9]+%')"
)
_PROVIDER_RULE = 'node updates may not change providerID except from "" to valid'
_NAMESPACES_OF_CLUSTER_EVENTS = ("default", "kube-system")
_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_TOLERATING = ("Equal", "Exists")
_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_EVICTING_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _setdefaults(target: JsonObject, **defaults: object) -> None:
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = value


def _canonical_resources(holder: JsonObject, *names: str) -> None:
    for name in names:
        if holder.get(name):
            holder[name] = {key: quantities.canonical(value) for key, value in holder[name].items()}


def _default_pod_spec(spec: JsonObject) -> None:
    _setdefaults(
        spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30, securityContext={}, enableServiceLinks=True,
    )  # fmt: skip
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        latest = ":" not in (container.get("image") or "").rpartition("/")[2]
        latest = latest or str(container.get("image")).endswith(":latest")
        _setdefaults(
            container, resources={}, terminationMessagePath="/dev/termination-log",
            terminationMessagePolicy="File", imagePullPolicy="Always" if latest else "IfNotPresent",
        )  # fmt: skip
        for port in container.get("ports") or ():
            _setdefaults(port, protocol="TCP")
        resources = container["resources"]
        _canonical_resources(resources, "limits", "requests")
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    _canonical_resources(spec, "overhead")
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _default_pod(pod: JsonObject) -> None:
    spec = pod.setdefault("spec", {})
    _default_pod_spec(spec)
    _setdefaults(spec, serviceAccountName="default", preemptionPolicy="PreemptLowerPriority", priority=0)
    spec["serviceAccount"] = spec["serviceAccountName"]
    tolerations = spec.setdefault("tolerations", []) or []
    for key in _EVICTING_TAINTS:
        if not any(_tolerates_eviction(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations
    state = pod.setdefault("status", {})
    _setdefaults(state, phase="Pending", qosClass=qos_class(spec))
    for condition in state.get("conditions") or ():
        _setdefaults(condition, lastProbeTime=None, lastTransitionTime=None)


def _tolerates_eviction(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort, by the containers' cpu and memory."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    guaranteed, any_set = True, False
    for container in containers:
        limits = dig(container, "resources", "limits") or {}
        requests = dig(container, "resources", "requests") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name), limits.get(name)
            any_set = any_set or bool(request and request != "0") or bool(limit and limit != "0")
            guaranteed = guaranteed and limit is not None and request == limit
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _pod_spec_errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield status.required(f"{path}.containers")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}]"
            name = container.get("name")
            if not name:
                yield status.required(f"{where}.name")
            elif name in names:
                yield status.duplicate(f"{where}.name", name)
            else:
                names.add(name)
                yield from metadata.name_errors(name, "label", f"{where}.name")
            if not container.get("image"):
                yield status.required(f"{where}.image")
            yield from _resource_errors(container.get("resources") or {}, f"{where}.resources")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator") not in (None, "", *_TOLERATING):
            where = f"{path}.tolerations[{index}].operator"
            yield status.unsupported(where, toleration["operator"], _TOLERATING)
    allowed = ("Always", "OnFailure", "Never")
    if spec.get("restartPolicy") not in allowed:
        yield status.unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), allowed)


def _resource_errors(resources: JsonObject, where: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _resource_name_errors(name, f"{where}.{field}[{name}]")
            yield from _amount_errors(name, amount, f"{where}.{field}[{name}]")
    for name, amount in requests.items():
        if name not in limits:
            if _extended(name):
                yield status.required(f"{where}.limits", "Limit must be set for non overcommitable resources")
            continue
        request, limit = quantity.milli(amount), quantity.milli(limits[name])
        if request > limit:
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield status.invalid_value(f"{where}.requests", amount, detail)
        elif request < limit and _extended(name):
            detail = f"must be equal to {name} limit of {limits[name]}"
            yield status.invalid_value(f"{where}.requests", amount, detail)


def _extended(resource: str) -> bool:
    """Whether a resource is of nobody's domain that Kubernetes knows: it cannot be overcommitted or divided."""
    return "/" in resource and "kubernetes.io/" not in resource


def _resource_name_errors(name: str, where: str) -> Iterator[FieldError]:
    yield from metadata.qualified_name_errors(name, where)
    if "/" not in name and name not in _CONTAINER_RESOURCES and not name.startswith("hugepages-"):
        yield status.invalid_value(where, name, "must be a standard resource type or fully qualified")
        yield status.invalid_value(where, name, "must be a standard resource for containers")


def _amount_errors(name: str, amount: str, where: str) -> Iterator[FieldError]:
    milli = quantity.milli(amount)
    if milli < 0:
        yield status.invalid_value(where, amount, "must be greater than or equal to 0")
    elif _extended(name) and milli % 1000:
        yield status.invalid_value(where, amount, "must be an integer")


def _pod_errors(pod: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    if old is None:
        yield from _pod_spec_errors(pod["spec"], "spec")
        return
    for field in ("containers", "initContainers"):
        if len(pod["spec"].get(field) or ()) != len(old["spec"].get(field) or ()):
            yield status.forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    deadline, before = pod["spec"].get("activeDeadlineSeconds"), old["spec"].get("activeDeadlineSeconds")
    if before is not None and (deadline is None or deadline > before):
        detail = "must be less than or equal to previous value" if deadline else "must not update from a positive"
        yield status.invalid_value("spec.activeDeadlineSeconds", deadline, detail)
    elif _fixed_pod_spec(pod["spec"], old["spec"]) != _fixed_pod_spec(old["spec"], old["spec"]):
        yield status.forbidden_field("spec", _POD_IMMUTABLE)


def _fixed_pod_spec(spec: JsonObject, old: JsonObject) -> JsonObject:
    """The part of a pod's spec that an update has to leave alone."""
    fixed: JsonObject = copy(spec)
    for container in [*(fixed.get("containers") or ()), *(fixed.get("initContainers") or ())]:
        container.pop("image", None)
    fixed.pop("activeDeadlineSeconds", None)
    before, after = old.get("tolerations") or [], fixed.pop("tolerations", None) or []
    fixed["tolerations"] = all(toleration in after for toleration in before)
    return fixed


def _default_node(node: JsonObject) -> None:
    node.setdefault("spec", {})
    node_status = node.setdefault("status", {})
    if node_status.get("capacity") and not node_status.get("allocatable"):
        node_status["allocatable"] = dict(node_status["capacity"])
    _canonical_resources(node_status, "capacity", "allocatable")
    for condition in node_status.get("conditions") or ():
        _setdefaults(condition, lastHeartbeatTime=None, lastTransitionTime=None)


def _node_errors(node: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    effects, seen = ("NoSchedule", "PreferNoSchedule", "NoExecute"), set()
    for index, taint in enumerate(node["spec"].get("taints") or ()):
        where, key = f"metadata.taints[{index}]", taint.get("key") or ""
        yield from metadata.qualified_name_errors(key, f"{where}.key")
        if taint.get("effect") not in effects:
            yield status.unsupported(f"{where}.effect", taint.get("effect"), effects)
        if (key, taint.get("effect")) in seen:
            yield status.duplicate(where, taint)
        seen.add((key, taint.get("effect")))
    for field in ("capacity", "allocatable"):
        for name, amount in (dig(node, "status", field) or {}).items():
            yield from _amount_errors(name, amount, f"status.{field}.{name}")
    provider, before = node["spec"].get("providerID"), dig(old or {}, "spec", "providerID")
    if before and provider != before:
        yield status.forbidden_field("spec.providerID", _PROVIDER_RULE)


def _default_namespace(namespace: JsonObject) -> None:
    spec = namespace.setdefault("spec", {})
    if not namespace["metadata"].get("deletionTimestamp"):
        spec.setdefault("finalizers", ["kubernetes"])
    name = namespace["metadata"]["name"]
    labels = namespace["metadata"].get("labels") or {}
    namespace["metadata"]["labels"] = labels | {"kubernetes.io/metadata.name": name}
    _setdefaults(namespace.setdefault("status", {}), phase="Active")


def _default_secret(secret: JsonObject) -> None:
    _setdefaults(secret, type="Opaque")
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = (secret.get("data") or {}) | encoded


def _config_map_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    for field in ("data", "binaryData"):
        for key in obj.get(field) or {}:
            if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key):
                detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                yield status.invalid_value(f"{field}[{key}]", key, detail)
    for key in (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys():
        yield status.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    for field in ("immutable", "data", "binaryData"):
        if old and old.get("immutable") and obj.get(field) != old.get(field):
            yield status.forbidden_field(field, "field is immutable when `immutable` is set")


def _default_event(event: JsonObject) -> None:
    _setdefaults(
        event, eventTime=None, firstTimestamp=None, lastTimestamp=None,
        source={}, reportingComponent="", reportingInstance="",
    )  # fmt: skip


def _event_errors(event: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    about, own = dig(event, "involvedObject", "namespace") or "", event["metadata"]["namespace"]
    if about != own and (about or own not in _NAMESPACES_OF_CLUSTER_EVENTS):
        yield status.invalid_value("involvedObject.namespace", about, "does not match event.namespace")


def _lease_errors(lease: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = lease.get("spec") or {}
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        yield status.invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if (count := spec.get("leaseTransitions")) is not None and count < 0:
        yield status.invalid_value("spec.leaseTransitions", count, "must be greater than or equal to 0")


def _budget_errors(budget: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield status.invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, *_EVICTION_POLICIES):
        yield status.unsupported("spec.unhealthyPodEvictionPolicy", policy, _EVICTION_POLICIES)
    for index, term in enumerate(dig(spec, "selector", "matchExpressions") or ()):
        if term.get("operator") not in _SELECTOR_OPERATORS:
            where = f"spec.selector.matchExpressions[{index}].operator"
            yield status.invalid_value(where, term.get("operator"), "not a valid selector operator")
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if isinstance(value, str) and not re.fullmatch(r"\d+%", value):
            yield status.invalid_value(f"spec.{name}", value, _PERCENT_RULE)
        elif isinstance(value, str) and int(value[:-1]) > 100:
            yield status.invalid_value(f"spec.{name}", value, "must not be greater than 100%")
        elif isinstance(value, int) and value < 0:
            yield status.invalid_value(f"spec.{name}", value, "must be greater than or equal to 0")


def _default_budget(budget: JsonObject) -> None:
    counts = budget.setdefault("status", {})
    _setdefaults(counts, disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0)


def _default_workload(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    if obj["kind"] != "DaemonSet":
        _setdefaults(spec, replicas=1)
    template = spec.get("template")
    if template:
        _default_pod_spec(template.setdefault("spec", {}))
    obj.setdefault("status", {})


def _workload_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = obj["spec"]
    selector = selectors.from_object(spec.get("selector"))
    labels = dig(spec, "template", "metadata", "labels") or {}
    if not selector:
        yield status.required("spec.selector")
    elif not selector.matches(labels):
        detail = "`selector` does not match template `labels`"
        yield status.invalid_value("spec.template.metadata.labels", labels, detail)
    if old is not None and spec.get("selector") != old["spec"].get("selector"):
        yield status.immutable("spec.selector", spec.get("selector"))
    if isinstance(spec.get("template"), dict):
        yield from _pod_spec_errors(spec["template"].get("spec") or {}, "spec.template.spec")


def _default_service(service: JsonObject) -> None:
    spec = service.setdefault("spec", {})
    _setdefaults(spec, type="ClusterIP", sessionAffinity="None", clusterIP="None")
    for port in spec.get("ports") or ():
        _setdefaults(port, protocol="TCP", targetPort=port.get("port"))
    _setdefaults(service.setdefault("status", {}), loadBalancer={})


def _default_job(job: JsonObject) -> None:
    spec = job.setdefault("spec", {})
    _setdefaults(spec, parallelism=1, completions=1, backoffLimit=6, suspend=False, completionMode="NonIndexed")
    if spec.get("template"):
        _default_pod_spec(spec["template"].setdefault("spec", {}))
    job.setdefault("status", {})


def _default_priority_class(obj: JsonObject) -> None:
    _setdefaults(obj, preemptionPolicy="PreemptLowerPriority")


def _priority_class_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    if old is not None and obj.get("value") != old.get("value"):
        yield status.forbidden_field("value", "may not be changed in an update.")


def _nothing(obj: JsonObject) -> None:
    """Kinds without defaults."""


def _no_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    yield from ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Defaults of a kind, and its errors given the object it replaces."""

    default: Callable[[JsonObject], None] = _nothing
    errors: Callable[[JsonObject, JsonObject | None], Iterator[FieldError]] = _no_errors


_WORKLOAD = Rules(_default_workload, _workload_errors)
RULES: Mapping[str, Rules] = {
    "Pod": Rules(_default_pod, _pod_errors),
    "Node": Rules(_default_node, _node_errors),
    "Namespace": Rules(_default_namespace),
    "ConfigMap": Rules(errors=_config_map_errors),
    "Secret": Rules(_default_secret, _config_map_errors),
    "Event": Rules(_default_event, _event_errors),
    "Lease": Rules(errors=_lease_errors),
    "PodDisruptionBudget": Rules(_default_budget, _budget_errors),
    "Deployment": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "DaemonSet": _WORKLOAD,
    "Job": Rules(_default_job),
    "Service": Rules(_default_service),
    "PriorityClass": Rules(_default_priority_class, _priority_class_errors),
}
NO_RULES = Rules()
