"""One text in a ConfigMap of the manager."""

from collections.abc import Mapping

from shared.api.core import ConfigMap
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS


class ConfigMapStore:
    """A write raises Conflict or AlreadyExists if the ConfigMap has changed since the last read.

    `former`: the name and key under which earlier versions kept the text, read while ConfigMap `name` or its `key` is
    absent. A write drops every other key of the ConfigMap.
    """

    def __init__(
        self, client: Client, namespace: str, name: str, key: str, *, former: tuple[str, str] | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._key = key
        self._former = former
        self._version = ""

    @property
    def source(self) -> str:
        """The name of the ConfigMap in messages."""
        return f"ConfigMap {self._namespace}/{self._name}"

    def read(self) -> tuple[str | None, str]:
        """The text (None if absent) and its resourceVersion ("" if ConfigMap `name` is absent).

        Raises the client's errors.
        """
        found = self._get(self._name)
        if found is None:
            self._version = ""
            return self._former_text(), ""
        self._version = found.metadata.resource_version
        text = (found.data or {}).get(self._key)
        return text if text is not None else self._former_text(found), self._version

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

    def _former_text(self, present: ConfigMap | None = None) -> str | None:
        if self._former is None:
            return None
        name, key = self._former
        if present is not None and name != self._name:
            return None
        found = present or self._get(name)
        return None if found is None else (found.data or {}).get(key)

    def _get(self, name: str) -> ConfigMap | None:
        try:
            return self._client.get(CONFIGMAPS, name, self._namespace, into=ConfigMap)
        except NotFound:
            return None
