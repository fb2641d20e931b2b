"""Which models are no longer needed. Pure."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from agent.metric_cache import series
from agent.predict_server.table import ModelTable

# Models beyond this number are dropped early, the longest unused first, but never one of a present pod.
MOST_IDLE_MODELS = 4096


class Lifetimes(NamedTuple):
    """How long, in seconds, to keep the models of deleted pods and of workloads without a pod here."""

    pod_seconds: float
    workload_seconds: float


def expired(table: ModelTable, present: Collection[str], lifetimes: Lifetimes, now: float) -> Iterator[str]:
    """The keys of models that are idle for too long, or exceed the limit; never those of `present` pods."""
    idle = []
    for key, row in table.rows.items():
        if key in present or key in series.NODE_ENTITIES:
            continue
        updated = float(table.last_updated[row])
        kind, _ = series.named(key)
        kept = lifetimes.workload_seconds if kind is series.Kind.WORKLOAD else lifetimes.pod_seconds
        if updated < now - kept:
            yield key
        elif updated < table.time:
            idle.append((updated, key))
    yield from (key for _, key in sorted(idle)[: max(0, len(idle) - MOST_IDLE_MODELS)])
