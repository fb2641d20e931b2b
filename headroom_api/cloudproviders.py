"""For cloud providers: the protocol with its types and errors, Nodes and their parts, and what its tests need."""

from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    Created,
    ErrorClass,
    Gpus,
    Group,
    GroupOptions,
    GroupSpec,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Refused, Unsupported
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cloudprovider.plugin import (
    ManagedGroups,
    ProviderGroupOptions,
    ProviderPlugin,
    ProviderRequest,
)
from manager.autoscaler.cloudprovider.rights import Right
from manager.autoscaler.pricing.model import Machine, PricingModel
from shared.api.core import Node, NodeStatus, Quantities
from shared.api.meta import ObjectMeta
from shared.clock import ManualClock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.telemetry import Loops
from shared.yaml_file import load as load_yaml

__all__ = [
    "Client",
    "CloudNotice",
    "Connection",
    "Created",
    "ErrorClass",
    "Gpus",
    "Group",
    "GroupOptions",
    "GroupSpec",
    "Guard",
    "HeadroomError",
    "Instance",
    "InstanceError",
    "InstanceState",
    "InvalidInput",
    "Loops",
    "Machine",
    "ManagedGroups",
    "ManualClock",
    "Node",
    "NodeRef",
    "NodeStatus",
    "ObjectMeta",
    "Ownership",
    "PricingModel",
    "Provider",
    "ProviderGroupOptions",
    "ProviderPlugin",
    "ProviderRequest",
    "Quantities",
    "Refused",
    "Right",
    "Theoretical",
    "Unsupported",
    "load_yaml",
]
