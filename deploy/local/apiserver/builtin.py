"""Defaults and rules of the built-in kinds: the fields that a stored object always has, and its invalid values."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from deploy.local.apiserver import podspec, status, webhooks
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject, copy
from deploy.local.apiserver.podspec import setdefaults
from deploy.local.apiserver.status import FieldError
from shared.api import pods
from shared.api.core import Pod

_POD_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def _default_pod(pod: JsonObject) -> None:
    spec, state = pod["spec"], pod["status"]
    podspec.default(spec)
    setdefaults(state, phase="Pending")
    if not state.get("qosClass"):
        state["qosClass"] = pods.kube_qos(msgspec.convert(pod, Pod)).value
    if state.get("podIP") and not state.get("podIPs"):
        state["podIPs"] = [{"ip": state["podIP"]}]


def _pod_errors(pod: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    if old is None:
        yield from podspec.errors(pod["spec"], "spec")
    elif _fixed_pod_spec(pod["spec"]) != _fixed_pod_spec(old["spec"]):
        mutable = ", ".join(("containers[*].image", *_POD_MUTABLE))
        yield status.forbidden_field("spec", f"pod updates may not change fields other than {mutable}")


def _fixed_pod_spec(spec: JsonObject) -> JsonObject:
    """The part of a pod's spec that an update must not change."""
    fixed: JsonObject = copy({key: value for key, value in spec.items() if key not in _POD_MUTABLE})
    for container in podspec.containers_of(fixed):
        container.pop("image", None)
    return fixed


def _default_node(node: JsonObject) -> None:
    state = node["status"]
    if state.get("capacity") and not state.get("allocatable"):
        state["allocatable"] = dict(state["capacity"])


def _default_namespace(namespace: JsonObject) -> None:
    if not namespace["metadata"].get("deletionTimestamp"):
        setdefaults(namespace["spec"], finalizers=["kubernetes"])
    labels = namespace["metadata"].get("labels") or {}
    namespace["metadata"]["labels"] = labels | {"kubernetes.io/metadata.name": namespace["metadata"]["name"]}
    setdefaults(namespace["status"], phase="Active")


def _default_secret(secret: JsonObject) -> None:
    setdefaults(secret, type="Opaque")
    if plain := secret.pop("stringData", None):
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = (secret.get("data") or {}) | encoded


def _budget_errors(budget: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield status.forbidden_field("spec", "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if isinstance(value, str) and not re.fullmatch(r"\d{1,2}%|100%", value):
            yield status.invalid_value(f"spec.{name}", value, "must be a whole number or from 0% to 100%")


Default = Callable[[JsonObject], None]
Check = Callable[[JsonObject, JsonObject | None], Iterator[FieldError]]
_DEFAULTS: Mapping[str, Default] = {
    "Pod": _default_pod,
    "Node": _default_node,
    "Namespace": _default_namespace,
    "Secret": _default_secret,
    "PodDisruptionBudget": lambda budget: setdefaults(
        budget["status"], disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0
    ),
    "PriorityClass": partial(setdefaults, preemptionPolicy="PreemptLowerPriority"),
    webhooks.MUTATING: webhooks.default,
    webhooks.VALIDATING: webhooks.default,
}
_CHECKS: Mapping[str, Check] = {
    "Pod": _pod_errors,
    "PodDisruptionBudget": _budget_errors,
    webhooks.MUTATING: webhooks.errors,
    webhooks.VALIDATING: webhooks.errors,
}


def default(kind: ApiKind, obj: JsonObject) -> None:
    """Sets the defaults of a built-in kind; a custom kind has its schema instead."""
    if not kind.custom and (rule := _DEFAULTS.get(kind.kind)) is not None:
        rule(obj)


def errors(kind: ApiKind, obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """The errors of an object of a built-in kind, in addition to those of its schema."""
    if not kind.custom and (rule := _CHECKS.get(kind.kind)) is not None:
        yield from rule(obj, old)
