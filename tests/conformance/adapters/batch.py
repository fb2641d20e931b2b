"""The adapters of Batch: of a node, of its NUMA zones, and shared with other allocators."""

from collections.abc import Callable

import msgspec

from manager import pods
from manager.nodeside.noderesource import batch, explain, numa, preparation, situation, third_party
from manager.nodeside.noderesource.batch import Above
from manager.pods import NodeRequests
from shared import names, quantity
from shared.api import colocation
from shared.api.colocation import DEFAULTS
from shared.api.core import Node
from shared.api.meta import ObjectMeta
from shared.explanation import Explanation, ResourceExplanation
from shared.names import Tier
from shared.quantity import Resources
from tests.conformance import given
from tests.conformance.given import NOW, ROW, Input
from tests.conformance.matching import Holds


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
    """The zones are in the order of their NUMA nodes; of a pod without a usage no metric is reported."""
    rows = [{"namespace": "default"} | each for each in row["pods"]]
    metric = given.reported(
        {
            "systemUsage": row.get("systemUsage"),
            "hostApplicationMetric": row.get("hostApplicationMetric"),
            "podsMetric": [each for each in rows if each.get("usage") is not None],
        }
    )
    seen = situation.observe(
        situation.facts(given.node({"name": "node"} | row.get("node", {}))), metric, NodeRequests()
    )
    found = numa.calculate(
        colocation.merge(DEFAULTS, row["strategy"], source=ROW),
        seen,
        [pods.record(given.pod(_bound(each))) for each in rows],
        dict(enumerate(map(Resources.parse, row["zones"].values()))),
    )
    return {"zones": dict(zip(row["zones"], map(_listed, found.values()), strict=True))}


def batch_third_party(row: Input) -> object:
    """Without a computed amount Batch is reset: the Node has none, and there is nothing for others either."""
    allocations = {"allocations": row.get("thirdPartyAllocations") or []}
    text = msgspec.json.encode(allocations).decode()
    node = Node(metadata=ObjectMeta(name="node", annotations={names.ANNOTATION_THIRD_PARTY_ALLOCATIONS: text}))
    computed = row.get("computed")
    if row.get("reset") or row.get("resets"):
        computed = None
    if not computed:
        return {"node": Holds(_says_nothing), "reset": True, **_origin(node, None)}
    cpu, memory = (ResourceExplanation((), "", computed[name]) for name in names.TIER_RESOURCES[Tier.BATCH])
    prepared = preparation.prepare(Explanation(cpu, memory), node)
    offered = Resources(prepared.cpu.result, prepared.memory.result)
    return {"node": _listed(offered), **_origin(node, preparation.origin(prepared))}


def _bound(pod: Input) -> Input:
    """A pod of the NUMA rows as the other rows give pods."""
    bound = {"numaNodeResources": [{"node": zone} for zone in pod.get("numaNodes") or ()]}
    labels = {names.LABEL_PRIORITY_CLASS: pod["class"]} | ({names.LABEL_QOS_CLASS: pod["qos"]} if "qos" in pod else {})
    return {
        "name": pod["name"],
        "namespace": pod["namespace"],
        "phase": pod.get("phase", "Running"),
        "labels": labels | pod.get("labels", {}),
        "annotations": {names.ANNOTATION_RESOURCE_STATUS: msgspec.json.encode(bound).decode()},
        "containers": pod.get("containers") or [{"requests": pod.get("requests") or pod.get("request") or {}}],
    }


def _listed(batch_amount: Resources) -> dict[str, int]:
    return dict(zip(names.TIER_RESOURCES[Tier.BATCH], batch_amount, strict=True))


def _origin(node: Node, computed: Resources | None) -> Input:
    resources = msgspec.json.decode(third_party.origin(node, computed))["resources"]
    return {"originExtendedAllocatable": {name: quantity.whole(value) for name, value in resources.items()}}


def _says_nothing(claimed: object) -> bool:
    return not claimed or (isinstance(claimed, dict) and not any(claimed.values()))


ADAPTERS: dict[str, Callable[[Input], object]] = {
    adapter.__name__: adapter for adapter in (batch_calculate, batch_numa, batch_third_party)
}
