"""The colocation strategy: the value of `slo-controller-config` for the cluster, and the part that applies to one node.

The wire form is Koordinator's, with four additions: `nodePredictPolicy`, `midFormula`, `midBuffer` and
`evictionAfterSeconds`. A part of a strategy is plain JSON until it is merged; a `ColocationStrategy` is always
complete, its defaults being Koordinator's.
"""

import enum
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from shared import durations, jsontext, names
from shared.api import nodeselectors, predictpolicy
from shared.api.meta import Wire, prepared
from shared.api.nodemetric_spec import (
    LONGEST_REPORT_INTERVAL_SECONDS,
    LONGEST_WINDOW_SECONDS,
    MOST_WINDOWS,
    Percent,
    PredictPolicy,
)
from shared.api.predictpolicy import LARGEST
from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput
from shared.names import Tier

Json: TypeAlias = Mapping[str, object]
T = TypeVar("T")

NODE_CONFIGS = "nodeConfigs"
AUTO_EVICTION_SECONDS = 300
LONGEST_DEGRADE_MINUTES = 24 * 60  # a NodeMetric that is older says nothing about a node
LONGEST_UPDATE_SECONDS = 86400
LONGEST_EVICTION_SECONDS = 7 * 86400
LARGEST_BATCH_PERCENT = 1000  # of capacity, which Koordinator does not bound at all

EvictionSeconds: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_EVICTION_SECONDS)]


class MidFormula(enum.StrEnum):
    """The formula of Mid; see `manager.nodeside.noderesource.mid`."""

    SEED = "seed"
    SEED_MIXED = "seed-mixed"
    UPSTREAM = "upstream"


class MetricAggregatePolicy(Wire, frozen=True, forbid_unknown_fields=True):
    durations: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_WINDOWS)] = ("5m", "10m", "30m")


class NodePredictPolicy(PredictPolicy, frozen=True, forbid_unknown_fields=True):
    """`spec.predictPolicy` of the NodeMetrics, as the ConfigMap spells it: unknown keys are errors here."""


@prepared
class ColocationStrategy(Wire, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    """Everything that can be set, for the cluster or for a node.

    `mid_buffer` is the share of Mid held back, in percent. "auto" is a share learned from how much the offer of a node
    changes from report to report. Until it is learned, nothing is held back, as with "off".

    `eviction_after_seconds` is how long pods of a tier must hold more than the node offers before some are evicted; see
    `eviction_seconds`.
    """

    enable: bool = False
    metric_aggregate_duration_seconds: int = 300
    metric_report_interval_seconds: int = 60
    metric_aggregate_policy: MetricAggregatePolicy = MetricAggregatePolicy()
    metric_memory_collect_policy: str = "usageWithoutPageCache"
    cpu_reclaim_threshold_percent: int = 60
    cpu_calculate_policy: str = "usage"
    memory_reclaim_threshold_percent: int = 65
    memory_calculate_policy: str = "usage"
    degrade_time_minutes: int = 15
    update_time_threshold_seconds: int = 300
    resource_diff_threshold: float = 0.1
    mid_formula: MidFormula | None = None
    mid_reclaim_mode: str | None = None
    mid_cpu_threshold_percent: int = msgspec.field(default=100, name="midCPUThresholdPercent")
    mid_memory_threshold_percent: int = 100
    mid_unallocated_percent: int | None = None
    mid_static_cpu_reserved_percent: int = msgspec.field(default=0, name="midStaticCPUReservedPercent")
    mid_static_memory_reserved_percent: int = 0
    mid_buffer: Literal["auto", "off"] | Percent = "auto"
    eviction_after_seconds: Literal["auto", "off"] | EvictionSeconds = "auto"
    batch_cpu_threshold_percent: int | None = msgspec.field(default=None, name="batchCPUThresholdPercent")
    batch_memory_threshold_percent: int | None = None
    node_predict_policy: NodePredictPolicy | None = None
    extensions: dict[str, object] | None = None

    @property
    def formula(self) -> MidFormula:
        """The formula in effect: a strategy that sets a field of `upstream` only, and names no formula, means
        `upstream`.
        """
        if self.mid_formula is not None:
            return self.mid_formula
        only_upstream = (self.mid_reclaim_mode, self.mid_unallocated_percent)
        return MidFormula.SEED if only_upstream == (None, None) else MidFormula.UPSTREAM

    def eviction_seconds(self, tier: Tier) -> int | None:
        """The time after which a shortfall of the tier leads to evictions; None for never.

        "auto" means never, except for Mid under `seed-mixed`: its pods hold what other pods have not requested yet, and
        must give it up when those do.
        """
        if self.eviction_after_seconds == "auto":
            return AUTO_EVICTION_SECONDS if tier is Tier.MID and self.formula is MidFormula.SEED_MIXED else None
        return None if self.eviction_after_seconds == "off" else self.eviction_after_seconds

    @property
    def degrade_seconds(self) -> int:
        """A NodeMetric older than this is ignored."""
        return self.degrade_time_minutes * 60


DEFAULTS = ColocationStrategy()
DEFAULT_SOURCE = "default"

# For each key that is set: the object and the place where its value stands.
SetBy: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class NodeConfig:
    """The strategy of the nodes that `selector` matches; None matches nothing."""

    selector: LabelSelector | None
    strategy: ColocationStrategy
    set_by: SetBy = field(default_factory=dict)


@dataclass(frozen=True)
class ColocationConfig:
    """The whole ConfigMap key. `problems` are those of node configs, each of which affects only itself."""

    cluster: ColocationStrategy = DEFAULTS
    node_configs: tuple[NodeConfig, ...] = ()
    problems: tuple[InvalidInput, ...] = ()
    set_by: SetBy = field(default_factory=dict)


@dataclass(frozen=True)
class NodeStrategy:
    """The strategy of one node. `problems` are those of the node's own annotation and labels, which were ignored."""

    strategy: ColocationStrategy
    enabled: bool
    problems: tuple[InvalidInput, ...] = ()
    set_by: SetBy = field(default_factory=dict)

    def source(self, key: str) -> str:
        """The source of the value of a key, in the ConfigMap's spelling."""
        return self.set_by.get(key, DEFAULT_SOURCE)


@dataclass(frozen=True)
class _Bound:
    low: int
    high: int = LARGEST
    open: bool = False

    def broken_by(self, value: float) -> str | None:
        if self.open and not value > self.low:
            return f"must be greater than {self.low}"
        if self.low <= value <= self.high:
            return None
        return f"must be at most {self.high}" if self.open else f"must be between {self.low} and {self.high}"


_POSITIVE = _Bound(0, open=True)
_NOT_NEGATIVE = _Bound(0)
_PERCENT = _Bound(0, 100)
Bounds: TypeAlias = Mapping[str, _Bound]

# The bounds of Koordinator's manager.
KOORDINATOR_BOUNDS: Bounds = {
    "metric_aggregate_duration_seconds": _POSITIVE,
    "metric_report_interval_seconds": _POSITIVE,
    "cpu_reclaim_threshold_percent": _NOT_NEGATIVE,
    "memory_reclaim_threshold_percent": _NOT_NEGATIVE,
    "degrade_time_minutes": _POSITIVE,
    "update_time_threshold_seconds": _POSITIVE,
    "resource_diff_threshold": _POSITIVE,
    "mid_cpu_threshold_percent": _PERCENT,
    "mid_memory_threshold_percent": _PERCENT,
    "mid_unallocated_percent": _PERCENT,
    "mid_static_cpu_reserved_percent": _NOT_NEGATIVE,
    "mid_static_memory_reserved_percent": _NOT_NEGATIVE,
    "batch_cpu_threshold_percent": _NOT_NEGATIVE,
    "batch_memory_threshold_percent": _NOT_NEGATIVE,
}
# Tighter where Koordinator's webhook is tighter, where the offer would exceed the node, and where Koordinator has no
# upper bound: a NodeMetric would never turn stale, or never be reported.
BOUNDS: Bounds = {
    **KOORDINATOR_BOUNDS,
    "metric_aggregate_duration_seconds": _Bound(0, LONGEST_WINDOW_SECONDS, open=True),
    "metric_report_interval_seconds": _Bound(0, LONGEST_REPORT_INTERVAL_SECONDS, open=True),
    "degrade_time_minutes": _Bound(0, LONGEST_DEGRADE_MINUTES, open=True),
    "update_time_threshold_seconds": _Bound(0, LONGEST_UPDATE_SECONDS, open=True),
    "batch_cpu_threshold_percent": _Bound(0, LARGEST_BATCH_PERCENT),
    "batch_memory_threshold_percent": _Bound(0, LARGEST_BATCH_PERCENT),
    "resource_diff_threshold": _Bound(0, 1, open=True),
    "mid_static_cpu_reserved_percent": _PERCENT,
    "mid_static_memory_reserved_percent": _PERCENT,
    "cpu_reclaim_threshold_percent": _PERCENT,
    "memory_reclaim_threshold_percent": _PERCENT,
}
MAX_NODE_CONFIGS = 250  # each is compared with every other one
_MEMORY_COLLECT_POLICIES = ("usageWithoutPageCache", "usageWithPageCache", "usageWithHotPageCache")
KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(ColocationStrategy))
WIRE_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(ColocationStrategy)}

# Go reads no other forms, except hexadecimal ones
_RATIO = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# A label's ratio replaces this field.
_RATIO_LABELS = {
    names.LABEL_CPU_RECLAIM_RATIO: "cpu_reclaim_threshold_percent",
    names.LABEL_MEMORY_RECLAIM_RATIO: "memory_reclaim_threshold_percent",
    names.LABEL_MID_STATIC_CPU_RESERVED_RATIO: "mid_static_cpu_reserved_percent",
    names.LABEL_MID_STATIC_MEMORY_RESERVED_RATIO: "mid_static_memory_reserved_percent",
}


def parse(text: str, *, source: str) -> ColocationConfig:
    """The value of the ConfigMap's key; an empty text means the defaults. Webhook and manager use the same rules.

    Raises InvalidInput for broken JSON, a wrong type, an unknown or a repeated key anywhere, and a cluster strategy out
    of bounds. `problems` lists errors in single node configs, which are resolved as upstream does: a config out of
    bounds leaves its nodes with the cluster strategy, one with an invalid selector is skipped, an empty selector
    matches every node, and the first of several matches counts.
    """
    document = jsontext.read_object(text, source=source) if text.strip() else {}
    parts = document.pop(NODE_CONFIGS, None)
    if parts is None:  # null is an empty list to Go
        parts = []
    cluster = strategy(document, source=source)
    if not isinstance(parts, list):
        raise InvalidInput(source=source, field=NODE_CONFIGS, value=parts, problem="expected a list")
    if len(parts) > MAX_NODE_CONFIGS:
        problem = f"expected at most {MAX_NODE_CONFIGS} node configs"
        raise InvalidInput(source=source, field=NODE_CONFIGS, value=len(parts), problem=problem)
    problems: list[InvalidInput] = []
    set_by = dict.fromkeys(_without_nulls(document), source)
    node_configs = tuple(
        _node_config(cluster, part, set_by, source=source, field=f"{NODE_CONFIGS}[{index}]", problems=problems)
        for index, part in enumerate(parts)
    )
    problems += _selector_problems(parts, [each.selector for each in node_configs], source)
    return ColocationConfig(cluster, node_configs, tuple(problems), set_by)


def strategy(values: Json, *, source: str, over: ColocationStrategy | None = None) -> ColocationStrategy:
    """`values` merged over `over` (the defaults if None). Raises InvalidInput for a wrong type, key or value."""
    merged = merge(over or DEFAULTS, values, source=source)
    for problem in violations(merged, source=source):
        raise problem
    return merged


def merge(base: ColocationStrategy, values: Json, *, source: str, field: str = "") -> ColocationStrategy:
    """`base` with what `values` sets: nested objects are merged, lists replaced, nulls set nothing.

    The result may be out of bounds (see `violations`). Raises InvalidInput for a wrong type or an unknown key.
    """
    try:
        laid = _laid_over(_without_nulls(msgspec.to_builtins(base)), _without_nulls(values))
    except RecursionError:
        problem = "nested too deeply"
        raise InvalidInput(source=source, field=field or "(document)", value=list(values), problem=problem) from None
    return _converted(laid, ColocationStrategy, source=source, field=field)


def violations(
    checked: ColocationStrategy, *, source: str, field: str = "", bounds: Bounds = BOUNDS
) -> Iterator[InvalidInput]:
    """Every value of a strategy that is out of bounds."""

    def problem(name: str, value: object, text: str) -> InvalidInput:
        return InvalidInput(source=source, field=_path(field, WIRE_NAMES[name]), value=value, problem=text)

    for name, bound in bounds.items():
        value = getattr(checked, name)
        broken = None if value is None else bound.broken_by(value)
        if broken:
            yield problem(name, value, broken)
    if checked.metric_memory_collect_policy not in _MEMORY_COLLECT_POLICIES:
        text = f"must be one of {', '.join(_MEMORY_COLLECT_POLICIES)}"
        yield problem("metric_memory_collect_policy", checked.metric_memory_collect_policy, text)
    for text in checked.metric_aggregate_policy.durations:
        if not _is_window(text):
            most = durations.render(LONGEST_WINDOW_SECONDS)
            said = f"durations: not a positive duration such as '5m', at most {most}"
            yield problem("metric_aggregate_policy", text, said)
    for violation in predictpolicy.violations(checked.node_predict_policy or PredictPolicy()):
        at = _path(field, WIRE_NAMES["node_predict_policy"], violation.field)
        yield InvalidInput(source=source, field=at, value=violation.value, problem=violation.problem)
    if checked.eviction_after_seconds == "off" and checked.formula is MidFormula.SEED_MIXED:
        text = "midFormula seed-mixed lends what is not requested yet, so its pods must be evictable when it is"
        yield problem("eviction_after_seconds", checked.eviction_after_seconds, text)


def for_node(config: ColocationConfig, *, name: str, labels: Json | None, annotations: Json | None) -> NodeStrategy:
    """The strategy of one node: the first matching node config, then the node's annotation, then its ratio labels.

    The cluster's `enable` is a master switch that no node config can override. Unlike upstream, which merges the
    annotation unchecked, an annotation with any error is ignored as a whole, and reported.
    """
    labels = labels or {}
    chosen = next((c for c in config.node_configs if c.selector and c.selector.matches(labels)), None)
    result, set_by = (chosen.strategy, chosen.set_by) if chosen else (config.cluster, config.set_by)
    problems: list[InvalidInput] = []
    annotation = (annotations or {}).get(names.ANNOTATION_COLOCATION_STRATEGY)
    if annotation:
        source = f"Node {name} annotation {names.ANNOTATION_COLOCATION_STRATEGY}"
        try:
            document = jsontext.read_object(str(annotation), source=source)
            result = strategy(document, source=source, over=result)
            set_by = {**set_by, **dict.fromkeys(_without_nulls(document), source)}
        except InvalidInput as problem:
            problems.append(problem)
    ratios = {label: labels[label] for label in _RATIO_LABELS if label in labels}
    if ratios:
        percents = _percents(ratios, name=name, problems=problems)
        result = msgspec.structs.replace(result, **{_RATIO_LABELS[label]: value for label, value in percents.items()})
        set_by = {**set_by, **{WIRE_NAMES[_RATIO_LABELS[label]]: f"Node {name} label {label}" for label in percents}}
    return NodeStrategy(result, config.cluster.enable and result.enable, tuple(problems), set_by)


def _percents(ratios: Json, *, name: str, problems: list[InvalidInput]) -> dict[str, int]:
    """The percentages that labels name, by label."""
    percents: dict[str, int] = {}
    for label, text in ratios.items():
        ratio = float(str(text)) if _RATIO.fullmatch(str(text)) else math.nan
        if 0 <= ratio <= 1:
            percents[label] = int(ratio * 100)  # truncated: 0.57 is 56 percent, upstream and here
        else:
            problem = "expected a ratio from 0 to 1 such as 0.6; the label is ignored"
            problems.append(InvalidInput(source=f"Node {name} label", field=label, value=text, problem=problem))
    return percents


def _node_config(
    cluster: ColocationStrategy,
    part: object,
    set_by: SetBy,
    *,
    source: str,
    field: str,
    problems: list[InvalidInput],
) -> NodeConfig:
    if not isinstance(part, dict):
        raise InvalidInput(source=source, field=field, value=part, problem="expected an object")
    values = {key: value for key, value in part.items() if key not in ("name", "nodeSelector")}
    merged = merge(cluster, values, source=source, field=field)
    broken = list(violations(merged, source=source, field=field))
    problems += broken
    selector = part.get("nodeSelector")
    if selector is not None:
        at = _path(field, "nodeSelector")
        selector = _converted(selector, LabelSelector, source=source, field=at)
        meaningless = selector.problem
        if meaningless:
            problems.append(InvalidInput(source=source, field=at, value=part["nodeSelector"], problem=meaningless))
            selector = None
    if broken:
        return NodeConfig(selector, cluster, set_by)
    return NodeConfig(selector, merged, {**set_by, **dict.fromkeys(_without_nulls(values), f"{source} {field}")})


def _selector_problems(
    parts: Sequence[object], selectors: Sequence[LabelSelector | None], source: str
) -> Iterator[InvalidInput]:
    """Node configs whose selectors look mistaken; `parts` are the configs as written."""

    def problem(at: int, text: str) -> InvalidInput:
        part = parts[at]
        value = part.get("nodeSelector") if isinstance(part, dict) else part
        return InvalidInput(source=source, field=f"{NODE_CONFIGS}[{at}].nodeSelector", value=value, problem=text)

    for at, selector in enumerate(selectors):
        is_meaningless = selector is None and isinstance(part := parts[at], dict) and part.get("nodeSelector")
        if not is_meaningless and not nodeselectors.selects_by_label(selector):
            yield problem(at, "must select nodes by a label at least")
    for first, second in nodeselectors.overlaps(selectors):
        yield problem(second, f"its nodes are those of {NODE_CONFIGS}[{first}] as well, which counts")


def _converted(values: object, kind: type[T], *, source: str, field: str) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        steps = path.rstrip("`").lstrip(".")
        unknown = (
            problem.removeprefix("Object contains unknown field `").rstrip("`") if "unknown field" in problem else ""
        )
        inner = _path(steps, unknown)
        raise InvalidInput(
            source=source, field=_path(field, inner), value=_found(values, inner), problem=problem
        ) from error


def _found(values: object, path: str) -> object:
    """The value at a path such as `a.b[2].c`, or else the innermost object on the path."""
    for step in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(values, Mapping) and step in values:
            values = values[step]
        elif isinstance(values, list) and step.isdigit():
            values = values[int(step)]
    return values


def _path(*steps: str) -> str:
    return ".".join(step for step in steps if step)


def _without_nulls(values: Json) -> dict[str, object]:
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def _laid_over(base: Json, values: Json) -> dict[str, object]:
    merged = dict(base)
    for key, value in values.items():
        below = merged.get(key)
        merged[key] = _laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _is_window(text: str) -> bool:
    try:
        return 0 < durations.parse(text) <= LONGEST_WINDOW_SECONDS
    except ValueError:
        return False
