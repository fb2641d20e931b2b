"""The bodies of requests other than whole objects."""

from collections.abc import Mapping, Sequence


def delete_options(
    uid: str | None, grace_period_seconds: int | None, resource_version: str | None = None
) -> dict[str, object]:
    """Limits a deletion to the instance with `uid`, and to its `resource_version`, and gives pods their time."""
    options: dict[str, object] = {}
    conditions = {"uid": uid, "resourceVersion": resource_version}
    if preconditions := {key: value for key, value in conditions.items() if value is not None}:
        options["preconditions"] = preconditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    return options


def eviction(namespace: str, name: str, options: Mapping[str, object]) -> dict[str, object]:
    """Asks to evict a pod, with `options` of its deletion."""
    body: dict[str, object] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    return body | ({"deleteOptions": options} if options else {})


def binding(namespace: str, pod: str, node: str) -> dict[str, object]:
    """Binds a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def token_request(
    bound_to: Mapping[str, str] | None, audiences: Sequence[str], expiration_seconds: int
) -> dict[str, object]:
    """Asks for a token of a service account."""
    spec: dict[str, object] = {"audiences": list(audiences), "expirationSeconds": expiration_seconds}
    if bound_to is not None:
        spec["boundObjectRef"] = dict(bound_to)
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
