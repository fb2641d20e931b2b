"""A change of one Node, made on the version that was read, so that what others write meanwhile stays."""

from collections.abc import Callable

from shared.api.core import Node
from shared.kube.client import Client
from shared.kube.errors import Conflict
from shared.kube.resources import NODES

ATTEMPTS = 4  # others write Nodes, too, but not all the time

# What is to be otherwise, as a merge patch; None where all is as it should be.
Change = Callable[[Node], dict[str, dict[str, object]] | None]


def changed(client: Client, read: Callable[[], Node], change: Change) -> None:
    """Raises what `read` and the client raise: Conflict where others keep writing, NotFound where it is gone."""
    for attempt in range(1, ATTEMPTS + 1):
        node = read()
        patch = change(node)
        if patch is None:
            return
        metadata = {**patch.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
        try:
            client.patch(NODES, node.metadata.name, {**patch, "metadata": metadata})
        except Conflict:
            if attempt == ATTEMPTS:
                raise
        else:
            return
