"""Reclaim before buy: capacity that nodes will lend within one reporting interval already counts.

Mid and Batch are extended resources of nodes. `allocatable` has what is published; the callers give what the next
NodeMetric will add by node, and what a new node will offer by group.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeTemplate
from manager.autoscaler.snapshot.pod_info import MOST_AMOUNT
from shared.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts

RECLAIMED = frozenset({MID_CPU, MID_MEMORY, BATCH_CPU, BATCH_MEMORY})


def with_expected(snapshot: ClusterSnapshot, expected: Mapping[str, Amounts]) -> ClusterSnapshot:
    """The snapshot with the `expected` capacity added, by node.

    Published amounts stay until lower ones are published, so a node that expects less keeps its amounts. Only reclaimed
    resources are added, and unknown nodes are ignored.
    """
    names = {name for amounts in expected.values() for name in amounts} & RECLAIMED
    resources = tuple(sorted(names | set(snapshot.resources)))
    free = np.array([snapshot.free_of(name) for name in resources], np.int64).reshape(len(resources), -1)
    rows = {name: row for row, name in enumerate(resources)}
    for column, node in enumerate(snapshot.nodes):
        for name, amount in expected.get(node.name, {}).items():
            if name in RECLAIMED:
                free[rows[name], column] += min(max(0, amount), MOST_AMOUNT)
    return replace(snapshot, resources=resources, free=np.ascontiguousarray(free.T))


def with_reclaimed(template: NodeTemplate, amounts: Amounts) -> NodeTemplate:
    """The template with the Mid and Batch that its new nodes will offer under their strategy."""
    offered = {name: amount for name, amount in amounts.items() if name in RECLAIMED}
    node = template.node
    return replace(
        template,
        node=replace(node, capacity={**node.capacity, **offered}, allocatable={**node.allocatable, **offered}),
    )


def without_reclaimed(template: NodeTemplate) -> NodeTemplate:
    """The template of the bare machine. Lent capacity changes by the minute, and does not make two groups different."""
    node = template.node
    if not RECLAIMED & (node.capacity.keys() | node.allocatable.keys()):
        return template
    capacity, allocatable = (
        {name: amount for name, amount in amounts.items() if name not in RECLAIMED}
        for amounts in (node.capacity, node.allocatable)
    )
    return replace(template, node=replace(node, capacity=capacity, allocatable=allocatable))
