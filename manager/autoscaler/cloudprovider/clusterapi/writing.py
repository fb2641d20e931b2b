"""What is written: replicas of groups, and delete marks on Machines.

A number of replicas is written only in place of the one that was seen before, so that no write takes effect twice, or
undoes what another has decided meanwhile.
"""

import logging
from collections.abc import Sequence

from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.groups import OUR_MARK, ScalableGroup, read_group
from manager.autoscaler.cloudprovider.clusterapi.reading import ClusterApiReader
from manager.autoscaler.cloudprovider.clusterapi.wire import MACHINES, MachineObject
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable
from shared import durations
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import ApiError, Conflict, NotFound, ServerError, TooManyRequests

logger = logging.getLogger(__name__)

_TRIES = 5  # Cluster API writes the status of the same object


class ClusterApiWriter:
    def __init__(self, client: Client, reader: ClusterApiReader) -> None:
        self._client = client
        self._reader = reader

    def resize(self, group: ScalableGroup, replicas: int) -> None:
        """Raises Later if the group has changed since, Refused if it may not have so many, Unavailable in doubt."""
        meta = group.object.metadata
        resource = self._reader.api().kind_resource(group.kind)
        for number in range(_TRIES):
            try:
                now = self._reader.current(group)
                if number and now.spec.replicas == replicas:
                    return  # the answer to an earlier try was lost
                _check_unchanged(group, read_group(group.kind, now, group.keys), replicas)
                patch = {
                    "metadata": {"resourceVersion": now.metadata.resource_version},
                    "spec": {"replicas": replicas},
                }
                self._client.patch(resource, meta.name, patch, meta.namespace, subresource="scale")
                return
            except Conflict:
                continue
            except ProviderError:
                raise
            except HeadroomError as error:
                raise provider_error(
                    error, group.id, f"{group.replicas} replicas could not become {replicas}"
                ) from error
        raise Later(NAME, group.id, f"it changes all the time: {_TRIES} writes came too late")

    def mark(self, group: ScalableGroup, machines: Sequence[MachineObject], now: float) -> None:
        """Marks all of these Machines to go first, or none."""
        done: list[MachineObject] = []
        for each in machines:
            try:
                self._annotate(group, each, f"{OUR_MARK} {durations.timestamp(now)}")
            except HeadroomError as error:
                self.unmark(group, [*done, each] if _leaves_doubt(error) else done)
                problem = f"Machine {each.metadata.name} could not be marked to go"
                raise Refused(NAME, group.id, f"{problem}: {error}") from error
            done.append(each)

    def unmark(self, group: ScalableGroup, machines: Sequence[MachineObject]) -> None:
        """Takes marks back; one that stays is tried again at the next refresh."""
        for each in machines:
            try:
                self._annotate(group, each, None)
            except NotFound:
                continue
            except HeadroomError as error:
                logger.warning(
                    "Machine %s keeps its mark to go: %s", each.metadata.name, error, extra={"group": group.id}
                )

    def _annotate(self, group: ScalableGroup, machine: MachineObject, value: str | None) -> None:
        meta = machine.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": {group.keys.delete_mark: value}}}
        self._client.patch(self._reader.api().resource(MACHINES), meta.name, patch, meta.namespace)


def provider_error(error: HeadroomError, group: str, what: str) -> ProviderError:
    """The server's no means that nothing has changed."""
    return (Unavailable if _leaves_doubt(error) else Refused)(NAME, group, f"{what}: {error}")


def _leaves_doubt(error: HeadroomError) -> bool:
    return not isinstance(error, ApiError) or isinstance(error, ServerError | TooManyRequests)


def _check_unchanged(seen: ScalableGroup, now: ScalableGroup | None, replicas: int) -> None:
    """Raises ProviderError unless the group still is what the decision was about."""
    if now is None:
        raise Refused(NAME, seen.id, "it has lost its annotations, and is left alone")
    if now.replicas != seen.replicas:
        raise Later(NAME, seen.id, f"it had {seen.replicas} replicas, and meanwhile has {now.replicas}")
    if replicas > now.bounds.max_size:
        raise Refused(NAME, seen.id, f"{replicas} replicas are above its maximum of {now.bounds.max_size}")
    if replicas < min(now.bounds.min_size, seen.replicas):
        raise Refused(NAME, seen.id, f"{replicas} replicas are below its minimum of {now.bounds.min_size}")
