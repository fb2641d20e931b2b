"""CapacityQuotas: upper limits on the total capacity of all nodes with certain labels.

Cluster Autoscaler sets the condition VALID itself and enforces a quota while it is True. Headroom is the autoscaler
here, so a readable quota holds at once, and the condition reports that (see `reporting.object_status`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from manager.autoscaler.estimator.limits import Quota, remaining_quota, total_usage
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo
from shared import quantity
from shared.api.capacityquota import CapacityQuota
from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput
from shared.quantity import QuantityError

KIND = "CapacityQuota"
MOST_RESOURCES = 20  # of one quota, as in the CustomResourceDefinition
MOST_CHARACTERS = 63  # of a resource's name, as there


@dataclass(frozen=True, slots=True)
class CapacityLimits:
    """The limits of a CapacityQuota: the maximum of each resource, in whole units, on the nodes that it selects."""

    name: str
    most: Mapping[str, int]
    selector: LabelSelector | None = None

    def remaining_quota(self, nodes: Iterable[NodeInfo], templates: Mapping[str, NodeInfo], usage: QuotaUsage) -> Quota:
        """The quota's remainder beside these nodes; `templates` are those of their groups, by the node's name."""
        return remaining_quota(
            self.name, self.most, usage.selected_quota(self.selector, nodes, templates), self.selector
        )

    def usage_of(self, nodes: Iterable[NodeInfo], usage: QuotaUsage) -> dict[str, int]:
        """The quota's usage by these nodes. Devices without ready drivers do not count."""
        return total_usage(self.most, usage.selected_quota(self.selector, nodes, {}))


def problem_key(name: str) -> str:
    """The key of a quota among the invalid objects."""
    return f"{KIND} {name}"


def read_quota(quota: CapacityQuota) -> CapacityLimits:
    """Raises InvalidInput that names the quota and the invalid field."""
    source, spec = problem_key(quota.metadata.name), quota.spec
    if spec.selector is not None and (problem := spec.selector.problem):
        raise InvalidInput(source=source, field="spec.selector", value=spec.selector, problem=problem)
    resources, field = spec.limits.resources, "spec.limits.resources"
    if resources is None:
        raise InvalidInput(source=source, field=field, value=None, problem="it is missing")
    if len(resources) > MOST_RESOURCES:
        problem = f"{len(resources)} resources, more than {MOST_RESOURCES}"
        raise InvalidInput(source=source, field=field, value=sorted(resources), problem=problem)
    most = {}
    for name, value in resources.items():
        if not 0 < len(name) <= MOST_CHARACTERS:
            problem = f"a name has between 1 and {MOST_CHARACTERS} characters"
            raise InvalidInput(source=source, field=field, value=name, problem=problem)
        try:
            most[name] = quantity.whole(value)
        except QuantityError as error:
            raise InvalidInput(source=source, field=f"{field}.{name}", value=value, problem=str(error)) from error
        if most[name] < 0:
            raise InvalidInput(source=source, field=f"{field}.{name}", value=value, problem="it is negative")
    return CapacityLimits(f"{KIND}/{quota.metadata.name}", most, spec.selector)


def read_quotas(
    quotas: Iterable[CapacityQuota], known: Mapping[str, CapacityLimits]
) -> tuple[dict[str, CapacityLimits], dict[str, InvalidInput]]:
    """The valid quotas by name, and the errors of the refused ones. A refused quota keeps its last `known` limits."""
    found, refused = dict[str, CapacityLimits](), dict[str, InvalidInput]()
    for quota in quotas:
        name = quota.metadata.name
        try:
            found[name] = read_quota(quota)
        except InvalidInput as error:
            refused[problem_key(name)] = error
            if name in known:
                found[name] = known[name]
    return found, refused
