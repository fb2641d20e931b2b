"""Zones as a NodeResourceTopology lists them, and the one patch that brings Batch to them."""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import explain, report, topology
from manager.nodeside.noderesource.explain import Known
from manager.nodeside.noderesource.topology import Topology, ZoneWrite
from shared import names
from shared.api.topology import NodeResourceTopology
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, enabled, metric, node

Json = dict[str, Any]

NATIVE = (("cpu", "2"), ("memory", "4Gi"))
BATCH = {0: Resources(1_000, GIB), 1: Resources(500, 2 * GIB)}


def entry(name: str, amount: str) -> Json:
    return {"name": name, "capacity": amount, "allocatable": amount, "available": amount}


def wire(*zones: tuple[str, tuple[tuple[str, str], ...]]) -> Json:
    """Zones by name with their resources."""
    listed = [
        {"name": name, "type": "Node", "resources": [entry(*each) for each in resources]} for name, resources in zones
    ]
    return {"metadata": {"name": "n1", "resourceVersion": "7"}, "zones": listed}


def read(document: Json) -> Topology:
    return topology.read(msgspec.convert(document, NodeResourceTopology))


def with_batch(cpu: str, memory: str) -> tuple[tuple[str, str], ...]:
    return (NATIVE[0], (names.BATCH_CPU, cpu), (names.BATCH_MEMORY, memory), NATIVE[1])


TWO = wire(("node-0", NATIVE), ("node-1", NATIVE))
WRITTEN = wire(("node-0", with_batch("1000", str(GIB))), ("node-1", with_batch("500", str(2 * GIB))))


def patched(document: Json, write: ZoneWrite) -> Json:
    """What the API server makes of the document."""
    changed = copy.deepcopy(document)
    version, *others = write.patch
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    for operation in others:
        assert operation["op"] == "add"
        _, zones, place, resources = operation["path"].split("/")
        assert (zones, resources) == ("zones", "resources")
        changed["zones"][int(place)]["resources"] = list(operation["value"])
    return changed


def planned(
    document: Json, batch: Mapping[int, Resources] | None, *, threshold: float = 0.1, overdue: bool = False
) -> Json | None:
    write = topology.plan(read(document), batch, threshold=threshold, overdue=overdue)
    return None if write is None else patched(document, write)


def test_capacities_are_what_is_allocatable_by_numa_node() -> None:
    zones = wire(("node-1", (("cpu", "2"),)), ("node-0", (*NATIVE, ("example.com/gpu", "many"))))
    assert read(zones).capacities == {1: Resources(2_000, 0), 0: Resources(2_000, 4 * GIB)}


@pytest.mark.parametrize(
    ("zone_names", "expected"),
    [
        (("node-10", "node-2"), [10, 2]),
        (("left", "right"), [0, 1]),
        (("node-0", "socket-1"), [0, 1]),
        (("node-3", "node-3"), [0, 1]),
    ],
)
def test_a_zones_numa_node_is_in_its_name_or_is_its_place(zone_names: tuple[str, ...], expected: list[int]) -> None:
    assert list(read(wire(*((name, NATIVE) for name in zone_names))).capacities) == expected


@pytest.mark.parametrize(
    "document", [{"metadata": {}}, {"metadata": {}, "zones": []}, wire(("node-0", (("example.com/gpu", "2"),)))]
)
def test_zones_without_cpu_and_memory_are_none_to_share_out(document: Json) -> None:
    found = read(document)
    assert found.capacities == {}
    assert found.problem is None


@pytest.mark.parametrize("amount", ["lots", "-1", "9" * 5_000])
def test_zones_that_mean_nothing_are_named_and_get_no_batch(amount: str) -> None:
    found = read(wire(("node-0", NATIVE), ("node-1", (("cpu", amount),))))
    assert found.capacities == {}
    assert found.problem is not None
    assert (found.problem.source, found.problem.field) == ("NodeResourceTopology n1", "zones[node-1].resources")


def test_batch_is_entered_in_order_and_everything_else_stays() -> None:
    assert planned(TWO, BATCH) == WRITTEN


@pytest.mark.parametrize(
    ("batch", "overdue", "is_written"),
    [
        (BATCH, True, False),
        ({**BATCH, 0: Resources(1_100, GIB)}, False, False),
        ({**BATCH, 0: Resources(1_101, GIB)}, False, True),
        ({**BATCH, 0: Resources(899, GIB)}, False, True),
        ({**BATCH, 0: Resources(1_001, GIB)}, False, False),
        ({**BATCH, 0: Resources(1_001, GIB)}, True, True),
        ({**BATCH, 1: Resources(0, 2 * GIB)}, False, True),
    ],
)
def test_zones_are_written_when_they_differ_by_enough_or_for_long(
    batch: dict[int, Resources], overdue: bool, is_written: bool
) -> None:
    assert (planned(WRITTEN, batch, overdue=overdue) is not None) is is_written


def test_a_part_of_an_entry_that_another_one_changed_is_a_difference() -> None:
    tampered = copy.deepcopy(WRITTEN)
    tampered["zones"][0]["resources"][1]["available"] = "7"
    assert planned(tampered, BATCH) == WRITTEN


def test_a_zone_without_a_result_has_none_where_it_had_any() -> None:
    assert planned(WRITTEN, {0: BATCH[0]}) == wire(
        ("node-0", with_batch("1000", str(GIB))), ("node-1", with_batch("0", "0"))
    )
    assert planned(wire(("node-0", NATIVE)), {}) is None


def test_without_batch_its_entries_go() -> None:
    assert planned(WRITTEN, None) == TWO
    assert planned(TWO, None, overdue=True) is None


AMOUNTS = st.builds(Resources, st.integers(0, 10**6), st.integers(0, 1 << 44))
ZONES = st.dictionaries(st.integers(0, 2), AMOUNTS)


@given(ZONES, st.none() | ZONES, st.booleans())
def test_what_was_written_is_not_written_again(
    before: dict[int, Resources], after: dict[int, Resources] | None, overdue: bool
) -> None:
    document = wire(("node-0", NATIVE), ("node-1", NATIVE), ("node-2", ()))
    for batch in (before, after):
        document = planned(document, batch, overdue=overdue) or document
        assert planned(document, batch, overdue=overdue) is None


@pytest.mark.parametrize(
    ("tiers", "age_seconds", "expected"),
    [
        ((Tier.MID, Tier.BATCH), 0, wire(*((zone, with_batch("1200", str(GIB))) for zone in ("node-0", "node-1")))),
        ((Tier.MID,), 0, None),
        ((Tier.BATCH,), 3600, TWO),
    ],
)
def test_zones_follow_the_decision_of_their_node(
    tiers: tuple[Tier, ...], age_seconds: int, expected: Json | None
) -> None:
    """Half the cpu and a quarter of the memory of an idle node, in normalised cores."""
    one = node(cpu="4", memory="8Gi", annotations={names.ANNOTATION_CPU_NORMALIZATION_RATIO: "1.20"})
    strategy = enabled(batch_cpu_threshold_percent=50, batch_memory_threshold_percent=25)
    said = report.read(metric(age_seconds=age_seconds, usage={"cpu": "2", "memory": "4Gi"}))
    decision = explain.decide(one, said, Known(), strategy, NOW, tiers=tiers)
    zones = WRITTEN if age_seconds else TWO
    write = topology.due(read(zones), one, (), decision, strategy.strategy, overdue=False)
    assert (None if write is None else patched(zones, write)) == expected
