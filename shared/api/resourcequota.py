"""ResourceQuota: what the pods of a namespace may request together, and what they do."""

from shared.api.meta import ObjectMeta, Wire, prepared


class ScopeRequirement(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(Wire, frozen=True):
    match_expressions: tuple[ScopeRequirement, ...] | None = None


class ResourceQuotaSpec(Wire, frozen=True):
    """A pod counts if it is in all of the scopes."""

    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Wire, frozen=True):
    hard: dict[str, str | int | float] | None = None
    used: dict[str, str | int | float] | None = None


@prepared
class ResourceQuota(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
