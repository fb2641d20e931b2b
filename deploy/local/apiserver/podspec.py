"""Defaults and rules of pods' specs: alone, and in the templates of workloads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from deploy.local.apiserver import metadata, status
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.status import FieldError
from shared import quantity

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TOLERATING = ("Equal", "Exists")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_EVICTING_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MODES = ("secret", "configMap", "projected", "downwardAPI")
_PORT_NAME_RULES: Mapping[str, str] = {
    r"[-a-z0-9]*": "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    r".*[a-z].*": "must contain at least one letter (a-z)",
}
_PORT_RULE = "must be between 1 and 65535, inclusive"
_VALUE_OF_EXISTS = "value must be empty when `operator` is 'Exists'"
_KEY_OF_EXISTS = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
_EFFECT_OF_SECONDS = "effect must be 'NoExecute' when `tolerationSeconds` is set"


def setdefaults(target: JsonObject, **defaults: object) -> None:
    """Sets what is absent or null."""
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = value


def containers_of(spec: JsonObject) -> list[JsonObject]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def default(spec: JsonObject) -> None:
    """What a pod template gets."""
    setdefaults(
        spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30, securityContext={},
    )  # fmt: skip
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in containers_of(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: JsonObject, *, host_network: bool) -> None:
    latest = ":" not in (container.get("image") or "").rpartition("/")[2]
    latest = latest or str(container.get("image")).endswith(":latest")
    setdefaults(
        container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest else "IfNotPresent",
    )  # fmt: skip
    for port in container.get("ports") or ():
        setdefaults(port, protocol="TCP")
        if host_network:
            setdefaults(port, hostPort=port["containerPort"])
    for variable in container.get("env") or ():
        _default_field_ref(variable.get("valueFrom") or {})
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _default_http_get(hook)
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _default_probe(probe: JsonObject) -> None:
    setdefaults(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    _default_http_get(probe)
    if "grpc" in probe:
        setdefaults(probe["grpc"], service="")


def _default_http_get(handler: JsonObject) -> None:
    if "httpGet" in handler:
        setdefaults(handler["httpGet"], path="/", scheme="HTTP")


def _default_field_ref(source: JsonObject) -> None:
    if "fieldRef" in source:
        setdefaults(source["fieldRef"], apiVersion="v1")
    if "resourceFieldRef" in source:
        setdefaults(source["resourceFieldRef"], divisor="0")


def _default_volume(volume: JsonObject) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in _MODES:
        if name in volume:
            setdefaults(volume[name], defaultMode=0o644)
    for source in [volume, *(dig(volume, "projected", "sources") or ())]:
        for item in dig(source, "downwardAPI", "items") or ():
            _default_field_ref(item)
        if "serviceAccountToken" in source:
            setdefaults(source["serviceAccountToken"], expirationSeconds=3600)
    if "hostPath" in volume:
        setdefaults(volume["hostPath"], type="")


def admit(spec: JsonObject) -> None:
    """What a pod gets beside its defaults from the admission of an ordinary cluster."""
    setdefaults(spec, enableServiceLinks=True, serviceAccountName="default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    tolerations = spec.setdefault("tolerations", [])
    for key in _EVICTING_TAINTS:
        if not any(_tolerates_eviction(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _tolerates_eviction(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort, by the containers' cpu and memory."""
    guaranteed, any_set = True, False
    for container in containers_of(spec):
        limits = dig(container, "resources", "limits") or {}
        requests = dig(container, "resources", "requests") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name), limits.get(name)
            any_set = any_set or bool(request and request != "0") or bool(limit and limit != "0")
            guaranteed = guaranteed and limit is not None and request == limit
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Everything wrong with a pod's spec that has its defaults."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    if not spec.get("containers"):
        yield status.required(f"{path}.containers")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}]"
            name = container.get("name")
            if not name:
                yield status.required(f"{where}.name")
            elif name not in names:
                yield from metadata.name_errors(name, "label", f"{where}.name")
            yield from _container_errors(container, volumes, where)
            if name and name in names:
                yield status.duplicate(f"{where}.name", name)
            names.add(name or "")
    for name, allowed in (("restartPolicy", _RESTART_POLICIES), ("dnsPolicy", _DNS_POLICIES)):
        if spec.get(name) not in allowed:
            yield status.unsupported(f"{path}.{name}", spec.get(name), allowed)
    for key in spec.get("nodeSelector") or {}:
        yield from metadata.qualified_name_errors(key, f"{path}.nodeSelector")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield status.invalid_value(f"{path}.securityContext.shareProcessNamespace", True, detail)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        detail = "must be between 1 and 2147483647, inclusive"
        yield status.invalid_value(f"{path}.activeDeadlineSeconds", deadline, detail)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_errors(toleration, f"{path}.tolerations[{index}]")


def _container_errors(container: JsonObject, volumes: set[str], where: str) -> Iterator[FieldError]:
    image = container.get("image") or ""
    if not image:
        yield status.required(f"{where}.image")
    elif image != image.strip():
        yield status.invalid_value(f"{where}.image", image, "must not have leading or trailing whitespace")
    if container["terminationMessagePolicy"] not in _MESSAGE_POLICIES:
        policy = container["terminationMessagePolicy"]
        yield status.unsupported(f"{where}.terminationMessagePolicy", policy, _MESSAGE_POLICIES)
    yield from _port_errors(container.get("ports") or (), f"{where}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        if not variable["name"]:
            yield status.required(f"{where}.env[{index}].name")
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{where}.volumeMounts[{index}]"
        if not mount["name"]:
            yield status.required(f"{at}.name")
        if mount["name"] not in volumes:
            yield FieldError(f"{at}.name", "FieldValueNotFound", f"Not found: {status.shown(mount['name'])}")
        if not mount["mountPath"]:
            yield status.required(f"{at}.mountPath")
        if mount["mountPath"] in paths:
            yield status.invalid_value(f"{at}.mountPath", mount["mountPath"], "must be unique")
        paths.add(mount["mountPath"])
    if container["imagePullPolicy"] not in _PULL_POLICIES:
        yield status.unsupported(f"{where}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
    yield from _resource_errors(container["resources"], f"{where}.resources")


def _port_errors(ports: Sequence[JsonObject], where: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{where}[{index}]"
        if name := port.get("name", ""):
            for pattern, detail in _PORT_NAME_RULES.items():
                if not re.fullmatch(pattern, name):
                    yield status.invalid_value(f"{at}.name", name, detail)
            if name in names:
                yield status.duplicate(f"{at}.name", name)
            names.add(name)
        if not port["containerPort"]:
            yield status.required(f"{at}.containerPort")
        elif not 0 < port["containerPort"] < 65536:
            yield status.invalid_value(f"{at}.containerPort", port["containerPort"], _PORT_RULE)
        if not 0 <= port.get("hostPort", 0) < 65536:
            yield status.invalid_value(f"{at}.hostPort", port["hostPort"], _PORT_RULE)
        if port["protocol"] not in _PROTOCOLS:
            yield status.unsupported(f"{at}.protocol", port["protocol"], _PROTOCOLS)


def _toleration_errors(toleration: JsonObject, where: str) -> Iterator[FieldError]:
    key, operator, effect = (toleration.get(name) or "" for name in ("key", "operator", "effect"))
    if key:
        yield from metadata.qualified_name_errors(key, f"{where}.key")
    elif operator != "Exists":
        yield status.invalid_value(f"{where}.operator", operator, _KEY_OF_EXISTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield status.invalid_value(f"{where}.effect", effect, _EFFECT_OF_SECONDS)
    if operator == "Exists" and toleration.get("value"):
        yield status.invalid_value(f"{where}.operator", toleration["value"], _VALUE_OF_EXISTS)
    elif operator not in ("", *_TOLERATING):
        yield status.unsupported(f"{where}.operator", operator, _TOLERATING)
    if effect and effect not in _EFFECTS:
        yield status.unsupported(f"{where}.effect", effect, _EFFECTS)


def _resource_errors(resources: JsonObject, where: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _resource_name_errors(name, f"{where}.{field}[{name}]")
            yield from amount_errors(name, amount, f"{where}.{field}[{name}]")
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


def amount_errors(name: str, amount: str, where: str) -> Iterator[FieldError]:
    milli = quantity.milli(amount)
    if milli < 0:
        yield status.invalid_value(where, amount, "must be greater than or equal to 0")
    elif _extended(name) and milli % 1000:
        yield status.invalid_value(where, amount, "must be an integer")
