"""CapacityQuota, `autoscaling.x-k8s.io/v1beta1`: how much capacity the nodes it selects may have together."""

import msgspec

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.selectors import LabelSelector

VALID = "cluster-autoscaler.kubernetes.io/valid"  # the condition in which an autoscaler says whether a quota is valid


class CapacityQuotaLimits(Wire, frozen=True):
    """Quantities by resource: cores, bytes, `nodes`, and any other resource in the capacity of nodes."""

    resources: dict[str, str | int | float] | None = None


class CapacityQuotaSpec(Wire, frozen=True):
    """A selector that is missing or empty selects every node."""

    selector: LabelSelector | None = None
    limits: CapacityQuotaLimits = CapacityQuotaLimits()


class CapacityQuotaUsage(Wire, frozen=True):
    resources: dict[str, str | int | float] | None = None


class CapacityQuotaStatus(Wire, frozen=True):
    """Conditions as the server has them; a writer keeps the conditions of others."""

    used: CapacityQuotaUsage | None = None
    conditions: tuple[dict[str, object], ...] | None = None
    observed_generation: int = 0


@prepared
class CapacityQuota(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CapacityQuotaSpec = msgspec.field(default_factory=CapacityQuotaSpec)
    status: CapacityQuotaStatus = msgspec.field(default_factory=CapacityQuotaStatus)
