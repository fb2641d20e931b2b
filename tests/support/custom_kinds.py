"""Kinds that a test adds to an API server."""

from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import Resource


def is_served(client: Client, resource: Resource) -> bool:
    """Some time after its definition was created, and until some time after it was deleted."""
    try:
        client.list(resource)
    except NotFound:
        return False
    return True
