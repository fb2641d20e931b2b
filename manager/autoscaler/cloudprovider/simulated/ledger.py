"""The stored state of the simulated cloud: one ConfigMap, which can hold some ten thousand instances.

Every change applies to the present state, or not at all, so several processes may share it.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from manager.autoscaler.cloudprovider.simulated.books import Books
from shared.api.core import ConfigMap
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Conflict, NotFound
from shared.kube.resources import CONFIGMAPS

CONFIG_MAP = "headroom-simulated-cloud"
KEY = "books"
ATTEMPTS = 20


class BooksStore(Protocol):
    """Stores the state."""

    def read(self) -> Books:
        """The present state."""
        ...

    def change(self, step: Callable[[Books], Books]) -> Books:
        """The state after `step`; raises the errors of `step`."""
        ...


class Unwritten:
    """Reads without writing, for what-if questions."""

    def __init__(self, read: Callable[[], Books]) -> None:
        self.read = read

    def change(self, step: Callable[[Books], Books]) -> Books:
        return step(self.read())


class BooksLedger:
    """Raises the client's errors, and InvalidInput for an invalid text."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def read(self) -> Books:
        """Empty if nothing is stored yet."""
        return self._read()[0]

    def change(self, step: Callable[[Books], Books]) -> Books:
        """See `BooksStore`; `step` is called again after a conflict."""
        for attempt in range(1, ATTEMPTS + 1):
            before, version = self._read()
            after = step(before)
            if after == before:
                break
            try:
                self._write(after, version)
            except (AlreadyExists, Conflict):
                if attempt == ATTEMPTS:
                    raise
            else:
                break
        return after

    def _read(self) -> tuple[Books, str]:
        try:
            found = self._client.get(CONFIGMAPS, CONFIG_MAP, self._namespace, into=ConfigMap)
        except NotFound:
            return Books(), ""
        text = (found.data or {}).get(KEY, "")
        try:
            return msgspec.json.decode(text, type=Books), found.metadata.resource_version
        except msgspec.DecodeError as error:
            source = f"ConfigMap {self._namespace}/{CONFIG_MAP}"
            raise InvalidInput(source=source, field=KEY, value=text, problem=str(error)) from error

    def _write(self, books: Books, version: str) -> None:
        metadata = {"name": CONFIG_MAP, "namespace": self._namespace}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "resourceVersion": version} if version else metadata,
            "data": {KEY: msgspec.json.encode(books).decode()},
        }
        if version:
            self._client.replace(CONFIGMAPS, CONFIG_MAP, body, self._namespace)
        else:
            self._client.create(CONFIGMAPS, body, self._namespace)
