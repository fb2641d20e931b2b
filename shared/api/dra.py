"""What the manager reads of dynamic resource allocation (resource.k8s.io/v1): devices, classes and claims."""

from typing import Any

import msgspec

from shared.api.core import NodeSelector
from shared.api.meta import ObjectMeta, Wire, prepared

EXACT_COUNT = "ExactCount"
# Requests a device of a class as an extended resource; the prefix of the class's name.
IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"


class CELDeviceSelector(Wire, frozen=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    cel: CELDeviceSelector | None = None


class DeviceClassSpec(Wire, frozen=True):
    selectors: tuple[DeviceSelector, ...] | None = None
    extended_resource_name: str = ""


@prepared
class DeviceClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Wire, frozen=True):
    """One of these is set."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None

    @property
    def value(self) -> int | bool | str | None:
        found = (self.int_value, self.bool_value, self.string, self.version)
        return next((each for each in found if each is not None), None)


class DeviceCapacity(Wire, frozen=True):
    value: str | int | float = "0"


class DeviceTaint(Wire, frozen=True):
    key: str = ""
    effect: str = ""


class Device(Wire, frozen=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    consumes_counters: tuple[Any, ...] | None = None
    allow_multiple_allocations: bool = False


class ResourcePool(Wire, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Wire, frozen=True):
    """Without a `node_name` the devices are not of one node."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    devices: tuple[Device, ...] | None = None


@prepared
class ResourceSlice(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class ExactDeviceRequest(Wire, frozen=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Any, ...] | None = None
    capacity: Any = None


class DeviceRequest(Wire, frozen=True):
    """`exactly`, or the first of several that is available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None


class DeviceClaim(Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[Any, ...] | None = None


class ResourceClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Wire, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class DeviceAllocation(Wire, frozen=True):
    results: tuple[AllocatedDevice, ...] | None = None


class Allocation(Wire, frozen=True):
    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None


class ClaimConsumer(Wire, frozen=True):
    resource: str = ""
    name: str = ""


class ResourceClaimStatus(Wire, frozen=True):
    allocation: Allocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] | None = None


@prepared
class ResourceClaim(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Wire, frozen=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


@prepared
class ResourceClaimTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
