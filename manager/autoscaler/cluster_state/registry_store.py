"""The registry in the cluster: the leader reads it, and writes it before each request to the cloud."""

import logging
from collections.abc import Callable

from manager.autoscaler.cluster_state.registry import Registry, decode_registry, encode_registry, shift_times
from shared import names
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.errors import LeadershipLost

logger = logging.getLogger(__name__)

KEY = "registry"
FORMER = (names.FORMER_REGISTRY_CONFIG_MAP, "books")  # name and key in earlier versions


def config_map_store(client: Client, namespace: str) -> ConfigMapStore:
    """Where the registry is kept."""
    return ConfigMapStore(client, namespace, names.REGISTRY_CONFIG_MAP, KEY, former=FORMER)


class RegistryStore:
    """The registry in the cluster. A failed write stays in memory until another replica writes."""

    def __init__(self, kept: ConfigMapStore, may_write: Callable[[], bool]) -> None:
        self._kept = kept
        self._may_write = may_write
        self._registry: Registry | None = None
        self._version: str | None = None
        self._written: Registry | None = None

    @property
    def known(self) -> Registry:
        """The registry as last read or written."""
        return self._registry or Registry()

    def forget(self) -> None:
        """Drops the memory: another replica leads and writes."""
        self._registry = self._version = self._written = None

    def shift_times(self, seconds: float) -> None:
        """Moves all times after a clock jump of `seconds`."""
        if seconds and self._registry is not None:
            self._registry = shift_times(self._registry, seconds)

    def read(self, now: float) -> Registry | None:
        """The stored registry; None if absent or unreadable."""
        text, version = self._kept.read()
        if version == self._version and self._registry is not None:
            return self._registry
        self._version, self._written = version, None
        if text is not None:
            try:
                self._registry = decode_registry(text, self._kept.source, now)
                self._written = self._registry if version else None
            except InvalidInput as error:
                logger.error("the registry cannot be read and is ignored: %s", error)
        return self._registry

    def write(self, registry: Registry) -> None:
        """Stores the registry before any request goes out. Raises the client's errors, and LeadershipLost."""
        self._registry = registry
        if registry == self._written:
            return
        if not self._may_write():
            raise LeadershipLost
        self._version = self._kept.write(encode_registry(registry))
        self._written = registry
