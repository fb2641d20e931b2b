"""What outlives a process, in a ConfigMap: created groups, what machine types were seen to be, and what has launched or
is sold out.

Everything else is read from the NodeClaims; without the registry, created groups are rebuilt from their claims.
"""

import logging

import msgspec

from manager.autoscaler.cloudprovider.karpenter.config import KarpenterGroup
from shared.errors import shown
from shared.kube.configmap_store import ConfigMapStore

logger = logging.getLogger(__name__)

CONFIG_MAP = "headroom-karpenter"
KEY = "registry"
FORMER_KEY = "books"  # of earlier versions, read until the first write


class SoldOut(msgspec.Struct, frozen=True):
    """`until` in Unix seconds."""

    until: float
    message: str = ""


class KarpenterRegistry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`groups` by name, `reported` allocatable amounts by machine type, `sold_out` by offering. `launched` are
    offerings of which some claim has got a machine. `labels` are those of nodes by machine type, as far as the
    catalogue names them; None for one that nodes lack.
    """

    groups: dict[str, KarpenterGroup] = {}
    reported: dict[str, dict[str, int]] = {}
    sold_out: dict[str, SoldOut] = {}
    launched: tuple[str, ...] = ()
    labels: dict[str, dict[str, str | None]] = {}


_DECODER = msgspec.json.Decoder(KarpenterRegistry)


class KarpenterRegistryStore:
    """Raises the client's errors, Conflict among them. A text that cannot be read is passed by: created groups are
    rebuilt from their claims, and the rest is found out again.

    `writes`: without it, changes stay in memory, for what-if questions.
    """

    def __init__(self, kept: ConfigMapStore, *, writes: bool) -> None:
        self._kept = kept
        self._writes = writes

    def read(self) -> KarpenterRegistry:
        text, _ = self._kept.read()
        if text is None:
            return KarpenterRegistry()
        try:
            return _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            logger.error(
                "the registry cannot be read and is ignored: %s: %s: %s", self._kept.source, shown(text), error
            )
            return KarpenterRegistry()

    def write(self, registry: KarpenterRegistry) -> None:
        """Replaces what was read last."""
        if self._writes:
            self._kept.write(msgspec.json.encode(registry, order="deterministic").decode())
