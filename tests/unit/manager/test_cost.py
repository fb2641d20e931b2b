"""What the cluster costs: the whole, each group, what nobody uses, and what reclaiming saves."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cluster_state import cost
from manager.autoscaler.pricing.model import GIB, Machine, PricingModel, Unpriced
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts
from tests.unit.manager.rounds import UNITS, cluster_of, node

PRICES = FilePricing(units=UNITS)


def test_the_sum_is_that_of_all_nodes_by_group_and_of_no_group() -> None:
    found = cost.cluster_cost(cluster_of(3), {"n0": "a", "n1": "a"}, PRICES)
    assert (found.total, found.by_group, found.unpriced) == (48.0, {"": 16.0, "a": 32.0}, ())


def test_what_no_pod_requests_is_idle_weighted_by_what_cores_and_memory_cost() -> None:
    half_the_cores = PodInfo(requests={"cpu": 2000})
    assert cost.cluster_cost(cluster_of(1, half_the_cores), {}, PRICES).idle == pytest.approx(6 + 4)
    assert cost.cluster_cost(cluster_of(1), {}, PRICES).idle == pytest.approx(16)


def test_a_price_per_machine_is_idle_in_the_same_share() -> None:
    typed = replace(node("n"), labels={"node.kubernetes.io/instance-type": "m"})
    snapshot = cluster.snapshot_of_nodes([typed], [(0, PodInfo(requests={"cpu": 2000}))])
    assert cost.cluster_cost(snapshot, {}, FilePricing({"m": 1.0}, UNITS)).idle == pytest.approx(10 / 16)


def test_an_overcommitted_node_is_not_idle() -> None:
    too_much = PodInfo(requests={"cpu": 8000, "memory": 9 * GIB})
    assert cost.cluster_cost(cluster_of(1, too_much), {}, PRICES).idle == 0


def test_what_is_reclaimed_is_offered_or_used_and_never_idle_as_well() -> None:
    lending = node("n", {MID_CPU: 2000, BATCH_MEMORY: GIB})
    asking = PodInfo(requests={"cpu": 3000, "memory": 8 * GIB})
    mid = PodInfo(requests={MID_CPU: 500})
    found = cost.cluster_cost(cluster.snapshot_of_nodes([lending], [(0, asking), (0, mid), (0, mid)]), {}, PRICES)
    assert [found.idle, found.offered, found.used] == pytest.approx([3.0, 3.0 + 0.5, 3.0])


def test_what_both_mid_and_batch_offer_counts_once() -> None:
    lending = node("n", {MID_CPU: 1000, BATCH_CPU: 2000})
    snapshot = cluster.snapshot_of_nodes([lending], [(0, PodInfo(requests={"cpu": 4000, "memory": 8 * GIB}))])
    assert cost.cluster_cost(snapshot, {}, PRICES).offered == pytest.approx(6.0)


def test_what_batch_offers_of_an_empty_node_is_idle_until_a_pod_holds_it() -> None:
    lending = node("n", {BATCH_CPU: 4000, BATCH_MEMORY: 8 * GIB})
    found = cost.cluster_cost(cluster.snapshot_of_nodes([lending]), {}, PRICES)
    assert (found.idle, found.offered, found.used) == (16.0, 0.0, 0.0)
    found = cost.cluster_cost(
        cluster.snapshot_of_nodes([lending], [(0, PodInfo(requests={BATCH_CPU: 1000}))]), {}, PRICES
    )
    assert [found.idle, found.offered, found.used] == pytest.approx([13.0, 0.0, 3.0])


def test_a_machine_that_is_cheaper_than_its_parts_lends_at_its_own_price() -> None:
    lending = replace(node("n", {MID_CPU: 4000}), labels={"node.kubernetes.io/instance-type": "m"})
    snapshot = cluster.snapshot_of_nodes([lending], [(0, PodInfo(requests={"cpu": 4000, "memory": 8 * GIB}))])
    assert cost.cluster_cost(snapshot, {}, FilePricing({"m": 1.0}, UNITS)).offered == pytest.approx(12 / 16)


def test_what_is_still_to_come_costs_nothing_yet() -> None:
    nodes = [node("n"), node("new", {MID_CPU: 1000}, NodeState.UPCOMING)]
    found = cost.cluster_cost(cluster.snapshot_of_nodes(nodes, [(1, PodInfo(requests={MID_CPU: 1000}))]), {}, PRICES)
    assert (found.total, found.offered, found.used, found.unpriced) == (16.0, 0.0, 0.0, ())


class OnlyFirst:
    """Knows one machine, and no pod."""

    def node_price(self, machine: Machine) -> float:
        if machine.labels:
            raise Unpriced("unknown")
        return 1.0

    def pod_price(self, requests: Amounts) -> float:
        raise Unpriced("unknown")


def test_a_node_without_a_price_is_named_and_in_none_of_the_sums() -> None:
    other = replace(node("other", {MID_CPU: 1000}), labels={"a": "b"})
    snapshot = cluster.snapshot_of_nodes([node("n"), other], [(0, PodInfo(requests={"cpu": 2000}))])
    found = cost.cluster_cost(snapshot, {}, OnlyFirst())
    assert (found.total, found.by_group, found.offered, found.unpriced) == (1.0, {"": 1.0}, 0.0, ("other",))
    assert found.idle == pytest.approx(0.75), "cores and memory count alike where neither has a price"


def test_without_prices_nothing_has_one() -> None:
    assert cost.cluster_cost(cluster_of(2), {}, None) == cost.Cost(unpriced=("n0", "n1"))
    assert cost.cluster_cost(cluster_of(0), {}, PRICES) == cost.Cost()


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("cpu", MID_CPU, BATCH_CPU), st.integers(0, 9000)),
        **dict.fromkeys(("memory", MID_MEMORY, BATCH_MEMORY), st.integers(0, 20 * GIB)),
    },
)


@given(AMOUNTS, st.lists(AMOUNTS, max_size=4), st.sampled_from([PRICES, OnlyFirst()]))
def test_idle_offered_and_used_together_are_never_more_than_the_whole(
    offer: Amounts, pods: list[Amounts], prices: PricingModel
) -> None:
    snapshot = cluster.snapshot_of_nodes(
        [node("n0", offer), node("n1")], [(0, PodInfo(requests=each)) for each in pods]
    )
    found = cost.cluster_cost(snapshot, {"n0": "a"}, prices)
    assert min(found.idle, found.offered, found.used) >= 0
    assert found.idle + found.offered + found.used <= found.total + 1e-9
    assert math.isclose(sum(found.by_group.values()), found.total)


def _by_namespace(of: cost.Cost) -> dict[str | None, cost.RequestedCost]:
    return of.divided(lambda kind: kind.namespace)


def test_pods_of_one_namespace_are_divided_by_their_labels() -> None:
    pods = [
        (0, PodInfo("shop", labels={"team": "web"}, requests={"cpu": 2000})),
        (0, PodInfo("shop", labels={"team": "web"}, requests={"cpu": 1000})),
        (0, PodInfo("shop", labels={"team": "data"}, requests={MID_CPU: 1000})),
        (0, PodInfo("lab", requests={"cpu": 500})),
    ]
    found = cost.cluster_cost(cluster.snapshot_of_nodes([node("n0")], pods), {}, PRICES)
    by_team = found.divided(lambda kind: kind.labels.get("team"))
    core = by_team["web"].requested / 3
    assert by_team[None].requested == pytest.approx(core / 2)
    assert (by_team["data"].requested, by_team["data"].used) == pytest.approx((0.0, core))


def test_a_namespace_costs_what_its_pods_request_at_the_prices_of_their_nodes() -> None:
    dear = replace(node("dear"), labels={"node.kubernetes.io/instance-type": "m"})
    pods = [
        (0, PodInfo("shop", requests={"cpu": 2000, "memory": 2 * GIB})),
        (0, PodInfo("shop", requests={"cpu": 1000})),
        (1, PodInfo("shop", requests={"cpu": 1000})),
        (1, PodInfo("data", requests={MID_CPU: 1000, BATCH_MEMORY: GIB})),
        (2, PodInfo("data", requests={"cpu": 1000})),
    ]
    unpriced = replace(node("far"), state=NodeState.UPCOMING)
    snapshot = cluster.snapshot_of_nodes([node("n0"), dear, unpriced], pods)
    found = _by_namespace(cost.cluster_cost(snapshot, {}, FilePricing({"m": 32.0}, UNITS)))
    assert found.keys() == {"shop", "data"}
    assert (found["shop"].requested, found["shop"].used) == pytest.approx((6 + 1 + 3 + 2 * 3, 0.0))
    assert (found["data"].requested, found["data"].used) == pytest.approx((0.0, 2 * 3 + 2 * 0.5))


def test_without_prices_no_namespace_has_a_cost() -> None:
    assert cost.cluster_cost(cluster_of(1, PodInfo("shop", requests={"cpu": 1})), {}, None).by_kind == ()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 500), st.integers(0, GIB)), max_size=9)
)
def test_namespaces_and_what_no_pod_requests_are_the_whole(pods: list[tuple[int, str, int, int]]) -> None:
    """No node is overcommitted, and none lends."""
    placed = [(row, PodInfo(name, requests={"cpu": cpu, "memory": size // 2})) for row, name, cpu, size in pods]
    found = cost.cluster_cost(cluster.snapshot_of_nodes([node(f"n{row}") for row in range(3)], placed), {}, PRICES)
    total = sum(each.cost.requested for each in found.by_kind)
    assert total + found.idle == pytest.approx(found.total)
