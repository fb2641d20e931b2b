"""Defaults and rules of the built-in kinds: what a stored object always has, and what it may not be."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deploy.local.apiserver import metadata, podspec, registrations, status, workloads
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject, copy, dig, timestamp
from deploy.local.apiserver.podspec import setdefaults
from deploy.local.apiserver.status import FieldError

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
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_DATA_BYTES = 1024 * 1024
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_TLS_KEYS = ("tls.crt", "tls.key")
_GATED: JsonObject = {
    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}  # fmt: skip


def _default_pod(pod: JsonObject) -> None:
    spec = pod["spec"]
    podspec.default(spec)
    podspec.admit(spec)
    state = pod["status"]
    setdefaults(state, phase="Pending", qosClass=podspec.qos_class(spec))
    if state.get("podIP") and not state.get("podIPs"):
        state["podIPs"] = [{"ip": state["podIP"]}]
    if spec.get("schedulingGates") and not state.get("conditions"):
        moment = timestamp(time.time())
        state["conditions"] = [_GATED | {"lastProbeTime": None, "lastTransitionTime": moment}]


def _pod_errors(pod: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    if old is None:
        yield from podspec.errors(pod["spec"], "spec")
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
    for container in podspec.containers_of(fixed):
        container.pop("image", None)
    fixed.pop("activeDeadlineSeconds", None)
    before, after = old.get("tolerations") or [], fixed.pop("tolerations", None) or []
    fixed["tolerations"] = all(toleration in after for toleration in before)
    before, after = old.get("schedulingGates") or [], fixed.pop("schedulingGates", None) or []
    fixed["schedulingGates"] = all(gate in before for gate in after)
    return fixed


def _default_node(node: JsonObject) -> None:
    node_status = node["status"]
    if node_status.get("capacity") and not node_status.get("allocatable"):
        node_status["allocatable"] = dict(node_status["capacity"])


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
            yield from podspec.amount_errors(name, amount, f"status.{field}.{name}")
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
    setdefaults(namespace.setdefault("status", {}), phase="Active")


def _default_secret(secret: JsonObject) -> None:
    setdefaults(secret, type="Opaque")
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = (secret.get("data") or {}) | encoded


def _config_map_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    for field in ("data", "binaryData"):
        for key in obj.get(field) or {}:
            if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key):
                yield status.invalid_value(f"{field}[{key}]", key, _CONFIG_KEY_RULE)
    for key in (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys():
        yield status.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    for field in ("immutable", "data", "binaryData"):
        if old and old.get("immutable") and obj.get(field) != old.get(field):
            yield status.forbidden_field(field, "field is immutable when `immutable` is set")
    plain = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
    if plain + sum(len(value) * 3 // 4 for value in (obj.get("binaryData") or {}).values()) > _DATA_BYTES:
        detail = f"Too long: may not be more than {_DATA_BYTES} bytes"
        yield FieldError("[]" if obj["kind"] == "ConfigMap" else "data", "FieldValueTooLong", detail)


def _secret_errors(secret: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    yield from _config_map_errors(secret, old)
    for key in _TLS_KEYS if secret["type"] == "kubernetes.io/tls" else ():
        if key not in (secret.get("data") or {}):
            yield status.required(f"data[{key}]")
    if old is not None and secret["type"] != old.get("type"):
        yield status.immutable("type", secret["type"])


def _event_errors(event: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    about, own = dig(event, "involvedObject", "namespace") or "", event["metadata"]["namespace"]
    if event.get("eventTime"):
        yield from new_style_errors(event, "reportingComponent")
    elif about != own and (about or own not in _NAMESPACES_OF_CLUSTER_EVENTS):
        yield status.invalid_value("involvedObject.namespace", about, "does not match event.namespace")


def new_style_errors(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    """What an event that says when it happened to the microsecond has to say beside."""
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield status.required(controller_field)
    yield from metadata.qualified_name_errors(controller, controller_field)
    for name, longest in (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)):
        text = event.get(name) or ""
        if not text and name != "message":
            yield status.required(name)
        elif len(text) > longest:
            yield status.invalid_value(name, "", f"can have at most {longest} characters")


def _lease_errors(lease: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = lease.get("spec") or {}
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        yield status.invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if (count := spec.get("leaseTransitions")) is not None and count < 0:
        yield status.invalid_value("spec.leaseTransitions", count, "must be greater than or equal to 0")


def _budget_errors(budget: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
        shown = {name[0].upper() + name[1:]: spec.get(name) for name in names}  # as Go names them
        yield status.invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")
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
    setdefaults(counts, disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0)


def _default_service(service: JsonObject) -> None:
    spec = service["spec"]
    setdefaults(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports") or ():
        setdefaults(port, protocol="TCP")
        if port["targetPort"] in (0, ""):
            port["targetPort"] = port["port"]
    if spec["type"] == "ExternalName":
        return
    setdefaults(spec, internalTrafficPolicy="Cluster")
    if spec["type"] != "ClusterIP":
        setdefaults(spec, externalTrafficPolicy="Cluster")
    if address := spec.get("clusterIP"):
        setdefaults(spec, clusterIPs=[address])
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        setdefaults(spec, ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack")
    setdefaults(spec, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")


def _service_errors(service: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = service["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        yield status.required("spec.ports")
    if spec["type"] not in _SERVICE_TYPES:
        yield status.unsupported("spec.type", spec["type"], _SERVICE_TYPES)
    for index, port in enumerate(spec.get("ports") or ()):
        where = f"spec.ports[{index}]"
        if not port.get("name") and len(spec["ports"]) > 1:
            yield status.required(f"{where}.name")
        if not 0 < port["port"] < 65536:
            yield status.invalid_value(f"{where}.port", port["port"], "must be between 1 and 65535, inclusive")
    before = dig(old or {}, "spec", "clusterIP")
    if before and spec.get("clusterIP") != before and spec["type"] != "ExternalName":
        detail = "may not change once set"
        yield status.invalid_value("spec.clusterIPs[0]", [spec.get("clusterIP")], detail)


def _default_network_policy(policy: JsonObject) -> None:
    for rule in [*(policy["spec"].get("ingress") or ()), *(policy["spec"].get("egress") or ())]:
        for port in rule.get("ports") or ():
            setdefaults(port, protocol="TCP")


def _default_admission_policy(policy: JsonObject) -> None:
    setdefaults(policy["spec"], failurePolicy="Fail")
    if (matched := policy["spec"].get("matchConstraints")) is not None:
        setdefaults(matched, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
        for rule in [*(matched.get("resourceRules") or ()), *(matched.get("excludeResourceRules") or ())]:
            setdefaults(rule, scope="*")


def _default_claim(claim: JsonObject) -> None:
    setdefaults(claim["spec"], volumeMode="Filesystem")
    setdefaults(claim["status"], phase="Pending")


def _default_priority_class(obj: JsonObject) -> None:
    setdefaults(obj, preemptionPolicy="PreemptLowerPriority")


def _priority_class_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    if old is not None and obj.get("value") != old.get("value"):
        yield status.forbidden_field("value", "may not be changed in an update.")


def _nothing(obj: JsonObject) -> None:
    """Kinds without defaults."""


def _no_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    yield from ()


def _no_warnings(obj: JsonObject) -> Iterator[str]:
    yield from ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Defaults of a kind, its errors given the object it replaces, and what to warn of."""

    default: Callable[[JsonObject], None] = _nothing
    errors: Callable[[JsonObject, JsonObject | None], Iterator[FieldError]] = _no_errors
    warnings: Callable[[JsonObject], Iterator[str]] = _no_warnings


_WEBHOOKS = Rules(registrations.default, registrations.errors, registrations.warnings)
_RULES: Mapping[str, Rules] = {
    "Pod": Rules(_default_pod, _pod_errors),
    "Node": Rules(_default_node, _node_errors),
    "Namespace": Rules(_default_namespace),
    "ConfigMap": Rules(errors=_config_map_errors),
    "Secret": Rules(_default_secret, _secret_errors),
    "Event": Rules(errors=_event_errors),
    "Lease": Rules(errors=_lease_errors),
    "PodDisruptionBudget": Rules(_default_budget, _budget_errors),
    "ReplicationController": Rules(
        workloads.DEFAULTS["ReplicationController"], workloads.replication_controller_errors
    ),
    "Deployment": Rules(workloads.DEFAULTS["Deployment"], workloads.errors),
    "ReplicaSet": Rules(workloads.DEFAULTS["ReplicaSet"], workloads.errors),
    "StatefulSet": Rules(workloads.DEFAULTS["StatefulSet"], workloads.errors),
    "DaemonSet": Rules(workloads.DEFAULTS["DaemonSet"], workloads.errors),
    "Job": Rules(workloads.default_job, workloads.job_errors),
    "Service": Rules(_default_service, _service_errors),
    "PersistentVolumeClaim": Rules(_default_claim),
    "NetworkPolicy": Rules(_default_network_policy),
    "ValidatingAdmissionPolicy": Rules(_default_admission_policy),
    "PriorityClass": Rules(_default_priority_class, _priority_class_errors),
    registrations.MUTATING: _WEBHOOKS,
    registrations.VALIDATING: _WEBHOOKS,
}
_NO_RULES = Rules()


def rules_of(kind: Kind) -> Rules:
    """Those of a built-in kind; a custom one has its schema instead."""
    return _NO_RULES if kind.custom else _RULES.get(kind.kind, _NO_RULES)
