"""The admission webhook of a local cluster: API servers call the manager on its loopback port."""

import contextlib

from shared import names
from shared.kube.client import Client, Patch
from shared.kube.errors import AlreadyExists
from shared.kube.resources import MUTATINGWEBHOOKS, PRIORITYCLASSES, SECRETS, VALIDATINGWEBHOOKS, Resource

NAME, SECRET = "headroom", "headroom-webhook"
TIMEOUT_SECONDS = 3

# The values of the chart's own PriorityClasses: Koordinator's bands, and those for pods that name none.
_PRIORITIES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
_OF_TIERS = {"headroom-mid": -5, "headroom-batch": -10}


def register(client: Client, url: str) -> None:
    """Registers the webhook at `url`; API servers continue without it if it does not answer."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": names.INSTALL_NAMESPACE},
        "type": "Opaque",
    }
    with contextlib.suppress(AlreadyExists):
        client.create(SECRETS, secret, names.INSTALL_NAMESPACE)
    # A namespace's default requests return after the translation, so the webhook must see the pod again.
    pods = _webhook("pods", f"{url}/mutate-pods", "pods", "CREATE", reinvocationPolicy="IfNeeded")
    own = {"matchLabels": {"kubernetes.io/metadata.name": names.INSTALL_NAMESPACE}}
    config = _webhook("config", f"{url}/validate-config", "configmaps", "CREATE", "UPDATE", namespaceSelector=own)
    _apply(client, MUTATINGWEBHOOKS, "MutatingWebhookConfiguration", webhooks=[pods])
    _apply(client, VALIDATINGWEBHOOKS, "ValidatingWebhookConfiguration", webhooks=[config])


def create_priority_classes(client: Client) -> None:
    """Creates Koordinator's bands, for pods that name a class, and those that the webhook gives to other pods."""
    for name, value in (_PRIORITIES | _OF_TIERS).items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        policy = {"preemptionPolicy": "Never"} if name in _OF_TIERS else {}
        with contextlib.suppress(AlreadyExists):
            client.create(PRIORITYCLASSES, {**body, **policy, "value": value})


def _webhook(name: str, url: str, resource: str, *operations: str, **more: object) -> dict[str, object]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": list(operations)}
    return {
        "name": f"{name}.webhook.headroom.io",
        "rules": [rule | {"scope": "Namespaced"}],
        "clientConfig": {"url": url},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
        **more,
    }


def _apply(client: Client, resource: Resource, kind: str, **content: object) -> None:
    """Creates the object, or sets the given fields; fields of other clients, such as the authority, stay."""
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": NAME}, **content}
    try:
        client.create(resource, body)
    except AlreadyExists:
        client.patch(resource, NAME, content, kind=Patch.STRATEGIC)  # merges webhooks by their names
