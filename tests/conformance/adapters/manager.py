"""The manager's adapters: colocation configuration, NodeMetric spec, the `upstream` Mid formula, the write rule."""

from collections.abc import Callable

import msgspec

from manager import pods
from manager.nodeside import policy
from manager.nodeside.nodemetric import spec
from manager.nodeside.noderesource import explain, mid, writing
from manager.nodeside.noderesource.explain import Known
from manager.nodeside.noderesource.writing import NodeWriteRule, WriteRule
from manager.nodeside.policy import ClusterPolicy
from manager.pods import NodeRequests
from shared import names, quantity
from shared.api import colocation
from shared.api.colocation import DEFAULTS, NodeStrategy
from shared.api.core import ConfigMap, Node
from shared.api.meta import ObjectMeta
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.errors import InvalidInput
from shared.names import Tier
from shared.quantity import Resources
from tests.conformance import given
from tests.conformance.given import NOW, ROW, Input

MID_RESOURCES = names.TIER_RESOURCES[Tier.MID]


def colocation_config(row: Input) -> object:
    document = {**(row.get("cluster") or {}), "nodeConfigs": row.get("nodeConfigs") or []}
    config = colocation.parse(msgspec.json.encode(document).decode(), source=ROW)
    found = colocation.for_node(
        config, name="node", labels=row.get("nodeLabels"), annotations=row.get("nodeAnnotations")
    )
    return {**msgspec.to_builtins(found.strategy), "disabled": not found.enabled}


def colocation_config_valid(row: Input) -> object:
    if row["strategy"] is None:
        return {"valid": False}
    try:
        merged = colocation.merge(DEFAULTS, row["strategy"], source=ROW)
    except InvalidInput:
        return {"valid": False}
    return {"valid": not list(colocation.violations(merged, source=ROW, bounds=colocation.KOORDINATOR_BOUNDS))}


def nodemetric_spec(row: Input) -> object:
    text, old = row.get("colocation-config"), row.get("oldSpec")
    labels, annotations = row.get("nodeLabels"), row.get("nodeAnnotations")
    if "node" in row and row["node"] is None:
        return {"error": True}
    config_map = None if text is None else ConfigMap(data={names.CONFIG_KEY_COLOCATION: text})
    known = policy.next_policy(ClusterPolicy(), config_map, source=ROW)
    meta = ObjectMeta(name="node", labels=labels, annotations=annotations)
    wanted = spec.desired(
        known.strategy(Node(metadata=meta)) or NodeStrategy(DEFAULTS, enabled=False),
        settled=known.settled,
        old=None if old is None else msgspec.convert({"metricCollectPolicy": old}, NodeMetricSpec),
    )
    return {"spec": msgspec.to_builtins(wanted.metric_collect_policy)}


def mid_calculate(row: Input) -> object:
    node, metric, own, placed = (row.get(key) for key in ("node", "nodeMetric", "strategy", "pods"))
    if own is None or placed is None or not dict(node or {}).get("allocatable"):
        return {"error": "missing essential arguments"}
    ours = {"midFormula": "upstream", "midBuffer": "off"}
    strategy = colocation.merge(DEFAULTS, ours | row["strategy"], source=ROW)
    requested = NodeRequests()
    for pod in row["pods"]:
        requested = requested.plus(pods.requested_by(pods.record(given.pod(pod))))
    decision = explain.decide(
        given.node(row["node"]),
        given.reported(metric),
        Known(requested),
        NodeStrategy(strategy, enabled=True),
        NOW,
        tiers=[Tier.MID],
    )
    offer = decision.offers[Tier.MID]
    if offer.resources is None:
        return {"degraded": True, "reset": True, "message": explain.DEGRADED_REASONS[Tier.MID]}
    explained = offer.explanation
    return {
        names.MID_CPU: offer.resources.cpu_milli,
        names.MID_MEMORY: offer.resources.memory_bytes,
        "messages": {
            names.MID_CPU: mid.message(names.CPU, explained.cpu),
            names.MID_MEMORY: mid.message(names.MEMORY, explained.memory),
        },
    }


def mid_degrade(row: Input) -> object:
    age, minutes = row["updateAgeSeconds"], row["degradeTimeMinutes"]
    stale = explain.why_stale(
        None if age is None else NOW - age,
        degrade_seconds=DEFAULTS.degrade_seconds if minutes is None else minutes * 60,
        now=NOW,
    )
    return {"degrade": stale is not None}


def mid_need_sync(row: Input) -> object:
    reason = writing.needed(dict(row["old"]), dict(row["new"]), MID_RESOURCES, _rule(row, last_write=NOW))
    return {"needSync": reason is not None, "reason": "mid resource diff is big than threshold" if reason else ""}


def mid_prepare(row: Input) -> object:
    computed = row["nodeResource"]
    offer = None if row["resets"] else Resources(computed[names.MID_CPU], computed[names.MID_MEMORY])
    before = dict.fromkeys((*MID_RESOURCES, *computed), "1")
    patch = writing.changed(before, writing.listed(Tier.MID, offer), MID_RESOURCES)
    return {
        "capacity_and_allocatable": {name: int(value) for name, value in patch.items() if value is not None},
        "deleted": [name for name, value in patch.items() if value is None],
        "untouched": [name for name in computed if name not in patch],
    }


def node_sync(row: Input) -> object:
    """Status by the write rule; metadata changes only together with it."""
    old, new, age = dict(row.get("old") or {}), row.get("new"), row.get("lastUpdateAgeSeconds")
    rule = _rule(row, last_write=None if age is None else NOW - age)
    reason = None if new is None else writing.needed(old, dict(new), sorted({*old, *new}), rule)
    return {"syncStatus": reason is not None, "syncMeta": False}


def resource_diff(row: Input) -> object:
    old, new = (None if row[key] is None else quantity.milli(row[key]) for key in ("old", "new"))
    return {"diff": writing.differs(old, new, row["threshold"])}


def resource_util(row: Input) -> object:
    one, other = dict(row["a"]), dict(row["b"])
    least = Resources.parse(one).least(Resources.parse(other)).quantities()
    return {name: amount for name, amount in least.items() if name in one and name in other}


def _rule(row: Input, *, last_write: float | None) -> NodeWriteRule:
    keys = ("resourceDiffThreshold", "updateTimeThresholdSeconds")
    strategy = colocation.strategy({key: row[key] for key in keys if key in row}, source=ROW)
    return NodeWriteRule.from_strategy(strategy, kind=WriteRule.UPSTREAM, now=NOW, last_write=last_write)


ADAPTERS: dict[str, Callable[[Input], object]] = {
    adapter.__name__: adapter
    for adapter in (
        colocation_config,
        colocation_config_valid,
        nodemetric_spec,
        mid_calculate,
        mid_degrade,
        mid_need_sync,
        mid_prepare,
        node_sync,
        resource_diff,
        resource_util,
    )
}
