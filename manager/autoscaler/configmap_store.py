"""One text in a ConfigMap of the manager's own."""

from collections.abc import Mapping

from shared.api.core import ConfigMap
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS


class ConfigMapStore:
    """A write raises Conflict or AlreadyExists where the ConfigMap has changed since it was read."""

    def __init__(self, client: Client, namespace: str, name: str, key: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._key = key
        self._version = ""

    @property
    def source(self) -> str:
        """What it is called in messages."""
        return f"ConfigMap {self._namespace}/{self._name}"

    def read(self) -> tuple[str | None, str]:
        """What is there (None: nothing), and its resourceVersion. Raises what the client raises."""
        try:
            found = self._client.get(CONFIGMAPS, self._name, self._namespace, into=ConfigMap)
        except NotFound:
            self._version = ""
            return None, ""
        self._version = found.metadata.resource_version
        return (found.data or {}).get(self._key), self._version

    def write(self, text: str, annotations: Mapping[str, str] | None = None) -> str:
        """The new resourceVersion."""
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
