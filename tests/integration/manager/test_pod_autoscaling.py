"""A HorizontalPodAutoscaler of Mid pods, as the real controller decides: which targets it can reach."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from shared import names
from shared.kube.client import Patch
from shared.kube.resources import PODS, Resource
from tests.integration.manager.admission import MID, MID_LABELS, NATIVE, Replica, Site, asked_by
from tests.support import eventually
from tests.support.custom_kinds import CRDS

pytestmark = [
    pytest.mark.real_only("the embedded API server has no autoscaler of pods"),
    pytest.mark.thorough,
]

DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", namespaced=True)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", namespaced=True)
STARTED = "2026-01-01T00:00:00Z"  # long ago, as the usage of pods that have just started does not count
SYNC_SECONDS = 120  # the controller looks every fifteen


@pytest.fixture
def metrics(site: Site) -> Iterator[None]:
    """The API that metrics-server serves, kept by the API server itself: what is created there is what is used."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    name = f"{POD_METRICS.plural}.{POD_METRICS.group}"
    body = {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, in place of a server"}},
        "spec": {
            "group": POD_METRICS.group,
            "scope": "Namespaced",
            "names": {"plural": POD_METRICS.plural, "kind": "PodMetrics", "listKind": "PodMetricsList"},
            "versions": [{"name": POD_METRICS.version, "served": True, "storage": True, "schema": schema}],
        },
    }
    site.client.create(CRDS, body)

    def is_served() -> bool:
        conditions = site.client.get(CRDS, name).get("status", {}).get("conditions") or ()
        return {"Established": "True"}.items() <= {one["type"]: one["status"] for one in conditions}.items()

    eventually(is_served)
    yield
    site.client.delete(CRDS, name)
    eventually(lambda: not [each for each in site.client.list(CRDS).items if each["metadata"]["name"] == name])


@pytest.fixture
def workloads(site: Site) -> Iterator[Site]:
    """What is deployed goes with the test: its pods, made again and again, would take the nodes of others."""
    yield site
    for resource in (AUTOSCALERS, DEPLOYMENTS):
        for each in site.client.list(resource, site.namespace).items:
            site.client.delete(resource, each["metadata"]["name"], site.namespace)
    pods = partial(site.client.list, PODS, site.namespace)
    eventually(lambda: not any("ownerReferences" in each["metadata"] for each in pods().items))


def deployed(site: Site, app: str, target: dict[str, object]) -> dict[str, Any]:
    """One running pod of a Deployment that uses 300m, and an autoscaler of it. The pod as it was stored."""
    labels = {"app": app}
    container = {"name": "c", "image": "example.com/image:1", "resources": NATIVE}
    template = {"metadata": {"labels": labels | MID_LABELS}, "spec": {"containers": [container]}}
    spec: dict[str, object] = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app}, "spec": spec}
    site.client.create(DEPLOYMENTS, deployment, site.namespace)
    (pod,) = eventually(lambda: site.client.list(PODS, site.namespace, label_selector=f"app={app}").items)
    name = pod["metadata"]["name"]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": STARTED}
    status = {"phase": "Running", "startTime": STARTED, "conditions": [ready]}
    site.client.patch(PODS, name, {"status": status}, site.namespace, subresource="status", kind=Patch.STRATEGIC)
    used = {
        "apiVersion": POD_METRICS.api_version,
        "kind": "PodMetrics",
        "metadata": {"name": name, "labels": labels},
        "timestamp": STARTED,
        "window": "30s",
        "containers": [{"name": "c", "usage": {"cpu": "300m", "memory": "32Mi"}}],
    }
    site.client.create(POD_METRICS, used, site.namespace)
    autoscaler = {
        "apiVersion": AUTOSCALERS.api_version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": app},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app},
            "minReplicas": 1,
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }
    site.client.create(AUTOSCALERS, autoscaler, site.namespace)
    return dict(pod)


def test_mid_pods_are_scaled_by_an_average_value_and_never_by_utilization(
    workloads: Site, replica: Replica, metrics: None
) -> None:
    site = workloads
    pod = deployed(site, "by-value", {"type": "AverageValue", "averageValue": "100m"})
    assert asked_by(pod) == MID
    deployed(site, "by-utilization", {"type": "Utilization", "averageUtilization": 50})

    def conditions(app: str) -> dict[str, tuple[str, str]]:
        status = site.client.get(AUTOSCALERS, app, site.namespace).get("status", {})
        return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or ()}

    eventually(lambda: conditions("by-value").get("ScalingActive") == ("True", "ValidMetricFound"), SYNC_SECONDS)
    eventually(
        lambda: conditions("by-utilization").get("ScalingActive") == ("False", "FailedGetResourceMetric"), SYNC_SECONDS
    )

    def replicas(app: str) -> int:
        return int(site.client.get(DEPLOYMENTS, app, site.namespace)["spec"]["replicas"])

    assert eventually(lambda: replicas("by-value") == 3, SYNC_SECONDS)
    assert replicas("by-utilization") == 1

    def pods_of(app: str) -> list[dict[str, Any]]:
        return site.client.list(PODS, site.namespace, label_selector=f"app={app}").items

    eventually(lambda: len(pods_of("by-value")) == 3)
    assert all(names.MID_CPU in asked_by(each)["requests"] for each in pods_of("by-value"))
