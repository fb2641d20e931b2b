"""Gives pods of Mid and Batch limits that a kubelet enforces by itself.

The native requests of a container become those of its tier, and native requests of "0" are written beside them; its
native limits stay. "0" is no request: schedulers count nothing, and the pod is Burstable, with the lowest shares and
nearly the highest oom_score_adj; but the kubelet sets the cpu quota and memory limit of containers and pod from the
limits. Without native requests, API servers would set them to the limits.

One container without a limit leaves the whole pod without: so all get both, init containers included. A missing limit
is the tier's own limit, else the tier's request times a factor, else a fixed amount. A LimitRange needs no help here:
its defaults are in the pod before webhooks run. Ephemeral containers are left out; they have no resources and run
within the pod's limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from manager.nodeside.webhook.jsonpatch import JsonObject
from manager.nodeside.webhook.translation import RESOURCE_NAMES, labelled, native_amount, with_metadata
from shared import names, quantity
from shared.names import PriorityClass
from shared.quantity import INT64_MAX, Resources

# The smallest limit: a kubelet's minimum quota, and what container runtimes need to start a process at all.
LEAST = Resources(10, 16 << 20)
# The assumed usage of a container without requests (see `scheduling.estimate`).
WITHOUT_REQUEST = Resources(250, 200 << 20)


class LimitBelowRequest(ValueError):
    """A container requests more than its limit: the API server must refuse the pod, so it stays unchanged."""


@dataclass(frozen=True)
class LimitRules:
    """The limits of a container without any: its request of the tier times the factor of its class."""

    factors: Mapping[PriorityClass, float] = field(default_factory=dict)


class Bounded(NamedTuple):
    """A pod with all its limits, and the warnings about them."""

    pod: JsonObject
    warnings: tuple[str, ...] = ()


@dataclass
class _Notes:
    """By container: the limits that were set, and those below the request of the tier."""

    given: dict[str, dict[str, str]] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)


def bounded(pod: JsonObject, priority_class: PriorityClass, rules: LimitRules) -> Bounded:
    """The pod with the requests of its class, and limits that kubelets enforce; unchanged for any other class.

    An annotation records the limits that were set. Raises QuantityError and LimitBelowRequest.
    """
    if priority_class not in RESOURCE_NAMES:
        return Bounded(pod)
    notes, spec = _Notes(), dict(pod["spec"])
    for part in ("initContainers", "containers"):
        if spec.get(part):
            spec[part] = [_container(each, priority_class, rules, notes) for each in spec[part]]
    result = _noted(labelled({**pod, "spec": spec}, priority_class), notes.given)
    warnings = []
    if notes.given:
        listed = ", ".join(f"{name} {_text(amounts)}" for name, amounts in notes.given.items())
        warnings.append(f"limits were set where there were none: {listed}")
    if notes.lacking:
        warnings.append(f"limits are below what is asked of {priority_class}: {', '.join(notes.lacking)}")
    return Bounded(result, tuple(warnings))


def _container(container: JsonObject, priority_class: PriorityClass, rules: LimitRules, notes: _Notes) -> JsonObject:
    resources, name = container.get("resources") or {}, container.get("name", "")
    before = resources.get("requests") or {}, resources.get("limits") or {}
    requests, limits = dict(before[0]), dict(before[1])
    for native, tier_name in RESOURCE_NAMES[priority_class].items():
        position = (names.CPU, names.MEMORY).index(native)
        asked, limit = requests.get(native), limits.get(native)
        if tier_name not in requests:
            if _whole(native, asked) > _whole(native, limit) and limit is not None:
                raise LimitBelowRequest(f"container {name} asks for {asked} of {native}, its limit is {limit}")
            wanted = limits.get(tier_name, _asked(native, asked, limit))
            if wanted is not None:
                requests[tier_name] = wanted
        requests[native] = "0"
        of_tier = quantity.whole(requests.get(tier_name, 0))  # in milli-cores, or bytes
        if _whole(native, limit) == 0:  # which a kubelet treats as no limit
            amount = quantity.whole(limits.get(tier_name, 0)) or _limit(of_tier, rules, priority_class, position)
            limits[native] = quantity.format_milli(amount) if native == names.CPU else quantity.format_bytes(amount)
            notes.given.setdefault(name, {})[native] = limits[native]
        elif _whole(native, limit) < of_tier:
            notes.lacking.append(f"{name} {native} {limit}")
    if (requests, limits) == before:
        return container
    return {**container, "resources": {**resources, "requests": requests, "limits": limits}}


def _asked(native: str, asked: str | float | None, limit: str | float | None) -> str | float | None:
    """The amount for the tier: the request, else the limit; None if that is zero."""
    amount = limit if asked is None else asked
    return None if amount is None or _whole(native, amount) == 0 else native_amount(native, amount)


def _whole(native: str, amount: str | float | None) -> int:
    """The amount in milli-cores, or bytes. Raises QuantityError."""
    if amount is None:
        return 0
    return quantity.milli(amount) if native == names.CPU else quantity.whole(amount)


def _limit(asked: int, rules: LimitRules, priority_class: PriorityClass, position: int) -> int:
    if asked == 0:
        return WITHOUT_REQUEST[position]
    percent = round(100 * rules.factors.get(priority_class, 1.0))
    return max(LEAST[position], min(INT64_MAX, -(-asked * percent // 100)))


def _text(amounts: Mapping[str, str]) -> str:
    return " ".join(f"{native} {amount}" for native, amount in amounts.items())


def _noted(pod: JsonObject, given: Mapping[str, dict[str, str]]) -> JsonObject:
    """The pod with the annotation of the limits that are not its own, merged with an earlier one."""
    if not given:
        return pod
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(names.ANNOTATION_DEFAULTED_LIMITS)
    try:
        before = msgspec.json.decode(text or "{}", type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        before = {}
    both = before | {name: before.get(name, {}) | amounts for name, amounts in given.items()}
    text = msgspec.json.encode(both, order="sorted").decode()
    return with_metadata(pod, "annotations", {names.ANNOTATION_DEFAULTED_LIMITS: text})
