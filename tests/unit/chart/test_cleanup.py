"""What is removed from a Node, and what is not."""

from typing import Any

import pytest

from deploy import cleanup
from deploy.cleanup import NodeCleanup
from shared import names
from shared.api.core import Node, NodeStatus, Quantities
from shared.api.meta import ObjectMeta
from shared.names import Tier
from shared.quantity import Resources

MID: Quantities = {names.MID_CPU: "1000", names.MID_MEMORY: "1048576"}
BATCH: Quantities = {names.BATCH_CPU: "500", names.BATCH_MEMORY: "0"}
OTHERS: Quantities = {"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"}
ORIGIN = {names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE: "{}"}


def _node(
    *,
    capacity: Quantities | None = None,
    allocatable: Quantities | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Node:
    return Node(ObjectMeta("n", labels=labels, annotations=annotations), status=NodeStatus(capacity, allocatable))


KEEP = {"notheadroom.io/x": "", "headroom.io": "", "headroom.io.example.com/x": "", names.LABEL_SIMULATED: "true"}


@pytest.mark.parametrize(
    ("node", "patch"),
    [
        (
            _node(capacity=OTHERS | MID, allocatable=OTHERS | MID),
            {"status": {"capacity": dict.fromkeys(MID), "allocatable": dict.fromkeys(MID)}},
        ),
        (
            _node(allocatable=OTHERS | BATCH, annotations=ORIGIN | {"example.com/x": ""}),
            {"metadata": {"annotations": dict.fromkeys(ORIGIN)}, "status": {"allocatable": dict.fromkeys(BATCH)}},
        ),
        (
            _node(capacity=OTHERS, allocatable={names.MID_CPU: 0}),
            {"status": {"allocatable": {names.MID_CPU: None}}},
        ),
        (
            _node(labels=KEEP | {"headroom.io/a": ""}, annotations=KEEP | {"node.headroom.io/b": ""}),
            {"metadata": {"labels": {"headroom.io/a": None}, "annotations": {"node.headroom.io/b": None}}},
        ),
    ],
    ids=["mid", "batch and its annotation", "in one place alone", "of our domain"],
)
def test_what_is_ours_goes_and_is_named_and_all_else_stays(node: Node, patch: dict[str, dict[str, Any]]) -> None:
    named = dict.fromkeys(key for part in patch.values() for keys in part.values() for key in keys)
    assert cleanup.removal(node) == NodeCleanup(patch, tuple(named))


def test_a_tier_that_was_not_offered_belongs_to_somebody_else() -> None:
    node = _node(allocatable=OTHERS | MID | BATCH, annotations=ORIGIN)
    found = cleanup.removal(node, [names.Tier.MID])
    assert found == NodeCleanup({"status": {"allocatable": dict.fromkeys(MID)}}, tuple(MID))


@pytest.mark.parametrize(
    "node",
    [
        Node(),
        _node(capacity=OTHERS, allocatable=OTHERS),
        _node(annotations={names.ANNOTATION_COLOCATION_STRATEGY: "{}"}),
    ],
)
def test_a_node_that_holds_nothing_of_ours_is_left_alone(node: Node) -> None:
    assert cleanup.removal(node) is None


def test_what_pods_hold_stays_and_what_is_beyond_goes() -> None:
    holding = {Tier.MID: Resources(300, 1 << 20)}
    found = cleanup.removal(_node(capacity=MID, allocatable=MID | BATCH), holding=holding)
    assert found is not None
    lowered = {names.MID_CPU: "300"}
    assert found.patch == {"status": {"capacity": lowered, "allocatable": lowered | dict.fromkeys(BATCH)}}
    assert f"{names.MID_CPU} beyond the 300 that pods request" in found.removed
    kept = MID | {names.MID_CPU: "300"}
    assert cleanup.removal(_node(capacity=kept, allocatable=kept), holding=holding) is None
