"""A release's whole life: install, upgrade, rollback, uninstall, and nothing left; with pods only on a real cluster."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from deploy.local.identities import CHART, RELEASE
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.webhook.certificates import Rotation
from manager.webhook.keeping import Ports, Registration, SharedSecret
from shared import names
from shared.api.core import Node
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Forbidden, NotFound
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NODEMETRICS,
    NODES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    VALIDATINGWEBHOOKS,
    Resource,
)
from shared.names import PriorityClass
from shared.quantity import Resources
from shared.web.tls import Tls
from tests.chart.conftest import CRDS
from tests.chart.helm import CI, IMAGE, QUIET, Helm
from tests.chart.kubectl import Kubectl
from tests.support import eventually
from tests.support.apiserver import ROOT, ApiServer, RealApiServer
from tests.support.programs import program

pytestmark = pytest.mark.real_only("Helm and its hooks need pods, and controllers that the embedded one lacks")

NAMESPACE = names.INSTALL_NAMESPACE
DAEMON_SETS = Resource("apps", "v1", "daemonsets", namespaced=True)
JOBS = Resource("batch", "v1", "jobs", namespaced=True)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
WEBHOOK = f"{RELEASE}-webhook"
NODE = "chart-worker"
CGROUP_PARENT = "headroom-chart-tests"
NATIVE = {"cpu": "4", "memory": "8Gi"}
MID = {names.MID_CPU: "1000", names.MID_MEMORY: "1073741824"}


class Release:
    """The release of the chart on one cluster."""

    def __init__(self, helm: Helm, kubectl: Kubectl, client: Client) -> None:
        self.helm = helm
        self.kubectl = kubectl
        self.client = client

    def apply(self, *arguments: str, chart: Path = CHART) -> None:
        """Installs or upgrades, without processes."""
        self.run(*QUIET, *arguments, chart=chart)

    def run(self, *arguments: str, chart: Path = CHART) -> None:
        """Installs or upgrades."""
        self.helm.must("upgrade", "--install", RELEASE, chart, "--namespace", NAMESPACE, *arguments)

    def must(self, command: str, *arguments: str) -> str:
        return self.helm.must(command, RELEASE, *arguments, "--namespace", NAMESPACE)

    def settings(self, component: str) -> Any:
        """What the component is configured with now."""
        data = self.client.get(CONFIGMAPS, f"{RELEASE}-{component}", NAMESPACE)["data"]
        return yaml.safe_load(data[f"{component}.yaml"])

    def crd(self) -> dict[str, Any]:
        return self.client.get(CRDS, str(NODEMETRICS))

    def left_behind(self, before: set[str]) -> set[str]:
        return {line for line in self.kubectl.everything() - before if " " + NODE not in line}


@pytest.fixture
def release(server: ApiServer, tmp_path: Path) -> Release:
    """Not installed yet."""
    helm = Helm(program("helm"), tmp_path / "helm", server.kubeconfig)
    kubectl = Kubectl(program("kubectl"), server.kubeconfig)
    helm.must("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks", "--ignore-not-found", "--wait")
    # The embedded one starts with them.
    kubectl.must("delete", "crd", str(NODEMETRICS), str(CLUSTERCOLOCATIONPROFILES), "--ignore-not-found")
    client = server.client()
    with suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    eventually(lambda: client.list(SERVICEACCOUNTS, NAMESPACE).items and client.list(CONFIGMAPS, NAMESPACE).items)
    return Release(helm, kubectl, client)


@pytest.fixture
def node(release: Release, real: RealApiServer, tmp_path: Path) -> Iterator[str]:
    """A node of the cluster that really runs pods, and lends to Mid."""
    command = [sys.executable, "-m", "deploy.local.node", "--kubeconfig", str(real.kubeconfig), "--node-name", NODE]
    command += ["--state-dir", str(tmp_path / "node"), "--cgroup-parent", CGROUP_PARENT]
    with (tmp_path / "node.log").open("wb") as log:
        # Its pods find `headroom` as an image would have it: on PATH.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=os.environ | {"PATH": path})
    try:
        eventually(lambda: _is_ready(release.client, NODE))
        yield NODE
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _is_ready(client: Client, name: str) -> bool:
    try:
        conditions = client.get(NODES, name)["status"].get("conditions", [])
    except NotFound:
        return False
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)


def test_an_upgrade_brings_new_settings_and_a_new_crd_and_a_rollback_the_old_ones(
    release: Release, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    shutil.copytree(CHART, older)
    source = older / "files" / "crds" / "nodemetrics.yaml"
    crd = yaml.safe_load(source.read_text("utf-8"))
    short_names = crd["spec"]["names"].pop("shortNames")
    source.write_text(yaml.safe_dump(crd))

    release.apply(chart=older)
    assert release.settings("agent") == {}
    assert "shortNames" not in release.crd()["spec"]["names"]

    release.apply("--set", "agent.settings.coldStart=12h")
    assert release.settings("agent") == {"coldStart": "12h"}
    assert release.crd()["spec"]["names"]["shortNames"] == short_names

    release.must("rollback", "1")
    assert release.settings("agent") == {}
    assert "shortNames" not in release.crd()["spec"]["names"]


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_a_dry_run_on_the_server_takes_every_set_of_values(release: Release, values: Path) -> None:
    before = release.kubectl.everything()
    command = ("install", RELEASE, CHART, "--namespace", NAMESPACE, "--dry-run=server", "--values", values)
    assert "STATUS: pending-install" in release.helm.must(*command)
    assert release.left_behind(before) == set()


def test_an_uninstall_without_hooks_leaves_nothing(release: Release) -> None:
    before = release.kubectl.everything()
    release.apply("--values", str(CHART / "ci" / "default-values.yaml"))
    assert release.left_behind(before)
    release.must("uninstall", "--no-hooks", "--wait")
    eventually(lambda: not release.left_behind(before), 60.0, 0.5)


def test_an_upgrade_moves_the_state_from_the_host_to_an_empty_dir_and_back(release: Release) -> None:
    def volume() -> str:
        agent = release.client.get(DAEMON_SETS, f"{RELEASE}-agent", NAMESPACE)["spec"]["template"]["spec"]
        (state,) = [volume for volume in agent["volumes"] if volume["name"] == "state"]
        assert len(agent.get("initContainers", [])) == ("hostPath" in state)
        return " ".join(sorted(state.keys() - {"name"}))

    for kind in ("hostPath", "emptyDir", "hostPath"):
        release.apply("--set", f"agent.state.volume={kind}")
        assert volume() == kind


def test_an_upgrade_that_changes_nothing_rolls_nothing(release: Release) -> None:
    release.apply()
    before = release.kubectl.must(
        "get", "daemonset,deployment", "-n", NAMESPACE, "-o", "jsonpath={..metadata.generation}"
    )
    release.apply()
    after = release.kubectl.must(
        "get", "daemonset,deployment", "-n", NAMESPACE, "-o", "jsonpath={..metadata.generation}"
    )
    assert before == after


APPLIES = {"by-the-server": "--server-side=true", "by-the-client": "--server-side=false"}


@pytest.mark.parametrize("how", APPLIES.values(), ids=APPLIES.keys())
def test_an_upgrade_keeps_the_webhooks_certificate_and_whom_api_servers_trust(release: Release, how: str) -> None:
    if "--server-side" not in release.helm.must("upgrade", "--help"):
        pytest.skip("this Helm has but one way")
    client, changed = release.client, ("--set", "manager.webhook.timeoutSeconds=7")

    def kept() -> dict[str, Any]:
        return dict(client.get(SECRETS, WEBHOOK, NAMESPACE).get("data", {}))

    def registered() -> list[tuple[str, int]]:
        found = [client.get(resource, RELEASE)["webhooks"] for resource in (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS)]
        return [(each["clientConfig"].get("caBundle", ""), each["timeoutSeconds"]) for (each,) in found]

    release.apply(how)
    assert kept() == {}
    assert registered() == [("", 3), ("", 3)]
    registration = Registration(client, RELEASE, NAMESPACE)
    SharedSecret(
        client,
        NAMESPACE,
        WEBHOOK,
        Ports(Tls()),
        hosts=(f"{WEBHOOK}.{NAMESPACE}.svc",),
        rotation=Rotation(),
        registration=registration,
        is_leader=lambda: True,
    ).turn()
    certificate = kept()
    authority = certificate["ca.crt"]
    assert authority

    release.apply(how, *changed)
    assert (kept(), registered()) == (certificate, [(authority, 7), (authority, 7)])
    release.apply(how)
    assert (kept(), registered()) == (certificate, [(authority, 3), (authority, 3)])
    release.must("rollback", "2")
    assert (kept(), registered()) == (certificate, [(authority, 7), (authority, 7)])


def test_an_upgrade_takes_the_webhook_away_and_brings_it_back(release: Release) -> None:
    def there() -> set[str]:
        kinds = "secrets,services,mutatingwebhookconfigurations,validatingwebhookconfigurations"
        kinds += ",issuers.cert-manager.io,certificates.cert-manager.io"
        selector = f"app.kubernetes.io/instance={RELEASE}"
        found = release.kubectl.must("get", kinds, "-n", NAMESPACE, "-l", selector, "-o", "name").splitlines()
        own = [line for line in found if line.endswith((f"/{WEBHOOK}", f"/{RELEASE}"))]
        return {re.split("[./]", line)[0] for line in own}

    own = {"service", "mutatingwebhookconfiguration", "validatingwebhookconfiguration"}
    for values, expected in (
        ((), own | {"secret"}),
        (("--set", "manager.webhook.enabled=false"), {"secret"}),  # the API port serves that certificate, too
        (("--set", "manager.webhook.enabled=false,access.tls=false"), set()),
        ((), own | {"secret"}),
        (("--set", "manager.webhook.certificates=cert-manager"), own | {"issuer", "certificate"}),
        ((), own | {"secret"}),
    ):
        release.apply(*values)
        assert there() == expected


def test_an_uninstall_leaves_nothing_not_even_mid_on_a_node(release: Release, node: str) -> None:
    client = release.client
    before = release.kubectl.everything()
    release.apply("--values", str(CHART / "ci" / "default-values.yaml"))
    client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{NODE}-idle"}})
    client.patch(NODES, f"{NODE}-idle", {"status": {"capacity": NATIVE | MID}}, subresource="status")
    for name in (node, f"{NODE}-idle"):
        client.patch(NODES, name, {"status": {"capacity": MID, "allocatable": MID}}, subresource="status")

    release.must("uninstall", "--timeout", "120s")

    for name in (node, f"{NODE}-idle"):
        status = client.get(NODES, name)["status"]
        assert not MID.keys() & (status["capacity"].keys() | status["allocatable"].keys())
    eventually(lambda: not release.left_behind(before), 60.0, 0.5)


def test_a_cleanup_that_fails_says_so_and_leaves_its_log(release: Release, node: str) -> None:
    before = release.kubectl.everything()
    release.apply("--set", "cleanup.timeoutSeconds=15", "--set", "rbac.create=false")
    done = release.helm.run("uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout", "60s")
    assert done.returncode != 0
    assert "headroom-cleanup" in done.stderr
    job = release.client.get(JOBS, f"{RELEASE}-cleanup", NAMESPACE)
    assert {"Failed": "True"}.items() <= {c["type"]: c["status"] for c in job["status"]["conditions"]}.items()
    left = release.left_behind(before)
    assert not [line for line in left if "Role" in line or line.startswith("ServiceAccount")]
    release.kubectl.must("delete", "job", f"{RELEASE}-cleanup", "-n", NAMESPACE)


def test_a_crd_that_is_kept_outlives_the_release_and_the_next_one_takes_it_over(release: Release, node: str) -> None:
    client = release.client
    release.apply("--set", "crds.keep=true")
    for name, labels in (("ours", {names.LABEL_MANAGED_BY: names.MANAGED_BY}), ("found-there", {})):
        meta = {"name": name, "labels": labels}
        client.create(NODEMETRICS, {"apiVersion": NODEMETRICS.api_version, "kind": "NodeMetric", "metadata": meta})
    release.must("uninstall", "--timeout", "120s")
    assert [item["metadata"]["name"] for item in client.list(NODEMETRICS).items] == ["found-there"]
    release.apply()
    assert release.crd()["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE
    assert [pod for pod in client.list(PODS, NAMESPACE).items if "cleanup" in pod["metadata"]["name"]] == []


def test_its_own_pods_measure_report_and_lend_until_it_is_uninstalled(
    release: Release, node: str, tmp_path: Path
) -> None:
    """The chart's pods as they are on any cluster: init container, mounted token, uid 65532, probes and all."""
    client = release.client
    before = release.kubectl.everything()
    state = tmp_path / "state"
    quick = ["predictionHour=1s", "reportingInterval=2s", "histogramUpdateInterval=2s", "checkpointInterval=2s"]
    quick.append(f"cgroupParent={CGROUP_PARENT}")  # this kubelet is not the machine's own
    settings = [word for value in quick for word in ("--set", f"agent.settings.{value}")]
    # They share this machine's network, on which a port can be had once.
    release.run(*IMAGE, "--set", "manager.replicas=1", "--set", f"agent.state.hostPath={state}", *settings)
    size = client.get(NODES, node)["status"]["capacity"]["memory"]
    client.create(PODS, _pod("idle", str(Resources.parse({"memory": size}).memory_bytes // 2)), "default")

    namespace = ("-n", NAMESPACE, "--timeout=90s")
    release.kubectl.must("rollout", "status", f"daemonset/{RELEASE}-agent", *namespace)
    release.kubectl.must("rollout", "status", f"deployment/{RELEASE}-manager", *namespace)
    eventually(lambda: _predicted(client.list(NODEMETRICS).items), 60.0, 0.5)
    eventually(lambda: int(client.get(NODES, node)["status"]["allocatable"].get(names.MID_MEMORY, "0")) > 0, 60.0, 0.5)
    assert eventually(lambda: _owners(state)) == {(65532, 65532)}

    release.kubectl.must("delete", "pod", "idle", "--now")
    release.must("uninstall", "--timeout", "120s")
    status = client.get(NODES, node)["status"]
    assert not MID.keys() & (status["capacity"].keys() | status["allocatable"].keys())
    eventually(lambda: not release.left_behind(before), 60.0, 0.5)


def test_its_own_pod_translates_pods_and_refuses_a_policy_that_means_nothing(
    release: Release, node: str, tmp_path: Path
) -> None:
    """The manager's pod as it is on any cluster, which the API server finds by its Service."""
    client = release.client
    before = release.kubectl.everything()
    release.run(*IMAGE, "--set", "manager.replicas=1", "--set-string", "agent.nodeSelector.none=there")
    _publish_endpoint(client)
    release.kubectl.must("rollout", "status", f"deployment/{RELEASE}-manager", "-n", NAMESPACE, "--timeout=90s")

    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(_pod("lent-to", "64Mi", PriorityClass.MID)))

    def translated() -> bool:
        stored = json.loads(release.kubectl.must("create", "-f", str(pod), "--dry-run=server", "-o", "json"))
        return bool(
            stored["spec"]["containers"][0]["resources"]
            == {
                "requests": {names.MID_MEMORY: "64Mi", "cpu": "0", "memory": "0"},
                "limits": {"cpu": "250m", "memory": "64Mi"},
            }
        )

    eventually(translated, 60.0, 0.5)
    (manager,) = [each for each in _processes() if f"--webhook-secret={WEBHOOK}" in _command(each)]
    assert set(manager.uids()) == {65532}
    bad = {"data": {names.CONFIG_KEY_COLOCATION: '{"enable": true, "degradeTimeMinutes": 0}'}}
    with pytest.raises(Forbidden, match="degradeTimeMinutes: 0: must be greater than 0"):
        client.patch(CONFIGMAPS, names.CONFIG_MAP, bad, NAMESPACE)

    client.delete(ENDPOINT_SLICES, WEBHOOK, NAMESPACE)
    release.must("uninstall", "--timeout", "120s")
    eventually(lambda: not release.left_behind(before), 60.0, 0.5)


def test_its_own_pod_buys_nodes_and_an_uninstall_takes_those_without_machines_away(release: Release, node: str) -> None:
    """The manager's pod as it is on any cluster, with no more rights than its cloud takes."""
    client = release.client
    before = release.kubectl.everything()
    values = str(CHART / "ci" / "simulated-cloud-values.yaml")
    quiet = ("--set", "manager.replicas=1", "--set-string", "agent.nodeSelector.none=there")
    release.run("--values", values, *quiet)
    release.kubectl.must("rollout", "status", f"deployment/{RELEASE}-manager", "-n", NAMESPACE, "--timeout=90s")
    pod = _pod("fits-nowhere", "6Gi")
    pod["spec"]["nodeSelector"] = {fake_nodes.LABEL_CLOUD: fake_nodes.CLOUD}
    client.create(PODS, pod, "default")

    def bound_to() -> str:
        return str(client.get(PODS, "fits-nowhere", "default")["spec"].get("nodeName", ""))

    bought = eventually(bound_to, 60.0, 0.5)
    assert fake_nodes.belongs_to(client.get(NODES, bought, into=Node))
    client.delete(PODS, "fits-nowhere", "default", grace_period_seconds=0)  # nobody ends it on a node without machine

    def told() -> bool:
        with suppress(NotFound):
            return "name: general" in client.get(CONFIGMAPS, "rehearsal-status", NAMESPACE)["data"]["status"]
        return False

    eventually(told)

    release.must("uninstall", "--timeout", "120s")
    with pytest.raises(NotFound):
        client.get(NODES, bought)
    eventually(lambda: not release.left_behind(before), 60.0, 0.5)


def _processes() -> list[psutil.Process]:
    """Those of this machine, without what runs on nodes that have namespaces of their own."""

    def namespace(pid: int | str) -> str:
        with suppress(OSError):
            return os.readlink(f"/proc/{pid}/ns/pid")
        return ""

    return [each for each in psutil.process_iter() if namespace(each.pid) == namespace("self")]


def _publish_endpoint(client: Client) -> None:
    """Pods have this machine's loopback address, which is no endpoint; it has another one on which they answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = probe.getsockname()[0]
    body = {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": "EndpointSlice",
        "metadata": {"name": WEBHOOK, "labels": {"kubernetes.io/service-name": WEBHOOK}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "webhook", "port": 9443}],
    }
    client.create(ENDPOINT_SLICES, body, NAMESPACE)


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def _owners(directory: Path) -> set[tuple[int, int]]:
    """Whom its files belong to. While they are looked at, one takes another's name, which is then no more."""
    found = set()
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            file = path.stat()
            if stat.S_ISREG(file.st_mode):
                found.add((file.st_uid, file.st_gid))
    return found


def _predicted(metrics: list[dict[str, Any]]) -> bool:
    return any("prodReclaimableMetric" in metric.get("status", {}) for metric in metrics)


def _pod(name: str, memory: str, priority_class: PriorityClass = PriorityClass.PROD) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "none",
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"memory": memory}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.LABEL_PRIORITY_CLASS: priority_class.value}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
