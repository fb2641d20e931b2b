"""Rows about ProvisioningRequests, and about what was decided of those. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass

from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.reporting import scale_up_rows
from manager.autoscaler.reporting.scale_up_rows import FurtherRow


@dataclass(frozen=True)
class ProvisioningRequestRow:
    """The ProvisioningRequest "namespace/name" of a class, and how far it is: pending, requested (nodes are on their
    way), booked, expired, revoked or failed. Of its pods so many have a node. `reason` and `message` are those of its
    last condition.
    """

    request: str
    provisioning_class: str
    state: str
    pods: int
    consumed: int
    reason: str
    message: str


def request_rows(of: RequestPlan) -> list[ProvisioningRequestRow]:
    """One for each request that is not over, or has just come to its end, by key."""
    return [
        ProvisioningRequestRow(
            each.key,
            each.provisioning_class,
            each.stage.value,
            each.pods,
            each.consumed,
            each.reason,
            each.message,
        )
        for each in of.requests
    ]


def decision_rows(of: RequestPlan) -> list[FurtherRow]:
    """What was bought; positions are those of the requests."""
    rows = {each.key: row for row, each in enumerate(of.requests)}
    positions = {pod: rows[key] for pod, key in of.request_of.items()}
    return [scale_up_rows.further_row(each, positions) for each in of.decisions]
