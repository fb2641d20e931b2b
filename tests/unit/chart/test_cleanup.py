"""What is removed from a Node, and what is not."""

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


def test_mid_goes_from_capacity_and_allocatable_and_all_else_stays() -> None:
    found = cleanup.removal(_node(capacity=OTHERS | MID, allocatable=OTHERS | MID))
    nulls = {names.MID_CPU: None, names.MID_MEMORY: None}
    assert found == NodeCleanup(
        {"status": {"capacity": nulls, "allocatable": nulls}}, (names.MID_CPU, names.MID_MEMORY)
    )


def test_batch_goes_with_the_annotation_that_stands_beside_it() -> None:
    found = cleanup.removal(_node(allocatable=OTHERS | BATCH, annotations=ORIGIN | {"example.com/x": ""}))
    assert found == NodeCleanup(
        {"metadata": {"annotations": dict.fromkeys(ORIGIN)}, "status": {"allocatable": dict.fromkeys(BATCH)}},
        (*ORIGIN, *BATCH),
    )


def test_a_tier_that_was_not_offered_belongs_to_somebody_else() -> None:
    node = _node(allocatable=OTHERS | MID | BATCH, annotations=ORIGIN)
    found = cleanup.removal(node, [names.Tier.MID])
    assert found == NodeCleanup({"status": {"allocatable": dict.fromkeys(MID)}}, tuple(MID))


def test_what_is_left_in_one_place_alone_goes_from_there() -> None:
    found = cleanup.removal(_node(capacity=OTHERS, allocatable={names.MID_CPU: 0}))
    assert found == NodeCleanup({"status": {"allocatable": {names.MID_CPU: None}}}, (names.MID_CPU,))


def test_labels_and_annotations_of_the_products_domain_go_and_no_others() -> None:
    keep = {"notheadroom.io/x": "", "headroom.io": "", "headroom.io.example.com/x": "", names.LABEL_SIMULATED: "true"}
    found = cleanup.removal(_node(labels=keep | {"headroom.io/a": ""}, annotations=keep | {"node.headroom.io/b": ""}))
    expected = {"labels": {"headroom.io/a": None}, "annotations": {"node.headroom.io/b": None}}
    assert found == NodeCleanup({"metadata": expected}, ("headroom.io/a", "node.headroom.io/b"))


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
    assert f"{names.MID_CPU} beyond the 300 that pods hold" in found.removed
    kept = MID | {names.MID_CPU: "300"}
    assert cleanup.removal(_node(capacity=kept, allocatable=kept), holding=holding) is None
