"""The admission webhook of a local cluster: API servers call the manager on its loopback port."""

import contextlib

from shared import names
from shared.kube.client import Client, Patch
from shared.kube.errors import AlreadyExists
from shared.kube.resources import MUTATINGWEBHOOKS, PRIORITYCLASSES, SECRETS, VALIDATINGWEBHOOKS, Resource

NAME, SECRET = "headroom", "headroom-webhook"
TIMEOUT_SECONDS = 3

# The values of the chart's own PriorityClasses: Koordinator's bands, and those of pods that name none.
_PRIORITIES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
_OF_TIERS = {"headroom-mid": -5, "headroom-batch": -10}


def register(client: Client, url: str) -> None:
    """Makes API servers call the webhook at `url`; if it does not answer, they go on without it."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": names.INSTALL_NAMESPACE},
        "type": "Opaque",
    }
    with contextlib.suppress(AlreadyExists):
        client.create(SECRETS, secret, names.INSTALL_NAMESPACE)
    _apply(client, MUTATINGWEBHOOKS, "MutatingWebhookConfiguration", NAME, webhooks=[_pods(url)])
    _apply(client, VALIDATINGWEBHOOKS, "ValidatingWebhookConfiguration", NAME, webhooks=[_config(url)])


def create_priority_classes(client: Client) -> None:
    """Koordinator's bands, for pods that name their class, and those that the webhook gives to pods that do not."""
    for name, value in (_PRIORITIES | _OF_TIERS).items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        policy = {"preemptionPolicy": "Never"} if name in _OF_TIERS else {}
        with contextlib.suppress(AlreadyExists):
            client.create(PRIORITYCLASSES, {**body, **policy, "value": value})


def _pods(url: str) -> dict[str, object]:
    return {
        "name": "pods.webhook.headroom.io",
        "rules": [_rule("pods", "CREATE")],
        "clientConfig": {"url": f"{url}/mutate-pods"},
        # A namespace's default requests come back after the translation, which then has to see them.
        "reinvocationPolicy": "IfNeeded",
        **_common(),
    }


def _config(url: str) -> dict[str, object]:
    return {
        "name": "config.webhook.headroom.io",
        "rules": [_rule("configmaps", "CREATE", "UPDATE")],
        "clientConfig": {"url": f"{url}/validate-config"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names.INSTALL_NAMESPACE}},
        **_common(),
    }


def _common() -> dict[str, object]:
    return {
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }


def _rule(resource: str, *operations: str) -> dict[str, object]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": list(operations),
        "scope": "Namespaced",
    }


def _apply(client: Client, resource: Resource, kind: str, name: str, **content: object) -> None:
    """Creates the object, or sets what it says; what others have set beside it, as the authority, stays."""
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}, **content}
    try:
        client.create(resource, body)
    except AlreadyExists:
        client.patch(resource, name, content, kind=Patch.STRATEGIC)  # which merges webhooks by their names
