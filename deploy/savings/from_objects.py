"""Usage stored in the cluster itself: VPA's checkpoints. Pure."""

import math
from collections.abc import Iterable

from agent.predict_server import decay
from agent.predict_server.bank import Bank
from agent.predict_server.compact import CompactHistogram
from deploy.savings.objects import (
    CheckpointHistogram,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
)
from deploy.savings.usage import ContainerKey, ContainerUse, KnownUsage, ResourceUse, Source
from deploy.savings.vpa import VpaHistory, filled_buckets
from shared import durations

_CPU_QUANTILE = 0.95
_NEWEST_VERSION = "v3"


def checkpoints(
    kept: Iterable[VerticalPodAutoscalerCheckpoint], autoscalers: Iterable[VerticalPodAutoscaler]
) -> KnownUsage:
    """The histories of VPA's recommender: decayed histograms over all replicas, of about eight days."""
    targets = {
        (each.metadata.namespace, each.metadata.name): each.spec.target_ref
        for each in autoscalers
        if each.spec.target_ref is not None
    }
    uses, notes = {}, []
    for each in kept:
        where = f"VerticalPodAutoscalerCheckpoint {each.metadata.key}"
        target = targets.get((each.metadata.namespace, each.spec.vpa_object_name))
        if target is None:
            notes.append(
                f"{where}: there is no VerticalPodAutoscaler {each.spec.vpa_object_name} that says whose it is"
            )
            continue
        try:
            history = _history(each)
        except ValueError as error:
            notes.append(f"{where} is passed by: {error}")
            continue
        key = ContainerKey(each.metadata.namespace, target.kind, target.name, each.spec.container_name)
        cpu_median, memory_median = history.percentiles(0.5)
        quantile, _ = history.percentiles(_CPU_QUANTILE)
        peak, seen = _most(history.memory), (history.samples, history.days)
        uses[key] = ContainerUse(
            Source.VPA,
            cpu=ResourceUse(cpu_median, quantile, _most(history.cpu), *seen, busiest="all replicas together"),
            memory=ResourceUse(memory_median, peak, peak, *seen, busiest="its checkpoint"),
            history=history,
        )
    return KnownUsage(uses, tuple(notes))


def _history(kept: VerticalPodAutoscalerCheckpoint) -> VpaHistory:
    """The history in a checkpoint. Raises ValueError."""
    said = kept.status
    if said.version not in ("", _NEWEST_VERSION):
        raise ValueError(f"version {said.version}, where {_NEWEST_VERSION} is known")
    if said.total_samples_count < 0 or not said.cpu_histogram.bucket_weights:
        raise ValueError("it has no samples")
    history = VpaHistory()
    history.restore(_compact(said.cpu_histogram), _compact(said.memory_histogram))
    if said.first_sample_start and said.last_sample_start:
        history.first = durations.instant(said.first_sample_start)
        history.last = durations.instant(said.last_sample_start)
        history.samples = said.total_samples_count
    return history


def _compact(said: CheckpointHistogram) -> CompactHistogram:
    if not math.isfinite(said.total_weight):
        raise ValueError(f"totalWeight {said.total_weight}")
    reference = durations.instant(said.reference_timestamp) if said.reference_timestamp else decay.ZERO_TIME
    return CompactHistogram(reference, said.bucket_weights or {}, said.total_weight)


def _most(bank: Bank) -> float:
    """The upper end of the last non-empty bucket."""
    return max(filled_buckets(bank), default=0.0)
