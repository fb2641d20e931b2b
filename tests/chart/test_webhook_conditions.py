"""For which pods a real kube-apiserver calls the webhook, shown by one that does not answer."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from deploy.local.identities import CHART, RELEASE
from manager.nodeside.webhook import translation
from shared import names
from shared.api.core import Pod
from shared.kube.client import Client, Patch
from shared.kube.errors import AlreadyExists, Forbidden, ServerError
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    MUTATINGWEBHOOKS,
    PODS,
    PRIORITYCLASSES,
    VALIDATINGWEBHOOKS,
)
from tests.chart.access import NAMESPACE, object_of
from tests.chart.helm import QUIET, Helm
from tests.support import eventually
from tests.support.apiserver import RealApiServer

pytestmark = pytest.mark.real_only("the embedded one evaluates no conditions")

OWN = {names.PriorityClass.MID: "headroom-mid", names.PriorityClass.BATCH: "headroom-batch"}
PRIORITIES = {f"p{value}": value for value in (4999, 5000, 5999, 6000, 6999, 7000, 7999, 8000)}


@dataclass(frozen=True)
class Case:
    """A pod, by what differs from a plain one."""

    labels: dict[str, str] = field(default_factory=dict)
    resources: dict[str, dict[str, str]] = field(default_factory=dict)
    init_resources: dict[str, dict[str, str]] | None = None
    priority_class: str = ""

    def body(self, name: str, namespace: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none", "resources": self.resources}]}
        if self.init_resources is not None:
            spec["initContainers"] = [{"name": "init", "image": "none", "resources": self.init_resources}]
        if self.priority_class:
            spec["priorityClassName"] = self.priority_class
        body = object_of(PODS, "Pod", name, namespace, spec=spec)
        body["metadata"]["labels"] = self.labels
        return body


NATIVE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
CASES = {
    "nothing": Case(),
    "native requests": Case(resources=NATIVE, init_resources=NATIVE),
    "other labels": Case({"app": "web", "koordinator.sh/qosClass": "LS"}),
    "label mid": Case({names.LABEL_PRIORITY_CLASS: "koord-mid"}, NATIVE),
    "label batch": Case({names.LABEL_PRIORITY_CLASS: "koord-batch"}),
    "label prod": Case({names.LABEL_PRIORITY_CLASS: "koord-prod"}),
    "label free": Case({names.LABEL_PRIORITY_CLASS: "koord-free"}),
    "label of nothing known": Case({names.LABEL_PRIORITY_CLASS: "gold"}),
    "mid requests": Case(resources={"requests": {names.MID_CPU: "100"}}),
    "mid limits": Case(resources={"requests": {names.MID_MEMORY: "1Mi"}, "limits": {names.MID_MEMORY: "1Mi"}}),
    "batch requests of an init container": Case(init_resources={"requests": {names.BATCH_MEMORY: "1Mi"}}),
    "own class mid": Case(priority_class="headroom-mid"),
    "own class batch": Case(priority_class="headroom-batch"),
    "critical": Case(priority_class="system-cluster-critical"),
    **{name: Case(priority_class=name) for name in PRIORITIES},
}


def is_acted_upon(case: Case, priorities: dict[str, int]) -> bool:
    """Whether the webhook would change the pod, by its own code."""
    body = case.body("a", "default")
    if case.priority_class:
        body["spec"]["priority"] = priorities[case.priority_class]
    found = translation.class_of(msgspec.convert(body, Pod), priority_classes=OWN)
    return found in translation.RESOURCE_NAMES


class Site:
    """A release whose webhook has no process behind it."""

    def __init__(self, server: RealApiServer, helm: Helm) -> None:
        self.server, self.helm, self.client = server, helm, server.client()
        self.namespace = server.add_namespace()
        self._pods = 0

    def upgrade(self, *values: str) -> None:
        flags = ("--namespace", NAMESPACE, "--reset-values", *QUIET, "--kubeconfig", self.server.kubeconfig)
        short = ("--set", "manager.webhook.timeoutSeconds=1")
        self.helm.must("upgrade", RELEASE, CHART, *flags, *short, *values)
        wanted = self.client.get(MUTATINGWEBHOOKS, RELEASE)["webhooks"][0]
        mid = CASES["label mid"]
        # The server follows webhook configurations by a watch.
        eventually(lambda: self.is_refused(mid) is (wanted["failurePolicy"] == "Fail"))

    def create(self, case: Case) -> dict[str, Any]:
        self._pods += 1
        body = case.body(f"p{self._pods}", self.namespace)
        self.client.single_attempt().create(PODS, body, self.namespace)
        return self.client.get(PODS, body["metadata"]["name"], self.namespace)

    def is_refused(self, case: Case) -> bool:
        """Whether the pod is refused because the webhook does not answer."""
        try:
            self.create(case)
        except ServerError as error:
            if "failed calling webhook" not in error.message:
                raise
            return True
        return False


@pytest.fixture(scope="module")
def site(real: RealApiServer, helm: Helm) -> Iterator[Site]:
    client = real.client()
    for name, value in PRIORITIES.items():
        with contextlib.suppress(AlreadyExists):
            client.create(PRIORITYCLASSES, object_of(PRIORITYCLASSES, "PriorityClass", name, value=value))
    yield Site(real, helm)
    for name in PRIORITIES:
        client.delete(PRIORITYCLASSES, name)


@pytest.fixture(scope="module")
def failing(site: Site) -> Site:
    site.upgrade("--set", "manager.webhook.failurePolicy=Fail")
    return site


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_webhook_is_called_for_exactly_the_pods_that_it_acts_upon(failing: Site, case: Case) -> None:
    found = {each["metadata"]["name"]: each["value"] for each in failing.client.list(PRIORITYCLASSES).items}
    assert failing.is_refused(case) is is_acted_upon(case, found)


def test_of_config_maps_the_policy_alone_is_reviewed(failing: Site) -> None:
    client, path = failing.client, "/webhooks/0/failurePolicy"

    def change(value: str) -> None:
        patch = [{"op": "replace", "path": path, "value": value}]
        client.patch(VALIDATINGWEBHOOKS, RELEASE, patch, kind=Patch.JSON)

    def is_reviewed(name: str) -> bool:
        body = object_of(CONFIGMAPS, "ConfigMap", name, NAMESPACE)
        try:
            client.single_attempt().create(CONFIGMAPS, body, NAMESPACE)
        except AlreadyExists:
            return False
        except ServerError:
            return True
        client.delete(CONFIGMAPS, name, NAMESPACE)
        return False

    change("Fail")
    eventually(lambda: is_reviewed(names.CONFIG_MAP))
    assert not is_reviewed("other")
    change("Ignore")


def test_a_mid_pod_is_created_unchanged_where_a_failure_is_ignored(site: Site) -> None:
    site.upgrade()
    (container,) = site.create(CASES["label mid"])["spec"]["containers"]
    assert container["resources"] == NATIVE


def profile(client: Client, name: str) -> None:
    body = object_of(CLUSTERCOLOCATIONPROFILES, "ClusterColocationProfile", name, spec={"qosClass": "BE"})
    client.create(CLUSTERCOLOCATIONPROFILES, body)


def test_profiles_are_refused_unless_the_webhook_sees_every_pod(site: Site) -> None:
    site.upgrade("--set", "manager.webhook.failurePolicy=Fail")

    def why_refused() -> str:
        try:
            profile(site.client, "early")
        except Forbidden as error:
            return error.message
        site.client.delete(CLUSTERCOLOCATIONPROFILES, "early")
        return ""

    eventually(lambda: "set manager.webhook.profiles=true" in why_refused())
    site.upgrade("--set", "manager.webhook.failurePolicy=Fail,manager.webhook.profiles=true")
    eventually(lambda: not why_refused())
    assert site.is_refused(CASES["nothing"])
    profile(site.client, "late")
    try:
        flags = ("--namespace", NAMESPACE, "--reset-values", *QUIET, "--kubeconfig", site.server.kubeconfig)
        done = site.helm.run("upgrade", RELEASE, CHART, *flags)
        assert done.returncode != 0
        assert 'manager.webhook.profiles: has to be true, because ClusterColocationProfile "late" exists' in done.stderr
    finally:
        site.client.delete(CLUSTERCOLOCATIONPROFILES, "late")
        site.upgrade()
