"""The admission of a pod: applies profiles first, then turns its requests into those of its class."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

from manager.nodeside.webhook import jsonpatch, limits, priorities, profiles, reviews, translation
from manager.nodeside.webhook.jsonpatch import JsonObject
from manager.nodeside.webhook.limits import LimitBelowRequest, LimitRules
from manager.nodeside.webhook.profiles import PriorityClassObject, Profile, UnknownPriorityClass
from manager.nodeside.webhook.reviews import AdmissionAnswer, AdmissionRequest
from manager.pods import PodRecord, record
from manager.settings import ManagerSettings
from shared import names
from shared.api.core import Pod
from shared.api.pods import asked_class
from shared.errors import HeadroomError
from shared.kube.resources import PODS
from shared.names import PriorityClass
from shared.quantity import QuantityError

_MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)
_DOCUMENT = msgspec.json.Decoder(dict[str, Any])


class AdmissionSources(Protocol):
    """The cluster objects that an answer depends on."""

    def profiles(self) -> Sequence[Profile]:
        """All valid profiles."""
        ...

    def priority_class(self, name: str) -> PriorityClassObject | None: ...

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Raises HeadroomError while they are unknown."""
        ...

    def unread(self) -> list[str]:
        """The kinds of objects that have not been seen yet."""
        ...


@dataclass(frozen=True)
class Translation:
    """The changes to Mid and Batch pods.

    Pods of other classes than `classes` keep their requests, because no node offers the translated ones. Without
    `limits` they take Koordinator's form. `priority_classes` are for pods that name none.
    """

    classes: Collection[PriorityClass]
    limits: LimitRules | None = None
    priority_classes: Mapping[PriorityClass, str] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: ManagerSettings) -> "Translation":
        classes = frozenset(names.TIER_CLASSES[tier] for tier in settings.tiers)
        if settings.translation == "koordinator":
            return cls(classes)
        rules = LimitRules({PriorityClass.MID: settings.mid_limit_factor})
        wanted = {
            PriorityClass.MID: settings.mid_priority_class,
            PriorityClass.BATCH: settings.batch_priority_class,
        }
        return cls(classes, rules, {of: name for of, name in wanted.items() if name})


WhyDenied: TypeAlias = Callable[[str, PodRecord], str | None]


def deny_none(_namespace: str, _pod: PodRecord) -> None:
    """Denies no pod."""


class PodAdmission:
    """Answers reviews of pods. A faulty pod stays unchanged, since the API server refuses it.

    `why_denied` returns why a pod that enters a namespace may hold no more of a tier, `scheduler` the scheduler of Mid
    and Batch pods that name none, empty to keep the default one.
    """

    def __init__(
        self,
        sources: AdmissionSources,
        becomes: Translation,
        why_denied: WhyDenied = deny_none,
        scheduler: Callable[[], str] = str,
    ) -> None:
        self._sources = sources
        self._becomes = becomes
        self._why_denied = why_denied
        self._scheduler = scheduler

    def review(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Returns a patch, if anything changes.

        Denies pods beyond the bounds of their namespace, and those that request a tier where nothing could bound them.
        """
        if not request.is_about(PODS.group, PODS.plural, (reviews.CREATE,)):
            return AdmissionAnswer()
        try:
            original: JsonObject = _DOCUMENT.decode(request.object)
            pod = _read(original)
        except _MALFORMED as error:
            return AdmissionAnswer(warnings=(f"the pod stays as it is, since it cannot be read: {error}",))
        if pod.metadata.annotation(names.ANNOTATION_MIRROR) is not None:
            return AdmissionAnswer()  # the kubelet already runs it from a file, and only mirrors it
        warnings = [f"{what} have not been read yet" for what in self._sources.unread()]
        try:
            chosen = self._selected(pod, request.namespace)
        except HeadroomError as error:
            warnings.append(f"no profile was applied: {error}")
            chosen = []
        identity = pod.metadata.name or pod.metadata.annotation(names.ANNOTATION_PROFILES_DRAWN_BY) or request.uid
        taken = [each for each in chosen if profiles.takes(each, f"{request.namespace}/{identity}")]
        document, warned = self._applied(taken, original)
        if not pod.metadata.name and any(each.draws for each in chosen):
            document = translation.with_metadata(
                document, "annotations", {names.ANNOTATION_PROFILES_DRAWN_BY: identity}
            )
        warnings += warned
        of = self._class_of(document, by_profile=bool(taken))
        document, warned = self._translated(document, of, skips=not all(each.translates for each in chosen))
        warnings += warned
        document = self._scheduled(translation.with_extended_resource_spec(document), of)
        denied = self._why_unbounded(document, of)
        denied = denied or self._why_denied(request.namespace, _as_it_comes(document, request))
        if denied is not None:
            return AdmissionAnswer(warnings=tuple(warnings), denied=denied)
        return AdmissionAnswer(jsonpatch.difference(original, document), tuple(warnings))

    def _class_of(self, document: JsonObject, *, by_profile: bool) -> PriorityClass:
        priority_classes = self._becomes.priority_classes
        return translation.class_of(_read(document), by_profile=by_profile, priority_classes=priority_classes)

    def _translated(self, document: JsonObject, of: PriorityClass, *, skips: bool) -> tuple[JsonObject, list[str]]:
        """The pod with the requests of its class, if that is a translated one, and the warnings.

        It keeps its requests by annotation, or if a profile `skips` the translation. If it requests a tier's resources
        by itself, it gets limits anyway.
        """
        pod, becomes = _read(document), self._becomes
        skips = skips or pod.metadata.annotation(names.ANNOTATION_SKIP_UPDATE_RESOURCES) is not None
        is_exempt = skips and (becomes.limits is None or asked_class(pod) is PriorityClass.NONE)
        if of not in becomes.classes or is_exempt:
            return document, []
        if translation.asks_as_a_whole(document):
            return document, [f"requests stay as they are: {of} cannot be asked for in spec.resources"]
        try:
            if becomes.limits is None:
                return translation.translated(document, of), []
            changed, warned = limits.bounded(document, of, becomes.limits)
        except (QuantityError, LimitBelowRequest) as error:
            return document, [f"requests stay as they are: {error}"]
        changed, warning = priorities.prioritized(changed, of, becomes.priority_classes, self._sources.priority_class)
        return translation.named(changed, of), [*warned, *filter(None, [warning])]

    def _scheduled(self, document: JsonObject, of: PriorityClass) -> JsonObject:
        spec, name = document["spec"], self._scheduler()
        is_free = spec.get("schedulerName") in (None, "", names.DEFAULT_SCHEDULER) and not spec.get("nodeName")
        if name and is_free and of in self._becomes.classes:
            return translation.with_spec(document, schedulerName=name)
        return document

    def _why_unbounded(self, document: JsonObject, of: PriorityClass) -> str | None:
        """Why the pod's use of the tier that it requests cannot be limited; None if it can, or if koordlets do that."""
        asked = asked_class(_read(document))
        if self._becomes.limits is None or asked not in self._becomes.classes:
            return None
        requested = " and ".join(translation.RESOURCE_NAMES[asked].values())
        if of not in translation.RESOURCE_NAMES:
            return (
                f"a pod of class {of} cannot request {requested}: request cpu and memory, or make it a {asked} pod by "
                f"label {names.LABEL_PRIORITY_CLASS} and priority"
            )
        if translation.asks_as_a_whole(document):
            return (
                f"cpu and memory in spec.resources cannot stand beside {requested} in containers: remove spec.resources"
            )
        return None

    def _selected(self, pod: Pod, namespace: str) -> list[Profile]:
        return profiles.selected(
            self._sources.profiles(),
            pod.metadata.labels or {},
            lambda: self._sources.namespace_labels(namespace),
        )

    def _applied(self, taken: Sequence[Profile], pod: JsonObject) -> tuple[JsonObject, list[str]]:
        """The pod after all applicable profiles, and warnings about the others."""
        warnings = []
        for profile in taken:
            try:
                changed = profiles.applied(profile, pod, self._sources.priority_class)
                _read(changed)
            except UnknownPriorityClass as error:
                warnings.append(f"profile {profile.name} was not applied: there is no PriorityClass {error}")
            except msgspec.ValidationError as error:
                warnings.append(f"profile {profile.name} was not applied: what it makes is no pod: {error}")
            else:
                pod = changed
        return pod, warnings


def _as_it_comes(document: JsonObject, request: AdmissionRequest) -> PodRecord:
    """The pod to be stored, which may have no name yet."""
    return msgspec.structs.replace(record(_read(document)), key=f"{request.namespace}/{request.name}")


def _read(document: JsonObject) -> Pod:
    """Raises msgspec.ValidationError."""
    pod = msgspec.convert(document, Pod)
    if not pod.spec.containers:
        raise msgspec.ValidationError("it has no containers")
    return pod
