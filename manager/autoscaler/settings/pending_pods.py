"""The demand for room: pending pods, reserved room, and promised room."""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.options import LimitSettings
from manager.autoscaler.settings.values import MOST_SECONDS


class PendingPodSettings(LimitSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The timing of the loop, and the pods that it considers."""

    scan_interval_seconds: Annotated[float, Meta(ge=0.1, le=MOST_SECONDS, description="between two rounds")] = 10.0
    frequent_loops_enabled: Annotated[
        bool, Meta(description="begin a round at once when a pod turns unschedulable, and after one that did something")
    ] = True
    utilization_scan_interval_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=MOST_SECONDS,
            description="between two scans of the groups that scale by how full their nodes are",
        ),
    ] = 60.0
    scale_up_from_zero: Annotated[bool, Meta(description="act also while no node is ready")] = True
    new_pod_scale_up_delay_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_SECONDS, description="how old a pod has to be to count; its annotation may ask for more"),
    ] = 0.0
    expendable_pods_priority_cutoff: Annotated[
        int, Meta(description="nothing is bought for pods below this priority, and they hold nothing")
    ] = -10
    allowed_scheduler_names: Annotated[
        tuple[str, ...], Meta(description="schedulers whose pods count; empty: all of them")
    ] = ()
    bypassed_scheduler_names: Annotated[
        tuple[str, ...], Meta(description="schedulers whose pods count before those have judged them")
    ] = ()


class BufferSettings(PendingPodSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The room that is kept free."""

    capacity_buffer_pod_injection_enabled: Annotated[
        bool, Meta(description="keep the room free that CapacityBuffers ask for, and write their status")
    ] = False
    capacity_buffer_on_mid: Annotated[
        bool,
        Meta(
            description="Mid on offer counts as room of CapacityBuffers before a node is bought; the buffer's "
            "annotation headroom.io/buffer-on-mid overrides it"
        ),
    ] = False


class RequestSettings(BufferSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The room that is promised."""

    enable_provisioning_requests: Annotated[
        bool,
        Meta(
            description="answer ProvisioningRequests, and book room for them; for a pod that consumes one, nodes are "
            "bought by its request alone"
        ),
    ] = False
