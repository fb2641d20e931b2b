"""Defaults and rules of pod specs, beside those of their schema."""

from collections.abc import Iterator

from deploy.local.apiserver import metadata, status
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.status import FieldError
from shared import quantity

_EVICTING_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def setdefaults(target: JsonObject, **defaults: object) -> None:
    """Sets fields that are absent or null."""
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = value


def containers_of(spec: JsonObject) -> list[JsonObject]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def default(spec: JsonObject) -> None:
    """Sets the defaults of a pod's spec, with what the default admission plugins of a cluster add to it."""
    setdefaults(
        spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30, securityContext={}, enableServiceLinks=True, tolerations=[],
    )  # fmt: skip
    spec["serviceAccountName"] = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccount"] = spec["serviceAccountName"]
    for container in containers_of(spec):
        _default_container(container)
    for key in _EVICTING_TAINTS:
        if not any(_tolerates_eviction(toleration, key) for toleration in spec["tolerations"]):
            extra = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            spec["tolerations"].append(extra)


def _default_container(container: JsonObject) -> None:
    tag = (container.get("image") or "").rpartition("/")[2].partition("@")[0].partition(":")[2]
    setdefaults(
        container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File",
        imagePullPolicy="Always" if tag in ("", "latest") else "IfNotPresent",
    )  # fmt: skip
    for variable in container.get("env") or ():
        if field := dig(variable, "valueFrom", "fieldRef"):
            setdefaults(field, apiVersion="v1")
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _tolerates_eviction(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Errors in a pod's spec that has its defaults, limited to what a node or a scheduler would stumble over."""
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
            if not container.get("image"):
                yield status.required(f"{where}.image")
            yield from _resource_errors(container["resources"], f"{where}.resources")


def _resource_errors(resources: JsonObject, where: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if quantity.milli(amount) > quantity.milli(limits.get(name, amount)):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield status.invalid_value(f"{where}.requests", amount, detail)
