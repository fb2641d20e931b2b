"""What a node, its NodeMetric and its pods say, in integers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.noderesource import situation
from manager.noderesource.requests import RequestSums
from manager.noderesource.situation import Requested
from shared import names
from shared.api.core import Pod
from shared.kube.informer import Change, Kind
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
    assert situation.observe(node(annotations=annotations), None, Requested()).reserved == expected


def test_half_a_usage_is_no_usage() -> None:
    assert situation.observe(node(), metric(usage={"cpu": "1"}), Requested()).usage is None
    seen = situation.observe(node(), metric(usage={"cpu": "1", "memory": "1Gi"}), Requested())
    assert seen.usage == Resources(1000, GIB)


@pytest.mark.parametrize(
    ("priority", "prod"), [(None, 1000), (9500, 1000), (7500, 0), (5500, 0), (3500, 0), (100, 1000)]
)
def test_only_pods_above_mid_take_room_from_it(priority: int | None, prod: int) -> None:
    held = situation.requested_by(pod(priority=priority))
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
    sums, alive = RequestSums(), dict[str, Pod]()
    for name, fields in changes:
        new = None if fields is None else pod(name, **fields)
        moved = sums.apply(Change(Kind.MODIFIED, f"default/{name}", alive.get(name), new))
        assert moved <= {"n1", "n2"}
        if new is None:
            alive.pop(name, None)
        else:
            alive[name] = new
    for name in ("n1", "n2"):
        holding = [p for p in alive.values() if p.spec.node_name == name and "bad" not in str(p)]
        assert sums.of(name) == situation.requested_by_all(holding)
        sums.forget(name)
        assert sums.of(name) == situation.requested_by_all(holding)
