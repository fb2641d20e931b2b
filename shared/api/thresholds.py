"""The use from which pods of Mid and Batch are throttled or evicted: Koordinator's `resource-threshold-config`.

The wire form is Koordinator's, with one addition, `evictEnabled`: in Koordinator, feature gates of the agent turn
eviction on. The manager reads the ConfigMap, and hands each node its part in `spec.resourceUsedThresholdWithBE` of the
NodeMetric, which is that part's name in Koordinator's NodeSLO.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec

from shared import jsontext
from shared.api import nodeselectors
from shared.api.nodemetric_spec import LONGEST_WINDOW_SECONDS, Percent, ResourceThresholds
from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput

CLUSTER = "clusterStrategy"
NODES = "nodeStrategies"
LARGEST_SATISFACTION_PERCENT = 60  # as a lower bound, Koordinator's
MAX_NODE_STRATEGIES = 250

Priority: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class ThresholdStrategy(ResourceThresholds, frozen=True, forbid_unknown_fields=True):
    """The ConfigMap's form. Unknown keys are errors; these are Koordinator's, and have no effect here."""

    cpu_suppress_policy: str | None = None  # the enforcer supports only cfsQuota
    cpu_evict_time_window_seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_WINDOW_SECONDS)] | None = None
    cpu_evict_policy: str | None = None
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: Percent | None = None
    cpu_allocatable_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: Percent | None = None
    memory_allocatable_evict_lower_percent: Percent | None = None
    evict_enabled_priority_threshold: Priority | None = None
    allocatable_evict_priority_threshold: Priority | None = None


OFF = ResourceThresholds()


@dataclass(frozen=True)
class ThresholdConfig:
    """The whole ConfigMap key: the cluster's thresholds, and those of nodes with certain labels."""

    cluster: ResourceThresholds = OFF
    nodes: tuple[tuple[LabelSelector, ResourceThresholds], ...] = ()

    def of(self, labels: Mapping[str, str] | None) -> ResourceThresholds:
        """The thresholds of a node: the first strategy that selects it counts."""
        found = (thresholds for selector, thresholds in self.nodes if selector.matches(labels or {}))
        return next(found, self.cluster)


def parse(text: str, *, source: str) -> ThresholdConfig:
    """The value of the ConfigMap's key; an empty text means the defaults, which are off. Raises InvalidInput.

    The strategy of a set of nodes overrides the cluster's.
    """
    document = jsontext.read_object(text, source=source) if text.strip() else {}
    for key in document.keys() - {CLUSTER, NODES}:
        problem = f"expected {CLUSTER} and {NODES} alone"
        raise InvalidInput(source=source, field=key, value=document[key], problem=problem)
    given = _object(document, source=source, field="(document)")
    cluster = _object(given.get(CLUSTER, {}), source=source, field=CLUSTER)
    parts = given.get(NODES, [])
    if not isinstance(parts, list) or len(parts) > MAX_NODE_STRATEGIES:
        problem = f"expected a list of at most {MAX_NODE_STRATEGIES}"
        raise InvalidInput(source=source, field=NODES, value=parts, problem=problem)
    nodes = tuple(
        _node_strategy(cluster, part, source=source, field=f"{NODES}[{place}]") for place, part in enumerate(parts)
    )
    return ThresholdConfig(_strategy(cluster, source=source, field=CLUSTER), nodes)


def delivered(raw: object, *, source: str) -> ResourceThresholds:
    """Reads a NodeMetric's spec; None means the defaults. Ignores fields of a later version. Raises InvalidInput."""
    return _checked({} if raw is None else raw, ResourceThresholds, source=source, field="resourceUsedThresholdWithBE")


def violations(checked: ResourceThresholds) -> Iterator[tuple[str, object, str]]:
    """Invalid values: field, value and problem."""
    threshold = checked.memory_evict_threshold_percent
    if checked.memory_evict_lower_percent is not None and checked.memory_evict_lower_percent >= threshold:
        problem = f"must be less than memoryEvictThresholdPercent, {threshold}"
        yield "memoryEvictLowerPercent", checked.memory_evict_lower_percent, problem
    lower, upper = checked.cpu_satisfaction_lower_percent, checked.cpu_satisfaction_upper_percent
    if lower is not None and not 0 < lower <= LARGEST_SATISFACTION_PERCENT:
        problem = f"must be from 1 to {LARGEST_SATISFACTION_PERCENT}"
        yield "cpuEvictBESatisfactionLowerPercent", lower, problem
    if (lower is None) is not (upper is None) or (lower is not None and upper is not None and upper <= lower):
        problem = "expected both cpuEvictBESatisfactionLowerPercent and a greater one of these, or neither"
        yield "cpuEvictBESatisfactionUpperPercent", upper, problem


def _node_strategy(
    cluster: dict[str, object], part: object, *, source: str, field: str
) -> tuple[LabelSelector, ResourceThresholds]:
    values = _object(part, source=source, field=field)
    given = values.pop("nodeSelector", None)
    values.pop("name", None)
    try:
        selector = msgspec.convert(given, LabelSelector)
    except msgspec.ValidationError as error:
        raise InvalidInput(source=source, field=f"{field}.nodeSelector", value=given, problem=str(error)) from error
    problem = selector.problem
    if problem is None and not nodeselectors.selects_by_label(selector):
        problem = "must select nodes by a label at least"
    if problem is not None:
        raise InvalidInput(source=source, field=f"{field}.nodeSelector", value=given, problem=problem)
    return selector, _strategy(cluster | values, source=source, field=field)


def _strategy(values: dict[str, object], *, source: str, field: str) -> ResourceThresholds:
    """Without the keys that only Koordinator reads."""
    found = _checked(values, ThresholdStrategy, source=source, field=field)
    kept = {each.name: getattr(found, each.name) for each in msgspec.structs.fields(ResourceThresholds)}
    return ResourceThresholds(**kept)


def _checked(values: object, kind: type[ResourceThresholds], *, source: str, field: str) -> ResourceThresholds:
    try:
        found = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(source=source, field=field, value=values, problem=str(error)) from error
    for name, value, problem in violations(found):
        raise InvalidInput(source=source, field=f"{field}.{name}", value=value, problem=problem)
    return found


def _object(given: object, *, source: str, field: str) -> dict[str, object]:
    """Without nulls, which set nothing."""
    if not isinstance(given, dict):
        raise InvalidInput(source=source, field=field, value=given, problem="expected an object")
    return {key: value for key, value in given.items() if value is not None}
