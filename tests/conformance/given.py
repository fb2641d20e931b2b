"""Cluster objects as the rows of the Koordinator tables give them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from manager.nodeside.noderesource import report
from manager.nodeside.noderesource.report import NodeReport
from shared import durations, names
from shared.api.core import Node, Pod
from shared.api.nodemetric import NodeMetric

NOW = 1_700_000_000.0
ROW = "row"

Input = dict[str, Any]  # a row's input, or a part of it: JSON of the row's own making


def node(given: Input) -> Node:
    annotations = dict(given.get("annotations") or {})
    if given.get("reservation"):
        annotations[names.ANNOTATION_NODE_RESERVATION] = msgspec.json.encode(given["reservation"]).decode()
    status = {key: given[key] for key in ("capacity", "allocatable") if key in given}
    return msgspec.convert({"metadata": {"name": given["name"], "annotations": annotations}, "status": status}, Node)


def pod(given: Input) -> Pod:
    containers = [{"resources": container} for container in given.get("containers") or ()]
    return msgspec.convert(
        {
            "metadata": {key: given[key] for key in ("name", "namespace", "labels", "annotations") if key in given},
            "spec": {"containers": containers, "priority": given.get("priority"), "overhead": given.get("overhead")},
            "status": {"phase": given.get("phase", "")},
        },
        Pod,
    )


def reported(given: Input | None) -> NodeReport | None:
    """What the manager reads in the row's NodeMetric."""
    if given is None:
        return None
    age = given.get("updateAgeSeconds")
    # Koordinator takes what is not reported of the system as zero; the product takes it as unknown.
    info = {"systemUsage": {"resources": {"cpu": "0", "memory": "0", **(given.get("systemUsage") or {})}}}
    if given.get("nodeUsage") is not None:
        info["nodeUsage"] = {"resources": given["nodeUsage"]}
    status: dict[str, object] = {
        "updateTime": None if age is None else durations.timestamp(NOW - age),
        "nodeMetric": info or None,
        "prodReclaimableMetric": _reclaimable(given.get("prodReclaimable")),
        "podsMetric": [_used(each, "podUsage") for each in given.get("podsMetric") or ()],
        "hostApplicationMetric": [_used(each, "usage") for each in given.get("hostApplicationMetric") or ()],
    }
    return report.read(msgspec.convert({"metadata": {"name": "node"}, "status": status}, NodeMetric))


def _used(given: Input, key: str) -> Input:
    rest = {name: value for name, value in given.items() if name != "usage"}
    return {**rest, key: {"resources": given.get("usage") or {}}}


def _reclaimable(amount: Mapping[str, object] | None) -> object:
    return None if amount is None else {"resource": {"resources": amount}}
