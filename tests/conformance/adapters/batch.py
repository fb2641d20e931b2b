"""The adapter of Batch. Its NUMA zones and its third-party allocations are known differences."""

from collections.abc import Callable

from manager import pods
from manager.nodeside.noderesource import batch, explain, situation
from manager.nodeside.noderesource.batch import Above
from manager.pods import NodeRequests
from shared import names
from shared.api import colocation
from shared.api.colocation import DEFAULTS
from shared.names import Tier
from shared.quantity import Resources
from tests.conformance import given
from tests.conformance.given import NOW, ROW, Input
from tests.conformance.matching import KnownDifference


def batch_calculate(row: Input) -> object:
    reported = row.get("nodeMetric")
    if None in [row.get(key) for key in ("strategy", "node", "pods")]:
        return {"error": "missing essential arguments"}
    strategy = colocation.merge(DEFAULTS, row["strategy"], source=ROW)
    metric = given.reported(reported)
    if metric is None or explain.why_stale(metric.update_time, degrade_seconds=strategy.degrade_seconds, now=NOW):
        return {"degraded": True, "reset": True, "message": explain.DEGRADED_REASONS[Tier.BATCH]}
    seen = situation.observe(situation.facts(given.node(row["node"])), metric, NodeRequests())
    explained = batch.calculate(strategy, seen, Above.from_pods([pods.record(given.pod(each)) for each in row["pods"]]))
    return {
        **_listed(Resources(explained.cpu.result, explained.memory.result)),
        "messages": [batch.message(names.CPU, explained.cpu), batch.message(names.MEMORY, explained.memory)],
    }


def batch_numa(row: Input) -> object:
    raise KnownDifference("Batch is not offered by NUMA zone: only Koordinator's scheduler places pods by it")


def batch_third_party(row: Input) -> object:
    raise KnownDifference("Batch is not shared with allocators outside Kubernetes")


def _listed(batch_amount: Resources) -> dict[str, int]:
    return dict(zip(names.TIER_RESOURCES[Tier.BATCH], batch_amount, strict=True))


ADAPTERS: dict[str, Callable[[Input], object]] = {
    adapter.__name__: adapter for adapter in (batch_calculate, batch_numa, batch_third_party)
}
