"""Objects of Cluster API, v1beta1 and v1beta2: the fields that are read. The three kinds that scale have one form."""

import enum

import msgspec

from shared.api.core import Quantities, Taint
from shared.api.meta import ObjectMeta, Wire, prepared


class ScalableKind(enum.StrEnum):
    """A kind with replicas, in the order in which machines are attributed to it."""

    MACHINE_DEPLOYMENT = "MachineDeployment"
    MACHINE_POOL = "MachinePool"
    MACHINE_SET = "MachineSet"

    @property
    def plural(self) -> str:
        return f"{self.value.lower()}s"


MACHINES = "machines"


@prepared
class MachineTemplateRef(Wire, frozen=True):
    """`api_version` is of v1beta1, `api_group` of v1beta2."""

    api_version: str = ""
    api_group: str = ""
    kind: str = ""
    name: str = ""

    @property
    def resource_name(self) -> str:
        """<plural>.<group>, by Cluster API's own rule for plurals."""
        return f"{self.kind.lower()}s.{self.api_group or self.api_version.rpartition('/')[0]}"


class _TemplateSpec(Wire, frozen=True):
    infrastructure_ref: MachineTemplateRef = MachineTemplateRef()
    taints: tuple[Taint, ...] | None = None


class _MachineTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _TemplateSpec = _TemplateSpec()


class _ScalableSpec(Wire, frozen=True):
    cluster_name: str = ""
    replicas: int | None = None
    template: _MachineTemplate = _MachineTemplate()
    provider_ids: tuple[str, ...] | None = msgspec.field(default=None, name="providerIDList")


@prepared
class ScalableObject(Wire, frozen=True):
    """A MachineDeployment, MachinePool or MachineSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _ScalableSpec = _ScalableSpec()

    def owner(self, kind: ScalableKind) -> str | None:
        """The name of its owner of that kind."""
        return _owner(self.metadata, kind)


class _NodeReference(Wire, frozen=True):
    name: str = ""


class _Failure(Wire, frozen=True):
    failure_reason: str = ""
    failure_message: str = ""


class _Deprecated(Wire, frozen=True):
    v1beta1: _Failure = _Failure()


class _MachineSpec(Wire, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _MachineStatus(Wire, frozen=True):
    phase: str = ""
    failure_reason: str = ""
    failure_message: str = ""
    deprecated: _Deprecated = _Deprecated()
    node_ref: _NodeReference | None = None


@prepared
class MachineObject(Wire, frozen=True):
    """A Machine."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _MachineSpec = _MachineSpec()
    status: _MachineStatus = _MachineStatus()

    def owner(self, kind: ScalableKind) -> str | None:
        """The name of its owner of that kind."""
        return _owner(self.metadata, kind)

    @property
    def is_leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def node_name(self) -> str:
        """Of the Node that it has become; empty before."""
        return self.status.node_ref.name if self.status.node_ref is not None else ""

    @property
    def failure(self) -> tuple[str, str]:
        """Reason and message of a failure that is final; both are empty without one."""
        old = self.status.deprecated.v1beta1
        reason = self.status.failure_reason or old.failure_reason
        message = self.status.failure_message or old.failure_message
        if not (reason or message) and self.status.phase != "Failed":
            return "", ""
        return reason or "ProvisioningFailed", message or "Cluster API reports a failure without a reason"


class _NodeInfo(Wire, frozen=True):
    architecture: str = ""
    operating_system: str = ""


class _TemplateStatus(Wire, frozen=True):
    capacity: Quantities | None = None
    node_info: _NodeInfo = _NodeInfo()


@prepared
class InfrastructureTemplate(Wire, frozen=True):
    """What an infrastructure provider says of the machines of a template."""

    status: _TemplateStatus = _TemplateStatus()


class _Version(Wire, frozen=True):
    version: str = ""


@prepared
class ServedGroup(Wire, frozen=True):
    """An API group, as discovery tells of it."""

    preferred_version: _Version = _Version()
    versions: tuple[_Version, ...] = ()


class _ServedKind(Wire, frozen=True):
    name: str = ""


@prepared
class ServedVersion(Wire, frozen=True):
    """A version of an API group, as discovery tells of it."""

    resources: tuple[_ServedKind, ...] = ()


def _owner(meta: ObjectMeta, kind: ScalableKind) -> str | None:
    return next((each.name for each in meta.owner_references or () if each.kind == kind), None)
