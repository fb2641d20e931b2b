"""The stored state of the simulated cloud: one ConfigMap, which can hold some ten thousand instances.

Every change applies to the present state, or not at all, so several processes may share it.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from manager.autoscaler.cloudprovider.simulated.cloud_state import SimulatedState
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.errors import AlreadyExists, Conflict

CONFIG_MAP = "headroom-simulated-cloud"
KEY = "state"
FORMER_KEY = "books"  # of earlier versions, read until the first write
ATTEMPTS = 20


class StateStore(Protocol):
    """Stores the state."""

    def read(self) -> SimulatedState:
        """The present state."""
        ...

    def change(self, step: Callable[[SimulatedState], SimulatedState]) -> SimulatedState:
        """The state after `step`; raises the errors of `step`."""
        ...


class Unwritten:
    """Reads without writing, for what-if questions."""

    def __init__(self, read: Callable[[], SimulatedState]) -> None:
        self.read = read

    def change(self, step: Callable[[SimulatedState], SimulatedState]) -> SimulatedState:
        return step(self.read())


class SimulatedStateStore:
    """Raises the client's errors, and InvalidInput for an invalid text."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def read(self) -> SimulatedState:
        """Empty if nothing is stored yet."""
        return _read(self._store())

    def change(self, step: Callable[[SimulatedState], SimulatedState]) -> SimulatedState:
        """See `StateStore`; `step` is called again after a conflict."""
        for attempt in range(1, ATTEMPTS + 1):
            kept = self._store()
            before = _read(kept)
            after = step(before)
            if after == before:
                break
            try:
                kept.write(msgspec.json.encode(after).decode())
                break
            except (AlreadyExists, Conflict):
                if attempt == ATTEMPTS:
                    raise
        return after

    def _store(self) -> ConfigMapStore:
        """A new one for each change, as it holds the version that is replaced: other threads have theirs."""
        return ConfigMapStore(self._client, self._namespace, CONFIG_MAP, KEY, former=(CONFIG_MAP, FORMER_KEY))


def _read(kept: ConfigMapStore) -> SimulatedState:
    text, version = kept.read()
    if text is None and not version:
        return SimulatedState()
    try:
        return msgspec.json.decode(text or "", type=SimulatedState)
    except msgspec.DecodeError as error:
        raise InvalidInput(source=kept.source, field=KEY, value=text or "", problem=str(error)) from error
