"""Admission webhooks: how they are registered, what they are asked, and what becomes of their answers."""

from collections.abc import Sequence

from tests.parity.behaviours import Area, Script
from tests.parity.behaviours.objects import NODE_METRIC, POD, config_map
from tests.parity.calls import (
    JSON_PATCH,
    STRATEGIC,
    Calls,
    Json,
    Step,
    delete,
    get,
    given,
    patch,
    post,
    put,
)
from tests.support.webhooks import Answer, allow, deny
from tests.support.webhooks import patch as patching

registrations = Area("registrations", "Registrations of admission webhooks")
webhooks = Area("webhooks", "Admission webhooks")

_RULE = {"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["nothings"]}
_WEBHOOK: Json = {
    "name": "w.example.com", "clientConfig": {"url": "https://127.0.0.1:1/w"}, "sideEffects": "None",
    "admissionReviewVersions": ["v1"], "rules": [_RULE],
}  # fmt: skip
_SERVICE = {"namespace": "$ns", "name": "s"}


def _of(*webhooks: Json, name: str = "$me") -> Json:
    return {"metadata": {"name": name}, "webhooks": list(webhooks)}


def _with(**fields: Json) -> Step:
    """The registration of a webhook that is otherwise in order."""
    return post("$validating", _of(_WEBHOOK | fields))


def _mutating(**fields: Json) -> Step:
    return post("$mutating", _of(_WEBHOOK | fields))


def _client(**config: Json) -> Step:
    return _with(clientConfig=config)


_MADE = given("$mutating", _of(_WEBHOOK))

# fmt: off
registrations.table({
    "a mutating webhook gets its defaults": _mutating(),
    "a validating webhook gets its defaults": _with(),
    "a webhook behind a service gets its port": _client(service=_SERVICE),
    "a registration is deleted": [_MADE, delete("$mutating/$me"), get("$mutating/$me")],
    "an update has to say its version": [_MADE, put("$mutating/$me", _of(_WEBHOOK))],
    "a change of webhooks is counted": [
        _MADE, patch("$mutating/$me", {"metadata": {"labels": {"a": "b"}}}),
        patch("$mutating/$me", [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 2}], JSON_PATCH)],
    "a webhook is patched by its name":
        [_MADE, patch("$mutating/$me", {"webhooks": [{"name": "w.example.com", "timeoutSeconds": 4}]}, STRATEGIC)],
    # what is refused
})
# fmt: on

_ALL = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
_CONFIG_MAPS = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
_PODS = _CONFIG_MAPS | {"resources": ["pods"]}
_PATH = "/w"
_UNSEEN = ("userInfo", "options", "requestKind", "requestResource", "requestSubResource")


def _registered(calls: Calls, where: str, answer: Answer, rule: Json = _CONFIG_MAPS, **fields: Json) -> None:
    """Registers a webhook for the behaviour's own namespace, and waits until it counts."""
    hooks = calls.webhooks
    hooks.answers[_PATH] = answer
    common = {
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "$ns"}},
    }  # fmt: skip
    unprobed = {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]}
    webhook = {"name": "w.example.com", "clientConfig": hooks.client(_PATH), "rules": [rule]}
    probe = {"name": "probe.example.com", "clientConfig": hooks.client("/probe"), "rules": [_CONFIG_MAPS]}
    selected = common | {"objectSelector": unprobed} | fields
    calls.given(where, _of(webhook | selected, probe | common | {"objectSelector": {"matchLabels": {"probe": "yes"}}}))
    probing = {"metadata": {"generateName": "probe-", "labels": {"probe": "yes"}}}
    calls.until(post("$cm?dryRun=All", probing), lambda: hooks.reviews("/probe"))


def _seen(calls: Calls) -> None:
    """Keeps what the webhook was asked, but for what does not matter here: who asked, how, and by which version."""
    for envelope in calls.webhooks.envelopes(_PATH):
        if envelope["request"]["userInfo"]["username"].startswith("system:"):
            continue  # of a controller
        asked = {key: value for key, value in envelope["request"].items() if key not in _UNSEEN}
        calls.keep("a review", envelope | {"request": asked})


def _answering(where: str, answer: Answer, *steps: Step, **fields: Json) -> Script:
    """A behaviour: calls after the registration of a webhook that answers always the same."""

    def behave(calls: Calls) -> None:
        _prepare(calls, steps)
        _registered(calls, where, answer, **fields)
        _make(calls, steps)

    return behave


def _asked(where: str, rule: Json, *steps: Step, **fields: Json) -> Script:
    """A behaviour: what a webhook is asked that allows everything."""

    def behave(calls: Calls) -> None:
        _prepare(calls, steps)
        _registered(calls, where, allow, rule, **fields)
        _make(calls, steps)
        _seen(calls)

    return behave


def _prepare(calls: Calls, steps: Sequence[Step]) -> None:
    for step in steps:
        if step.quiet:
            calls.make(step)


def _make(calls: Calls, steps: Sequence[Step]) -> None:
    for step in steps:
        if not step.quiet:
            calls.make(step)


_POST = post("$cm", config_map(data={"k": "v"}))
_GIVEN = given("$cm", config_map(data={"k": "v"}))
_POD_GIVEN = given("$pods", POD)
_SET = [{"op": "add", "path": "/data", "value": {"k": "w"}}]

# fmt: off
for _sentence, _script in {
    # denials
    "a denial without a word": _answering("$validating", deny(), _POST),
    "a denial with a message": _answering("$validating", deny("no room"), _POST),
    "a denial with a code": _answering("$validating", deny("no room", 403), _POST),
    "a denial with a reason": _answering("$validating", deny(reason="TooMany"), _POST),
    "a denial of a mutating webhook": _answering("$mutating", deny("no room", 403, "Forbidden"), _POST),
    "a denial of a dry run": _answering("$mutating", deny("no room"), post("$cm?dryRun=All", config_map())),
    # warnings
    "a warning of what is allowed":
        _answering("$mutating", lambda _: {"allowed": True, "warnings": ['say "hm"', "b"]}, _POST),
    # failures
    "nobody listens": _answering(
        "$validating", allow, _POST, clientConfig={"url": "https://127.0.0.1:1/w"}),
    "nobody listens, which may be ignored": _answering(
        "$mutating", allow, _POST, clientConfig={"url": "https://127.0.0.1:1/w"}, failurePolicy="Ignore"),
    # patches
    "a patch is applied": _answering("$mutating", patching(*_SET), _POST, get("$cm/a")),
    "a patch of an update is applied": _answering(
        "$mutating", patching(*_SET), post("$cm", config_map()), patch("$cm/a", {"data": {"k": "x", "l": "y"}})),
    "a patch makes an object valid":
        _answering("$mutating", patching(*_SET), post("$cm", config_map(data={"?": "v"}))),
    "a patch of a pod is completed": _answering("$mutating", patching(
        {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"cpu": "2", "memory": "1Gi"}}},
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "d", "image": "i", "ports": [
            {"containerPort": 80}]}}), post("$pods", POD), rule=_PODS),
    "a patch of a pod's class": _answering("$mutating", patching(
        {"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"}),
        post("$pods", POD), rule=_PODS),
    "a patch of a pod's class and priority": _answering("$mutating", patching(
        {"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"},
        {"op": "add", "path": "/spec/priority", "value": 2000001000}), post("$pods", POD), rule=_PODS),
    # questions
    "what is asked of a creation": _asked("$validating", _CONFIG_MAPS, post("$cm?fieldManager=m1", config_map())),
    "what a mutating webhook is asked of a creation":
        _asked("$mutating", _CONFIG_MAPS, post("$cm?fieldManager=m1&fieldValidation=Strict", config_map())),
    "what is asked of a dry run": _asked("$validating", _CONFIG_MAPS, post("$cm?dryRun=All", config_map())),
    "what is asked of an update": _asked("$validating", _CONFIG_MAPS, _GIVEN, patch("$cm/a", {"data": {"k": "w"}})),
    "what a mutating webhook is asked of an update":
        _asked("$mutating", _CONFIG_MAPS, _GIVEN, patch("$cm/a?fieldManager=m1", {"data": {"k": "w"}})),
    "what is asked of a pod's status":
        _asked("$validating", _PODS | {"resources": ["*/status"]}, _POD_GIVEN,
            patch("$pods/a/status", {"status": {"message": "m"}})),
    "what is asked of a custom object": _asked(
        "$validating", _ALL | {"resources": ["nodemetrics"]}, post("$nm", NODE_METRIC),
        namespaceSelector={}, objectSelector={"matchLabels": {"test": "$me"}}),
}.items():
    webhooks.behaviour(_sentence)(_script)
# fmt: on
