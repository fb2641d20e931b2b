"""A release from a registry: verified, installed by digest, upgraded, rolled back, and uninstalled."""

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from deploy.local.identities import RELEASE
from shared import durations, names
from tests.apiserver.binaries import Unavailable
from tests.image.releasing import VERSION, Released
from tests.node import releases
from tests.node.cluster import NodeCluster
from tests.node.conftest import LENDING_SECONDS, lend
from tests.node.layout import NODE, Kind
from tests.node.pods import Pod, Pods
from tests.node.release import DEFINITIONS, NAMESPACE, WAIT, Release, quick_values
from tests.node.releases import NEXT_VERSION, TwoReleases
from tests.support import eventually
from tests.support.programs import do_without

pytestmark = pytest.mark.node_only("a container runtime pulls images")

COMPONENTS = ("agent", "manager")
OFFLINE = ("--insecure-ignore-tlog", "--allow-insecure-registry", "--allow-http-registry")
HELD = {"cpu": "50m", "memory": "16Mi"}


@pytest.fixture
def served(cluster: NodeCluster, kind: Kind) -> Iterator[TwoReleases]:
    if kind is not Kind.V1:
        pytest.skip("the registry serves in the network of a node that shares this machine's kernel")
    try:
        made = releases.made(os.environ)
    except Unavailable as error:
        do_without(str(error))
    with made.served(cluster):
        yield made


def verify(released: Released) -> None:
    """Signatures of images and chart, and the bills of materials of the images."""
    key = ("--key", released.public_key)
    for name in released.digests:
        released.run("cosign", "verify", *key, *OFFLINE, released.reference(name))
    for component in COMPONENTS:
        reference = released.reference(f"headroom-{component}")
        attestation = released.run("cosign", "verify-attestation", *key, "--type=spdxjson", *OFFLINE, reference)
        assert "payload" in attestation
        bill = json.loads(next(released.folder.glob(f"headroom-{component}-*.spdx.json")).read_text())
        assert {"msgspec", "numpy"} <= {package["name"] for package in bill["packages"]}


def install(release: Release, released: Released, profile: Path) -> None:
    """By the chart's digest, with the values of a profile."""
    chart = f"oci://{released.reference('charts/headroom')}"
    release.install(chart, "--plain-http", "--values", profile)


def check_runs(release: Release, released: Released) -> None:
    """All pods run the released images, by digest, and the command says of which version they are."""
    for component in COMPONENTS:
        pods = eventually(partial(_only, release, component), 120, 0.5)
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        assert images == {released.reference(f"headroom-{component}")}
    version = released.folder.name
    found = json.loads(release.command("version", "--output=json"))
    told = {each["name"]: each for each in found["components"] if each["namespace"] == NAMESPACE}
    assert {name: told[name]["version"] for name in COMPONENTS} == dict.fromkeys(COMPONENTS, version)
    assert (found["definition"], found["skew"]) == (version, [])


def _only(release: Release, component: str) -> list[Pod]:
    """The pods once none of them is about to go."""
    selector = f"--selector=app.kubernetes.io/component={component}"
    found = release.cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", selector, "--output=json")
    items = json.loads(found)["items"]
    return [] if any("deletionTimestamp" in pod["metadata"] for pod in items) else items


def _reported_at(release: Release, node: str) -> float:
    """When the node's agent last did, in Unix seconds; a NodeMetric of an earlier release may be there."""
    at = release.node_metric(node).get("status", {}).get("updateTime")
    return durations.instant(at) if at else 0.0


def test_a_release_is_verified_installed_by_digest_upgraded_rolled_back_and_uninstalled(
    cluster: NodeCluster, served: TwoReleases, pods: Pods, tmp_path: Path
) -> None:
    first, second = (served.by_version[version] for version in (VERSION, NEXT_VERSION))
    for released in (first, second):
        verify(released)
    chart = f"oci://{first.reference('charts/headroom')}"
    cluster.helm("pull", chart, "--plain-http", "--untar", "--destination", tmp_path)
    profile = tmp_path / "headroom" / "values-k3s.yaml"

    values = quick_values()
    del values["image"]  # the released chart says where they are
    release = Release(cluster, values)
    began = time.time()
    install(release, first, profile)
    check_runs(release, first)
    lend(release)
    eventually(lambda: all(_reported_at(release, node) >= began for node in cluster.nodes), LENDING_SECONDS, 1.0)
    release.command("check")  # fails if any line is bad

    before = pods.run("worker", tier="koord-mid", node=NODE, requests=HELD)
    learnt = release.samples()

    def undisturbed() -> bool:
        after = pods.get("worker")
        return bool(after["status"]["containerStatuses"] == before["status"]["containerStatuses"])

    install(release, second, profile)
    check_runs(release, second)
    assert undisturbed()
    cluster.helm("rollback", RELEASE, "--namespace", NAMESPACE, "--force-conflicts", *WAIT)
    check_runs(release, first)
    assert undisturbed()
    eventually(lambda: release.samples() > learnt and release.mid_cpu() > 0, LENDING_SECONDS, 1.0)

    release.uninstall()
    assert undisturbed()
    held = {f"resource {name}" for name in (names.MID_CPU, names.MID_MEMORY)}
    assert release.remains() == held | DEFINITIONS
    pods.delete()
    release.command("cleanup")
    assert release.remains() == DEFINITIONS
