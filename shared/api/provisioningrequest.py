"""ProvisioningRequest, `autoscaling.x-k8s.io/v1`: room for groups of pods that do not exist yet, which a queue of jobs
asks for.
"""

import msgspec

from shared.api.capacitybuffer import NamedPodTemplate
from shared.api.meta import ObjectMeta, Wire, prepared

CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"  # is there room now?
BEST_EFFORT_ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"  # buys room for all pods, or for none

# The conditions, and Cluster Autoscaler's reasons.
ACCEPTED, PROVISIONED, FAILED = "Accepted", "Provisioned", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
CAPACITY_IS_FOUND, CAPACITY_IS_NOT_FOUND = "CapacityIsFound", "CapacityIsNotFound"
CAPACITY_IS_PROVISIONED = "CapacityIsProvisioned"
FAILED_TO_CREATE_PODS, FAILED_TO_BOOK_CAPACITY = "FailedToCreatePods", "FailedToBookCapacity"
RESERVATION_TIME_EXPIRED, BOOKING_CONSUMED = "CapacityReservationTimeExpired", "CapacityBookingConsumed"
EXPIRED = "Expired"
CAPACITY_IS_REQUESTED = "CapacityIsRequested"  # ours: nodes are on their way

# On a pod, the name of the request of its namespace that the pod consumes.
ANNOTATIONS_CONSUME = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",  # the older form
)

# Parameters. A request for a processor instance is another autoscaler's.
NO_RETRY, VALID_UNTIL_SECONDS, PROCESSOR_INSTANCE = "noRetry", "ValidUntilSeconds", "processorInstance"


class PodSet(Wire, frozen=True):
    """`count` pods that look like the PodTemplate of the request's namespace."""

    pod_template_ref: NamedPodTemplate = NamedPodTemplate()
    count: int = 0


class ProvisioningRequestSpec(Wire, frozen=True):
    """Cannot be changed."""

    pod_sets: tuple[PodSet, ...] | None = None
    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None


class ProvisioningRequestStatus(Wire, frozen=True):
    """Conditions as the server has them; a writer keeps the conditions of others."""

    conditions: tuple[dict[str, object], ...] | None = None


@prepared
class ProvisioningRequest(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestSpec = msgspec.field(default_factory=ProvisioningRequestSpec)
    status: ProvisioningRequestStatus = msgspec.field(default_factory=ProvisioningRequestStatus)
