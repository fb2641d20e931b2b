"""Each rule that keeps a request from being lowered, or raises it, decides by itself and says why."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.savings.recommending import (
    ContainerRecommendation,
    DecidingRule,
    LimitPolicy,
    RecommendationRules,
    Risk,
    recommend,
)
from deploy.savings.usage import ContainerKey, ContainerUse, KnownUsage, ResourceUse, Source
from deploy.savings.workloads import ContainerRole, ScalingRule, WorkloadContainer
from shared.quantity import Resources

MIB = 1 << 20
KEY = ContainerKey("shop", "Deployment", "web", "main")
CONTAINER = WorkloadContainer(
    key=KEY,
    role=ContainerRole.MAIN,
    replicas=3,
    cpu_request=2000,
    memory_request=2048 * MIB,
    cpu_limit=4000,
    memory_limit=4096 * MIB,
    requested=Resources(3 * 2000, 3 * 2048 * MIB),
)
CPU = ResourceUse(median=0.2, quantile=0.4, most=0.8, points=10_000, days=8.0)
MEMORY = ResourceUse(median=400.0 * MIB, quantile=450.0 * MIB, most=500.0 * MIB, points=10_000, days=8.0)
USE = ContainerUse(Source.PROMETHEUS, CPU, MEMORY)


def made(
    container: WorkloadContainer = CONTAINER, use: ContainerUse | None = USE, **rules: Any
) -> ContainerRecommendation:
    uses = {} if use is None else {KEY: use}
    (found,) = recommend([container], KnownUsage(uses), RecommendationRules(**rules))
    return found


def test_cpu_is_the_quantile_and_memory_the_peak_with_a_margin() -> None:
    found = made()
    assert (found.cpu.request, found.cpu.reason) == (460, DecidingRule.QUANTILE)
    assert (found.memory.request, found.memory.reason) == (575 * MIB, DecidingRule.PEAK)
    assert found.saved == (3 * (2000 - 460), 3 * (2048 - 575) * MIB)
    assert (found.risk, found.confidence) == (Risk.MEDIUM, "high"), "cpu falls below its largest sample"


HPA = ScalingRule("web", 2, 10, cpu_percent=70, memory_percent=None)
BY_MEMORY = ScalingRule("web", 2, 10, cpu_percent=None, memory_percent=80)


@pytest.mark.parametrize(
    ("container", "use", "resource", "rule"),
    [
        (replace(CONTAINER, scaling=HPA), USE, "cpu", DecidingRule.HPA),
        (replace(CONTAINER, scaling=BY_MEMORY), USE, "memory", DecidingRule.HPA),
        (replace(CONTAINER, is_java=True), USE, "memory", DecidingRule.JVM),
        (CONTAINER, replace(USE, throttled=0.2), "cpu", DecidingRule.THROTTLED),
        (CONTAINER, replace(USE, cpu=replace(CPU, days=0.5)), "cpu", DecidingRule.SHORT),
        (CONTAINER, replace(USE, memory=replace(MEMORY, days=0.5)), "memory", DecidingRule.SHORT),
        (replace(CONTAINER, killed=(300 * MIB,)), USE, "memory", DecidingRule.RESTARTS),
        (replace(CONTAINER, cpu_request=480), USE, "cpu", DecidingRule.SMALL_CHANGE),
        (replace(CONTAINER, memory_request=600 * MIB), USE, "memory", DecidingRule.SMALL_CHANGE),
        (CONTAINER, replace(USE, cpu=None), "cpu", DecidingRule.NO_DATA),
        (CONTAINER, replace(USE, memory=None), "memory", DecidingRule.NO_DATA),
    ],
)
def test_a_request_stays_with_the_reason(
    container: WorkloadContainer, use: ContainerUse, resource: str, rule: DecidingRule
) -> None:
    found = made(container, use)
    proposal = getattr(found, resource)
    assert proposal.reason is rule
    assert proposal.request == getattr(container, f"{resource}_request")
    assert proposal.detail
    other = found.memory if resource == "cpu" else found.cpu
    assert other.reason in (DecidingRule.PEAK, DecidingRule.QUANTILE), "the other resource is judged by itself"


@pytest.mark.parametrize(
    ("container", "use", "rule"),
    [
        (CONTAINER, None, DecidingRule.NO_DATA),
        (replace(CONTAINER, role=ContainerRole.INIT), USE, DecidingRule.INIT),
        (
            CONTAINER,
            replace(USE, cpu=replace(CPU, points=9), memory=replace(MEMORY, points=9)),
            DecidingRule.NO_DATA,
        ),
    ],
)
def test_a_container_that_is_known_too_badly_stays_as_it_is(
    container: WorkloadContainer, use: ContainerUse | None, rule: DecidingRule
) -> None:
    found = made(container, use)
    assert (found.cpu.reason, found.memory.reason) == (rule, rule)
    assert not found.changes
    assert (found.saved, found.risk) == ((0, 0), Risk.NONE)


def test_an_hpa_is_minded_unless_it_is_allowed_for() -> None:
    scaled = replace(CONTAINER, scaling=HPA)
    held = made(scaled).cpu
    assert "286m would fit the usual load" in held.detail  # 0.2 cores at 70 %
    assert held.wanted == 460
    assert made(scaled, minds_hpa=False).cpu.request == 460


def test_a_kill_raises_memory_above_what_was_seen() -> None:
    small = replace(CONTAINER, memory_request=512 * MIB, memory_limit=512 * MIB, killed=(600 * MIB,))
    found = made(small).memory
    assert (found.reason, found.request) == (DecidingRule.OOM, 720 * MIB)
    assert found.limit == 720 * MIB, "a limit below the request would be refused"
    java = made(replace(small, is_java=True)).memory
    assert java.reason is DecidingRule.OOM, "a heap that did not fit says so"


def test_floors_are_named() -> None:
    idle = replace(USE, cpu=replace(CPU, quantile=0.001), memory=replace(MEMORY, most=1.0 * MIB))
    found = made(use=idle)
    assert (found.cpu.reason, found.cpu.request) == (DecidingRule.FLOOR, 10)
    assert (found.memory.reason, found.memory.request) == (DecidingRule.FLOOR, 32 * MIB)


@pytest.mark.parametrize(
    ("policy", "cpu", "memory"),
    [
        (LimitPolicy.KEEP, 4000, 4096 * MIB),
        (LimitPolicy.RATIO, 920, 1150 * MIB),
        (LimitPolicy.REQUEST, None, 575 * MIB),
    ],
)
def test_limits_follow_their_policy(policy: LimitPolicy, cpu: int | None, memory: int) -> None:
    found = made(limits=policy)
    assert (found.cpu.limit, found.memory.limit) == (cpu, memory)


def test_a_container_without_requests_gets_some_and_costs_more() -> None:
    nothing = Resources()
    bare = replace(
        CONTAINER, cpu_request=None, memory_request=None, cpu_limit=None, memory_limit=None, requested=nothing
    )
    found = made(bare)
    assert (found.cpu.request, found.memory.request) == (460, 575 * MIB)
    assert (found.cpu.limit, found.memory.limit) == (None, None)
    assert found.saved == (-3 * 460, -3 * 575 * MIB)


@pytest.mark.parametrize(
    ("use", "risk", "confidence"),
    [
        (replace(USE, cpu=replace(CPU, quantile=0.8)), Risk.LOW, "high"),
        (
            replace(USE, cpu=replace(CPU, days=3.0), memory=replace(MEMORY, days=3.0)),
            Risk.MEDIUM,
            "weekly cycle not seen",
        ),
        (USE, Risk.MEDIUM, "high"),
    ],
)
def test_risk_and_confidence_follow_from_what_was_seen(use: ContainerUse, risk: Risk, confidence: str) -> None:
    found = made(use=use)
    assert (found.risk, found.confidence) == (risk, confidence)


@given(
    quantile=st.floats(0, 64),
    most=st.floats(0, 256 * 1024 * MIB),
    cpu=st.one_of(st.none(), st.integers(0, 64_000)),
    memory=st.one_of(st.none(), st.integers(0, 256 * 1024 * MIB)),
    policy=st.sampled_from(list(LimitPolicy)),
    killed=st.lists(st.integers(1, 64 * 1024 * MIB), max_size=2),
)
def test_a_request_never_exceeds_its_limit_and_memory_holds_its_peak(
    quantile: float, most: float, cpu: int | None, memory: int | None, policy: LimitPolicy, killed: list[int]
) -> None:
    container = replace(
        CONTAINER,
        cpu_request=cpu,
        memory_request=memory,
        cpu_limit=None if cpu is None else 2 * cpu,
        memory_limit=None if memory is None else 2 * memory,
        killed=tuple(killed),
    )
    use = replace(USE, cpu=replace(CPU, quantile=quantile), memory=replace(MEMORY, most=most))
    found = made(container, use, limits=policy)
    for proposal in (found.cpu, found.memory):
        assert proposal.limit is None or (proposal.request or 0) <= proposal.limit
    if found.memory.request is not None and found.memory.request != memory:
        assert found.memory.request >= most
