"""The head of a dumped object, read before deciding whether the rest of it is wanted."""

from collections.abc import Iterator

from shared.api.meta import Wire, prepared


class FieldsOwner(Wire, frozen=True):
    time: str | None = None


class HeadMeta(Wire, frozen=True):
    name: str = ""
    namespace: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    managed_fields: tuple[FieldsOwner, ...] | None = None


class HeadSpec(Wire, frozen=True):
    node_name: str | None = None


class _ReportedCondition(Wire, frozen=True):
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    last_probe_time: str | None = None
    last_update_time: str | None = None


class _ContainerPhase(Wire, frozen=True):
    started_at: str | None = None
    finished_at: str | None = None


class _ContainerReport(Wire, frozen=True):
    state: dict[str, _ContainerPhase] | None = None


@prepared
class HeadStatus(Wire, frozen=True):
    conditions: tuple[_ReportedCondition, ...] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    update_time: str | None = None
    container_statuses: tuple[_ContainerReport, ...] | None = None


@prepared
class Head(Wire, frozen=True):
    """The fields of an object that say whether it is wanted, and when it was created, changed or reported. Intended
    future times, and text by people, are in the object's other parts.
    """

    metadata: HeadMeta = HeadMeta()
    spec: HeadSpec | None = None
    status: HeadStatus | None = None

    @property
    def node_name(self) -> str:
        """The node of a pod."""
        return (self.spec.node_name or "") if self.spec is not None else ""

    def moments(self) -> Iterator[str | None]:
        """The times in the head; None without any."""
        meta, status = self.metadata, self.status
        yield meta.creation_timestamp
        for owner in meta.managed_fields or ():
            yield owner.time
        if status is None:
            return
        yield from (status.start_time, status.completion_time, status.update_time)
        for each in status.conditions or ():
            yield each.last_transition_time
            yield each.last_heartbeat_time
            yield each.last_probe_time
            yield each.last_update_time
        for container in status.container_statuses or ():
            for phase in (container.state or {}).values():
                yield phase.started_at
                yield phase.finished_at
