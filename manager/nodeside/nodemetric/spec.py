"""The desired spec of a NodeMetric: how to collect, how to predict, and the Mid policy for people to read."""

from collections.abc import Mapping

import msgspec

from shared.api.colocation import DEFAULTS, ColocationStrategy, NodeStrategy
from shared.api.nodemetric_spec import (
    MetricCollectPolicy,
    MidPolicy,
    NodeAggregatePolicy,
    NodeMetricSpec,
    PredictionPrior,
    PredictPolicy,
    ResourceThresholds,
)


def desired(
    strategy: NodeStrategy,
    *,
    settled: bool,
    old: NodeMetricSpec | None,
    prior: PredictionPrior | None = None,
    thresholds: ResourceThresholds | None = None,
) -> NodeMetricSpec:
    """The spec for a node with this strategy; with colocation off it asks for plain collection.

    `thresholds` that are not enabled are left out.

    Without a `prior` of the fleet, for example before one is known, the old spec's prior stays.

    While the configuration is not `settled` (none exists, or none was readable), an `old` spec stays.
    """
    if not settled and old is not None:
        return old
    if not strategy.enabled:
        return NodeMetricSpec(metric_collect_policy=_collect(DEFAULTS))
    return NodeMetricSpec(
        metric_collect_policy=_collect(strategy.strategy),
        predict_policy=_predict(strategy.strategy),
        prediction_prior=prior or (old.prediction_prior if old else None),
        mid_policy=_mid(strategy.strategy),
        resource_used_threshold_with_be=thresholds if thresholds is not None and thresholds.enable else None,
    )


def merge_patch(old: NodeMetricSpec | Mapping[str, object], new: NodeMetricSpec) -> dict[str, object]:
    """The merge patch from one spec, parsed or raw, to the other; empty when they agree."""
    return difference(msgspec.to_builtins(old), msgspec.to_builtins(new))


def difference(old: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    """The JSON merge patch (RFC 7386) from `old` to `new`, neither of which holds nulls."""
    patch: dict[str, object] = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := difference(before, value):
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return patch


def _collect(strategy: ColocationStrategy) -> MetricCollectPolicy:
    return MetricCollectPolicy(
        aggregate_duration_seconds=strategy.metric_aggregate_duration_seconds,
        report_interval_seconds=strategy.metric_report_interval_seconds,
        node_aggregate_policy=NodeAggregatePolicy(durations=strategy.metric_aggregate_policy.durations),
        node_memory_collect_policy=strategy.metric_memory_collect_policy,
    )


def _predict(strategy: ColocationStrategy) -> PredictPolicy | None:
    policy = strategy.node_predict_policy
    return None if policy is None else PredictPolicy(**msgspec.structs.asdict(policy))


def _mid(strategy: ColocationStrategy) -> MidPolicy:
    said = {name: getattr(strategy, name) for name in MidPolicy.__struct_fields__}
    return MidPolicy(**said | {"mid_formula": strategy.formula})
