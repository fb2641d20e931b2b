"""Nodes with pods for the tests of Batch, short to write: amounts are (milli-cores, bytes)."""

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from manager.nodeside.noderesource.report import ReportedUsage
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import NodeRequests, PodRecord
from shared.api.colocation import ColocationStrategy
from shared.names import PriorityClass, QoS
from shared.quantity import Resources
from tests.unit.manager.objects import node_report

GIGA = 10**9
UPDATED = "2024-01-01T00:00:00Z"


def record(
    name: str,
    requests: tuple[int, int] = (0, 0),
    priority_class: PriorityClass = PriorityClass.PROD,
    *,
    qos: QoS = QoS.LS,
    active: bool = True,
) -> PodRecord:
    return PodRecord(
        key=f"default/{name}",
        uid=f"uid-{name}",
        node="n1",
        active=active,
        priority_class=priority_class,
        qos=qos,
        priority=0,
        requests=Resources(*requests),
    )


def seen(
    capacity: tuple[int, int] = (100_000, 120 * GIGA),
    *,
    used: Mapping[str, tuple[int, int] | tuple[int, int, str]] | None = None,
    system: tuple[int, int] = (0, 0),
    reserved: tuple[int, int] = (0, 0),
    host_applications: Iterable[tuple[int, int, str]] = (),
) -> NodeSituation:
    """What a node with these usages, by name, looks like; one that names no class was reported in none."""
    report = node_report(
        update_time=0.0,
        updated=UPDATED,
        system_usage=Resources(*system),
        pods={f"default/{name}": _usage(amount) for name, amount in (used or {}).items()},
        host_applications=tuple(map(_usage, host_applications)),
    )
    amount = Resources(*capacity)
    return NodeSituation("n1", amount, amount, Resources(*reserved), requested=NodeRequests(), report=report)


def _usage(amount: tuple[int, int] | tuple[int, int, str]) -> ReportedUsage:
    return ReportedUsage(amount[2] if len(amount) == 3 else "", *amount[:2])


PAIRS = st.tuples(st.integers(0, 200_000), st.integers(0, 1 << 40))
_NAMES = st.sampled_from(["a", "b", "c", "d"])
PODS = st.lists(
    st.builds(
        record,
        _NAMES,
        PAIRS,
        st.sampled_from([PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE]),
        qos=st.sampled_from([QoS.LSE, QoS.LS, QoS.BE]),
        active=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda pod: pod.key,
)
SITUATIONS = st.builds(
    seen,
    PAIRS,
    used=st.dictionaries(_NAMES, st.tuples(st.integers(0, 200_000), st.integers(0, 1 << 40)), max_size=4),
    system=PAIRS,
    reserved=PAIRS,
)
STRATEGIES = st.builds(
    ColocationStrategy,
    cpu_calculate_policy=st.sampled_from(["usage", "request", "maxUsageRequest", "other"]),
    memory_calculate_policy=st.sampled_from(["usage", "request", "maxUsageRequest", "other"]),
    cpu_reclaim_threshold_percent=st.integers(0, 200),
    memory_reclaim_threshold_percent=st.integers(0, 200),
    batch_cpu_threshold_percent=st.none() | st.integers(0, 150),
    batch_memory_threshold_percent=st.none() | st.integers(0, 150),
)
