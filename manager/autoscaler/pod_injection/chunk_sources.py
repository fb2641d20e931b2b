"""Reads the models of CapacityBuffers' chunks: the PodTemplates and workloads that the buffers name.

They are few among many, so each is read by name from time to time, instead of watching all of them.
"""

import threading
from collections.abc import Iterable, Sequence

from manager.autoscaler.pod_injection import buffer_reading
from manager.autoscaler.pod_injection.buffer_reading import NOT_YET
from shared.api.capacitybuffer import CapacityBuffer, ChunkSource, ChunkSourceRef
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.errors import NotFound, ServerError, Unreachable
from shared.kube.resources import (
    DEPLOYMENTS,
    JOBS,
    PODTEMPLATES,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
)

RESOURCES = {
    ("", buffer_reading.POD_TEMPLATE): PODTEMPLATES,
    ("apps", "Deployment"): DEPLOYMENTS,
    ("apps", "ReplicaSet"): REPLICASETS,
    ("apps", "StatefulSet"): STATEFULSETS,
    ("", "ReplicationController"): REPLICATIONCONTROLLERS,
    ("batch", buffer_reading.JOB): JOBS,
}
READ_SECONDS = 20.0  # between two reads of one object
MOST_AT_ONCE = 20  # objects read in one iteration, which waits for them
TIMEOUT_SECONDS = 5.0


class ChunkSources:
    """Serves any thread. An unreadable object keeps its last content."""

    def __init__(self, client: Client) -> None:
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._lock = threading.Lock()
        self._known: dict[ChunkSourceRef, ChunkSource | str] = {}
        self._due: dict[ChunkSourceRef, float] = {}  # monotonic time of the next read

    def read(self, wanted: Sequence[ChunkSourceRef]) -> dict[ChunkSourceRef, ChunkSource | str]:
        """These objects, or why one cannot be read."""
        with self._lock:
            self._known = {ref: self._known.get(ref, NOT_YET) for ref in wanted}
            self._due = {ref: self._due.get(ref, 0.0) for ref in wanted}
            now = self._client.clock.monotonic()
            for ref in sorted((ref for ref in wanted if self._due[ref] <= now), key=self._due.__getitem__)[
                :MOST_AT_ONCE
            ]:
                self._due[ref] = now + READ_SECONDS
                if not self._update(ref):
                    break  # the next reads would wait equally long
            return dict(self._known)

    def _update(self, ref: ChunkSourceRef) -> bool:
        """Reads one object; returns whether the server answers."""
        try:
            resource = RESOURCES[ref.api_group, ref.kind]
            self._known[ref] = self._client.get(resource, ref.name, ref.namespace, into=ChunkSource)
        except NotFound:
            self._known[ref] = buffer_reading.NOT_FOUND
        except HeadroomError as error:
            if isinstance(self._known[ref], str):
                self._known[ref] = str(error)
            return not isinstance(error, Unreachable | ServerError)
        return True


def read_all(client: Client, wanted: Sequence[ChunkSourceRef]) -> dict[ChunkSourceRef, ChunkSource | str]:
    """These objects, each read once."""
    sources = ChunkSources(client)
    found = sources.read(wanted)
    for _ in range(len(found) // MOST_AT_ONCE):
        found = sources.read(wanted)
    return found


def named(buffers: Iterable[CapacityBuffer]) -> list[ChunkSourceRef]:
    """The objects that our buffers name, in order; a buffer that names none is refused when it is read."""
    found = set()
    for buffer in buffers:
        if buffer_reading.is_ours(buffer):
            try:
                found.add(buffer_reading.source_of(buffer))
            except InvalidInput:
                continue
    return sorted(found)
