"""Defaults and rules of the objects that register admission webhooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from deploy.local.apiserver import metadata, selectors, status
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.podspec import setdefaults
from deploy.local.apiserver.status import FieldError

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
REVIEW_VERSIONS = ("v1", "v1beta1")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_CHOICES = (
    ("failurePolicy", ("Fail", "Ignore")), ("matchPolicy", ("Equivalent", "Exact")),
    ("sideEffects", ("None", "NoneOnDryRun")), ("reinvocationPolicy", ("IfNeeded", "Never")),
)  # fmt: skip
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1, 30
_RESERVED_SUFFIX = ".static.k8s.io"
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_URL_FORM = "; desired format: https://host[/path]"
_NO_CEL = "this server evaluates no CEL: it refuses match conditions, which it would have to leave out"


def default(configuration: JsonObject) -> None:
    """What a registration gets that does not say more."""
    for webhook in configuration.get("webhooks") or ():
        setdefaults(
            webhook, failurePolicy="Fail", matchPolicy="Equivalent", namespaceSelector={}, objectSelector={},
            timeoutSeconds=10,
        )  # fmt: skip
        if configuration["kind"] == MUTATING:
            setdefaults(webhook, reinvocationPolicy="Never")
        for rule in webhook.get("rules") or ():
            setdefaults(rule, scope="*")
        if (service := webhook["clientConfig"].get("service")) is not None:
            setdefaults(service, port=443)


def errors(configuration: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """Everything wrong with a registration that has its defaults."""
    seen = set()
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        where, name = f"webhooks[{index}]", webhook["name"]
        yield from _webhook_errors(webhook, where)
        yield from _version_errors(webhook["admissionReviewVersions"] or (), f"{where}.admissionReviewVersions")
        if name and name in seen:
            yield status.duplicate(f"{where}.name", name)
        seen.add(name)


def warnings(configuration: JsonObject) -> Iterator[str]:
    """What a registration's name had better not be."""
    if configuration["metadata"]["name"].endswith(_RESERVED_SUFFIX):
        why = "are reserved for static manifest-based configurations and cannot be managed via the API"
        yield f'metadata.name: names ending with "{_RESERVED_SUFFIX}" {why}'


def _webhook_errors(webhook: JsonObject, where: str) -> Iterator[FieldError]:
    yield from _name_errors(webhook["name"], f"{where}.name")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from _rule_errors(rule, f"{where}.rules[{index}]")
    for field, allowed in _CHOICES:
        chosen = webhook.get(field)
        if chosen is None and field == "sideEffects":
            yield status.required(f"{where}.{field}", f"must specify one of {', '.join(allowed)}")
        elif chosen is not None and chosen not in allowed:
            yield status.unsupported(f"{where}.{field}", chosen, allowed)
    if not _SHORTEST_SECONDS <= webhook["timeoutSeconds"] <= _LONGEST_SECONDS:
        detail = f"the timeout value must be between {_SHORTEST_SECONDS} and {_LONGEST_SECONDS} seconds"
        yield status.invalid_value(f"{where}.timeoutSeconds", webhook["timeoutSeconds"], detail)
    for field in ("namespaceSelector", "objectSelector"):
        yield from _selector_errors(webhook[field], f"{where}.{field}")
    yield from _client_errors(webhook["clientConfig"], f"{where}.clientConfig")
    for index, condition in enumerate(webhook.get("matchConditions") or ()):
        at = f"{where}.matchConditions[{index}].expression"
        yield status.invalid_value(at, condition["expression"], _NO_CEL)


def _name_errors(name: str, where: str) -> Iterator[FieldError]:
    if not name:
        yield status.required(where)
        return
    wrong = list(metadata.name_errors(name, "subdomain", where))
    yield from wrong
    if not wrong and name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        yield status.invalid_value(where, name, detail)


def _rule_errors(rule: JsonObject, where: str) -> Iterator[FieldError]:
    for field, what in (("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")):
        listed = rule.get(field) or ()
        if not listed:
            yield status.required(f"{where}.{field}")
        if len(listed) > 1 and "*" in listed:
            detail = f"if '*' is present, must not specify other {what}"
            yield status.invalid_value(f"{where}.{field}", listed, detail)
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            yield status.unsupported(f"{where}.operations[{index}]", operation, _OPERATIONS)
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield status.required(f"{where}.apiVersions[{index}]")
    yield from _resource_errors(rule.get("resources") or (), f"{where}.resources")
    if rule["scope"] not in _SCOPES:
        yield status.unsupported(f"{where}.scope", rule["scope"], _SCOPES)


def _resource_errors(resources: Sequence[str], where: str) -> Iterator[FieldError]:
    if not resources:
        yield status.required(where)
    of_all_subresources, of_all_resources = set(), set()
    for index, named in enumerate(resources):
        resource, slash, subresource = named.partition("/")
        if not named:
            yield status.required(f"{where}[{index}]")
        if not slash:
            continue
        if resource in of_all_subresources:
            detail = f"if '{resource}/*' is present, must not specify {named}"
            yield status.invalid_value(f"{where}[{index}]", named, detail)
        if subresource in of_all_resources:
            detail = f"if '*/{subresource}' is present, must not specify {named}"
            yield status.invalid_value(f"{where}[{index}]", named, detail)
        if subresource == "*":
            of_all_subresources.add(resource)
        if resource == "*":
            of_all_resources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        yield status.invalid_value(where, resources, "if '*/*' is present, must not specify other resources")
    # Of several resources without a subresource, the API looks at the last.
    plain = [named for named in resources if named and "/" not in named]
    if "*" in plain and plain[-1] != "*":
        detail = "if '*' is present, must not specify other resources without subresources"
        yield status.invalid_value(where, resources, detail)


def _selector_errors(selector: JsonObject, where: str) -> Iterator[FieldError]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield from metadata.qualified_name_errors(key, f"{where}.matchLabels")
        if problem := selectors.value_problem(value):
            yield status.invalid_value(f"{where}.matchLabels", value, problem)
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        at, operator, values = f"{where}.matchExpressions[{index}]", term["operator"], term.get("values") or ()
        if operator in ("In", "NotIn") and not values:
            yield status.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield status.forbidden_field(f"{at}.values", detail)
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield status.invalid_value(f"{at}.operator", operator, "not a valid selector operator")
        yield from metadata.qualified_name_errors(term["key"], f"{at}.key")
        for number, value in enumerate(values):
            if problem := selectors.value_problem(value):
                yield status.invalid_value(f"{at}.values[{number}]", value, problem)


def _client_errors(client: JsonObject, where: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield status.required(where, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{where}.url")
    elif service is not None:
        yield from _service_errors(service, f"{where}.service")


def _url_errors(url: str, where: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield status.required(where, f'url must be a valid URL: parse "{url}": {error}{_URL_FORM}')
        return
    user, _, host = parts.netloc.rpartition("@")
    if parts.scheme != "https":
        yield status.invalid_value(where, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not host:
        yield status.invalid_value(where, "", f"host must be specified{_URL_FORM}")
    for found, what in (
        (user, "user information is"), (parts.fragment, "fragments are"), (parts.query, "query parameters are"),
    ):  # fmt: skip
        if found:
            yield status.invalid_value(where, found, f"{what} not permitted in the URL")


def _service_errors(service: JsonObject, where: str) -> Iterator[FieldError]:
    # The API takes the one for the other, and says of the namespace that it is missing when the name is.
    for field, said in (("namespace", "name"), ("name", "namespace")):
        if not service[field]:
            yield status.required(f"{where}.{said}")
    if not 0 < service["port"] < 65536:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        yield status.invalid_value(f"{where}.port", service["port"], detail)
    path = service.get("path") or "/"
    if path == "//":
        yield status.invalid_value(f"{where}.path", path, "segment[0] may not be empty")
    elif path != "/":
        yield from _path_errors(path, f"{where}.path")


def _path_errors(path: str, where: str) -> Iterator[FieldError]:
    if not path.startswith("/"):
        yield status.invalid_value(where, path, "must start with a '/'")
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        if not step:
            yield status.invalid_value(where, path, f"segment[{index}] may not be empty")
            continue
        for error in metadata.name_errors(step, "subdomain", where):
            problem = error.detail.partition(": ")[2].partition(": ")[2]
            yield status.invalid_value(where, path, f"segment[{index}]: {problem}")


def _version_errors(versions: Sequence[str], where: str) -> Iterator[FieldError]:
    known = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield status.required(where, f"must specify one of {known}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield status.invalid_value(f"{where}[{index}]", version, "duplicate version")
            continue
        if len(version) > 63:
            yield status.invalid_value(f"{where}[{index}]", version, "must be no more than 63 bytes")
        if not _LABEL_1035.fullmatch(version):
            yield status.invalid_value(f"{where}[{index}]", version, _LABEL_1035_RULE)
    if not set(versions) & set(REVIEW_VERSIONS):
        yield status.invalid_value(where, versions, f"must include at least one of {known}")
