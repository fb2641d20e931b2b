"""What pods hold becomes values that every kernel takes."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.enforcer import holding, orders, table
from agent.enforcer.orders import Orders
from agent.metric_cache.series import Usage
from agent.states_informer.pods import NodePod, describe
from shared.api.core import Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.api.nodemetric_spec import ResourceThresholds
from shared.names import Tier

MIB = 1 << 20


def container(name: str = "c", *, sidecar: bool = False, tier: str = "mid", **amounts: Any) -> Container:
    """`cpu` and `memory` are requests of the tier, `max_cpu` and `max_memory` limits, `native_*` native limits."""
    asked = {f"kubernetes.io/{tier}-{key}": value for key, value in amounts.items() if key in ("cpu", "memory")}
    limits = {f"kubernetes.io/{tier}-{key[4:]}": value for key, value in amounts.items() if key.startswith("max_")}
    limits |= {key[7:]: value for key, value in amounts.items() if key.startswith("native_")}
    resources = ResourceRequirements(requests=asked, limits=limits)
    return Container(name=name, resources=resources, restart_policy="Always" if sidecar else None)


def pod(containers: Iterable[Container], init: Iterable[Container] = (), *, phase: str = "Running") -> NodePod:
    mains, inits = tuple(containers), tuple(init)
    return describe(
        Pod(
            metadata=ObjectMeta(name="p", namespace="d", uid="uid-p"),
            spec=PodSpec(containers=mains, init_containers=inits),
            status=PodStatus(
                phase=phase,
                container_statuses=tuple(ContainerStatus(one.name, f"cri-o://{one.name}") for one in mains),
            ),
        )
    )


def test_a_pod_is_told_by_what_it_requests_of_its_tier_and_its_limits_of_that() -> None:
    found = holding.pod_orders([pod([container(cpu="500", memory="64Mi", max_cpu="1000", max_memory="64Mi")])])
    (order,) = found
    assert (order.key, order.tier, order.qos.value) == ("d/p", Tier.MID, "BestEffort")
    assert (order.cpu_milli, order.limit_milli, order.limit_bytes) == (500, 1000, 64 * MIB)
    (inner,) = order.containers
    assert (inner.id, inner.cpu_milli, inner.limit_milli, inner.limit_bytes) == ("cri-o://c", 500, 1000, 64 * MIB)
    orders.check(Orders(version=orders.VERSION, at=0.0, pods=found))


def test_a_container_without_a_limit_leaves_its_pod_without_and_native_limits_are_the_kubelets() -> None:
    limited, free = container("a", cpu="500", max_cpu="500"), container("b", cpu="500")
    (order,) = holding.pod_orders([pod([limited, free])])
    assert (order.limit_milli, [each.limit_milli for each in order.containers]) == (None, [500, None])
    (order,) = holding.pod_orders([pod([limited], [container("i")])])
    assert order.limit_milli is None
    both = container(cpu="500", max_cpu="500", max_memory="1Gi", native_cpu="1", native_memory="1Gi")
    (order,) = holding.pod_orders([pod([both])])
    assert (order.limit_milli, order.limit_bytes) == (None, None)


def test_init_containers_run_before_and_sidecars_beside_the_others() -> None:
    main, sidecar = container("m", cpu="500", max_cpu="500"), container("s", sidecar=True, max_cpu="300")
    for init, expected in (("200", 800), ("900", 1200)):
        (order,) = holding.pod_orders([pod([main], [sidecar, container("i", max_cpu=init)])])
        assert order.limit_milli == expected


def test_pods_that_have_ended_or_hold_nothing_are_not_told() -> None:
    assert holding.pod_orders([pod([container(cpu="500")], phase="Succeeded"), pod([container()])]) == ()


def test_what_is_left_to_best_effort_pods_is_koordinators() -> None:
    thresholds = ResourceThresholds(enable=True)
    pods = [pod([container(cpu="500")])]

    def left(system: float = 0.5, reserved: int = 0, least: int = 0) -> int:
        limits = ResourceThresholds(enable=True, cpu_suppress_min_percent=least) if least else thresholds
        usages = {"uid-p": Usage(9.0, 0.0)}  # of a best-effort pod, which is not held against itself
        return holding.best_effort_milli(10_000, reserved, pods, usages, system, limits)

    assert left() == 6000
    assert left(reserved=1000) == 5500
    assert left(2.0) == 4500
    assert left(8.0) == 0
    assert left(8.0, least=20) == 2000


@pytest.mark.parametrize(
    ("milli", "shares", "weight"), [(0, 2, 1), (200, 204, 8), (1000, 1024, 39), (1 << 24, 262144, 10000)]
)
def test_shares_and_weights_are_kubernetes(milli: int, shares: int, weight: int) -> None:
    assert table.shares(milli) == shares
    assert table.weight(shares) == weight


@given(st.integers(0, orders.MOST_MILLI), st.integers(0, orders.MOST_MILLI))
def test_every_weight_and_quota_is_one_that_the_kernel_takes_and_more_is_never_less(one: int, other: int) -> None:
    less, more = sorted((one, other))
    assert 2 <= table.shares(less) <= table.shares(more) <= 262_144
    assert 1 <= table.weight(table.shares(less)) <= table.weight(table.shares(more)) <= 10_000
    assert 1_000 <= table.quota_usec(less) <= table.quota_usec(more)
    assert table.quota_usec(-1) == -1


@given(st.integers(-1, 200), st.integers(0, 100), st.integers(100, 64_000))
def test_a_step_never_goes_below_the_least_nor_beyond_what_is_left_and_ends_there(
    current_percent: int, wanted_percent: int, capacity: int
) -> None:
    whole = capacity * table.PERIOD_USEC // 1000
    wanted, quota = capacity * wanted_percent // 100, current_percent * whole // 100
    target = max(table.LEAST_SUPPRESS_USEC, wanted * table.PERIOD_USEC // 1000)
    for _ in range(25):
        following = table.next_quota(quota, wanted, capacity, table.PERIOD_USEC)
        if following is None:
            break
        assert following >= table.LEAST_SUPPRESS_USEC
        if quota >= 0:
            assert min(quota, target) <= following <= max(quota, target)
            assert following - quota <= max(whole // 10, table.LEAST_SUPPRESS_USEC)
        quota = following
    assert abs(quota - target) * 100 < whole
