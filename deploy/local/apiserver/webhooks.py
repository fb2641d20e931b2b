"""Registered admission webhooks: which ones exist, in which order, and which requests they match.

Each kind is served in one version, so matchPolicy has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deploy.local.apiserver import selectors, status
from deploy.local.apiserver.kinds import ADMISSION_GROUP, ApiKind
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.podspec import setdefaults
from deploy.local.apiserver.selectors import ObjectSelector
from deploy.local.apiserver.status import FieldError
from deploy.local.apiserver.store import ObjectChange, Store

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
REVIEW_VERSION = "v1"
Labels = Callable[[], Mapping[str, str]]

_RESOURCES = {kind: f"{ADMISSION_GROUP}/{kind.lower()}s" for kind in (MUTATING, VALIDATING)}


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """The request as webhooks see it, without the objects.

    For a request on a namespace, `namespace` is its own name.
    """

    operation: str
    kind: ApiKind
    subresource: str
    namespace: str
    name: str
    dry_run: bool
    options: JsonObject
    warnings: list[str] = field(default_factory=list)

    @property
    def on_namespace(self) -> bool:
        return self.kind.resource == "/namespaces"


@dataclass(frozen=True, slots=True)
class Rule:
    """Operations on resources; "*" matches all."""

    operations: Sequence[str]
    groups: Sequence[str]
    versions: Sequence[str]
    resources: Sequence[tuple[str, str]]
    scope: str

    def matches(self, asked: ReviewRequest) -> bool:
        return (
            _among(self.operations, asked.operation)
            and _among(self.groups, asked.kind.group)
            and _among(self.versions, asked.kind.version)
            and any(
                resource in ("*", asked.kind.plural) and subresource in ("*", asked.subresource)
                for resource, subresource in self.resources
            )
            and self._in_scope(asked)
        )

    def _in_scope(self, asked: ReviewRequest) -> bool:
        return self.scope == "*" or (self.scope == "Namespaced") == (bool(asked.namespace) and not asked.on_namespace)


def _among(wanted: Sequence[str], value: str) -> bool:
    return "*" in wanted or value in wanted


@dataclass(frozen=True, slots=True)
class RegisteredWebhook:
    """One webhook of a registration. Each is called once for a write, whatever its reinvocation policy.

    `url` is empty for one behind a Service: no network carries Services here.
    """

    name: str
    url: str
    ca_bundle: str
    rules: Sequence[Rule]
    namespaces: ObjectSelector
    objects: ObjectSelector
    ignores_failure: bool
    timeout_seconds: int

    def wants(self, asked: ReviewRequest, obj: JsonObject | None, old: JsonObject | None, labels: Labels) -> bool:
        """Whether the webhook matches a request, given the labels of the request's namespace."""
        if not any(rule.matches(asked) for rule in self.rules):
            return False
        if self.objects and not any(self.objects.matches(_labels(item)) for item in (obj, old) if item is not None):
            return False
        # A namespace selector matches every object without a namespace.
        return not self.namespaces or not (asked.namespace or asked.on_namespace) or self.namespaces.matches(labels())


def _labels(obj: JsonObject) -> Mapping[str, str]:
    found: Mapping[str, str] = dig(obj, "metadata", "labels") or {}
    return found


def webhooks_of(configuration: JsonObject) -> list[RegisteredWebhook]:
    """The webhooks of a stored registration."""
    return [
        RegisteredWebhook(
            name=webhook["name"],
            url=webhook["clientConfig"].get("url") or "",
            ca_bundle=webhook["clientConfig"].get("caBundle") or "",
            rules=[_rule(rule) for rule in webhook.get("rules") or ()],
            namespaces=selectors.from_object(webhook["namespaceSelector"]) or ObjectSelector(),
            objects=selectors.from_object(webhook["objectSelector"]) or ObjectSelector(),
            ignores_failure=webhook["failurePolicy"] == "Ignore",
            timeout_seconds=webhook["timeoutSeconds"],
        )
        for webhook in configuration.get("webhooks") or ()
    ]


def _rule(rule: JsonObject) -> Rule:
    resources = [named.partition("/")[::2] for named in rule["resources"]]
    return Rule(rule["operations"], rule["apiGroups"], rule["apiVersions"], resources, rule["scope"])


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
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        where = f"webhooks[{index}]"
        yield from _webhook_errors(webhook, where)
        if webhook.get("matchConditions"):
            # A webhook called without them would see, and could refuse, requests that it must not.
            yield status.forbidden_field(f"{where}.matchConditions", "there is no CEL here")


def _webhook_errors(webhook: JsonObject, where: str) -> Iterator[FieldError]:
    if not webhook["name"]:
        yield status.required(f"{where}.name")
    client = webhook["clientConfig"]
    if (client.get("url") is None) == (client.get("service") is None):
        yield status.required(f"{where}.clientConfig", "exactly one of url or service is required")
    elif not client.get("url", "https://").startswith("https://"):
        yield status.invalid_value(f"{where}.clientConfig.url", client["url"], "must be https://host[:port][/path]")
    versions = webhook.get("admissionReviewVersions") or ()
    if REVIEW_VERSION not in versions:
        yield status.invalid_value(f"{where}.admissionReviewVersions", versions, f"{REVIEW_VERSION} is needed")
    for index, rule in enumerate(webhook.get("rules") or ()):
        for field_ in ("operations", "apiGroups", "apiVersions", "resources"):
            if not rule.get(field_):
                yield status.required(f"{where}.rules[{index}].{field_}")


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

    def concern(self, kind: ApiKind) -> bool:
        """Whether any webhook could match a write of this kind; webhooks never review their own registrations."""
        return bool(self.mutating or self.validating) and kind.group != ADMISSION_GROUP
