"""Namespaces with quotas and limit ranges, and what can be done to a pod later: as the API server decides it."""

import itertools
import json
from typing import Any

import pytest

from shared import names
from shared.kube.client import Patch
from shared.kube.errors import ApiError, Forbidden, Invalid
from shared.kube.resources import PODS, Resource
from tests.integration.manager.admission import MID, MID_LABELS, NATIVE, NOTHING, Replica, Site, asked_by
from tests.support import eventually

pytestmark = pytest.mark.real_only("the embedded API server has no quotas, limit ranges or resizing")

LIMIT_RANGES = Resource("", "v1", "limitranges", namespaced=True)
QUOTAS = Resource("", "v1", "resourcequotas", namespaced=True)
UNLIMITED = {"requests": NATIVE["requests"]}

_numbers = itertools.count()


def limit_range(site: Site, **limits: object) -> None:
    """From now on in force in the site's namespace."""
    name = f"l{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}}
    site.client.create(LIMIT_RANGES, body | {"spec": {"limits": [{"type": "Container", **limits}]}}, site.namespace)


def test_defaults_of_a_namespace_go_before_the_factor_and_do_not_come_back(site: Site, replica: Replica) -> None:
    limit_range(site, defaultRequest={"cpu": "50m"}, default={"cpu": "100m"})
    eventually(lambda: "cpu" in str(asked_by(site.create(resources={}))))
    assert asked_by(site.create(MID_LABELS)) == MID
    pod = site.create(MID_LABELS, {})
    assert asked_by(pod) == {
        "requests": {names.MID_CPU: "50"} | NOTHING,
        "limits": {"cpu": "100m", "memory": "200Mi"},
    }
    assert json.loads(pod["metadata"]["annotations"][names.ANNOTATION_DEFAULTED_LIMITS]) == {"c": {"memory": "200Mi"}}


def test_a_maximum_of_limits_holds_for_mid_and_also_for_those_that_were_set(site: Site, replica: Replica) -> None:
    limit_range(site, max={"cpu": "400m"}, default={"cpu": "400m"})
    small = {"requests": {"cpu": "300m", "memory": "16Mi"}, "limits": {"cpu": "300m", "memory": "16Mi"}}

    def refused() -> bool:
        try:
            site.create(MID_LABELS)
        except Forbidden as error:
            return "maximum cpu usage per Container is 400m" in str(error)
        return False

    eventually(refused)
    assert asked_by(site.create(MID_LABELS, small))["limits"] == small["limits"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"min": {"cpu": "10m"}}, "minimum cpu usage per Container is 10m, but request is 0"),
        ({"maxLimitRequestRatio": {"memory": "2"}}, "memory max limit to request ratio per Container is 2"),
    ],
)
def test_a_minimum_or_a_ratio_refuses_mid_pods_and_says_so(
    site: Site, replica: Replica, limits: dict[str, object], why: str
) -> None:
    limit_range(site, **limits)

    def refused() -> str:
        try:
            site.create(MID_LABELS)
        except Forbidden as error:
            return str(error)
        return ""

    assert why in str(eventually(refused))
    site.create()  # others come in


def test_a_quota_of_compute_takes_mid_pods_and_charges_their_limits_alone(site: Site, replica: Replica) -> None:
    for pod in site.client.list(PODS, namespace=site.namespace).items:
        site.client.delete(PODS, pod["metadata"]["name"], site.namespace, grace_period_seconds=0)
    hard = {"requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "3", "limits.memory": "1Gi"}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    site.client.create(QUOTAS, body, site.namespace)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = site.client.get(QUOTAS, "q", site.namespace).get("status", {})
        return found

    eventually(lambda: status().get("hard"))
    site.create(MID_LABELS)
    site.create(MID_LABELS, UNLIMITED)  # gets its limits before the quota asks for them
    used = {"requests.cpu": "0", "requests.memory": "0", "limits.cpu": "1500m", "limits.memory": "128Mi"}
    eventually(lambda: status().get("used") == used)
    site.create(MID_LABELS)
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: limits.cpu=1, used: limits.cpu=2500m"):
        site.create(MID_LABELS)


def test_a_request_above_its_limit_is_refused_as_of_any_pod(site: Site, replica: Replica) -> None:
    bad = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    with pytest.raises(Invalid, match=r"must be less than or equal to cpu limit"):
        site.create(MID_LABELS, bad)


def test_limits_can_be_resized_and_requests_stay_nothing(site: Site, replica: Replica) -> None:
    name = site.create(MID_LABELS)["metadata"]["name"]

    def resized(resources: dict[str, Any]) -> Any:
        patch = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        site.client.patch(PODS, name, patch, site.namespace, subresource="resize", kind=Patch.STRATEGIC)
        return asked_by(site.client.get(PODS, name, site.namespace))

    assert resized({"limits": {"cpu": "2"}}) == {"requests": MID["requests"], "limits": {"cpu": "2", "memory": "64Mi"}}
    for what in ({"limits": {"cpu": None}}, {"requests": {names.MID_CPU: "700"}}):
        with pytest.raises(ApiError):
            resized(what)


def test_an_ephemeral_container_comes_in_as_it_is(site: Site, replica: Replica) -> None:
    pod = site.create(MID_LABELS)
    added = {"name": "debug", "image": "example.com/image:1"}
    patch = {"spec": {"ephemeralContainers": [added]}}
    name = pod["metadata"]["name"]
    site.client.patch(PODS, name, patch, site.namespace, subresource="ephemeralcontainers", kind=Patch.STRATEGIC)
    after = site.client.get(PODS, name, site.namespace)["spec"]
    assert after["ephemeralContainers"][0].get("resources", {}) == {}
    assert after["containers"] == pod["spec"]["containers"]


def test_requests_of_a_pod_as_a_whole_stay_native_with_a_warning(site: Site, replica: Replica) -> None:
    whole = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    container = {"name": "c", "image": "example.com/image:1"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "whole", "labels": MID_LABELS},
        "spec": {"containers": [container], "resources": whole},
    }
    site.client.create(PODS, body, site.namespace)
    stored = site.client.get(PODS, "whole", site.namespace)
    assert stored["spec"]["resources"]["limits"] == whole["limits"]
    assert asked_by(stored) == {}
