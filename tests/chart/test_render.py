"""What the chart renders, for every set of values that it is tested with."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.enforcer.settings import EnforcerSettings
from agent.settings import AgentSettings
from deploy.local.identities import CHART, RELEASE
from manager.autoscaler.cloudprovider.aws import config as aws_config
from manager.autoscaler.cloudprovider.aws.fleet import AwsOptions
from manager.autoscaler.cloudprovider.clusterapi import config as clusterapi_config
from manager.autoscaler.cloudprovider.externalgrpc import config as externalgrpc_config
from manager.autoscaler.cloudprovider.karpenter import config as karpenter_config
from manager.autoscaler.cloudprovider.karpenter import registry as karpenter_registry
from manager.autoscaler.cloudprovider.simulated import config as simulated_config
from manager.autoscaler.cloudprovider.simulated import fake_nodes, state_store
from manager.autoscaler.pod_injection import chunk_sources
from manager.autoscaler.pricing import price_sources
from manager.autoscaler.pricing.model import Machine
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.utilization import node_groups
from manager.daemon_settings import DaemonSettings
from manager.nodeside.scheduling import args as scheduling_args
from manager.nodeside.webhook.webhook import MUTATE_PODS, VALIDATE_CONFIG
from shared import names, settings
from shared.api import colocation, thresholds
from shared.api.nodemetric_spec import ResourceThresholds
from shared.kube import node_heartbeat
from shared.kube.resources import NODEMETRICS
from shared.names import Tier
from tests.chart.helm import CI, IMAGE, PROFILES, Helm, Manifest, containers, one, pods
from tests.support.apiserver import ROOT

DEFAULT = CHART / "ci" / "default-values.yaml"
EVERYTHING = CHART / "ci" / "everything-values.yaml"
SCHEDULER = CHART / "ci" / "scheduler-values.yaml"
ENFORCER = CHART / "ci" / "enforcer-values.yaml"
EXTERNAL_CLOUD = CHART / "ci" / "autoscaler-values.yaml"
AWS_CLOUD = CHART / "ci" / "aws-values.yaml"
KARPENTER = CHART / "ci" / "karpenter-values.yaml"
CLUSTER_API = CHART / "ci" / "clusterapi-values.yaml"
SIMULATED_CLOUD = CHART / "ci" / "simulated-cloud-values.yaml"
CRD_FILES = sorted((CHART / "files" / "crds").glob("*.yaml"))

OF_EVERY_CLUSTER = ("extension-apiserver-authentication-reader", "system:kube-scheduler", "system:volume-scheduler")

pytestmark = pytest.mark.embedded_only("no server is asked")

every_ci = pytest.mark.parametrize("values", CI, ids=[path.stem.removesuffix("-values") for path in CI])


@pytest.fixture(scope="module")
def defaults(helm: Helm) -> list[Manifest]:
    return helm.objects()


@pytest.mark.parametrize(
    ("process", "kind"), [("agent", AgentSettings), ("manager", DaemonSettings)], ids=["agent", "manager"]
)
def test_a_removed_setting_is_refused_with_what_replaces_it(
    helm: Helm, process: str, kind: type[msgspec.Struct]
) -> None:
    for name, replacement in settings.removed(kind).items():
        value = f"{process}.settings.{settings.key(name)}"
        assert f"{value}: this setting was removed. {replacement}" in helm.refusal("--set", f"{value}=true")


@pytest.mark.thorough
@every_ci
def test_every_set_of_values_passes_the_strict_linter(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.must("lint", "--strict", CHART, *IMAGE, "--values", values)


@every_ci
def test_no_pod_reaches_out_of_its_sandbox(helm: Helm, values: Path) -> None:
    for pod in pods(helm.objects("--values", values)).values():
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod):
            context = container["securityContext"]
            assert "privileged" not in context
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"]["drop"] == ["ALL"]


@every_ci
def test_the_only_steps_as_root_give_the_state_directory_away_and_remove_it_when_it_is_empty(
    helm: Helm, values: Path
) -> None:
    for pod in pods(helm.objects("--values", values)).values():
        for container in containers(pod):
            context = container["securityContext"]
            added = context["capabilities"].get("add", [])
            if container["name"] == "own-state":
                assert container["command"] == ["chown", "65532:65532", "/var/lib/headroom"]
                assert (context["runAsUser"], added) == (0, ["CHOWN"])
                assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/var/lib/headroom"]
            elif container["name"] == "folder":
                assert container["command"] == ["rmdir", "/parent/headroom"]
                assert (context["runAsUser"], added) == (0, [])
                assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/parent"]
            elif container["name"] == "enforcer":
                assert (context["runAsUser"], added) == (0, [])
            else:
                assert "runAsUser" not in context
                assert not added


@every_ci
def test_the_agent_sees_of_its_host_the_cgroups_and_its_state_alone(helm: Helm, values: Path) -> None:
    for component, pod in pods(helm.objects("--values", values)).items():
        host = {volume["name"] for volume in pod["spec"].get("volumes", []) if "hostPath" in volume}
        if component != "agent":
            assert host == ({"state", "parent"} if component == "cleanup-state" else set())
            continue
        mounts = {mount["name"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        enforced = values == ENFORCER
        assert host <= {"cgroup", "state"} | ({"kubepods-0", "kubepods-1"} if enforced else set())
        assert mounts.keys() == {"config", "cgroup", "state"} | ({"orders", "status", "token"} if enforced else set())
        expected = {
            "name": "cgroup",
            "mountPath": "/host/cgroup",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        }
        assert mounts["cgroup"] == expected


def test_an_enforcer_has_the_pods_cgroups_to_write_and_no_token(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects("--values", ENFORCER)
    spec = pods(objects)["agent"]["spec"]
    agent, enforcer = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert token in {mount["mountPath"] for mount in agent["volumeMounts"]}
    written = {mount["mountPath"] for mount in enforcer["volumeMounts"] if not mount.get("readOnly")}
    assert written == {
        "/host/cgroup/cpu,cpuacct/kubepods.slice",
        "/host/cgroup/memory/kubepods.slice",
        "/run/headroom/status",
    }
    assert token not in {mount["mountPath"] for mount in enforcer["volumeMounts"]}
    (whole,) = [mount for mount in enforcer["volumeMounts"] if mount["name"] == "cgroup"]
    assert (whole["readOnly"], whole["recursiveReadOnly"]) == (True, "IfPossible")
    assert "mountPropagation" not in whole  # with one, API servers refuse it
    assert "ports" not in enforcer
    assert "env" not in enforcer
    assert {volume["hostPath"]["type"] for volume in spec["volumes"] if volume["name"].startswith("kubepods")} == {
        "Directory"
    }
    shared = {"orders": (agent, enforcer), "status": (enforcer, agent)}
    for name, (writer, reader) in shared.items():
        modes = [
            next(mount.get("readOnly", False) for mount in each["volumeMounts"] if mount["name"] == name)
            for each in (writer, reader)
        ]
        assert modes == [False, True]
    data = one(objects, "ConfigMap", "headroom-agent")["data"]["enforcer.yaml"]
    (tmp_path / "enforcer.yaml").write_text(data)
    argv = [f"--config={tmp_path / 'enforcer.yaml'}", *enforcer["args"][1:]]
    read = settings.load(EnforcerSettings, program="enforcer", description="", argv=argv, environment={})
    assert (read.batch_idle, read.orders_dir, read.status_dir) == (
        False,
        "/run/headroom/orders",
        "/run/headroom/status",
    )
    told = settings.load(
        AgentSettings,
        program="agent",
        description="",
        argv=[argument for argument in agent["args"] if "enforcer" in argument],
        environment={},
    )
    assert (told.enforcer_orders_dir, told.enforcer_status_dir) == (read.orders_dir, read.status_dir)


def test_an_enforcer_that_is_told_no_paths_finds_the_pods_cgroups_among_all(helm: Helm) -> None:
    spec = pods(helm.objects("--set", "enforcer.enabled=true"))["agent"]["spec"]
    (enforcer,) = (each for each in spec["containers"] if each["name"] == "enforcer")
    written = {mount["mountPath"] for mount in enforcer["volumeMounts"] if not mount.get("readOnly")}
    assert written == {"/host/cgroup", "/run/headroom/status"}
    (whole,) = [mount for mount in enforcer["volumeMounts"] if mount["name"] == "cgroup"]
    assert whole == {"name": "cgroup", "mountPath": "/host/cgroup"}
    assert {volume["name"] for volume in spec["volumes"] if "hostPath" in volume} == {"cgroup", "state"}


def test_without_an_enforcer_nothing_of_it_is_there(helm: Helm, defaults: list[Manifest]) -> None:
    spec = pods(defaults)["agent"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["agent"]
    assert spec["automountServiceAccountToken"] is True
    assert list(one(defaults, "ConfigMap", "headroom-agent")["data"]) == ["agent.yaml"]
    assert not [argument for argument in spec["containers"][0]["args"] if "enforcer" in argument]
    for path in ("/etc", "/sys/fs/cgroup", "/sys/fs/cgroup/../x", "/sys/fs/cgroup/a/.."):
        assert "/enforcer/kubepods" in helm.refusal(
            "--set", "enforcer.enabled=true", "--set", f"enforcer.kubepods={{{path}}}"
        )


def test_a_state_in_an_empty_dir_needs_no_step_as_root(helm: Helm) -> None:
    agent = pods(helm.objects("--values", CHART / "ci" / "emptydir-values.yaml"))["agent"]
    assert "initContainers" not in agent["spec"]
    assert {"name": "state", "emptyDir": {"sizeLimit": "300Mi"}} in agent["spec"]["volumes"]


@every_ci
def test_no_rule_has_a_wildcard_and_every_binding_leads_to_a_role_and_an_account(helm: Helm, values: Path) -> None:
    objects = helm.objects("--values", values)
    for role in (item for item in objects if item["kind"] in ("Role", "ClusterRole")):
        for rule in role["rules"]:
            assert "*" not in [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
            own = ("/headroom/", "/metrics")
            assert all(url.startswith(own) for url in rule.get("nonResourceURLs", ()))
    known = {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects}
    for binding in (item for item in objects if item["kind"].endswith("RoleBinding")):
        role = binding["roleRef"]
        namespace = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        if role["name"] not in OF_EVERY_CLUSTER:
            assert (role["kind"], namespace, role["name"]) in known
        for subject in binding["subjects"]:
            if subject["kind"] == "ServiceAccount" and not role["name"].endswith("-reader"):
                assert ("ServiceAccount", subject["namespace"], subject["name"]) in known
            else:
                assert role["name"].endswith(("-reader", "-scheduler"))


def _rules(objects: list[Manifest], kind: str, name: str) -> dict[str, Manifest]:
    """By their resource; of several for one, the one that is held to names."""
    rules = sorted(one(objects, kind, name)["rules"], key=lambda rule: "resourceNames" in rule)
    return {resource: rule for rule in rules for resource in rule.get("resources", ())}


def _granted(objects: list[Manifest]) -> set[tuple[str, str]]:
    """What the manager may do in all namespaces: resources and verbs."""
    rules = one(objects, "ClusterRole", "headroom-manager")["rules"]
    return {(resource, verb) for rule in rules for resource in rule.get("resources", ()) for verb in rule["verbs"]}


def _egress(objects: list[Manifest]) -> list[Manifest]:
    """Of the manager's network policy."""
    (policy,) = [each for each in objects if each["kind"] == "NetworkPolicy" and "manager" in each["metadata"]["name"]]
    return list(policy["spec"]["egress"])


def _ports_within_reach(objects: list[Manifest]) -> set[int]:
    return {port["port"] for rule in _egress(objects) for port in rule["ports"]}


def test_the_lease_that_may_be_written_is_the_one_the_manager_writes(defaults: list[Manifest]) -> None:
    assert _rules(defaults, "Role", "headroom-manager")["leases"]["resourceNames"] == [names.MANAGER_LEASE]


def _settings(helm: Helm, tmp_path: Path, *arguments: str | Path) -> tuple[list[Manifest], DaemonSettings]:
    """What is rendered, and with which settings its manager runs."""
    objects = helm.objects(*arguments)
    container = pods(objects)["manager"]["spec"]["containers"][0]
    (config_map,) = [item for item in objects if "manager.yaml" in item.get("data", {})]
    return objects, _loaded(DaemonSettings, config_map, tmp_path, *container["args"])


def _of_webhook(objects: list[Manifest]) -> set[str]:
    """Kinds of the objects that there are for the webhook alone."""
    kinds = {item["kind"] for item in objects if item["kind"].endswith("WebhookConfiguration")}
    return kinds | {item["kind"] for item in objects if "-webhook" in item["metadata"]["name"]}


@pytest.mark.parametrize("values", [DEFAULT, EVERYTHING], ids=["default", "everything"])
def test_the_webhook_is_served_where_it_is_registered_with_a_certificate_that_may_be_kept(
    helm: Helm, tmp_path: Path, values: Path
) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--values", values)
    name = settings_.manager.webhook_secret
    assert name == one(objects, "Secret", name)["metadata"]["name"]
    assert "data" not in one(objects, "Secret", name)
    (port,) = one(objects, "Service", name)["spec"]["ports"]
    (container,) = pods(objects)["manager"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports[port["targetPort"]] == int(settings_.manager.webhook_listen.rpartition(":")[2])
    paths = {}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (webhook,) = one(objects, kind, settings_.manager.webhook_configuration)["webhooks"]
        service = webhook["clientConfig"].pop("service")
        assert webhook["clientConfig"] == {}  # whom to trust there is for the manager to say
        paths[kind] = service.pop("path")
        assert service == {"name": name, "namespace": names.INSTALL_NAMESPACE, "port": port["port"]}
    assert list(paths.values()) == [f"/{MUTATE_PODS}", f"/{VALIDATE_CONFIG}"]
    component = name.replace("-webhook", "-manager")
    services = [f"{service}.{names.INSTALL_NAMESPACE}.svc" for service in (name, component)]
    assert settings_.manager.webhook_hosts == (*services, names.MANAGER_SERVER_NAME)
    assert _rules(objects, "Role", component)["secrets"]["resourceNames"] == [name]
    kept = _rules(objects, "ClusterRole", component)["mutatingwebhookconfigurations"]
    assert (kept["resourceNames"], kept["verbs"]) == ([settings_.manager.webhook_configuration], ["get", "patch"])


def test_nobody_waits_for_the_webhook_in_its_own_namespace_or_in_the_systems(helm: Helm) -> None:
    for values, more in ((DEFAULT, []), (EVERYTHING, [{"key": "example.com/frozen", "operator": "DoesNotExist"}])):
        objects = helm.objects("--values", values)
        (configuration,) = [item for item in objects if item["kind"] == "MutatingWebhookConfiguration"]
        (webhook,) = configuration["webhooks"]
        spared = {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", names.INSTALL_NAMESPACE],
        }
        assert webhook["namespaceSelector"]["matchExpressions"] == [*more, spared]
    in_the_systems = helm.template("--namespace", "kube-system", "--show-only", "templates/webhook.yaml")
    assert 'values: ["kube-system"]' in in_the_systems


def test_a_webhook_that_does_not_answer_holds_nobody_up_unless_that_is_wanted(helm: Helm) -> None:
    def policies(values: Path) -> list[str]:
        kinds = [item for item in helm.objects("--values", values) if item["kind"].endswith("WebhookConfiguration")]
        return [item["webhooks"][0]["failurePolicy"] for item in sorted(kinds, key=lambda item: str(item["kind"]))]

    assert policies(DEFAULT) == ["Ignore", "Ignore"]
    assert policies(EVERYTHING) == ["Fail", "Ignore"]


def test_with_cert_manager_the_manager_may_read_no_secret_and_change_no_webhook(helm: Helm, tmp_path: Path) -> None:
    values = ("--set", "manager.webhook.certificates=cert-manager")
    objects, settings_ = _settings(helm, tmp_path, *values)
    assert settings_.manager.webhook_certificate_directory == "/etc/headroom-webhook"
    spec = pods(objects)["manager"]["spec"]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "webhook"]
    assert (mount["mountPath"], mount["readOnly"]) == (settings_.manager.webhook_certificate_directory, True)
    (volume,) = [each for each in spec["volumes"] if each["name"] == "webhook"]
    certificate = one(objects, "Certificate", "headroom-webhook")
    assert volume["secret"] == {"secretName": certificate["spec"]["secretName"], "optional": True}
    services = [f"headroom-{part}.{names.INSTALL_NAMESPACE}.svc" for part in ("webhook", "manager")]
    assert certificate["spec"]["dnsNames"] == [*services, names.MANAGER_SERVER_NAME]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = one(objects, kind, "headroom")["metadata"]["annotations"]
        source = f"{names.INSTALL_NAMESPACE}/{certificate['metadata']['name']}"
        assert annotations == {"cert-manager.io/inject-ca-from": source}
    assert "Secret" not in _of_webhook(objects)
    assert "secrets" not in _rules(objects, "Role", "headroom-manager")
    assert "mutatingwebhookconfigurations" not in _rules(objects, "ClusterRole", "headroom-manager")
    # The chain of the release's own authority, which is left out where another one issues.
    issuer = one(objects, "Issuer", certificate["spec"]["issuerRef"]["name"])
    authority = one(objects, "Certificate", issuer["spec"]["ca"]["secretName"])
    assert authority["spec"]["isCA"] is True
    assert one(objects, "Issuer", authority["spec"]["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    others = helm.objects("--values", CHART / "ci" / "cert-manager-values.yaml")
    assert [item["spec"]["issuerRef"]["name"] for item in others if item["kind"] == "Certificate"] == ["internal"]
    assert "Issuer" not in {item["kind"] for item in others}


@pytest.mark.parametrize(
    "value", ["manager.webhook.enabled=false", "manager.settings.dryRun=true", "manager.enabled=false"]
)
def test_where_nothing_serves_the_webhook_nothing_is_there_for_it(helm: Helm, value: str) -> None:
    objects = helm.objects("--set", value, "--set", "networkPolicy.enabled=true", "--set", "access.tls=false")
    assert _of_webhook(objects) == set()
    assert "webhook" not in json.dumps([item for item in objects if item["kind"] != "CustomResourceDefinition"])


def test_a_webhook_that_others_register_is_served_all_the_same(helm: Helm, tmp_path: Path) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--set", "manager.webhook.register=false")
    policy = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert _of_webhook(objects) == {"Secret", "Service"} | policy
    assert settings_.manager.webhook_listen


@pytest.mark.parametrize("serves", [True, False])
def test_a_manager_that_ends_is_asked_for_a_while_longer_if_it_serves_the_webhook(helm: Helm, serves: bool) -> None:
    pod = pods(helm.objects("--set", f"manager.webhook.enabled={str(serves).lower()}"))["manager"]
    (container,) = pod["spec"]["containers"]
    assert container.get("lifecycle") == ({"preStop": {"sleep": {"seconds": 5}}} if serves else None)


SPARE = "colocationConfig.thresholds.clusterStrategy.evictEnabled=false"


@pytest.mark.parametrize(
    ("values", "granted"),
    [
        ([], True),
        (["colocationConfig.create=false"], False),
        (["rbac.eviction=false"], False),
        ([SPARE], False),
        pytest.param([SPARE, "colocationConfig.strategy.midFormula=seed"], False, marks=pytest.mark.thorough),
        pytest.param([SPARE, "colocationConfig.strategy.evictionAfterSeconds=off"], False, marks=pytest.mark.thorough),
        ([SPARE, "colocationConfig.strategy.midFormula=seed-mixed"], True),
        ([SPARE, "colocationConfig.strategy.evictionAfterSeconds=60"], True),
        pytest.param(
            [SPARE, "colocationConfig.strategy.nodeConfigs[0].evictionAfterSeconds=60"],
            True,
            marks=pytest.mark.thorough,
        ),
        (["colocationConfig.strategy.midFormula=seed-mixed", "colocationConfig.create=false"], False),
        pytest.param(["colocationConfig.thresholds.clusterStrategy.enable=false"], False, marks=pytest.mark.thorough),
        pytest.param(["colocationConfig.thresholds.clusterStrategy=null"], False, marks=pytest.mark.thorough),
        ([SPARE, "colocationConfig.thresholds.nodeStrategies[0].evictEnabled=true"], True),
        (["rbac.eviction=true", "colocationConfig.create=false"], True),
    ],
)
def test_pods_may_be_evicted_where_the_policy_has_it_so(helm: Helm, values: list[str], granted: bool) -> None:
    arguments = [word for value in values for word in ("--set", value)]
    rules = _rules(helm.objects(*arguments), "ClusterRole", "headroom-manager")
    assert ("pods/eviction" in rules) is granted
    assert ("events" in rules) is granted  # about pods, in any namespace
    assert rules.get("pods/status", {}).get("verbs") == (["patch"] if granted else None)  # the notice before it


@pytest.mark.parametrize("offers", ["mid", "batch", "batch\\,mid"])
def test_of_tiers_that_are_not_offered_nothing_is_touched(helm: Helm, tmp_path: Path, offers: str) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--set", f"manager.settings.offers={offers}")
    (cleanup,) = pods(objects)["cleanup"]["spec"]["containers"]
    named = [argument.removeprefix("--offers=") for argument in cleanup["args"] if "offers" in argument]
    assert sorted(named) == sorted(settings_.manager.tiers)


EVICTIONS = {"events", "pods/eviction"}  # also without a cloud, if the policy has pods evicted
CLOUD_RESOURCES = EVICTIONS | {
    *("daemonsets", "replicationcontrollers", "replicasets", "statefulsets", "jobs", "poddisruptionbudgets"),
    *("persistentvolumes", "persistentvolumeclaims", "podgroups"),
    *("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
}


def test_without_a_cloud_there_is_no_autoscaler_and_no_right_for_one(helm: Helm, tmp_path: Path) -> None:
    for values in ((), ("--set", "manager.enabled=false,manager.autoscaler.cloudProvider=simulated")):
        objects = helm.objects(*values)
        assert not [item for item in objects if item["metadata"]["name"].endswith(("-cloud", "-heartbeats"))]
    objects, settings_ = _settings(helm, tmp_path)
    assert (settings_.autoscaler.cloud_provider, settings_.autoscaler.cloud_config) == ("", "")
    rules = _rules(objects, "ClusterRole", "headroom-manager")
    assert CLOUD_RESOURCES & rules.keys() == EVICTIONS
    spared = _rules(helm.objects("--set", SPARE), "ClusterRole", "headroom-manager")
    assert not CLOUD_RESOURCES & spared.keys()
    assert rules["nodes"]["verbs"] == ["get", "list", "watch"]
    assert _rules(objects, "Role", "headroom-manager")["configmaps"]["resourceNames"] == [names.CA_CONFIG_MAP]


def test_the_autoscaler_is_told_its_cloud_its_groups_and_how_far_it_may_go(helm: Helm, tmp_path: Path) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--values", EXTERNAL_CLOUD)
    assert (settings_.autoscaler.cloud_provider, settings_.autoscaler.autoscaling_mode) == ("externalgrpc", "recommend")
    assert (settings_.autoscaler.nodes, settings_.autoscaler.max_cpu) == (("0:10:general",), 400)
    data = one(objects, "ConfigMap", "headroom-cloud")["data"]
    spec = pods(objects)["manager"]["spec"]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["cloud"]["configMap"]["name"] == "headroom-cloud"
    assert {f"{mounts['cloud']}/{name}" for name in data} == {
        settings_.autoscaler.cloud_config,
        settings_.autoscaler.node_groups,
    }
    assert volumes["cloud-tls"]["secret"] == {"secretName": "cloud-provider-client"}
    connection = yaml.safe_load(data["cloud.yaml"])
    assert {Path(connection[key]).parent for key in ("cacert", "cert", "key")} == {Path(mounts["cloud-tls"])}
    groups = tmp_path / "node-groups.yaml"
    groups.write_text(data[groups.name])
    (group,) = node_groups.load(groups)
    assert (group.cloud_provider_group_name, group.takes_pending_pods, group.effective_mode) == (
        "gpu",
        True,
        Mode.OBSERVE,
    )
    assert _ports_within_reach(objects) == {443, 6443, 53, 8086}


def test_a_container_beside_the_manager_serves_a_cloud_of_cluster_autoscaler(helm: Helm, tmp_path: Path) -> None:
    values = ROOT / "examples" / "cluster-autoscaler-clouds" / "values.yaml"
    objects, settings_ = _settings(helm, tmp_path, "--values", values)
    assert settings_.autoscaler.cloud_provider == "externalgrpc"
    manager, service = pods(objects)["manager"]["spec"]["containers"]
    assert (manager["name"], service["name"]) == ("manager", "cloud-provider")
    cloud = tmp_path / "cloud.yaml"
    cloud.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"]["cloud.yaml"])
    assert externalgrpc_config.scales_all_groups(cloud)
    address = externalgrpc_config.load(cloud).address
    assert f"--address={address}" in service["args"], "on loopback, where only the manager is"
    assert service["securityContext"]["readOnlyRootFilesystem"] is True
    own = ("--set-json", 'manager.autoscaler.sidecar.securityContext={"readOnlyRootFilesystem": false}')
    _, changed = pods(helm.objects("--values", values, *own))["manager"]["spec"]["containers"]
    assert changed["securityContext"]["readOnlyRootFilesystem"] is False
    assert changed["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    without = ("--values", str(EXTERNAL_CLOUD), "--set", "manager.autoscaler.sidecar.args={a}")
    assert "a sidecar needs an image" in helm.refusal(*without)


def test_a_provider_of_another_package_gets_what_the_values_say_that_it_needs(helm: Helm) -> None:
    rule = {"apiGroups": ["cluster.x-k8s.io"], "resources": ["machinedeployments"], "verbs": ["list", "patch"]}
    egress = {"ports": [{"port": 8443}]}
    needs = {
        "clusterRules": [rule],
        "roles": [{"name": "machines", "namespace": "machines", "rules": [{**rule, "resources": ["machines"]}]}],
        "configMaps": ["machine-room"],
        "egress": [egress],
    }
    chosen = ("--set", "manager.autoscaler.cloudProvider=machine-room")
    assert 'no provider "machine-room" comes with Headroom' in helm.refusal(*chosen)
    given = ("--set-json", f"manager.autoscaler.needs={json.dumps(needs)}", "--set", "networkPolicy.enabled=true")
    objects = helm.objects(*chosen, *given)
    assert rule in one(objects, "ClusterRole", "headroom-manager")["rules"]
    assert one(objects, "Role", "headroom-manager-machines")["metadata"]["namespace"] == "machines"
    configmaps = [each for each in one(objects, "Role", "headroom-manager")["rules"] if "resourceNames" in each]
    assert any("machine-room" in each["resourceNames"] for each in configmaps)
    assert egress in _egress(objects)


@pytest.mark.parametrize(("url", "ports"), [("chooser.cloud-system:7000", {53, 7000}), ("unix:/run/chooser", set())])
def test_an_expanders_server_is_within_reach(helm: Helm, tmp_path: Path, url: str, ports: set[int]) -> None:
    arguments = ("--set", f"manager.settings.grpcExpanderUrl={url}", "--set", "networkPolicy.enabled=true")
    objects, settings_ = _settings(helm, tmp_path, "--values", SIMULATED_CLOUD, *arguments)
    assert settings_.autoscaler.grpc_expander_url == url
    assert _ports_within_reach(objects) == {443, 6443, *ports}


def _read_and_judged(kind: str) -> set[tuple[str, str]]:
    return {(kind, "list"), (kind, "watch"), (f"{kind}/status", "patch")}


OPTIONAL_KINDS = {
    "capacity_quotas_enabled": _read_and_judged("capacityquotas"),
    "capacity_buffer_pod_injection_enabled": _read_and_judged("capacitybuffers")
    | {("resourcequotas", "list"), ("resourcequotas", "watch")}
    | {(each.plural, "get") for each in chunk_sources.RESOURCES.values()},
    "enable_provisioning_requests": _read_and_judged("provisioningrequests") | {("podtemplates", "get")},
}


@pytest.mark.parametrize(("setting", "rights"), OPTIONAL_KINDS.items(), ids=OPTIONAL_KINDS.keys())
def test_kinds_that_a_plan_may_mind_are_read_only_where_they_count(
    helm: Helm, tmp_path: Path, setting: str, rights: set[tuple[str, str]]
) -> None:
    enabled = ("--set", f"manager.settings.{settings.key(setting)}=true")
    objects, settings_ = _settings(helm, tmp_path, "--values", EXTERNAL_CLOUD, *enabled)
    assert settings.shown(settings_.autoscaler)[settings.key(setting)]
    assert rights <= _granted(objects)
    for values in (("--values", EXTERNAL_CLOUD), enabled):  # without a cloud there is no autoscaler
        assert not rights & _granted(helm.objects(*values))


def test_only_the_simulated_cloud_brings_the_right_to_make_nodes(helm: Helm, tmp_path: Path) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--values", SIMULATED_CLOUD)
    file = tmp_path / "cloud.yaml"
    file.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"][file.name])
    assert [each.name for each in simulated_config.load(file).groups] == ["general"]
    rules = _rules(objects, "ClusterRole", "headroom-manager")
    assert rules.keys() >= CLOUD_RESOURCES
    granted = one(objects, "ClusterRole", "headroom-manager")["rules"]
    rights = [each["verbs"] for each in granted if each["resources"] == ["nodes"]]
    assert rights == [["get", "list", "watch"], ["create"], ["patch", "delete"]]
    kept = [each for each in one(objects, "Role", "headroom-manager")["rules"] if "update" in each["verbs"]]
    assert [each["resourceNames"] for each in kept if each["resources"] == ["configmaps"]] == [
        [
            names.REGISTRY_CONFIG_MAP,
            names.DECISIONS_CONFIG_MAP,
            settings_.autoscaler.status_config_map_name,
            state_store.CONFIG_MAP,
        ]
    ]
    (cleanup,) = pods(objects)["cleanup"]["spec"]["containers"]
    assert {"--simulated-cloud", f"--status-config-map-name={settings_.autoscaler.status_config_map_name}"} <= set(
        cleanup["args"]
    )
    assert _rules(objects, "ClusterRole", "headroom-cleanup")["nodes"]["verbs"] == ["list", "delete"]
    apart = {"key": fake_nodes.LABEL_CLOUD, "operator": "DoesNotExist"}
    for pod in pods(objects).values():  # nothing runs on Nodes without machines
        (term,) = _required_terms(pod["spec"])
        assert apart in term["matchExpressions"]
    heartbeats = one(objects, "Role", "headroom-manager-heartbeats")
    assert heartbeats["metadata"]["namespace"] == node_heartbeat.LEASE_NAMESPACE

    objects = helm.objects("--values", EXTERNAL_CLOUD)
    rules = _rules(objects, "ClusterRole", "headroom-manager")
    assert rules.keys() >= CLOUD_RESOURCES
    assert rules["nodes"]["verbs"] == ["patch", "delete"]  # marks on nodes that go, and what is left of those that went
    assert _rules(objects, "ClusterRole", "headroom-cleanup")["nodes"]["verbs"] == ["list"]
    assert [component for component, pod in pods(objects).items() if "affinity" in pod["spec"]] == ["agent"]
    assert state_store.CONFIG_MAP not in str(_rules(objects, "Role", "headroom-manager"))
    assert not [each for each in objects if each["metadata"]["name"] == "headroom-manager-heartbeats"]


def test_karpenter_is_asked_for_machines_and_one_node_class_is_read(helm: Helm, tmp_path: Path) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--values", KARPENTER)
    assert settings_.autoscaler.cloud_provider == "karpenter"
    file = tmp_path / "cloud.yaml"
    file.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"]["cloud.yaml"])
    assert karpenter_config.load(file).node_class is not None
    rules = _rules(objects, "ClusterRole", "headroom-manager")
    assert rules["nodeclaims"]["verbs"] == ["list", "create", "delete"]
    assert (rules["ec2nodeclasses"]["verbs"], rules["ec2nodeclasses"]["resourceNames"]) == (["get"], ["default"])
    assert "nodepools" not in rules
    kept = [rule.get("resourceNames", ()) for rule in one(objects, "Role", "headroom-manager")["rules"]]
    assert any(karpenter_registry.CONFIG_MAP in each for each in kept)


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://karpenter:8080/metrics", 8080), ("http://karpenter/metrics", 80), ("https://k:8443/", 8443)],
)
def test_the_metrics_of_karpenter_are_within_reach(helm: Helm, url: str, port: int) -> None:
    without = _ports_within_reach(helm.objects("--values", KARPENTER))
    objects = helm.objects("--values", KARPENTER, "--set", f"manager.autoscaler.cloudConfig.metrics_url={url}")
    assert _ports_within_reach(objects) == without | {53, port}


def test_a_nodepool_is_read_and_the_node_class_that_the_configuration_says_it_names(helm: Helm) -> None:
    classes = "manager.autoscaler.cloudConfig"
    ref = {"group": "karpenter.k8s.aws", "version": "v1", "kind": "EC2NodeClass", "name": "default"}
    objects = helm.objects(
        *("--values", KARPENTER, "--set-json", f"{classes}.node_class=null"),
        *("--set", f"{classes}.node_pool=all", "--set-json", f"{classes}.node_pool_class={json.dumps(ref)}"),
    )
    rules = _rules(objects, "ClusterRole", "headroom-manager")
    assert (rules["nodepools"]["verbs"], rules["nodepools"]["resourceNames"]) == (["get"], ["all"])
    assert (rules["ec2nodeclasses"]["verbs"], rules["ec2nodeclasses"]["resourceNames"]) == (["get"], ["default"])


def test_cluster_api_is_written_to_only_where_and_in_what_the_configuration_names(helm: Helm, tmp_path: Path) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--values", CLUSTER_API)
    assert settings_.autoscaler.cloud_provider == "clusterapi"
    file = tmp_path / "cloud.yaml"
    file.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"]["cloud.yaml"])
    assert clusterapi_config.load(file).namespaces == ["fleet"]
    role = one(objects, "Role", "headroom-manager-clusterapi")
    assert role["metadata"]["namespace"] == "fleet"
    rules = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
    kinds = ("machinedeployments", "machinepools", "machinesets")
    assert rules == {
        **{kind: ["get", "list"] for kind in kinds},
        **{f"{kind}/scale": ["patch"] for kind in kinds},
        "machines": ["list", "patch"],
        "awsmachinetemplates": ["get"],
    }
    assert "machines" not in _rules(objects, "ClusterRole", "headroom-manager")


def test_without_namespaces_cluster_api_is_asked_everywhere_and_elsewhere_only_by_a_kubeconfig(helm: Helm) -> None:
    everywhere = helm.objects("--values", CLUSTER_API, "--set-json", "manager.autoscaler.cloudConfig.discover=[]")
    assert _rules(everywhere, "ClusterRole", "headroom-manager")["machines"]["verbs"] == ["list", "patch"]
    kubeconfig = "manager.autoscaler.cloudConfig.kubeconfig=/etc/headroom-cloud-tls/value"
    ports = "networkPolicy.cloud.ports={8443}"
    elsewhere = helm.objects("--values", CLUSTER_API, "--set", kubeconfig, "--set", ports)
    assert "cluster.x-k8s.io" not in str([each for each in elsewhere if each["kind"] in ("Role", "ClusterRole")])
    assert _ports_within_reach(elsewhere) == {443, 6443, 53, 8443}


def test_cluster_api_creates_groups_only_where_and_of_what_the_configuration_says(helm: Helm) -> None:
    def rules(way: dict[str, Any], *more: str) -> dict[str, list[str]]:
        given = json.dumps({"namespace": "fleet", **way})
        chosen = ("--set-json", f"manager.autoscaler.cloudConfig.autoprovisioning={given}", *more)
        role = one(helm.objects("--values", CLUSTER_API, *chosen), "Role", "headroom-manager-clusterapi-creation")
        assert role["metadata"]["namespace"] == "fleet"
        return {
            "/".join((*rule["apiGroups"], resource, *rule.get("resourceNames", ()))): rule["verbs"]
            for rule in role["rules"]
            for resource in rule["resources"]
        }

    capi = "cluster.x-k8s.io"
    machines, bootstrap = f"awsmachinetemplates.infrastructure.{capi}", f"kubeadmconfigtemplates.bootstrap.{capi}"
    cloned = {
        f"{capi}/machinedeployments": ["create", "delete"],
        f"infrastructure.{capi}/awsmachinetemplates": ["get", "list", "create", "delete"],
        f"bootstrap.{capi}/kubeadmconfigtemplates": ["get", "list", "create", "delete"],
    }
    clone = {"machine_deployment": "workers", "templates": [{"resource": machines}, {"resource": bootstrap}]}
    everywhere = ("--set-json", "manager.autoscaler.cloudConfig.discover=[]")
    assert rules({"clone": clone}) == rules({"clone": clone}, *everywhere) == cloned
    topology = {"cluster": "prod", "class": "worker", "machine_type": "size"}
    assert rules({"topology": topology}) == {f"{capi}/clusters/prod": ["get", "patch"]}
    assert "clusterapi-creation" not in str(helm.objects("--values", CLUSTER_API))


def test_aws_is_reached_with_the_role_of_the_service_account(helm: Helm, tmp_path: Path) -> None:
    objects, settings_ = _settings(helm, tmp_path, "--values", AWS_CLOUD)
    assert (settings_.autoscaler.cloud_provider, settings_.autoscaler.autoscaling_mode) == ("aws", "enforce")
    account = one(objects, "ServiceAccount", "headroom-manager")
    assert account["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/headroom"
    }
    data = one(objects, "ConfigMap", "headroom-cloud")["data"]
    for name, content in data.items():
        (tmp_path / name).write_text(content)
    assert aws_config.load(tmp_path / "cloud.yaml").region == "eu-central-1"
    (group,) = node_groups.load(tmp_path / "node-groups.yaml")
    options = group.own_options["aws"]
    assert isinstance(options, AwsOptions)
    assert options.launch_template_id == "lt-0123456789abcdef0"
    assert _ports_within_reach(objects) == {443, 6443, 53, 80}


def test_a_cloud_may_be_configured_by_a_config_map_of_the_users(helm: Helm, tmp_path: Path) -> None:
    value = ("--set", "manager.autoscaler.existingConfigMap=ours")
    objects, settings_ = _settings(helm, tmp_path, "--values", EXTERNAL_CLOUD, *value)
    assert not [each for each in objects if each["metadata"]["name"] == "headroom-cloud"]
    (volume,) = [each for each in pods(objects)["manager"]["spec"]["volumes"] if each["name"] == "cloud"]
    assert volume["configMap"] == {"name": "ours"}
    assert (settings_.autoscaler.cloud_config, settings_.autoscaler.node_groups) == (
        "/etc/headroom-cloud/cloud.yaml",
        "",
    )


def test_prices_of_ones_own_are_a_file_beside_the_clouds_configuration(helm: Helm, tmp_path: Path) -> None:
    value = ("--set-json", 'manager.autoscaler.prices={"machine_types": {"m6i.xlarge": 0.192}}')
    objects, settings_ = _settings(helm, tmp_path, "--values", EXTERNAL_CLOUD, *value)
    assert settings_.autoscaler.prices == "/etc/headroom-cloud/prices.yaml"
    path = tmp_path / "prices.yaml"
    path.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"]["prices.yaml"])
    priced = price_sources.load(path)
    assert priced.node_price(Machine({}, {"node.kubernetes.io/instance-type": "m6i.xlarge"})) == 0.192


def test_tables_of_prices_come_from_a_config_map_and_go_before_a_file(helm: Helm, tmp_path: Path) -> None:
    values = ("--set", "manager.autoscaler.priceTablesConfigMap=tables", "--set", "manager.autoscaler.prices.cpu=0.03")
    objects, settings_ = _settings(helm, tmp_path, "--values", EXTERNAL_CLOUD, *values)
    assert settings_.autoscaler.prices == "/etc/headroom-prices"
    pod = pods(objects)["manager"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "prices"]
    assert volume["configMap"] == {"name": "tables"}
    mounted = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounted["prices"] == "/etc/headroom-prices"


@every_ci
def test_selectors_are_of_what_never_changes(helm: Helm, values: Path) -> None:
    objects = helm.objects("--values", values)
    expected = {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")}
    selectors = [
        item["spec"]["selector"].get("matchLabels", item["spec"]["selector"])
        for item in objects
        if item["kind"] in ("DaemonSet", "Deployment", "Service", "PodDisruptionBudget")
    ]
    assert selectors
    assert all(selector.keys() == expected for selector in selectors)
    labels = [pod["metadata"]["labels"] for pod in pods(objects).values()]
    assert all(any(selector.items() <= given.items() for given in labels) for selector in selectors)


@every_ci
def test_every_object_bears_the_standard_labels_and_says_its_namespace(helm: Helm, values: Path) -> None:
    cluster_scoped = {
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "SecurityContextConstraints",
    }
    standard = ("name", "instance", "version", "component", "part-of", "managed-by")
    for item in helm.objects("--values", values):
        labels = item["metadata"]["labels"]
        assert {f"app.kubernetes.io/{key}" for key in standard} | {"helm.sh/chart"} <= labels.keys()
        assert ("namespace" in item["metadata"]) is (item["kind"] not in cluster_scoped)


@every_ci
def test_agent_and_manager_have_an_image_each_and_cleanup_runs_in_theirs(helm: Helm, values: Path) -> None:
    owners = {"agent": "agent", "cleanup-state": "agent", "manager": "manager", "cleanup": "manager"}
    owners["scheduler"] = "kube-scheduler"
    for component, pod in pods(helm.objects("--values", values)).items():
        (image,) = {container["image"] for container in containers(pod)}
        assert re.fullmatch(rf"\S+[-/]{owners[component]}[:@]\S+", image)


def test_a_digest_or_repository_of_a_component_counts_for_it_alone(helm: Helm) -> None:
    digest = f"sha256:{'0' * 64}"
    found = pods(helm.objects("--set-string", f"agent.image.digest={digest},image.tag=9,manager.image.repository=own"))
    images = {name: found[name]["spec"]["containers"][0]["image"] for name in ("agent", "manager")}
    assert images == {"agent": f"registry.example.com/headroom-agent@{digest}", "manager": "own:9"}


def test_one_digest_for_both_images_is_refused_with_what_to_set(helm: Helm) -> None:
    digest = f"sha256:{'0' * 64}"
    assert "set agent.image.digest and manager.image.digest" in helm.refusal("--set-string", f"image.digest={digest}")


@every_ci
def test_probes_ask_only_what_is_answered_from_memory(helm: Helm, values: Path) -> None:
    for component, pod in pods(helm.objects("--values", values)).items():
        container = pod["spec"]["containers"][0]
        paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
        ready = "/healthz" if component == "scheduler" else "/readyz"  # which not every kube-scheduler has
        expected = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": ready}
        assert paths == ({} if component.startswith("cleanup") else expected)


def test_the_manager_survives_the_loss_of_a_node(defaults: list[Manifest]) -> None:
    deployment = one(defaults, "Deployment", "headroom-manager")
    assert deployment["spec"]["replicas"] == 2
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [rule["topologyKey"] for rule in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert one(defaults, "PodDisruptionBudget", "headroom-manager")["spec"]["maxUnavailable"] == 1


def test_the_agent_is_on_every_linux_node_and_rolls_a_tenth_of_them_at_a_time(defaults: list[Manifest]) -> None:
    daemon_set = one(defaults, "DaemonSet", "headroom-agent")
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%"}
    assert daemon_set["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert daemon_set["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_full_nodes_get_their_agent_and_full_clusters_their_manager(helm: Helm, defaults: list[Manifest]) -> None:
    def classes(*values: str) -> dict[str, str | None]:
        return {
            component: pod["spec"].get("priorityClassName") for component, pod in pods(helm.objects(*values)).items()
        }

    assert classes() == {"agent": "system-node-critical", "manager": "system-cluster-critical", "cleanup": None}
    others = classes("--set", "agent.priorityClassName=,manager.priorityClassName=mine")
    assert (others["agent"], others["manager"]) == (None, "mine")
    assert "ResourceQuota" not in [item["kind"] for item in defaults]
    quota = one(helm.objects("--set", "priorityClasses.quota=true"), "ResourceQuota", "headroom-critical-pods")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert {classes()["agent"], classes()["manager"]} == set(scope["values"])


def test_each_profile_has_its_section_with_the_commands_first() -> None:
    page = (CHART.parents[2] / "docs" / "how-to" / "clouds.md").read_text("utf-8")
    for values in PROFILES:
        assert f"--values deploy/helm/headroom/{values.name}" in page


def test_openshift_admits_each_service_account_by_constraints_that_its_pods_meet(helm: Helm) -> None:
    objects = helm.objects("--values", CHART / "values-openshift.yaml", "--set", "enforcer.enabled=true")
    constraints = [item for item in objects if item["kind"] == "SecurityContextConstraints"]
    by_account = {user: item for item in constraints for user in item["users"]}
    for pod in pods(objects).values():
        spec = pod["spec"]
        found = by_account[f"system:serviceaccount:{names.INSTALL_NAMESPACE}:{spec['serviceAccountName']}"]
        kinds = {kind for volume in spec.get("volumes", []) for kind in volume.keys() - {"name"}}
        assert kinds <= set(found["volumes"])
        assert found["allowHostDirVolumePlugin"] is ("hostPath" in kinds)
        for container in containers(pod):
            context = container["securityContext"]
            assert set(context["capabilities"].get("add", [])) <= set(found["allowedCapabilities"])
            assert found["runAsUser"]["type"] == "RunAsAny" or context.get("runAsUser", 65532) != 0
            assert found["seLinuxContext"]["type"] == "RunAsAny" or "seLinuxOptions" not in context
    agent = pods(objects)["agent"]
    assert {each["securityContext"]["seLinuxOptions"]["type"] for each in containers(agent)} == {"spc_t"}
    (cleanup,) = [item for item in constraints if item["metadata"]["name"] == "headroom-cleanup"]
    assert cleanup["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"  # the release's own are gone by then


VIRTUAL_NODES = [
    {"eks.amazonaws.com/compute-type": "fargate"},
    {"type": "virtual-kubelet"},
    {"virtualization": "virtualnode2"},
]


@pytest.mark.parametrize("cloud", [(), ("--values", SIMULATED_CLOUD)], ids=["machines", "simulated"])
def test_agents_keep_off_nodes_without_cgroups_to_measure(helm: Helm, cloud: tuple[str, ...]) -> None:
    agent = pods(helm.objects(*cloud, "--set", "cleanup.state=remove"))["agent"]["spec"]
    (term,) = _required_terms(agent)
    own = [{"headroom.io/simulated-cloud": "any"}] if cloud else []
    for labels in (*VIRTUAL_NODES, *own):
        assert not _matches(term, labels)
    for labels in ({}, {"eks.amazonaws.com/compute-type": "ec2"}, {"type": "database"}):
        assert _matches(term, labels)
    # What removes the agents' state goes where they were.
    (removing,) = _required_terms(pods(helm.objects(*cloud, "--set", "cleanup.state=remove"))["cleanup-state"]["spec"])
    assert removing == term
    chosen = pods(helm.objects("--set-json", 'agent.affinity={"podAffinity":{}}'))["agent"]["spec"]["affinity"]
    assert chosen == {"podAffinity": {}}


def _required_terms(spec: Manifest) -> list[Manifest]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(required["nodeSelectorTerms"])


def _matches(term: Manifest, labels: dict[str, str]) -> bool:
    """As the scheduler reads the two operators that the chart uses."""
    for rule in term["matchExpressions"]:
        assert rule["operator"] in ("DoesNotExist", "NotIn")
        if rule["key"] in labels and (rule["operator"] == "DoesNotExist" or labels[rule["key"]] in rule["values"]):
            return False
    return True


def test_the_rendered_settings_are_what_the_processes_read(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects("--values", EVERYTHING)
    agent = _loaded(AgentSettings, one(objects, "ConfigMap", "lender-agent"), tmp_path)
    manager = _loaded(DaemonSettings, one(objects, "ConfigMap", "lender-manager"), tmp_path).manager
    assert (agent.reporting_interval_seconds, agent.target_violation_percent, agent.metric_retention_seconds) == (
        90.0,
        2.0,
        7200,
    )
    assert (manager.tiers, manager.write_rule) == ((Tier.MID,), "upstream")
    assert (manager.lease_duration_seconds, manager.renew_deadline_seconds) == (30, 20.0)


@every_ci
def test_every_flag_of_a_daemon_is_one_it_knows(helm: Helm, values: Path, tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"agent": AgentSettings, "manager": DaemonSettings}
    objects = helm.objects("--values", values)
    for component, pod in pods(objects).items():
        container = pod["spec"]["containers"][0]
        if component in ("cleanup-state", "scheduler"):
            continue
        assert container["command"] == (
            ["headroom", "cleanup"] if component == "cleanup" else ["python", "-m", component]
        )
        if component not in kinds:
            continue
        (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
        config_map = one(objects, "ConfigMap", volume["configMap"]["name"])
        loaded = _loaded(kinds[component], config_map, tmp_path, *container["args"])
        if component == "agent":
            assert (loaded.cgroup_root, loaded.state_dir) == ("/host/cgroup", "/var/lib/headroom")
        else:
            assert loaded.manager.namespace == names.INSTALL_NAMESPACE
            assert {Path(loaded.manager.load_aware_args).name} - {""} == config_map["data"].keys() - {"manager.yaml"}


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ("agent", "agent.settings.logLevel=debug"),
        ("manager", "manager.settings.logLevel=debug"),
        ("manager", "manager.loadAwareArgs.usageThresholds.cpu=65"),
        ("manager", "manager.autoscaler.cloudProvider=externalgrpc"),
    ],
)
def test_changed_settings_roll_the_pods_of_that_component_alone(helm: Helm, component: str, value: str) -> None:
    before, after = pods(helm.objects()), pods(helm.objects("--set", value))
    assert {name for name in before if before[name] != after[name]} == {component}


def test_the_rendered_load_aware_arguments_are_what_the_manager_reads(helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "load-aware-args.yaml"
    file.write_text(one(helm.objects("--values", EVERYTHING), "ConfigMap", "lender-manager")["data"][file.name])
    assert scheduling_args.load(str(file)).aggregated.usage_thresholds.cpu == 70


def test_the_rendered_policy_is_what_the_manager_reads(helm: Helm) -> None:
    config_map = one(helm.objects("--values", EVERYTHING), "ConfigMap", "lender-policy")
    parsed = colocation.parse(config_map["data"][names.CONFIG_KEY_COLOCATION], source="chart")
    assert (parsed.cluster.enable, parsed.cluster.mid_cpu_threshold_percent) == (True, 40)
    assert parsed.cluster.eviction_seconds(Tier.BATCH) == 600
    assert [config.strategy.enable for config in parsed.node_configs] == [False]
    assert not parsed.problems
    limits = thresholds.parse(config_map["data"][names.CONFIG_KEY_THRESHOLDS], source="chart")
    assert limits.of({}) == ResourceThresholds(enable=True, evict_enabled=True, memory_evict_threshold_percent=80)
    assert not limits.of({"pool": "databases"}).evicts


def test_unless_told_otherwise_pods_go_under_pressure_by_koordinators_thresholds(helm: Helm) -> None:
    text = one(helm.objects(), "ConfigMap", names.CONFIG_MAP)["data"][names.CONFIG_KEY_THRESHOLDS]
    assert thresholds.parse(text, source="chart").of({}) == ResourceThresholds(
        enable=True, evict_enabled=True, memory_evict_threshold_percent=70
    )


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("source", CRD_FILES, ids=lambda path: path.stem)
def test_each_crd_is_the_one_that_the_product_is_tested_with(helm: Helm, source: Path, keep: bool) -> None:
    expected = yaml.safe_load(source.read_text("utf-8"))
    rendered = one(
        helm.objects("--set", f"crds.keep={json.dumps(keep)}"), expected["kind"], expected["metadata"]["name"]
    )
    assert rendered["spec"] == expected["spec"]
    kept = {
        "helm.sh/resource-policy": "keep",
        "argocd.argoproj.io/sync-options": "Prune=false",
        "kustomize.toolkit.fluxcd.io/prune": "disabled",
    }
    assert rendered["metadata"].get("annotations") == (kept if keep else None)


def test_the_profiles_crd_is_an_option(helm: Helm) -> None:
    objects = helm.objects("--set", "crds.clusterColocationProfiles=false")
    crds = [item["metadata"]["name"] for item in objects if item["kind"] == "CustomResourceDefinition"]
    assert crds == [str(NODEMETRICS)]


def test_the_bands_are_an_option(helm: Helm, defaults: list[Manifest]) -> None:
    def bands(objects: list[Manifest]) -> dict[str, int]:
        return {item["metadata"]["name"]: item["value"] for item in objects if item["kind"] == "PriorityClass"}

    expected = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
    own = {"headroom-mid": -5, "headroom-batch": -10}
    assert bands(defaults) == own
    assert bands(helm.objects("--set", "priorityClasses.create=true")) == expected | own
    for other in ("priorityClasses.tiers=false", "manager.settings.translation=koordinator"):
        assert bands(helm.objects("--set", other)) == {}
    mine = helm.objects("--set", "manager.settings.midPriorityClass=mine")
    assert bands(mine) == {"headroom-batch": -10}
    policies = {item["preemptionPolicy"] for item in defaults if item["kind"] == "PriorityClass"}
    assert policies == {"Never"}


def test_beside_koordinator_nothing_is_rendered_that_koordinator_owns(helm: Helm) -> None:
    objects = helm.objects("--values", CHART / "ci" / "koordinator-values.yaml")
    kinds = {item["kind"] for item in objects}
    assert not kinds & {"CustomResourceDefinition", "PriorityClass"}
    assert not {kind for kind in kinds if kind.endswith("WebhookConfiguration")}
    assert names.CONFIG_MAP not in {item["metadata"]["name"] for item in objects}
    (container,) = pods(objects)["manager"]["spec"]["containers"]
    assert "--config-namespace=koordinator-system" in container["args"]
    assert one(objects, "Role", "headroom-manager-config")["metadata"]["namespace"] == "koordinator-system"


def test_nothing_but_hooks_of_the_cleanup_is_a_hook_and_each_cleans_up_after_itself(defaults: list[Manifest]) -> None:
    hooks = [item for item in defaults if "helm.sh/hook" in item["metadata"].get("annotations", {})]
    assert {item["metadata"]["name"] for item in hooks} == {"headroom-cleanup"}
    weights = {item["kind"]: int(item["metadata"]["annotations"]["helm.sh/hook-weight"]) for item in hooks}
    assert max(weights, key=lambda kind: weights[kind]) == "Job"
    for item in hooks:
        annotations = item["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "post-delete"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"


# What is set, and the place that the refusal names.
MEANINGLESS = {
    "replicas=2": "/replicas",
    "manager.replica=2": "/manager/replica",
    "manager.replicas=two": "/manager/replicas",
    "agent.settings.coldstart=1h": "/agent/settings/coldstart",
    "agent.settings.nodeName=n": "/agent/settings/nodeName",
    "agent.settings.reportingInterval=soon": "/agent/settings/reportingInterval",
    "agent.settings.targetViolationPercent=-1": "/agent/settings/targetViolationPercent",
    "agent.settings.metricRetention=59": "/agent/settings/metricRetention",
    "agent.state.volume=pvc": "/agent/state/volume",
    "agent.state.hostPath=relative": "/agent/state/hostPath",
    "agent.maxUnavailable=most": "/agent/maxUnavailable",
    "agent.livenessProbe.periodSeconds=5": "/agent/livenessProbe",
    "manager.startupProbe.failureThreshold=9": "/manager/startupProbe",
    "nameOverride=x": "/nameOverride",
    "agent.podLabels.a=b": "/agent/podLabels",
    "cleanup.timeoutSeconds=9": "/cleanup/timeoutSeconds",
    "networkPolicy.managementCluster.ports={8443}": "/networkPolicy/managementCluster",
    "monitoring.monitors.scrapeTimeout=10s": "/monitoring/monitors/scrapeTimeout",
    "manager.settings.leaderElect=false": "/manager/settings/leaderElect",
    "manager.settings.dryRun=sometimes": "/manager/settings/dryRun",
    "manager.settings.webhookListen=:1": "/manager/settings/webhookListen",
    "manager.settings.loadAwareArgs=x": "/manager/settings/loadAwareArgs",
    "manager.loadAwareArgs.usageThresholds.gpu=1": "/manager/loadAwareArgs/usageThresholds/gpu",
    "manager.settings.cloudConfig=x": "/manager/settings/cloudConfig",
    "manager.settings.expanderPreset=guess": "/manager/settings/expanderPreset",
    "manager.autoscaler.cloudProvider=A_B": "/manager/autoscaler/cloudProvider",
    "manager.autoscaler.needs.verbs=list": "/manager/autoscaler/needs/verbs",
    "manager.autoscaler.mode=act": "/manager/autoscaler/mode",
    "manager.autoscaler.groups[0].name=a": "/manager/autoscaler/groups",
    "networkPolicy.cloud.ports[0]=0": "/networkPolicy/cloud/ports/0",
    "manager.webhook.certificates=files": "/manager/webhook/certificates",
    "manager.webhook.failurePolicy=ignore": "/manager/webhook/failurePolicy",
    "manager.webhook.timeoutSeconds=31": "/manager/webhook/timeoutSeconds",
    "manager.webhook.certManager.issuerRef.kind=Issuer": "/manager/webhook/certManager/issuerRef",
    "manager.webhook.namespaceSelector.app=x": "/manager/webhook/namespaceSelector/app",
    "rbac.eviction=sometimes": "/rbac/eviction",
    "colocationConfig.thresholds.clusterStrategy.memoryEvictThresholdPercent=101": (
        "/colocationConfig/thresholds/clusterStrategy/memoryEvictThresholdPercent"
    ),
    "colocationConfig.strategy.evictionAfterSeconds=0": "/colocationConfig/strategy/evictionAfterSeconds",
    "colocationConfig.strategy.enabled=true": "/colocationConfig/strategy/enabled",
    "colocationConfig.strategy.midFormula=guess": "/colocationConfig/strategy/midFormula",
    "colocationConfig.strategy.nodeConfigs[0].enabled=true": "/colocationConfig/strategy/nodeConfigs/0/enabled",
    "agent.image.digest=latest": "/agent/image/digest",
    "labels.app\\.kubernetes\\.io/name=other": "/labels/app.kubernetes.io~1name",
    "networkPolicy.apiServer.ports[0]=0": "/networkPolicy/apiServer/ports/0",
}


def test_values_that_mean_nothing_are_refused_by_name_and_no_others_with_them(helm: Helm) -> None:
    said = helm.refusal(*itertools.chain.from_iterable(("--set", value) for value in MEANINGLESS))
    places = set()
    for place, why in re.findall(r"- at '(.*?)': (.*)", said):
        if why.startswith("additional properties"):
            places |= {f"{place}/{name}" for name in re.findall(r"'(.*?)'", why)}
        elif why != "validation failed":
            places.add(place)
    assert places == set(MEANINGLESS.values())


def test_every_value_is_documented_and_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    values = yaml.safe_load(text)
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert values.keys() == schema["properties"].keys() - {"global"}
    documented = re.findall(r"^ *# --.*\n(?: *#.*\n)* *(\w+):", text, re.MULTILINE)
    sections = re.findall(r"^ *# (?!--).*\n(?: *#.*\n)* *(\w+):", text, re.MULTILINE)
    assert values.keys() <= {*documented, *sections}
    for section in ("agent", "manager", "image", "colocationConfig", "crds", "rbac", "cleanup"):
        assert values[section].keys() <= {*documented, *sections}


def _loaded(kind: Any, config_map: Manifest, directory: Path, *arguments: str) -> Any:
    """The settings a process would have that finds the ConfigMap where its --config points."""
    name = f"{config_map['metadata']['labels']['app.kubernetes.io/component']}.yaml"
    (directory / name).write_text(config_map["data"][name])
    flags = [argument for argument in arguments if not argument.startswith("--config=")]
    assert len(flags) == max(len(arguments) - 1, 0)
    argv = [f"--config={directory / name}", *flags]
    return settings.load(kind, program="test", description="", argv=argv, environment={})


def _reviews(objects: list[Manifest], component: str) -> set[str]:
    return {"tokenreviews", "subjectaccessreviews"} & _rules(objects, "ClusterRole", f"headroom-{component}").keys()


def test_agent_and_manager_ask_the_api_server_who_may_ask_them_and_serve_tls_unless_told_not_to(helm: Helm) -> None:
    open_to_all = ("--set", "access.authorization=false,access.tls=false")
    for values, scheme, flags in (
        ((), "HTTPS", {"--authorization=delegated"}),
        (open_to_all, None, {"--authorization=off"}),
    ):
        objects = helm.objects(*values)
        for component in ("agent", "manager"):
            (container,) = pods(objects)[component]["spec"]["containers"]
            probes = [
                container[f"{kind}Probe"]["httpGet"].get("scheme") for kind in ("startup", "liveness", "readiness")
            ]
            assert probes == [scheme] * 3
            assert flags <= set(container["args"])
            assert any(argument.startswith("--tls=") for argument in container["args"]) is (scheme is not None)
            assert bool(_reviews(objects, component)) is (scheme is not None)
        there = {(item["kind"], item["metadata"]["name"]) for item in objects}
        assert (("ConfigMap", names.CA_CONFIG_MAP) in there) is (scheme is not None)
        assert (("ClusterRole", "headroom-reader") in there) is (scheme is not None)


def test_readers_scrapers_and_schedulers_are_bound_to_their_roles(helm: Helm, defaults: list[Manifest]) -> None:
    bound = [item["metadata"]["name"] for item in defaults if item["kind"] == "ClusterRoleBinding"]
    assert "headroom-scheduler" in bound
    assert not {"headroom-reader", "headroom-metrics-reader"} & set(bound)
    scraper = "access.metricsReaders[0].kind=ServiceAccount,access.metricsReaders[0].name=prometheus"
    objects = helm.objects("--set", f"{scraper},access.metricsReaders[0].namespace=monitoring")
    (subject,) = one(objects, "ClusterRoleBinding", "headroom-metrics-reader")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}
    (rule,) = one(objects, "ClusterRole", "headroom-metrics-reader")["rules"]
    assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def test_a_second_scheduler_asks_the_manager_by_a_certificate_that_the_manager_keeps(helm: Helm) -> None:
    objects = helm.objects("--values", SCHEDULER)
    deployment = one(objects, "Deployment", "headroom-scheduler")["spec"]
    spec = deployment["template"]["spec"]
    assert (deployment["replicas"], spec["priorityClassName"]) == (2, "system-cluster-critical")
    assert one(objects, "PodDisruptionBudget", "headroom-scheduler")["spec"]["maxUnavailable"] == 1
    configuration = yaml.safe_load(one(objects, "ConfigMap", "headroom-scheduler")["data"]["scheduler.yaml"])
    (extender,) = configuration["extenders"]
    (sample,) = yaml.safe_load((ROOT / "deploy" / "scheduler" / "kube-scheduler-config.yaml").read_text())["extenders"]
    assert extender.pop("tlsConfig").keys() == sample.pop("tlsConfig").keys()
    assert extender == sample, "as for a scheduler of one's own"
    name = "headroom-scheduler"
    lease = {"leaderElect": True, "resourceName": name, "resourceNamespace": names.INSTALL_NAMESPACE}
    assert (configuration["leaderElection"], configuration["profiles"]) == (lease, [{"schedulerName": name}])
    assert "data" not in one(objects, "Secret", name), "which an upgrade would replace"
    arguments = pods(objects)["manager"]["spec"]["containers"][0]["args"]
    assert {f"--scheduler-name={name}", "--scheduler-fallback=0s", f"--scheduler-account={name}"} <= set(arguments)
    bound = one(objects, "ClusterRoleBinding", "headroom-scheduler")["subjects"]
    assert {"kind": "ServiceAccount", "namespace": names.INSTALL_NAMESPACE, "name": name} in bound
    without = helm.objects()
    assert not [each for each in without if each["metadata"]["labels"]["app.kubernetes.io/component"] == "scheduler"]
    assert not any("--scheduler" in each for each in pods(without)["manager"]["spec"]["containers"][0]["args"])


def test_a_second_scheduler_has_the_version_of_the_cluster_unless_told_another(helm: Helm) -> None:
    def image(*more: str) -> str:
        objects = helm.objects("--set", "scheduler.enabled=true", *more)
        return str(pods(objects)["scheduler"]["spec"]["containers"][0]["image"])

    assert image("--kube-version", "v1.34.2-eks-1a2b3c4") == "registry.k8s.io/kube-scheduler:v1.34.2"
    assert image("--set", "scheduler.image.tag=v1.33.1") == "registry.k8s.io/kube-scheduler:v1.33.1"
    assert image("--set", f"scheduler.image.digest=sha256:{'0' * 64}").endswith(f"kube-scheduler@sha256:{'0' * 64}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("manager.enabled=false", "needs manager.enabled=true"),
        ("access.tls=false", "needs access.tls=true"),
        ("manager.webhook.certificates=cert-manager", "needs manager.webhook.certificates=self"),
    ],
)
def test_a_second_scheduler_that_could_not_authenticate_is_refused(helm: Helm, value: str, why: str) -> None:
    assert f"scheduler.enabled: {why}" in helm.refusal("--set", "scheduler.enabled=true", "--set", value)


def test_where_the_image_is_has_to_be_said(helm: Helm) -> None:
    done = helm.run("template", RELEASE, CHART)
    assert done.returncode != 0
    assert "image.repository: has to be set" in done.stderr


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("colocationConfig.strategy.midCPUThresholdPercent=900", "midCPUThresholdPercent"),
        ("colocationConfig.strategy.degradeTimeMinutes=0", "degradeTimeMinutes"),
        ("colocationConfig.strategy.resourceDiffThreshold=2", "resourceDiffThreshold"),
        ("colocationConfig.strategy.nodeConfigs[0].midMemoryThresholdPercent=101", "midMemoryThresholdPercent"),
        ("manager.settings.leaseDuration=10", "leaseDuration: 10 must be longer than renewDeadline, which is 10"),
        ("manager.settings.renewDeadline=1m", "leaseDuration: 15 must be longer than renewDeadline, which is 1m"),
        ("manager.settings.retryPeriod=9s", "renewDeadline: 10 must be longer than 1.2 x retryPeriod, which is 9s"),
        ("agent.resources.requests.memory=1Gi", "agent.resources.requests.memory: 1Gi is above the limit"),
        ("manager.resources.limits.cpu=50m", "manager.resources.requests.cpu: 100m is above the limit, which is 50m"),
        ("agent.cgroupMountPropagation=Bidirectional", "cgroupMountPropagation"),
        ("cleanup.pods=shoot", "cleanup/pods"),
        ("cleanup.state=burn", "cleanup/state"),
        ("manager.settings.midLimitFactor=0.5", "midLimitFactor"),
    ],
)
def test_what_would_fail_in_the_middle_of_an_upgrade_is_refused_before_it(helm: Helm, value: str, why: str) -> None:
    assert why.replace("/", ".") in helm.refusal("--set", value).replace("/", ".")


@pytest.mark.parametrize(
    "value",
    [
        "manager.settings.leaseDuration=1m30s,manager.settings.renewDeadline=1m",
        "agent.resources.requests.memory=0.25Gi",
        "manager.resources.limits.cpu=0.1",
        "agent.resources.limits=null",
        "colocationConfig.strategy.midCPUThresholdPercent=100",
    ],
)
def test_what_is_just_in_bounds_is_rendered(helm: Helm, value: str) -> None:
    assert helm.objects("--set", value)


def test_with_pods_of_the_kubelet_agents_may_not_list_those_of_the_cluster(
    helm: Helm, defaults: list[Manifest]
) -> None:
    def listed(objects: list[Manifest]) -> set[str]:
        rules = one(objects, "ClusterRole", "headroom-agent")["rules"]
        return {resource for rule in rules if "list" in rule["verbs"] for resource in rule["resources"]}

    of_kubelet = helm.objects("--set", "agent.settings.podsSource=kubelet")
    assert listed(defaults) - listed(of_kubelet) == {"pods"}
    (arguments,) = (each["args"] for each in pods(of_kubelet)["agent"]["spec"]["containers"])
    assert not [each for each in arguments if "insecure" in each]


def test_volumes_of_ones_own_and_the_propagation_of_mounts_are_options(helm: Helm, defaults: list[Manifest]) -> None:
    def spec(objects: list[Manifest]) -> Manifest:
        found: Manifest = pods(objects)["agent"]["spec"]
        return found

    def cgroup(objects: list[Manifest]) -> Any:
        (found,) = [each for each in spec(objects)["containers"][0]["volumeMounts"] if each["name"] == "cgroup"]
        return found

    mine = {"name": "kubelet-ca", "configMap": {"name": "kubelet-ca"}}
    mount = {"name": "kubelet-ca", "mountPath": "/etc/kubelet-ca"}
    values = f"agent.extraVolumes=[{json.dumps(mine)}],agent.extraVolumeMounts=[{json.dumps(mount)}]"
    own = helm.objects("--set-json", values, "--set", "agent.cgroupMountPropagation=None")
    assert mine in spec(own)["volumes"]
    assert mount in spec(own)["containers"][0]["volumeMounts"]
    assert (cgroup(defaults)["mountPropagation"], cgroup(own)["mountPropagation"]) == ("HostToContainer", "None")


@pytest.mark.parametrize("pods_", ["keep", "drain"])
def test_the_cleanup_may_evict_where_it_is_to_drain(helm: Helm, pods_: str) -> None:
    objects = helm.objects("--set", f"cleanup.pods={pods_}")
    (container,) = pods(objects)["cleanup"]["spec"]["containers"]
    assert f"--pods={pods_}" in container["args"]
    rules = one(objects, "ClusterRole", "headroom-cleanup")["rules"]
    assert any(rule["resources"] == ["pods/eviction"] for rule in rules) is (pods_ == "drain")


@pytest.mark.parametrize("values", ["", "cleanup.state=remove,agent.state.volume=emptyDir"])
def test_what_agents_have_learnt_is_removed_by_nobody_unless_it_is_asked_for_and_there(helm: Helm, values: str) -> None:
    objects = helm.objects(*(("--set", values) if values else ()))
    assert "cleanup-state" not in pods(objects)
    assert "daemonsets" not in _rules(objects, "Role", "headroom-cleanup")


def test_what_agents_have_learnt_is_removed_where_they_ran_and_once_they_have_ended(helm: Helm) -> None:
    affinity: Manifest = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    objects = helm.objects("--set", "cleanup.state=remove", "--set-json", f"agent.affinity={json.dumps(affinity)}")
    agent, removal = (pods(objects)[component] for component in ("agent", "cleanup-state"))
    for field in ("nodeSelector", "tolerations"):
        assert removal["spec"][field] == agent["spec"][field]
    assert removal["spec"]["affinity"]["nodeAffinity"] == affinity["nodeAffinity"]
    (away,) = removal["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert away["topologyKey"] == "kubernetes.io/hostname"
    assert away["labelSelector"]["matchLabels"].items() <= agent["metadata"]["labels"].items()
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in removal["spec"]["volumes"]}
    assert volumes == {"state": "/var/lib/headroom", "parent": "/var/lib"}
    (cleanup,) = pods(objects)["cleanup"]["spec"]["containers"]
    name = one(objects, "DaemonSet", "headroom-cleanup-state")["metadata"]["name"]
    assert f"--state-daemonset={name}" in cleanup["args"]
    assert _rules(objects, "Role", "headroom-cleanup")["daemonsets"]["resourceNames"] == [name]
