"""Defaults and rules of pod specs, in pods and in the templates of workloads."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.local.apiserver import metadata, status
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.status import FieldError
from shared import quantity

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_EVICTING_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MODES = ("secret", "configMap", "projected", "downwardAPI")
_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
}
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def setdefaults(target: JsonObject, **defaults: object) -> None:
    """Sets fields that are absent or null."""
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = value


def containers_of(spec: JsonObject) -> list[JsonObject]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def default(spec: JsonObject) -> None:
    """Sets the defaults of a pod template."""
    setdefaults(
        spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30, securityContext={},
    )  # fmt: skip
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in containers_of(spec):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}
        for name in _MODES:
            if name in volume:
                setdefaults(volume[name], defaultMode=0o644)


def _default_container(container: JsonObject) -> None:
    tag = (container.get("image") or "").rpartition("/")[2].partition("@")[0].partition(":")[2]
    setdefaults(
        container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File",
        imagePullPolicy="Always" if tag in ("", "latest") else "IfNotPresent",
    )  # fmt: skip
    for port in container.get("ports") or ():
        setdefaults(port, protocol="TCP")
    for variable in container.get("env") or ():
        if field := dig(variable, "valueFrom", "fieldRef"):
            setdefaults(field, apiVersion="v1")
    for name in _PROBES:
        if name in container:
            setdefaults(container[name], timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            if "httpGet" in container[name]:
                setdefaults(container[name]["httpGet"], path="/", scheme="HTTP")
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def admit(spec: JsonObject) -> None:
    """Adds what the default admission plugins of a cluster add to a pod beside the defaults."""
    setdefaults(spec, enableServiceLinks=True, serviceAccountName="default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    tolerations = spec.setdefault("tolerations", [])
    for key in _EVICTING_TAINTS:
        if not any(_tolerates_eviction(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _tolerates_eviction(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort, from the containers' cpu and memory."""
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
    """Errors in a pod's spec that has its defaults, limited to the fields that this cluster uses."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    if not spec.get("containers"):
        yield status.required(f"{path}.containers")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            where, name = f"{path}.{field}[{index}]", container.get("name") or ""
            yield from metadata.name_errors(name, "label", f"{where}.name")
            if name in names:
                yield status.duplicate(f"{where}.name", name)
            names.add(name)
            yield from _container_errors(container, volumes, where)
    for field, allowed in _CHOICES.items():
        if spec.get(field) not in allowed:
            yield status.unsupported(f"{path}.{field}", spec.get(field), allowed)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_errors(toleration, f"{path}.tolerations[{index}]")


def _container_errors(container: JsonObject, volumes: set[str], where: str) -> Iterator[FieldError]:
    if not container.get("image"):
        yield status.required(f"{where}.image")
    if container["imagePullPolicy"] not in _PULL_POLICIES:
        yield status.unsupported(f"{where}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
    for index, port in enumerate(container.get("ports") or ()):
        if not 0 < port["containerPort"] < 65536:
            detail = "must be between 1 and 65535, inclusive"
            yield status.invalid_value(f"{where}.ports[{index}].containerPort", port["containerPort"], detail)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            yield status.invalid_value(f"{where}.volumeMounts[{index}].name", mount["name"], "is no volume of the pod")
        if not mount["mountPath"]:
            yield status.required(f"{where}.volumeMounts[{index}].mountPath")
    yield from _resource_errors(container["resources"], f"{where}.resources")


def _toleration_errors(toleration: JsonObject, where: str) -> Iterator[FieldError]:
    key, operator, effect = (toleration.get(name) or "" for name in ("key", "operator", "effect"))
    if key:
        yield from metadata.key_errors(key, f"{where}.key")
    elif operator != "Exists":
        yield status.invalid_value(f"{where}.operator", operator, "must be Exists when `key` is empty")
    if operator not in ("", "Equal", "Exists"):
        yield status.unsupported(f"{where}.operator", operator, ("Equal", "Exists"))
    elif operator == "Exists" and toleration.get("value"):
        yield status.invalid_value(f"{where}.value", toleration["value"], "must be empty when `operator` is 'Exists'")
    if effect and effect not in _EFFECTS:
        yield status.unsupported(f"{where}.effect", effect, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield status.invalid_value(f"{where}.effect", effect, "must be 'NoExecute' when `tolerationSeconds` is set")


def _resource_errors(resources: JsonObject, where: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = f"{where}.{field}[{name}]"
            yield from metadata.key_errors(name, at)
            if "/" not in name and name not in _CONTAINER_RESOURCES and not name.startswith("hugepages-"):
                yield status.invalid_value(at, name, "must be a standard resource for containers")
            yield from amount_errors(name, amount, at)
    for name, amount in requests.items():
        if name not in limits and _extended(name):
            yield status.required(f"{where}.limits", "Limit must be set for non overcommitable resources")
        elif name in limits and quantity.milli(amount) > quantity.milli(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield status.invalid_value(f"{where}.requests", amount, detail)
        elif name in limits and _extended(name) and quantity.milli(amount) != quantity.milli(limits[name]):
            yield status.invalid_value(f"{where}.requests", amount, f"must be equal to {name} limit of {limits[name]}")


def _extended(resource: str) -> bool:
    """Whether a resource is outside Kubernetes' own domains: it cannot be overcommitted or divided."""
    return "/" in resource and "kubernetes.io/" not in resource


def amount_errors(name: str, amount: str, where: str) -> Iterator[FieldError]:
    milli = quantity.milli(amount)
    if milli < 0:
        yield status.invalid_value(where, amount, "must be greater than or equal to 0")
    elif _extended(name) and milli % 1000:
        yield status.invalid_value(where, amount, "must be an integer")
