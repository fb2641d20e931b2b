"""Registered admission webhooks: which ones exist, in which order, and which requests they match."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from deploy.local.apiserver import status
from deploy.local.apiserver.kinds import ADMISSION_GROUP, ApiKind
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.podspec import setdefaults
from deploy.local.apiserver.status import FieldError
from deploy.local.apiserver.store import ObjectChange, Store
from shared.api.selectors import LabelSelector

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
REVIEW_VERSION = "v1"
Labels = Callable[[], Mapping[str, str]]

_RESOURCES = {kind: f"{ADMISSION_GROUP}/{kind.lower()}s" for kind in (MUTATING, VALIDATING)}


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """The request as webhooks see it, without the objects; `namespace` is also the own name of a namespace."""

    operation: str
    kind: ApiKind
    subresource: str
    namespace: str
    name: str
    dry_run: bool
    warnings: list[str] = field(default_factory=list)

    @property
    def on_namespace(self) -> bool:
        return self.kind.resource == "/namespaces"


Names = Annotated[tuple[str, ...], Meta(min_length=1)]


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """Operations on resources; "*" matches all."""

    operations: Names
    api_groups: Names
    api_versions: Names
    resources: Names
    scope: str = "*"

    def matches(self, asked: ReviewRequest) -> bool:
        return (
            _among(self.operations, asked.operation)
            and _among(self.api_groups, asked.kind.group)
            and _among(self.api_versions, asked.kind.version)
            and any(_names(resource, asked) for resource in self.resources)
            and self._in_scope(asked)
        )

    def _in_scope(self, asked: ReviewRequest) -> bool:
        return self.scope == "*" or (self.scope == "Namespaced") == (bool(asked.namespace) and not asked.on_namespace)


def _among(wanted: Sequence[str], value: str) -> bool:
    return "*" in wanted or value in wanted


def _names(resource: str, asked: ReviewRequest) -> bool:
    plural, _, subresource = resource.partition("/")
    return plural in ("*", asked.kind.plural) and subresource in ("*", asked.subresource)


class WebhookAddress(msgspec.Struct, frozen=True, rename="camel"):
    """Where a webhook is; `url` is None for one behind a Service: no network carries Services here."""

    url: Annotated[str, Meta(pattern="^https://[^/]")] | None = None
    service: JsonObject | None = None
    ca_bundle: str = ""

    def __post_init__(self) -> None:
        if (self.url is None) == (self.service is None):
            raise ValueError("exactly one of url and service is required")


class RegisteredWebhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook of a registration, called once for a write. Kinds have one version, so matchPolicy has no effect."""

    name: Annotated[str, Meta(min_length=1)]
    client_config: WebhookAddress
    admission_review_versions: Names
    rules: tuple[Rule, ...] = ()
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()
    match_conditions: tuple[JsonObject, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = 10

    def __post_init__(self) -> None:
        if REVIEW_VERSION not in self.admission_review_versions:
            raise ValueError(f"admissionReviewVersions: {REVIEW_VERSION} is needed")
        if self.match_conditions:  # without them, the webhook could refuse requests that it must not see
            raise ValueError("matchConditions: there is no CEL here")
        for selector in (self.namespace_selector, self.object_selector):
            if selector.problem is not None:
                raise ValueError(selector.problem)

    def wants(self, asked: ReviewRequest, obj: JsonObject, old: JsonObject | None, labels: Labels) -> bool:
        """Whether the webhook matches a request, given the labels of the request's namespace."""
        if not any(rule.matches(asked) for rule in self.rules):
            return False
        if not any(self.object_selector.matches(_labels(item)) for item in (obj, old) if item is not None):
            return False
        # A namespace selector matches every object without a namespace.
        return not asked.namespace or self.namespace_selector.matches(labels())


def _labels(obj: JsonObject) -> Mapping[str, str]:
    found: Mapping[str, str] = dig(obj, "metadata", "labels") or {}
    return found


def webhooks_of(configuration: JsonObject) -> list[RegisteredWebhook]:
    """The webhooks of a registration. Raises msgspec.ValidationError."""
    return msgspec.convert(configuration.get("webhooks") or [], list[RegisteredWebhook])


def default(configuration: JsonObject) -> None:
    """Sets the defaults of a registration."""
    mutating = {"reinvocationPolicy": "Never"} if configuration["kind"] == MUTATING else {}
    for webhook in configuration.get("webhooks") or ():
        setdefaults(webhook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10, **mutating)
        setdefaults(webhook, namespaceSelector={}, objectSelector={})
        if service := webhook["clientConfig"].get("service"):
            setdefaults(service, port=443)
        for rule in webhook.get("rules") or ():
            setdefaults(rule, scope="*")


def errors(configuration: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """Errors in a registration that has its defaults."""
    try:
        webhooks_of(configuration)
    except msgspec.ValidationError as error:
        yield status.invalid_value("webhooks", [each.get("name") for each in configuration["webhooks"]], str(error))


class RegisteredWebhooks:
    """The webhooks of all registrations in a store, ordered by the registrations' names."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.mutating: Sequence[RegisteredWebhook] = ()
        self.validating: Sequence[RegisteredWebhook] = ()
        self._read()

    def changed(self, change: ObjectChange) -> None:
        """Reads the registrations again after a change of one."""
        if change.record.resource in _RESOURCES.values():
            self._read()

    def _read(self) -> None:
        self.mutating, self.validating = (
            [webhook for record in self._store.ordered(resource) for webhook in webhooks_of(record.load())]
            for resource in _RESOURCES.values()
        )
