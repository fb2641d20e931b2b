"""A node's kind follows from what its pods request, and from whose they are."""

import pytest

from shared.node_kind import NodeKind, node_kind

WEB = "shop/ReplicaSet/web"


@pytest.mark.parametrize(
    ("pods", "kind"),
    [
        ([(1.0, WEB)] * 3 + [(1.0, "")] * 3, NodeKind.REPLICAS),
        ([(1.0, WEB)] * 3 + [(1.0, "")] * 20, NodeKind.MANY_SMALL),
        ([(8.0, WEB), (1.0, "")], NodeKind.FEW_LARGE),
        ([(1.0, None)] * 7, NodeKind.FEW_LARGE),
        ([(1.0, None)] * 8, NodeKind.MANY_SMALL),
        ([(1.0, "")] * 100 + [(60.0, "")], NodeKind.FEW_LARGE),
        ([(1.0, -1)] * 8, NodeKind.REPLICAS),
        ([(0.0, WEB)], None),
        ([], None),
    ],
)
def test_the_kind_of_a_node(pods: list[tuple[float, object]], kind: NodeKind | None) -> None:
    assert node_kind(pods) == kind
