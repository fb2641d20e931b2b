"""Rows about CapacityBuffers, and about what was decided of those. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass, field

from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.reporting import scale_up_rows
from manager.autoscaler.reporting.scale_up_rows import FurtherRow, ReasonRow


@dataclass(frozen=True)
class BufferRow:
    """The CapacityBuffer "namespace/name". Of its chunks so many have room on nodes there are or on their way, so many
    in Mid on offer; of the rest, `triggered` get a new node and `unplaced` none, for these reasons.

    `requests` are those of one chunk, in the units of `pending`. Without the ResourceQuotas `limited_by` there would be
    `wanted` chunks.
    """

    buffer: str
    chunks: int
    requests: dict[str, int]
    on_nodes: int
    on_mid: int
    triggered: int
    unplaced: int
    reasons: list[ReasonRow]
    wanted: int = 0
    limited_by: list[str] = field(default_factory=list)


def buffer_rows(of: BufferPlan) -> list[BufferRow]:
    """One for each buffer, by key."""
    return [
        BufferRow(
            each.key,
            each.chunks,
            dict(sorted(each.requests.items())),
            each.on_nodes,
            each.on_mid,
            each.triggered,
            each.unplaced,
            scale_up_rows.reason_rows(each.reasons),
            each.wanted,
            list(each.limited_by),
        )
        for each in of.buffers
    ]


def decision_rows(of: BufferPlan) -> list[FurtherRow]:
    """What was decided; positions are those of the buffers."""
    rows = {each.key: row for row, each in enumerate(of.buffers)}
    positions = {chunk: rows[key] for chunk, key in of.buffer_of.items()}
    return [scale_up_rows.further_row(each, positions) for each in of.decisions]
