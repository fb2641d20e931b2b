"""The pods of one namespace hold no more of Mid and Batch than the namespace says."""

import msgspec
import pytest

from manager.nodeside.assumed import ASSUMED_SECONDS, AssumedPods
from manager.nodeside.tenants import Holders, NamespaceTenants, read_bounds
from manager.pods import PodRecord
from shared import names
from shared.api.core import Namespace
from shared.api.meta import ObjectMeta
from shared.clock import ManualClock
from tests.unit.manager.shortfalls import GIB, mid_pod

CPU, MEMORY = "headroom.io/max-mid-cpu", "headroom.io/max-mid-memory"


def tenants_of(holders: Holders, annotations: dict[str, str], assumed: AssumedPods | None = None) -> NamespaceTenants:
    """Of which the namespace `default` says what a test says."""
    said = Namespace(ObjectMeta(name="default", annotations=annotations))
    return NamespaceTenants({"default": said}.get, holders.pods_of, assumed or AssumedPods(ManualClock(0)))


def unbound(name: str, cpu_milli: int) -> PodRecord:
    return msgspec.structs.replace(mid_pod(name, cpu_milli, 0), node="")


@pytest.fixture
def holders() -> Holders:
    found = Holders()
    for pod in (mid_pod("a", 600, GIB), unbound("waits", 300), mid_pod("ended", 5000, GIB, phase="Succeeded")):
        found.replace(None, pod)
    return found


def test_annotations_name_the_bounds_and_one_that_means_nothing_says_so() -> None:
    annotations = {CPU: "1500m", MEMORY: "2Gi", "headroom.io/max-batch-cpu": "lots", "other": "1"}
    found = read_bounds(Namespace(ObjectMeta(name="n", annotations=annotations)))
    assert (found[CPU], found[MEMORY]) == (1500, 2 * GIB)
    assert "'lots' is not a quantity" in str(found["headroom.io/max-batch-cpu"])
    assert len(found) == 3
    assert "negative" in str(read_bounds(Namespace(ObjectMeta(annotations={CPU: "-1"})))[CPU])
    assert read_bounds(Namespace()) == {}
    assert {annotation for of in names.ANNOTATION_BOUNDS.values() for annotation in of} >= {CPU, MEMORY}


def test_a_pod_beyond_the_bound_is_denied_by_all_that_are_there(holders: Holders) -> None:
    tenants = tenants_of(holders, {CPU: "1"})
    assert tenants.why_denied("default", mid_pod("b", 100)) is None
    assert tenants.why_denied("default", mid_pod("b", 101)) == (
        "namespace default may request 1 of Mid cpu at most (annotation headroom.io/max-mid-cpu): "
        "its pods request 900m, this one requests 101m"
    )
    assert tenants.why_denied("other", mid_pod("b", 5000)) is None
    assert tenants_of(holders, {}).why_denied("default", mid_pod("b", 5000)) is None
    batch_only = tenants_of(holders, {"headroom.io/max-batch-cpu": "0"})
    assert batch_only.why_denied("default", mid_pod("b", 5000)) is None


def test_memory_has_a_bound_of_its_own_and_what_means_nothing_lets_no_pod_in(holders: Holders) -> None:
    tenants = tenants_of(holders, {MEMORY: "1536Mi"})
    why = tenants.why_denied("default", mid_pod("b", 1, GIB))
    assert why is not None
    assert "may request 1.50 GiB of Mid memory at most" in why
    assert tenants.why_denied("default", mid_pod("b", 5000, 0)) is None
    broken = tenants_of(holders, {CPU: "lots"}).why_denied("default", mid_pod("b", 1))
    assert broken is not None
    assert broken.startswith(f"namespace default takes no pods of Mid: annotation {CPU}: 'lots' is not a quantity")


def test_the_extender_counts_bound_pods_and_those_that_it_has_accepted_a_moment_ago(holders: Holders) -> None:
    clock = ManualClock(0)
    assumed = AssumedPods(clock)
    tenants = tenants_of(holders, {CPU: "1"}, assumed)
    accepted = unbound("b", 400)
    assert tenants.why_refused(accepted) is None  # the pod "waits" does not count
    assumed.assume(accepted, ["n1"])
    assert tenants.why_refused(accepted) is None  # the pod itself does not count either
    why = tenants.why_refused(mid_pod("c", 1))
    assert why is not None
    assert "its pods request 1, this one requests 1m" in why
    clock.advance(ASSUMED_SECONDS)
    assert tenants.why_refused(mid_pod("c", 1)) is None
    holders.replace(None, mid_pod("b", 400))
    assert tenants.why_refused(mid_pod("d", 1)) is not None
    holders.replace(mid_pod("b", 400), None)
    assert tenants.why_refused(mid_pod("d", 1)) is None


def test_a_pod_that_is_gone_or_changes_counts_as_it_is_now() -> None:
    found, pod = Holders(), mid_pod("a", 600)
    found.replace(None, pod)
    found.replace(pod, mid_pod("a", 600, phase="Failed"))
    assert [each.active for each in found.pods_of("default")] == [False]
    found.replace(mid_pod("a", 600, phase="Failed"), None)
    assert found.pods_of("default") == ()
