"""What is written: replicas of groups, and delete marks on Machines; and where something else undoes it.

A number of replicas is written only in place of the one that was seen before, so that no write takes effect twice, or
undoes what another has decided meanwhile.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.groups import OUR_MARK, ScalableGroup, read_group
from manager.autoscaler.cloudprovider.clusterapi.reading import ClusterApiReader
from manager.autoscaler.cloudprovider.clusterapi.wire import MACHINES, MachineObject
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, api_error, api_leaves_doubt
from shared import durations
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.retry import Jitter, Retry

logger = logging.getLogger(__name__)

WATCHED_SECONDS = 300.0  # after a write; a change that comes later is a decision of others, as any
HOLD_SECONDS = 600.0
# Cluster API writes the status of the same object, many times a second while the group is new.
PATIENCE = Retry(deadline_seconds=5.0, jitter=Jitter(base_seconds=0.05, cap_seconds=1.0))


def write_as_read(client: Client, what: str, write: Callable[[], None]) -> None:
    """Reads and writes again while something else writes in between. Raises what `write` does, at last its Conflict."""
    PATIENCE.run(
        what,
        write,
        passing=lambda error: isinstance(error, Conflict),
        clock=client.clock,
        stop=threading.Event(),  # it ends soon by itself
    )


class ClusterApiWriter:
    def __init__(self, client: Client, reader: ClusterApiReader) -> None:
        self._client = client
        self._reader = reader

    def resize(self, group: ScalableGroup, replicas: int) -> None:
        """Raises Later if the group has changed since, Refused if it may not have so many, Unavailable in doubt."""
        tries = itertools.count()
        try:
            write_as_read(
                self._client,
                f"the write of replicas of {group.id}",
                lambda: self._write_replicas(group, replicas, again=next(tries) > 0),
            )
        except ProviderError:
            raise
        except Conflict as error:
            raise Later(NAME, group.id, f"another client keeps changing it: {error}") from error
        except HeadroomError as error:
            what = f"{group.replicas} replicas could not become {replicas}"
            raise api_error(NAME, group.id, error, what) from error

    def _write_replicas(self, group: ScalableGroup, replicas: int, *, again: bool) -> None:
        """Raises Conflict if the object is written while it is read and written here."""
        now = self._reader.current(group)
        if again and now.spec.replicas == replicas:
            return  # the answer to an earlier try was lost
        _check_unchanged(group, read_group(group.kind, now, group.keys), replicas)
        meta = now.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version}, "spec": {"replicas": replicas}}
        resource = self._reader.api().kind_resource(group.kind)
        self._client.patch(resource, meta.name, patch, meta.namespace, subresource="scale")

    def mark(self, group: ScalableGroup, machines: Sequence[MachineObject], now: float) -> None:
        """Marks all of these Machines to go first, or none."""
        done: list[MachineObject] = []
        for each in machines:
            try:
                self._annotate(group, each, f"{OUR_MARK} {durations.timestamp(now)}")
            except HeadroomError as error:
                self.unmark(group, [*done, each] if api_leaves_doubt(error) else done)
                problem = f"Machine {each.metadata.name} could not be marked for deletion"
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
                    "Machine %s keeps its mark for deletion: %s", each.metadata.name, error, extra={"group": group.id}
                )

    def _annotate(self, group: ScalableGroup, machine: MachineObject, value: str | None) -> None:
        meta = machine.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": {group.keys.delete_mark: value}}}
        self._client.patch(self._reader.api().resource(MACHINES), meta.name, patch, meta.namespace)


@dataclass(frozen=True)
class _Change:
    before: int
    after: int
    at: float


class OwnChanges:
    """Numbers of replicas that we wrote, and groups where something else has put the old one back.

    The topology of a Cluster that names replicas does that at once, and so may a tool that applies manifests. A group
    that is written to in each round, and undone in each, would make and delete machines without an end.

    All times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self._changes: dict[str, _Change] = {}
        self._held: dict[str, float] = {}  # until when

    def note(self, group: str, before: int, after: int, now: float) -> None:
        self._changes[group] = _Change(before, after, now)

    def compare(self, groups: Mapping[str, ScalableGroup], now: float) -> dict[str, str]:
        """What is new, by the groups that are left alone from now on."""
        self._held = {name: until for name, until in self._held.items() if until > now}
        found = {}
        for name, change in list(self._changes.items()):
            group = groups.get(name)
            if now - change.at > WATCHED_SECONDS:
                del self._changes[name]
            elif group is not None and group.replicas == change.before:
                del self._changes[name]
                self._held[name] = now + HOLD_SECONDS
                found[name] = (
                    f"its replicas were changed to {change.after}, but another client changed them to {change.before}"
                )
        return found

    def refusal(self, group: str, now: float) -> str:
        """Why the group is left alone; empty if it is not."""
        left = self._held.get(group, now) - now
        if left <= 0:
            return ""
        return f"another client, such as a Cluster's topology, reverted the last change; retried in {left:.0f} s"


def _check_unchanged(seen: ScalableGroup, now: ScalableGroup | None, replicas: int) -> None:
    """Raises ProviderError unless the group still is what the decision was about."""
    if now is None:
        raise Refused(NAME, seen.id, "it has lost its annotations, and is skipped")
    if now.replicas != seen.replicas:
        raise Later(NAME, seen.id, f"it had {seen.replicas} replicas, but now has {now.replicas}")
    if replicas > now.bounds.max_size:
        raise Refused(NAME, seen.id, f"{replicas} replicas are above its maximum of {now.bounds.max_size}")
    if replicas < min(now.bounds.min_size, seen.replicas):
        raise Refused(NAME, seen.id, f"{replicas} replicas are below its minimum of {now.bounds.min_size}")
