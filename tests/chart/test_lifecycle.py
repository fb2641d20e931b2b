"""A release's whole life in the API: install, upgrade, rollback, uninstall. What its pods do, tests/node shows."""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.identities import CHART, RELEASE
from manager.nodeside.webhook.certificate_store import Ports, Registration, SharedSecret
from manager.nodeside.webhook.certificates import Rotation
from shared import names
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NODEMETRICS,
    SECRETS,
    SERVICEACCOUNTS,
    VALIDATINGWEBHOOKS,
    Resource,
)
from shared.web.tls import Tls
from tests.chart.helm import CI, IMAGE, QUIET, Helm
from tests.chart.kubectl import Kubectl
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.custom_kinds import CRDS, is_served
from tests.support.programs import program

pytestmark = pytest.mark.real_only("Helm needs controllers that the embedded one lacks")

NAMESPACE = names.INSTALL_NAMESPACE
DAEMON_SETS = Resource("apps", "v1", "daemonsets", namespaced=True)
WEBHOOK = f"{RELEASE}-webhook"


class Release:
    """The release of the chart on one cluster."""

    def __init__(self, helm: Helm, kubectl: Kubectl, client: Client) -> None:
        self.helm = helm
        self.kubectl = kubectl
        self.client = client

    def apply(self, *arguments: str, chart: Path = CHART) -> None:
        """Installs or upgrades, without processes. That the server's schemas admit all values, which takes Helm longer
        to find out than all the rest, the dry run shows.
        """
        self.run("--disable-openapi-validation", *QUIET, *arguments, chart=chart)

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
        return self.kubectl.everything() - before


@pytest.fixture
def release(server: ApiServer, tmp_path: Path) -> Release:
    """Not installed yet."""
    helm = Helm(program("helm"), tmp_path / "helm", server.kubeconfig)
    kubectl = Kubectl(program("kubectl"), server.kubeconfig)
    helm.must("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks", "--ignore-not-found", "--wait")
    client = server.client()
    with suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    eventually(lambda: client.list(SERVICEACCOUNTS, NAMESPACE).items and client.list(CONFIGMAPS, NAMESPACE).items)
    return Release(helm, kubectl, client)


@pytest.fixture
def without_kinds(release: Release) -> None:
    """The API server of the suite starts with them."""
    release.kubectl.must("delete", "crd", str(NODEMETRICS), str(CLUSTERCOLOCATIONPROFILES), "--ignore-not-found")


@pytest.mark.usefixtures("without_kinds")
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

    release.apply("--set", "agent.settings.reportingInterval=90s")
    assert release.settings("agent") == {"reportingInterval": "90s"}
    assert release.crd()["spec"]["names"]["shortNames"] == short_names

    release.must("rollback", "1")
    assert release.settings("agent") == {}
    assert "shortNames" not in release.crd()["spec"]["names"]


def test_a_dry_run_on_the_server_takes_every_set_of_values_and_leaves_nothing(release: Release) -> None:
    before = release.kubectl.everything()
    for values in CI:
        command = ("install", RELEASE, CHART, "--namespace", NAMESPACE, "--dry-run=server", *IMAGE, "--values", values)
        assert "STATUS: pending-install" in release.helm.must(*command), values
    assert release.left_behind(before) == set()


@pytest.mark.usefixtures("without_kinds")
def test_an_uninstall_leaves_the_definitions_alone_and_the_next_release_takes_them_over(release: Release) -> None:
    kinds = (NODEMETRICS, CLUSTERCOLOCATIONPROFILES)
    definitions = {str(each) for each in kinds} | {f"{each.version}.{each.group}" for each in kinds}  # APIServices
    before = release.kubectl.everything()

    def left() -> set[str]:
        return {line.split()[-1] for line in release.left_behind(before)}

    release.apply("--values", str(CHART / "ci" / "default-values.yaml"))
    assert release.left_behind(before)
    release.must("uninstall", "--no-hooks", "--wait")
    eventually(lambda: left() == definitions, 60.0, 0.5)
    release.apply("--set", "crds.keep=false")
    release.must("uninstall", "--no-hooks", "--wait")
    eventually(lambda: not release.left_behind(before), 60.0, 0.5)


@pytest.mark.usefixtures("without_kinds")
def test_a_definition_of_another_owner_stays_as_it_is(release: Release) -> None:
    theirs = yaml.safe_load((CHART / "files" / "crds" / "nodemetrics.yaml").read_text("utf-8"))
    del theirs["spec"]["names"]["shortNames"]
    release.client.create(CRDS, theirs)
    eventually(lambda: is_served(release.client, NODEMETRICS))
    release.apply()
    assert "shortNames" not in release.crd()["spec"]["names"]
    assert release.client.get(CRDS, str(CLUSTERCOLOCATIONPROFILES))["metadata"]["labels"]
    release.apply("--set", "crds.enabled=true", "--take-ownership")
    assert release.crd()["spec"]["names"]["shortNames"]


def test_a_second_release_is_refused_by_name_of_the_first(release: Release) -> None:
    release.apply()
    for component, other in (("agent", "manager"), ("manager", "agent")):
        values = (*QUIET, "--set", f"{other}.enabled=false")
        command = ("install", "second", CHART, "--namespace", "default", "--dry-run=server", *values)
        done = release.helm.run(*command)
        assert done.returncode != 0
        assert f"release headroom in namespace {NAMESPACE} is the {component} of this cluster already" in done.stderr


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
    SharedSecret(
        Registration(client, RELEASE, NAMESPACE),
        WEBHOOK,
        Ports(Tls()),
        hosts=(f"{WEBHOOK}.{NAMESPACE}.svc",),
        rotation=Rotation(),
        is_leader=lambda: True,
    ).renew()
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
