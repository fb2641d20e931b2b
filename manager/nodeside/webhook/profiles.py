"""ClusterColocationProfiles: which profiles select a pod, and how they change it.

Three details differ from upstream. A probability of p percent selects p of 100 pods (upstream selects p + 1), and
always the same ones, even if the API server asks twice. A mapping from a key that the pod does not have sets nothing
(upstream sets an empty value). And a suffix that is already present is neither added again nor mapped.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from manager.nodeside.webhook import strategic
from manager.nodeside.webhook.jsonpatch import JsonObject
from manager.nodeside.webhook.translation import with_metadata, with_spec
from shared import names
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.profile import ClusterColocationProfile, ProfileSpec
from shared.errors import InvalidInput
from shared.names import QoS

_PERCENT = re.compile(r"(\d{1,3})%")


@prepared
class PriorityClassObject(Wire, frozen=True):
    """A PriorityClass of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    global_default: bool = False


@dataclass(frozen=True)
class Profile:
    """A valid profile. `percent` is its probability; `translates` says whether requests may change."""

    name: str
    spec: ProfileSpec
    percent: int
    translates: bool

    @property
    def draws(self) -> bool:
        """Whether it selects only a share of the pods."""
        return 0 < self.percent < 100


class UnknownPriorityClass(LookupError):
    """A profile names a PriorityClass that the cluster does not have."""


def accepted(profile: ClusterColocationProfile) -> Profile:
    """Raises InvalidInput that names the invalid field."""
    meta, spec = profile.metadata, profile.spec

    def refused(field: str, value: object, problem: str) -> InvalidInput:
        source = f"ClusterColocationProfile {meta.name}"
        return InvalidInput(source=source, field=f"spec.{field}", value=value, problem=problem)

    for field, selector in (("namespaceSelector", spec.namespace_selector), ("selector", spec.selector)):
        if selector is not None and selector.problem:
            raise refused(field, selector, selector.problem)
    if spec.qos_class and spec.qos_class not in tuple(QoS):
        raise refused("qosClass", spec.qos_class, f"must be one of {', '.join(filter(None, QoS))}")
    percent = _percent(spec.probability)
    if percent is None:
        raise refused("probability", spec.probability, "must be a whole number or percentage between 0 and 100")
    if spec.patch is not None and (problem := strategic.problem(spec.patch)):
        raise refused("patch", spec.patch, problem)
    return Profile(meta.name, spec, percent, meta.annotation(names.ANNOTATION_SKIP_UPDATE_RESOURCES) is None)


def selected(
    profiles: Iterable[Profile],
    labels: Mapping[str, str],
    namespace_labels: Callable[[], Mapping[str, str]],
) -> list[Profile]:
    """The profiles that select a pod with these labels, by name.

    `namespace_labels` is called only if one depends on it.
    """
    return sorted(
        (
            each
            for each in profiles
            if (each.spec.selector is None or each.spec.selector.matches(labels))
            and (each.spec.namespace_selector is None or each.spec.namespace_selector.matches(namespace_labels()))
        ),
        key=lambda each: each.name,
    )


def takes(profile: Profile, identity: str) -> bool:
    """Whether the profile's probability selects this pod: the same answer for the same identity."""
    digest = hashlib.blake2b(f"{profile.name}/{identity}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % 100 < profile.percent


def applied(
    profile: Profile, pod: JsonObject, priority_class: Callable[[str], PriorityClassObject | None]
) -> JsonObject:
    """The pod with the profile's changes, in upstream's order. Raises UnknownPriorityClass."""
    spec = profile.spec
    pod = with_metadata(pod, "labels", spec.labels) if spec.labels else pod
    pod = with_metadata(pod, "annotations", spec.annotations) if spec.annotations else pod
    pod = _mapped(pod, "labels", spec.label_keys_mapping, spec.label_suffixes)
    pod = _mapped(pod, "annotations", spec.annotation_keys_mapping)
    pod = _suffixed(pod, spec.label_suffixes)
    if spec.scheduler_name:
        pod = with_spec(pod, schedulerName=spec.scheduler_name)
    if spec.qos_class:
        pod = with_metadata(pod, "labels", {names.LABEL_QOS_CLASS: spec.qos_class})
    if spec.priority_class_name:
        chosen = priority_class(spec.priority_class_name)
        if chosen is None:
            raise UnknownPriorityClass(spec.priority_class_name)
        pod = with_spec(
            pod,
            priorityClassName=spec.priority_class_name,
            priority=chosen.value,
            preemptionPolicy=chosen.preemption_policy,
        )
    if spec.koordinator_priority is not None:
        pod = with_metadata(pod, "labels", {names.LABEL_PRIORITY: str(spec.koordinator_priority)})
    return strategic.merged(pod, spec.patch) if spec.patch else pod


def _mapped(
    pod: JsonObject, part: str, mapping: Mapping[str, str] | None, suffixes: Mapping[str, str] | None = None
) -> JsonObject:
    present = (pod.get("metadata") or {}).get(part) or {}
    without = suffixes or {}
    found = {
        new: present[old].removesuffix(without.get(old, "")) for old, new in (mapping or {}).items() if old in present
    }
    return with_metadata(pod, part, found) if found else pod


def _suffixed(pod: JsonObject, suffixes: Mapping[str, str] | None) -> JsonObject:
    present = (pod.get("metadata") or {}).get("labels") or {}
    found = {
        key: present[key] + suffix
        for key, suffix in (suffixes or {}).items()
        if key in present and not present[key].endswith(suffix)
    }
    return with_metadata(pod, "labels", found) if found else pod


def _percent(probability: int | str | None) -> int | None:
    """The percentage; None for an invalid value."""
    if probability is None:
        return 100
    if isinstance(probability, str):
        match = _PERCENT.fullmatch(probability)
        if match is None:
            return None
        probability = int(match[1])
    return probability if 0 <= probability <= 100 else None
