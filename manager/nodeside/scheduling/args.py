"""The arguments of load-aware scheduling: Koordinator's LoadAwareSchedulingArgs, and additions for the predicted peak.

Names, meanings and defaults are upstream's. Without a file the manager behaves like upstream's shipped configuration:
load orders the nodes, and refuses none.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from shared import durations, names
from shared.errors import InvalidInput

Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
Seconds: TypeAlias = Annotated[int, Meta(ge=0)]
# Both are required: a weight or a threshold of 0 disables one.
SupportedResources: TypeAlias = Annotated[
    tuple[Literal["cpu", "memory"], ...], Meta(extra_json_schema={"minItems": 2, "uniqueItems": True})
]
AggregationType: TypeAlias = Literal["", "avg", "p50", "p90", "p95", "p99"]


class Percents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A percentage, or a weight, for each of the two measured resources; 0 is off."""

    cpu: Percent = 0
    memory: Percent = 0

    def __bool__(self) -> bool:
        return self.cpu != 0 or self.memory != 0


class Factors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The percentage of a pod's requests that it is expected to use; 0 for a resource without one."""

    cpu: Annotated[int, Meta(ge=0, le=1000)] = 0
    memory: Annotated[int, Meta(ge=0, le=1000)] = 0


class AggregatedArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which aggregate stands for a node's usage; without a duration the longest one."""

    usage_thresholds: Percents = Percents()
    usage_aggregation_type: AggregationType = ""
    usage_aggregated_duration: str = ""
    score_aggregation_type: AggregationType = ""
    score_aggregated_duration: str = ""


class LoadAwareArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Thresholds are percentages of a node's allocatable.

    The predicted peak counts in the score beside the usage, with `predicted_peak_weight` against the sum of
    `resource_weights`; if the history covers less of the cold start than `predicted_peak_history_percent`, the peak is
    neutral.
    """

    api_version: str = ""
    kind: Literal["", "LoadAwareSchedulingArgs"] = ""
    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: Annotated[int, Meta(gt=0)] = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: Percents = Percents(1, 1)
    usage_thresholds: Percents = Percents(65, 95)
    prod_usage_thresholds: Percents = Percents()
    score_according_prod_usage: bool = False
    estimated_scaling_factors: Factors = Factors(85, 70)
    dominant_resource_weight: Percent = 0
    aggregated: AggregatedArgs = AggregatedArgs()
    prod_usage_include_sys: bool = False
    estimated_seconds_after_pod_scheduled: Seconds = 0
    estimated_seconds_after_initialized: Seconds = 0
    allow_customize_estimation: bool = False
    supported_resources: SupportedResources = ("cpu", "memory")
    predicted_peak_weight: Percent = 1
    predicted_peak_history_percent: Percent = 50


SHIPPED = LoadAwareArgs(
    filter_expired_node_metrics=False, node_metric_expiration_seconds=300, usage_thresholds=Percents()
)


def load(file: str) -> LoadAwareArgs:
    """The arguments of the YAML file; SHIPPED without a file. Raises InvalidInput."""
    if not file:
        return SHIPPED
    from shared import yaml_file  # here, because most managers have no file

    document = yaml_file.read(Path(file), "--load-aware-args")
    return parse({} if document is None else document, source=file)


def parse(document: object, *, source: str) -> LoadAwareArgs:
    """The arguments in `document`, with defaults for absent ones. Raises InvalidInput."""
    try:
        args = msgspec.convert(document, LoadAwareArgs)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".") or "(document)"
        raise InvalidInput(source=source, field=field, value=_value_at(document, field), problem=problem) from error
    if set(args.supported_resources) != {names.CPU, names.MEMORY}:
        value = list(args.supported_resources)
        problem = "expected both, cpu and memory; a weight or a threshold of 0 is how one is left out"
        raise InvalidInput(source=source, field="supportedResources", value=value, problem=problem)
    for field, text in (
        ("usageAggregatedDuration", args.aggregated.usage_aggregated_duration),
        ("scoreAggregatedDuration", args.aggregated.score_aggregated_duration),
    ):
        try:
            seconds(text)
        except ValueError as error:
            raise InvalidInput(source=source, field=f"aggregated.{field}", value=text, problem=str(error)) from error
    return args


def seconds(duration: str) -> float:
    """The seconds of a Go duration; 0 for an empty one. Raises ValueError."""
    return durations.parse(duration) if duration else 0.0


def _value_at(document: object, path: str) -> object:
    """The value at this path of the document; the document itself if there is none."""
    found = document
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            return document
        found = found[key]
    return found
