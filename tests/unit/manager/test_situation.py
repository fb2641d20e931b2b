"""What a node, its NodeMetric and its pods say, in integers."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager import pods
from manager.nodeside.noderesource import report, situation
from manager.pods import NodeRequests, PodLedger, PodRecord
from shared import names
from shared.errors import InvalidInput
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, metric, node, pod


@pytest.mark.parametrize(
    ("reservation", "expected"),
    [
        ({"resources": {"cpu": "4", "memory": "3Gi"}}, Resources(4000, 3 * GIB)),
        ({"resources": {"cpu": "4"}, "reservedCPUs": "0-5,8"}, Resources(7000, 0)),
        ({"reservedCPUs": "5-0"}, Resources()),
        ({"reservedCPUs": "0-99999999999"}, Resources()),
        ({"resources": {"cpu": "four"}}, Resources()),
        ("nonsense", Resources()),
    ],
)
def test_a_reservation_annotation_counts_where_it_means_something(reservation: object, expected: Resources) -> None:
    annotations = {names.ANNOTATION_NODE_RESERVATION: json.dumps(reservation)}
    assert situation.facts(node(annotations=annotations)).reserved == expected


def test_half_a_usage_is_no_usage() -> None:
    assert report.read(metric(usage={"cpu": "1"})).usage is None
    assert report.read(metric(usage={"cpu": "1", "memory": "1Gi"})).usage == Resources(1000, GIB)


@pytest.mark.parametrize(
    ("priority", "prod"), [(None, 1000), (9500, 1000), (7500, 0), (5500, 0), (3500, 0), (100, 1000)]
)
def test_only_pods_above_mid_take_room_from_it(priority: int | None, prod: int) -> None:
    held = pods.requested_by(pods.record(pod(priority=priority)))
    assert (held.total.cpu_milli, held.prod.cpu_milli) == (1000, prod)


CHANGES: st.SearchStrategy[list[tuple[str, dict[str, str] | None]]] = st.lists(
    st.tuples(
        st.sampled_from(["p1", "p2", "p3"]),
        st.none()
        | st.builds(
            dict,
            on=st.sampled_from(["", "n1", "n2"]),
            cpu=st.sampled_from(["1", "250m", "bad"]),
            priority=st.sampled_from([None, 7500]),
            phase=st.sampled_from(["Pending", "Running", "Failed"]),
        ),
    ),
    max_size=30,
)


@given(CHANGES)
def test_the_running_sums_are_the_sums_over_the_pods_there_are(
    changes: list[tuple[str, dict[str, Any] | None]],
) -> None:
    ledger, alive = PodLedger(), dict[str, PodRecord]()
    for name, fields in changes:
        new = None if fields is None else pods.record(pod(name, **fields))
        moved = ledger.replace(alive.get(name), new)
        assert moved <= {"n1", "n2"}
        if new is None:
            alive.pop(name, None)
        else:
            alive[name] = new
    for name in ("n1", "n2"):
        there = [each for each in alive.values() if each.node == name]
        expected = NodeRequests()
        for each in there:
            expected = expected.plus(pods.requested_by(each))
        assert ledger.requested(name) == expected
        assert set(ledger.pods_on(name)) == set(there)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"reservedCPUs": "0-3, 8"}',
        '{"reservedCPUs": "1_0"}',
        '{"reservedCPUs": "0-"}',
        '{"resources": {"cpu": "four"}}',
    ],
)
def test_a_reservation_that_means_nothing_reserves_nothing_and_is_named(text: str) -> None:
    one = node(cpu="4", memory="4Gi", annotations={names.ANNOTATION_NODE_RESERVATION: text})
    assert situation.facts(one).reserved == Resources()
    (problem,) = situation.problems(one)
    assert (problem.source, problem.field) == ("Node n1 annotation", names.ANNOTATION_NODE_RESERVATION)
    assert situation.problems(node()) == ()


@pytest.mark.parametrize("part", ["capacity", "allocatable"])
@pytest.mark.parametrize(
    ("cpu", "memory", "problem"),
    [
        ("-4", "8Gi", "must not be negative"),
        ("4", "-8Gi", "must not be negative"),
        ("-9223372036854775808", "8Gi", "must not be negative"),
        ("9E", "8Gi", "less than 2^63"),
        ("4", "99E", "less than 2^63"),
        ("lots", "8Gi", "is not a quantity"),
    ],
)
def test_an_amount_that_no_node_can_have_is_refused_with_its_field(
    part: str, cpu: str, memory: str, problem: str
) -> None:
    sound = node()
    odd = msgspec.structs.replace(sound.status, **{part: {"cpu": cpu, "memory": memory}})
    with pytest.raises(InvalidInput) as refused:
        situation.facts(msgspec.structs.replace(sound, status=odd))
    assert (refused.value.source, refused.value.field) == ("Node n1", f"status.{part}")
    assert problem in refused.value.problem


def test_a_pod_that_requests_less_than_nothing_requests_nothing() -> None:
    assert pods.record(pod(cpu="-5")).requests == Resources()
