"""Creates and deletes NodeClaims of ours, and tells the observer of it."""

import contextlib

import msgspec

from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim
from manager.autoscaler.cloudprovider.karpenter.observer import ClaimObserver
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import NODECLAIMS


class ClaimWriter:
    """Raises the client's errors."""

    def __init__(self, client: Client, observer: ClaimObserver) -> None:
        self._client = client
        self._observer = observer

    def create(self, body: dict[str, object]) -> None:
        with contextlib.suppress(AlreadyExists):  # the first answer was lost: no other uses the name
            self._client.create(NODECLAIMS, body, repeatable=True)
        self._observer.add_created(msgspec.convert(body, NodeClaim))

    def delete(self, claim: NodeClaim) -> None:
        name = claim.metadata.name
        self._observer.mark_deleted(name)
        try:
            self._client.delete(NODECLAIMS, name, uid=claim.metadata.uid)
        except NotFound:
            pass
        except HeadroomError:
            self._observer.unmark_deleted(name)
            raise
