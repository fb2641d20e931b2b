"""What the chart renders, for every set of values that it is tested with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.settings import AgentSettings
from deploy.local.identities import CHART
from manager.main import LEASE_NAME
from manager.settings import ManagerSettings
from shared import names, settings
from shared.api import colocation
from tests.chart.helm import CI, Helm, Manifest, containers, one, pods

DEFAULT = CHART / "ci" / "default-values.yaml"
EVERYTHING = CHART / "ci" / "everything-values.yaml"

every_ci = pytest.mark.parametrize("values", CI, ids=[path.stem.removesuffix("-values") for path in CI])


@pytest.fixture(scope="module")
def defaults(helm: Helm) -> list[Manifest]:
    return helm.objects()


@every_ci
def test_every_set_of_values_passes_the_strict_linter(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.must("lint", "--strict", CHART, "--values", values)


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
def test_the_only_step_as_root_is_one_that_gives_the_state_directory_away(helm: Helm, values: Path) -> None:
    for pod in pods(helm.objects("--values", values)).values():
        for container in containers(pod):
            context = container["securityContext"]
            added = context["capabilities"].get("add", [])
            if container["name"] == "own-state":
                assert container["command"] == ["chown", "65532:65532", "/var/lib/headroom"]
                assert (context["runAsUser"], added) == (0, ["CHOWN"])
                assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/var/lib/headroom"]
            else:
                assert "runAsUser" not in context
                assert not added


@every_ci
def test_the_agent_sees_of_its_host_the_cgroups_and_its_state_alone(helm: Helm, values: Path) -> None:
    for component, pod in pods(helm.objects("--values", values)).items():
        host = {volume["name"] for volume in pod["spec"].get("volumes", []) if "hostPath" in volume}
        if component != "agent":
            assert not host
            continue
        assert host <= {"cgroup", "state"}
        mounts = {mount["name"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts.keys() == {"config", "cgroup", "state"}
        expected = {
            "name": "cgroup",
            "mountPath": "/host/cgroup",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        }
        assert mounts["cgroup"] == expected


def test_a_state_in_an_empty_dir_needs_no_step_as_root(helm: Helm) -> None:
    agent = pods(helm.objects("--values", CHART / "ci" / "emptydir-values.yaml"))["agent"]
    assert "initContainers" not in agent["spec"]
    assert {"name": "state", "emptyDir": {"sizeLimit": "300Mi"}} in agent["spec"]["volumes"]


@every_ci
def test_no_rule_has_a_wildcard_and_every_binding_leads_to_a_role_and_an_account(helm: Helm, values: Path) -> None:
    objects = helm.objects("--values", values)
    for role in (item for item in objects if item["kind"] in ("Role", "ClusterRole")):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert rule.get("nonResourceURLs") is None
    known = {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects}
    for binding in (item for item in objects if item["kind"].endswith("RoleBinding")):
        role = binding["roleRef"]
        namespace = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        assert (role["kind"], namespace, role["name"]) in known
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in known


def test_the_lease_that_may_be_written_is_the_one_the_manager_writes(defaults: list[Manifest]) -> None:
    rules = one(defaults, "Role", "headroom-manager")["rules"]
    assert [rule["resourceNames"] for rule in rules if "resourceNames" in rule] == [[LEASE_NAME]]


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
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    standard = ("name", "instance", "version", "component", "part-of", "managed-by")
    for item in helm.objects("--values", values):
        labels = item["metadata"]["labels"]
        assert {f"app.kubernetes.io/{key}" for key in standard} | {"helm.sh/chart"} <= labels.keys()
        assert ("namespace" in item["metadata"]) is (item["kind"] not in cluster_scoped)


@every_ci
def test_one_image_serves_all(helm: Helm, values: Path) -> None:
    found = pods(helm.objects("--values", values))
    images = {container["image"] for pod in found.values() for container in containers(pod)}
    assert len(images) == 1


def test_a_digest_counts_instead_of_the_tag(helm: Helm) -> None:
    digest = f"sha256:{'0' * 64}"
    agent = pods(helm.objects("--set-string", f"image.digest={digest},image.tag=9"))["agent"]
    assert agent["spec"]["containers"][0]["image"] == f"headroom@{digest}"


@every_ci
def test_probes_ask_only_what_is_answered_from_memory(helm: Helm, values: Path) -> None:
    for component, pod in pods(helm.objects("--values", values)).items():
        (container,) = pod["spec"]["containers"]
        paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
        expected = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
        assert paths == ({} if component == "cleanup" else expected)


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


def test_the_rendered_settings_are_what_the_processes_read(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects("--values", EVERYTHING)
    agent = _loaded(AgentSettings, one(objects, "ConfigMap", "lender-agent"), tmp_path)
    manager = _loaded(ManagerSettings, one(objects, "ConfigMap", "lender-manager"), tmp_path)
    assert (agent.cold_start_seconds, agent.sigma_cpu, agent.metric_retention_seconds) == (43200.0, 4.0, 7200)
    assert (manager.dry_run, manager.lease_duration_seconds, manager.renew_deadline_seconds) == (True, 30, 20.0)


@every_ci
def test_every_flag_of_a_daemon_is_one_it_knows(helm: Helm, values: Path, tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"agent": AgentSettings, "manager": ManagerSettings}
    objects = helm.objects("--values", values)
    for component, pod in pods(objects).items():
        (container,) = pod["spec"]["containers"]
        assert container["command"] == ["headroom", component]
        if component not in kinds:
            continue
        (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
        config_map = one(objects, "ConfigMap", volume["configMap"]["name"])
        loaded = _loaded(kinds[component], config_map, tmp_path, *container["args"])
        if component == "agent":
            assert (loaded.cgroup_root, loaded.state_dir) == ("/host/cgroup", "/var/lib/headroom")
        else:
            assert loaded.namespace == names.INSTALL_NAMESPACE


@pytest.mark.parametrize("component", ["agent", "manager"])
def test_changed_settings_roll_the_pods_of_that_component_alone(helm: Helm, component: str) -> None:
    before, after = pods(helm.objects()), pods(helm.objects("--set", f"{component}.settings.logLevel=debug"))
    assert {name for name in before if before[name] != after[name]} == {component}


def test_the_rendered_policy_is_what_the_manager_reads(helm: Helm) -> None:
    config_map = one(helm.objects("--values", EVERYTHING), "ConfigMap", "lender-policy")
    parsed = colocation.parse(config_map["data"][names.CONFIG_KEY_COLOCATION], source="chart")
    assert (parsed.cluster.enable, parsed.cluster.mid_cpu_threshold_percent) == (True, 40)
    assert [config.strategy.enable for config in parsed.node_configs] == [False]
    assert not parsed.problems


@pytest.mark.parametrize("keep", [False, True])
def test_the_crd_is_the_one_that_the_product_is_tested_with(helm: Helm, keep: bool) -> None:
    (source,) = (CHART / "files" / "crds").glob("*.yaml")
    expected = yaml.safe_load(source.read_text("utf-8"))
    rendered = one(
        helm.objects("--set", f"crds.keep={json.dumps(keep)}"), expected["kind"], expected["metadata"]["name"]
    )
    assert rendered["spec"] == expected["spec"]
    assert rendered["metadata"].get("annotations") == ({"helm.sh/resource-policy": "keep"} if keep else None)


def test_the_bands_are_an_option(helm: Helm, defaults: list[Manifest]) -> None:
    def bands(objects: list[Manifest]) -> dict[str, int]:
        return {item["metadata"]["name"]: item["value"] for item in objects if item["kind"] == "PriorityClass"}

    expected = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
    assert bands(defaults) == {}
    assert bands(helm.objects("--set", "priorityClasses.create=true")) == expected


def test_beside_koordinator_nothing_is_rendered_that_koordinator_owns(helm: Helm) -> None:
    objects = helm.objects("--values", CHART / "ci" / "koordinator-values.yaml")
    kinds = {item["kind"] for item in objects}
    assert not kinds & {"CustomResourceDefinition", "PriorityClass"}
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


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("replicas=2", "replicas"),
        ("manager.replica=2", "replica"),
        ("manager.replicas=two", "/manager/replicas"),
        ("agent.settings.coldstart=1h", "coldstart"),
        ("agent.settings.nodeName=n", "nodeName"),
        ("agent.settings.coldStart=soon", "/agent/settings/coldStart"),
        ("agent.settings.sigmaCpu=-1", "/agent/settings/sigmaCpu"),
        ("agent.settings.metricRetention=59", "/agent/settings/metricRetention"),
        ("agent.state.volume=pvc", "/agent/state/volume"),
        ("agent.state.hostPath=relative", "/agent/state/hostPath"),
        ("agent.maxUnavailable=most", "/agent/maxUnavailable"),
        ("agent.livenessProbe.httpGet.path=/", "httpGet"),
        ("manager.settings.leaderElect=false", "leaderElect"),
        ("manager.settings.dryRun=sometimes", "/manager/settings/dryRun"),
        ("colocationConfig.strategy.enabled=true", "enabled"),
        ("colocationConfig.strategy.midFormula=guess", "/colocationConfig/strategy/midFormula"),
        ("colocationConfig.strategy.nodeConfigs[0].enabled=true", "/colocationConfig/strategy/nodeConfigs/0"),
        ("image.digest=latest", "/image/digest"),
        ("labels.app\\.kubernetes\\.io/name=other", "/labels/app.kubernetes.io"),
        ("networkPolicy.apiServer.ports[0]=0", "/networkPolicy/apiServer/ports/0"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(helm: Helm, value: str, field: str) -> None:
    assert field in helm.refusal("--set", value)


def test_every_value_is_documented_and_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    values = yaml.safe_load(text)
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert values.keys() == schema["properties"].keys() - {"global"}
    documented = re.findall(r"^ *# --.*\n(?: *#.*\n)* *(\w+):", text, re.MULTILINE)
    sections = re.findall(r"^ *# (?!--).*\n(?: *#.*\n)* *(\w+):", text, re.MULTILINE)
    assert values.keys() <= {*documented, *sections}
    for section in ("agent", "manager", "image", "colocationConfig", "cleanup"):
        assert values[section].keys() <= {*documented, *sections, "livenessProbe", "readinessProbe"}


def _loaded(kind: Any, config_map: Manifest, directory: Path, *arguments: str) -> Any:
    """The settings a process would have that finds the ConfigMap where its --config points."""
    ((name, text),) = config_map["data"].items()
    (directory / name).write_text(text)
    flags = [argument for argument in arguments if not argument.startswith("--config=")]
    assert len(flags) == max(len(arguments) - 1, 0)
    argv = [f"--config={directory / name}", *flags]
    return settings.load(kind, program="test", description="", argv=argv, environment={})
