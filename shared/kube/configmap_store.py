"""One text in a ConfigMap of the manager."""

from collections.abc import Mapping

from shared.api.core import ConfigMap
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS


class ConfigMapStore:
    """A write raises Conflict or AlreadyExists if the ConfigMap has changed since the last read."""

    def __init__(self, client: Client, namespace: str, name: str, key: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._key = key
        self._version = ""

    @property
    def source(self) -> str:
        """The name of the ConfigMap in messages."""
        return f"ConfigMap {self._namespace}/{self._name}"

    def read(self) -> tuple[str | None, str]:
        """The text (None if absent) and its resourceVersion. Raises the client's errors."""
        try:
            found = self._client.get(CONFIGMAPS, self._name, self._namespace, into=ConfigMap)
        except NotFound:
            self._version = ""
            return None, ""
        self._version = found.metadata.resource_version
        return (found.data or {}).get(self._key), self._version

    def write(self, text: str, annotations: Mapping[str, str] | None = None) -> str:
        """Returns the new resourceVersion."""
        metadata: dict[str, object] = {"name": self._name, "namespace": self._namespace}
        if annotations:
            metadata["annotations"] = annotations
        body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {self._key: text}}
        if self._version:
            metadata["resourceVersion"] = self._version
            written = self._client.replace(CONFIGMAPS, self._name, {**body, "metadata": metadata}, self._namespace)
        else:
            written = self._client.create(CONFIGMAPS, {**body, "metadata": metadata}, self._namespace)
        self._version = written.resource_version
        return self._version
