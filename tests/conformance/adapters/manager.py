"""The manager's adapters: colocation configuration, NodeMetric spec, the `upstream` Mid formula, the write rule."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from manager import configuration
from manager.configuration import Configuration
from manager.nodemetric import spec
from manager.noderesource import explain, mid, situation, writing
from shared import durations, names, quantity
from shared.api import colocation
from shared.api.colocation import DEFAULTS, ColocationStrategy, NodeStrategy
from shared.api.core import ConfigMap, Node, Pod
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import NodeMetric, NodeMetricSpec
from shared.errors import InvalidInput
from shared.quantity import Resources

NOW = 1_700_000_000.0
ROW = "row"

Input = dict[str, Any]  # a row's input, JSON of the row's own making


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
        colocation.strategy(row["strategy"], source=ROW)
    except InvalidInput:
        return {"valid": False}
    return {"valid": True}


def nodemetric_spec(row: Input) -> object:
    if "node" in row and row["node"] is None:
        return {"error": True}
    text = row.get("colocation-config")
    config_map = None if text is None else ConfigMap(data={names.CONFIG_KEY_COLOCATION: text})
    known = configuration.after(Configuration(), config_map, source=ROW)
    node = Node(metadata=ObjectMeta(name="node", labels=row.get("nodeLabels")))
    old = row.get("oldSpec")
    wanted = spec.desired(
        known.strategy(node) or NodeStrategy(DEFAULTS, enabled=False),
        settled=known.settled,
        old=None if old is None else msgspec.convert({"metricCollectPolicy": old}, NodeMetricSpec),
    )
    return {"spec": msgspec.to_builtins(wanted.metric_collect_policy)}


def mid_calculate(row: Input) -> object:
    if any(row.get(key) is None for key in ("strategy", "node", "pods")) or not row["node"].get("allocatable"):
        return {"error": "missing essential arguments"}
    strategy = colocation.strategy({"midFormula": "upstream"} | row["strategy"], source=ROW)
    decision = explain.decide(
        _node(row["node"]),
        _node_metric(row.get("nodeMetric")),
        situation.requested_by_all(map(_pod, row["pods"])),
        NodeStrategy(strategy, enabled=True),
        NOW,
    )
    if decision.offer is None:
        return {"degraded": True, "reset": True, "message": explain.DEGRADED_REASON}
    explained = decision.explanation
    return {
        names.MID_CPU: decision.offer.cpu_milli,
        names.MID_MEMORY: decision.offer.memory_bytes,
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
    reason = writing.needed(
        row["old"],
        row["new"],
        resources=writing.MID_RESOURCES,
        strategy=_strategy(row),
        since_last_seconds=0,
    )
    return {"needSync": reason is not None, "reason": "mid resource diff is big than threshold" if reason else ""}


def mid_prepare(row: Input) -> object:
    given = row["nodeResource"]
    offer = None if row["resets"] else Resources(given[names.MID_CPU], given[names.MID_MEMORY])
    before = dict.fromkeys((*writing.MID_RESOURCES, *given), "1")
    patch = writing.changed(before, writing.listed(offer), writing.MID_RESOURCES)
    return {
        "capacity_and_allocatable": {name: int(value) for name, value in patch.items() if value is not None},
        "deleted": [name for name, value in patch.items() if value is None],
        "untouched": [name for name in given if name not in patch],
    }


def node_sync(row: Input) -> object:
    """Status by the write rule. The manager writes no metadata of its own: a watched change is all there is to it."""
    if row.get("new") is None:
        return {"syncStatus": False, "syncMeta": False}
    reason = writing.needed(
        row.get("old") or {},
        row["new"],
        resources=sorted({*(row.get("old") or {}), *row["new"]}),
        strategy=_strategy(row),
        since_last_seconds=row.get("lastUpdateAgeSeconds"),
    )
    return {"syncStatus": reason is not None, "syncMeta": bool(row.get("watchedLabelChanged"))}


def resource_diff(row: Input) -> object:
    old, new = (None if row[key] is None else quantity.milli(row[key]) for key in ("old", "new"))
    return {"diff": writing.differs(old, new, row["threshold"])}


def resource_util(row: Input) -> object:
    return Resources.parse(row["a"]).least(Resources.parse(row["b"])).quantities()


def _strategy(row: Input) -> ColocationStrategy:
    keys = ("resourceDiffThreshold", "updateTimeThresholdSeconds")
    return colocation.strategy({key: row[key] for key in keys if key in row}, source=ROW)


def _node(given: Input) -> Node:
    annotations = dict(given.get("annotations") or {})
    if given.get("reservation"):
        annotations[names.ANNOTATION_NODE_RESERVATION] = msgspec.json.encode(given["reservation"]).decode()
    status = {key: given[key] for key in ("capacity", "allocatable") if key in given}
    return msgspec.convert({"metadata": {"name": given["name"], "annotations": annotations}, "status": status}, Node)


def _pod(given: Input) -> Pod:
    containers = [{"resources": container} for container in given.get("containers") or ()]
    return msgspec.convert(
        {
            "metadata": {key: given[key] for key in ("name", "namespace", "labels", "annotations") if key in given},
            "spec": {"containers": containers, "priority": given.get("priority"), "overhead": given.get("overhead")},
            "status": {"phase": given.get("phase", "")},
        },
        Pod,
    )


def _node_metric(given: Input | None) -> NodeMetric | None:
    if given is None:
        return None
    age = given.get("updateAgeSeconds")
    info = {key: {"resources": given[key]} for key in ("nodeUsage", "systemUsage") if given.get(key) is not None}
    status: dict[str, object] = {
        "updateTime": None if age is None else durations.timestamp(NOW - age),
        "nodeMetric": info or None,
        "prodReclaimableMetric": _reported(given.get("prodReclaimable")),
        "hostApplicationMetric": [
            {**each, "usage": {"resources": each.get("usage") or {}}}
            for each in given.get("hostApplicationMetric") or ()
        ],
    }
    return msgspec.convert({"metadata": {"name": "node"}, "status": status}, NodeMetric)


def _reported(amount: Mapping[str, object] | None) -> object:
    return None if amount is None else {"resource": {"resources": amount}}


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
