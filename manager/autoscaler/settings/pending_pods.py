"""The demand for room: pending pods, reserved room, and promised room."""

from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.settings.options import LimitSettings
from manager.autoscaler.settings.values import MOST_SECONDS


class PendingRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pending pods a scale-up considers."""

    expendable_pods_priority_cutoff: Annotated[
        int,
        Meta(
            description="Pods with a lower priority are expendable: they trigger no scale-up, and do not keep "
            "their node from being deleted."
        ),
    ] = -10
    new_pod_scale_up_delay_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=MOST_SECONDS,
            description="Age that a pending pod must have before it triggers a scale-up. An annotation of the "
            "pod may set a longer delay.",
        ),
    ] = 0.0
    allowed_scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Names of the schedulers whose pending pods are considered. If empty, those of all schedulers."
        ),
    ] = ()
    bypassed_scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Names of schedulers whose pending pods are considered before the scheduler has "
            "marked them as unschedulable."
        ),
    ] = ()
    enable_provisioning_requests: Annotated[
        bool,
        Meta(
            description="Process ProvisioningRequests, and reserve capacity for them. A pod that consumes a "
            "ProvisioningRequest triggers no scale-up itself."
        ),
    ] = False

    def allowing(self, scheduler: str) -> "PendingRules":
        """The rules by which the pending pods of this scheduler are considered too; empty: no other one."""
        if not (scheduler and self.allowed_scheduler_names):
            return self
        return msgspec.structs.replace(self, allowed_scheduler_names=(*self.allowed_scheduler_names, scheduler))


class PendingPodSettings(LimitSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The timing of the loop, and the pods that it considers."""

    scan_interval_seconds: Annotated[
        float, Meta(ge=0.1, le=MOST_SECONDS, description="Time between the starts of two iterations of the autoscaler.")
    ] = 10.0
    utilization_scan_interval_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=MOST_SECONDS,
            description="Time between two scans of the node groups that scale by utilization.",
        ),
    ] = 60.0
    pending: PendingRules = PendingRules()


class BufferSettings(PendingPodSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The room that is kept free."""

    capacity_buffer_pod_injection_enabled: Annotated[
        bool, Meta(description="Keep the capacity free that CapacityBuffers request, and write their status.")
    ] = False
    capacity_buffer_on_mid: Annotated[
        bool,
        Meta(
            description="Count the offered Mid resources towards CapacityBuffers before nodes are added. A "
            "buffer's annotation headroom.io/buffer-on-mid overrides it."
        ),
    ] = False
