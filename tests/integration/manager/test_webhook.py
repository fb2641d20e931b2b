"""Pods of Mid and Batch come in translated, and a bad configuration does not come in, on a real API server."""

import base64
import contextlib
import json
import shutil
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.local import webhook as registration
from manager.nodeside.webhook import certificates
from manager.nodeside.webhook.certificates import Rotation
from shared import names
from shared.certificates import Pair, issued
from shared.kube.errors import ApiError, Forbidden, NotFound
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    NAMESPACES,
    PODS,
    SECRETS,
    Resource,
)
from tests.integration.manager.admission import (
    LOOPBACK,
    MID,
    MID_LABELS,
    NATIVE,
    NOTHING,
    Replica,
    Site,
    asked_by,
)
from tests.integration.manager.conftest import Cluster, StartManager, StartWebhook, counted
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule

ours = pytest.mark.own_decision("the webhook answers the same, whichever API server asks")

KUBECTL = shutil.which("kubectl")
UNBOUNDED_MID = {
    "requests": {"kubernetes.io/mid-cpu": "500", "kubernetes.io/mid-memory": "64Mi"},
    "limits": {"kubernetes.io/mid-cpu": "1k", "kubernetes.io/mid-memory": "64Mi"},
}

_RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)


def test_pods_of_mid_and_batch_are_translated_by_label_and_by_priority_class(site: Site, replica: Replica) -> None:
    assert asked_by(site.create(MID_LABELS)) == MID
    assert asked_by(site.create(priorityClassName="koord-mid")) == MID
    batch = site.create(priorityClassName="koord-batch", resources={"limits": {"cpu": "1500m"}})
    assert asked_by(batch) == {
        "requests": {"kubernetes.io/batch-cpu": "1500"} | NOTHING,
        "limits": {"cpu": "1500m", "memory": "200Mi"},
    }
    assert batch["metadata"]["labels"] == {names.LABEL_QOS_CLASS: "BE"}
    annotations = batch["metadata"]["annotations"]
    assert json.loads(annotations[names.ANNOTATION_EXTENDED_RESOURCE_SPEC]) == {
        "containers": {
            "c": {
                "requests": {"kubernetes.io/batch-cpu": "1500"},
                "limits": {"kubernetes.io/batch-cpu": "1500"},
            }
        }
    }
    assert json.loads(annotations[names.ANNOTATION_DEFAULTED_LIMITS]) == {"c": {"memory": "200Mi"}}
    assert batch["status"]["qosClass"] == "Burstable"
    for prod in (site.create(), site.create(priorityClassName="koord-prod")):
        assert asked_by(prod) == NATIVE


@ours
def test_with_koordlets_pods_take_the_form_that_those_enforce(site: Site, start_webhook: StartWebhook) -> None:
    site.register(start_webhook(translation="koordinator").webhook.address)
    eventually(lambda: asked_by(site.create(MID_LABELS)) == UNBOUNDED_MID)
    pod = site.create(MID_LABELS)
    assert pod["status"]["qosClass"] == "BestEffort"
    assert not pod["spec"].get("priority")
    assert not pod["spec"].get("priorityClassName")


def test_init_containers_are_translated_and_already_translated_pods_let_alone(site: Site, replica: Replica) -> None:
    init = {"name": "init", "image": "example.com/image:1", "resources": {"requests": {"cpu": "1"}}}
    pod = site.create(MID_LABELS, initContainers=[init])
    assert pod["spec"]["initContainers"][0]["resources"] == {
        "requests": {"kubernetes.io/mid-cpu": "1k"} | NOTHING,
        "limits": {"cpu": "1", "memory": "200Mi"},
    }
    del pod["metadata"]["resourceVersion"], pod["metadata"]["uid"]
    pod["metadata"]["name"] += "-again"
    unchanged = replica.counted("unchanged")
    stored = site.client.create(PODS, pod, site.namespace)
    assert stored.name == pod["metadata"]["name"]
    assert site.client.get(PODS, stored.name, site.namespace)["spec"] == pod["spec"]
    assert replica.counted("unchanged") == unchanged + 1


@pytest.mark.real_only("the embedded one has no RuntimeClasses")
def test_a_sandboxed_mid_pod_is_admitted_since_its_overhead_stays_that_of_its_runtime_class(
    site: Site, replica: Replica
) -> None:
    overhead = {"cpu": "100m"}
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "sandbox"},
        "handler": "sandbox",
        "overhead": {"podFixed": overhead},
    }
    site.client.create(_RUNTIME_CLASSES, body)
    try:
        pod = eventually(lambda: _created(site, MID_LABELS, runtimeClassName="sandbox"))
        with pytest.raises(Forbidden, match="Overhead"):
            site.create(MID_LABELS, runtimeClassName="sandbox", overhead={"kubernetes.io/mid-cpu": "100"})
    finally:
        site.client.delete(_RUNTIME_CLASSES, "sandbox")
    assert pod is not None
    assert asked_by(pod) == MID
    assert pod["spec"]["overhead"] == overhead


def _created(site: Site, labels: dict[str, str], **spec: Any) -> dict[str, Any] | None:
    """None as long as the API server does not know all that the pod refers to."""
    with contextlib.suppress(ApiError):
        return site.create(labels, **spec)
    return None


def test_profiles_make_pods_mid_and_a_bad_one_costs_nothing_but_itself(site: Site, start_webhook: StartWebhook) -> None:
    def profile(name: str, **spec: object) -> None:
        body = {
            "apiVersion": CLUSTERCOLOCATIONPROFILES.api_version,
            "kind": "ClusterColocationProfile",
            "metadata": {"name": name},
            "spec": spec,
        }
        site.client.create(CLUSTERCOLOCATIONPROFILES, body)

    try:
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}
        profile("bad", probability="often", labels={"bad": "yes"})
        profile(
            "mid",
            namespaceSelector=chosen,
            selector={"matchLabels": {"app": "batchy"}},
            priorityClassName="koord-mid",
            labels={"by": "profile"},
        )
        replica = start_webhook()
        site.register(replica.webhook.address)
        eventually(lambda: "by" in site.create({"app": "batchy"})["metadata"]["labels"])
        pod = site.create({"app": "batchy"})
        assert asked_by(pod) == MID
        assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"]) == (7000, "koord-mid")
        assert pod["metadata"]["labels"] == {"app": "batchy", "by": "profile"}
        assert asked_by(site.create({"app": "other"})) == NATIVE
        assert replica.registry.get_sample_value("headroom_manager_webhook_refused_profiles") == 1
    finally:
        for item in site.client.list(CLUSTERCOLOCATIONPROFILES).items:
            site.client.delete(CLUSTERCOLOCATIONPROFILES, item["metadata"]["name"])


def test_a_bad_configuration_is_refused_by_field_where_it_is_applied(
    site: Site, replica: Replica, server: ApiServer, tmp_path: Path
) -> None:
    def config_map(strategy: object) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.CONFIG_MAP, "namespace": names.INSTALL_NAMESPACE},
            "data": {names.CONFIG_KEY_COLOCATION: json.dumps(strategy)},
        }

    def is_refused(body: dict[str, object]) -> bool:
        """The API server may hear of each kind of webhook at another time."""
        try:
            site.client.create(CONFIGMAPS, body, names.INSTALL_NAMESPACE)
        except Forbidden:
            return True
        site.client.delete(CONFIGMAPS, names.CONFIG_MAP, names.INSTALL_NAMESPACE)
        return False

    bad, good = config_map({"enable": True, "midCPUThresholdPercent": 140}), config_map({"enable": True})
    eventually(lambda: is_refused(bad))
    with pytest.raises(Forbidden, match="midCPUThresholdPercent: 140: must be between 0 and 100"):
        site.client.create(CONFIGMAPS, bad, names.INSTALL_NAMESPACE)
    site.client.create(CONFIGMAPS, good, names.INSTALL_NAMESPACE)
    with pytest.raises(Forbidden, match="midCPUThresholdPercent"):
        site.client.replace(CONFIGMAPS, names.CONFIG_MAP, bad, names.INSTALL_NAMESPACE)
    odd = {names.CONFIG_KEY_THRESHOLDS: '{"clusterStrategy": {"memoryEvictLowerPercent": 70}}'}
    with pytest.raises(Forbidden, match="memoryEvictLowerPercent: 70: must be less than memoryEvictThresholdPercent"):
        site.client.patch(CONFIGMAPS, names.CONFIG_MAP, {"data": odd}, names.INSTALL_NAMESPACE)
    if KUBECTL:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(bad))
        command = [KUBECTL, "--kubeconfig", str(server.kubeconfig), "apply", "-f", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "midCPUThresholdPercent: 140: must be between 0 and 100" in done.stderr
    stored = site.client.get(CONFIGMAPS, names.CONFIG_MAP, names.INSTALL_NAMESPACE)
    assert stored["data"] == good["data"]


def test_pods_are_created_all_the_same_while_the_webhook_is_away(site: Site, replica: Replica) -> None:
    replica.close()
    assert asked_by(site.create(MID_LABELS)) == NATIVE


@pytest.mark.thorough
def test_replicas_share_one_certificate_and_rotate_it_without_a_failed_call(
    site: Site, start_webhook: StartWebhook
) -> None:
    # Certificates are as if an hour old, so two thirds of their life are over in a few seconds.
    rotation = Rotation(valid_seconds=1803.0, overlap_seconds=5.0, turn_seconds=0.2)
    follower, leader = start_webhook(rotation, leads=False), start_webhook(rotation)
    site.register(follower.webhook.address)
    eventually(site.is_called)

    def shared() -> bytes:
        """The certificate of both, but for the moment in which one has turned to the next and the other has not."""
        one, other = (replica.served(site.authorities()) for replica in (leader, follower))
        return one if one == other else b""

    first = eventually(shared)
    calls = 0
    deadline = time.monotonic() + 30
    while follower.served(site.authorities()) == first:
        assert leader.served(site.authorities())
        assert site.is_called()
        assert time.monotonic() < deadline
        calls += 1
    assert calls > 1
    eventually(shared)
    assert site.is_called()
    assert follower.counted("error") == 0


def test_two_that_both_think_they_lead_agree_on_one_certificate(site: Site, start_webhook: StartWebhook) -> None:
    replicas = [start_webhook(), start_webhook()]
    site.register(replicas[0].webhook.address)
    eventually(site.is_called)

    def agree() -> bool:
        with contextlib.suppress(ssl.SSLError, OSError):
            one, other = (replica.served(site.authorities()) for replica in replicas)
            return one == other
        return False

    eventually(agree)


def test_a_spoiled_secret_and_a_bundle_that_was_overwritten_are_put_right(site: Site, replica: Replica) -> None:
    site.client.patch(
        SECRETS,
        registration.SECRET,
        {"data": {certificates.CERTIFICATE: base64.b64encode(b"junk").decode()}},
        names.INSTALL_NAMESPACE,
    )
    eventually(lambda: "BEGIN" in _stored_certificate(site))
    eventually(site.is_called)
    site.unregister()
    with pytest.raises(NotFound):  # it is gone with the bundle, and comes back without one
        site.authorities()
    site.register(replica.webhook.address)
    eventually(site.is_called)


def _stored_certificate(site: Site) -> str:
    secret = site.client.get(SECRETS, registration.SECRET, names.INSTALL_NAMESPACE)
    return base64.b64decode((secret.get("data") or {}).get(certificates.CERTIFICATE, "")).decode()


@ours
def test_an_api_server_that_fails_meanwhile_costs_no_certificate(
    site: Site, replica: Replica, server: ApiServer
) -> None:
    authorities = site.authorities()
    server.fault(rule("status", "/secrets/", times=0, status=503))
    time.sleep(0.5)  # turns that all fail
    assert replica.served(authorities)
    server.heal()
    assert site.is_called()


def test_a_leader_that_may_not_change_the_configurations_serves_all_the_same(
    site: Site, start_webhook: StartWebhook, server: ApiServer
) -> None:
    site.register((LOOPBACK, 1))
    server.fault(rule("status", "webhookconfigurations", times=0, status=403, reason="Forbidden"))
    replica = start_webhook()

    def serves() -> bool:
        with contextlib.suppress(ssl.SSLError, OSError, KeyError):
            secret = site.client.get(SECRETS, registration.SECRET, names.INSTALL_NAMESPACE)
            return bool(replica.served(base64.b64decode(secret["data"][certificates.BUNDLE]).decode()))
        return False

    eventually(serves)
    server.heal()
    eventually(lambda: "BEGIN CERTIFICATE" in site.authorities())


@ours
def test_certificates_of_others_are_read_from_files_and_again_when_they_change(
    site: Site, start_webhook: StartWebhook, tmp_path: Path
) -> None:
    def renew() -> Pair:
        pair = issued((LOOPBACK,), time.time(), Rotation().valid_seconds)
        (tmp_path / "tls.crt").write_text(pair.chain)
        (tmp_path / "tls.key").write_text(pair.key)
        return pair

    first = renew()
    replica = start_webhook(webhook_certificate_directory=str(tmp_path))
    eventually(lambda: _serves(replica, first))
    (tmp_path / "tls.key").write_text("half written")
    time.sleep(0.5)  # turns that cannot use it
    assert _serves(replica, first)
    second = renew()
    eventually(lambda: _serves(replica, second))


def _serves(replica: Replica, pair: Pair) -> bool:
    with contextlib.suppress(ssl.SSLError, OSError):
        return bool(replica.served(pair.authority))
    return False


@ours
def test_the_manager_has_it_with_the_right_settings_only(site: Site, start_manager: StartManager) -> None:
    assert start_manager().webhook_address is None
    assert start_manager(webhook_listen=f"{LOOPBACK}:0", dry_run=True).webhook_address is None
    manager = start_manager(webhook_listen=f"{LOOPBACK}:0", webhook_hosts=(LOOPBACK,))
    site.register(manager.webhook_address)
    eventually(site.is_called)


@ours
def test_pods_that_came_in_without_the_webhook_are_counted(
    site: Site, cluster: Cluster, start_manager: StartManager
) -> None:
    manager = start_manager(webhook_listen=f"{LOOPBACK}:0", webhook_hosts=(LOOPBACK,))
    cluster.add_node("n1", lends=None)
    site.create(MID_LABELS, nodeName="n1")
    site.create(nodeName="n1")
    site.create(MID_LABELS, MID, nodeName="n1")
    eventually(lambda: counted(manager, "webhook_untranslated_pods") == 1)
    only_batch = start_manager(webhook_listen=f"{LOOPBACK}:0", webhook_hosts=(LOOPBACK,), offers="batch")
    site.create({names.LABEL_PRIORITY_CLASS: "koord-batch"}, nodeName="n1")
    eventually(lambda: counted(only_batch, "webhook_untranslated_pods") == 1)


def test_a_namespace_bounds_what_its_pods_hold_together(site: Site, start_manager: StartManager) -> None:
    manager = start_manager(webhook_listen=f"{LOOPBACK}:0", webhook_hosts=(LOOPBACK,))
    site.register(manager.webhook_address)
    eventually(site.is_called)
    for pod in site.client.list(PODS, namespace=site.namespace).items:
        site.client.delete(PODS, pod["metadata"]["name"], site.namespace, grace_period_seconds=0)
    bound, memory = (names.ANNOTATION_BOUNDS[names.Tier.MID][index] for index in (0, 1))
    site.client.patch(NAMESPACES, site.namespace, {"metadata": {"annotations": {bound: "1200m"}}})

    def denied() -> str:
        try:
            site.create(MID_LABELS)
        except Forbidden as error:
            return str(error)
        return ""

    why = eventually(denied)
    assert f"may request 1200m of Mid cpu at most (annotation {bound})" in why
    assert "this one requests 500m" in why
    site.create()  # prod pods are none of its business
    site.client.patch(NAMESPACES, site.namespace, {"metadata": {"annotations": {bound: None, memory: "lots"}}})
    eventually(lambda: f"takes no pods of Mid: annotation {memory}: 'lots'" in denied())
    site.client.patch(NAMESPACES, site.namespace, {"metadata": {"annotations": {memory: None}}})
    eventually(lambda: not denied())
