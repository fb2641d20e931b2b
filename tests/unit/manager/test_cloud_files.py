"""The files that `--cloud-config` names, of all providers, and what a provider asks for before it is made."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.aws import config as aws
from manager.autoscaler.cloudprovider.aws.session import Session
from manager.autoscaler.cloudprovider.cloud_file import ReloadedFile
from manager.autoscaler.cloudprovider.clusterapi import config as clusterapi
from manager.autoscaler.cloudprovider.externalgrpc import config as externalgrpc
from manager.autoscaler.cloudprovider.externalgrpc.config import GrpcConfig
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from manager.autoscaler.cloudprovider.karpenter import config as karpenter
from manager.autoscaler.cloudprovider.plugin import ProviderRequest
from manager.autoscaler.cloudprovider.simulated import config as simulated
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.telemetry import Loops
from tests.support.apiserver import ROOT
from tests.unit.manager.clouds import KARPENTER_FILE

LOADERS: dict[str, Callable[[Path], Any]] = {
    "aws": aws.load,
    "clusterapi": clusterapi.load,
    "externalgrpc": externalgrpc.load,
    "karpenter": karpenter.load,
    "simulated": simulated.load,
}
NOBODY = Client(Connection("http://127.0.0.1:1"), "test").single_attempt()


def loaded(cloud: str, folder: Path, text: str) -> Any:
    (folder / "cloud.yaml").write_text(text)
    return LOADERS[cloud](folder / "cloud.yaml")


@pytest.mark.parametrize(
    ("cloud", "text", "found"),
    [
        ("aws", "", aws.AwsConfig()),
        ("aws", "region: eu-west-1", aws.AwsConfig("eu-west-1")),
        ("aws", "{region: r, discover: {a: b}}", aws.AwsConfig(region="r", discover={"a": "b"})),
        ("clusterapi", "", clusterapi.ClusterApiConfig()),
        ("externalgrpc", "address: a:1", GrpcConfig("a:1")),
        ("externalgrpc", "{address: a:1, grpc_timeout: 1m}", GrpcConfig("a:1", None, 60.0)),
        ("externalgrpc", "{address: a:1, grpc_timeout: 2}", GrpcConfig("a:1", None, 2.0)),
    ],
)
def test_a_file_says_what_it_says_and_the_rest_has_defaults(tmp_path: Path, cloud: str, text: str, found: Any) -> None:
    assert loaded(cloud, tmp_path, text) == found


def test_two_clouds_need_no_file() -> None:
    assert aws.load(None) == aws.AwsConfig()
    assert clusterapi.load(None) == clusterapi.ClusterApiConfig()


@pytest.mark.parametrize(
    "address",
    ["cloud.example:443", "10.0.0.1:80", "[::1]:80", "dns:///cloud:1", "dns://8.8.8.8/cloud:1", "unix:/run/x"],
)
def test_an_address_is_whatever_grpc_connects_to(tmp_path: Path, address: str) -> None:
    assert loaded("externalgrpc", tmp_path, f'address: "{address}"').address == address


@pytest.mark.parametrize(
    ("cloud", "text", "field"),
    [
        *((cloud, "[]", "(document)") for cloud in LOADERS),
        *((cloud, "colour: red", "(document)") for cloud in LOADERS),
        ("aws", "timeout: 20s", "timeout"),
        ("aws", "endpoint_url: localhost", "endpoint_url"),
        ("aws", "assume_role_arn: autoscaler", "assume_role_arn"),
        ("aws", "discover: {a: 1}", "discover[...]"),
        ("clusterapi", "discover: [{namespace: A B}]", "discover[0].namespace"),
        ("clusterapi", "discover: [{cluster: prod}]", "discover[0]"),
        ("clusterapi", "infrastructure_templates: [awsmachinetemplates]", "infrastructure_templates[0]"),
        ("clusterapi", "api_group: cluster", "api_group"),
        ("clusterapi", "default_arch: vax", "default_arch"),
        ("externalgrpc", "", "(document)"),
        ("externalgrpc", "address: ''", "address"),
        ("externalgrpc", "address: a", "address"),
        ("externalgrpc", "address: not an address!!", "address"),
        ("externalgrpc", "address: http://a:80", "address"),
        ("externalgrpc", "address: a:65536", "address"),
        ("externalgrpc", "address: a:0", "address"),
        ("externalgrpc", "{address: a:1, cert: missing, key: missing}", "cert"),
        ("externalgrpc", "{address: a:1, cacert: missing}", "cacert"),
        ("externalgrpc", f"{{address: a:1, cacert: {__file__}}}", "cacert"),
        ("externalgrpc", f"{{address: a:1, cert: {__file__}, key: {__file__}}}", "cert"),
        ("externalgrpc", "{address: a:1, key: k}", "cert"),
        ("externalgrpc", "{address: a:1, cert: c}", "key"),
        ("externalgrpc", "{address: a:1, grpc_timeout: soon}", "grpc_timeout"),
        ("externalgrpc", "{address: a:1, grpc_timeout: 0s}", "grpc_timeout"),
        ("externalgrpc", "{address: a:1, grpc_timeout: .inf}", "grpc_timeout"),
        ("simulated", "machine_types: [{name: m, capacity: {cpu: 1}}]", "machine_types[0].capacity.memory"),
        ("simulated", "machine_types: [{name: m, capacity: {cpu: x}}]", "machine_types[0].capacity.cpu"),
        ("simulated", "autoprovisioning: {zones: []}", "autoprovisioning.zones"),
        ("simulated", "autoprovisioning: {machine_types: [abacus]}", "autoprovisioning.machine_types[0]"),
    ],
)
def test_what_means_nothing_is_refused_by_file_and_field(tmp_path: Path, cloud: str, text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        loaded(cloud, tmp_path, text)
    assert (refused.value.source, refused.value.field) == (str(tmp_path / "cloud.yaml"), field)


@pytest.mark.parametrize("all_groups", [True, False])
def test_groups_of_an_external_provider_need_no_list_where_the_file_says_so(tmp_path: Path, all_groups: bool) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(f"{{address: a:1, all_groups: {str(all_groups).lower()}}}")
    settings = AutoscalerSettings(cloud_provider="externalgrpc", cloud_config=str(file))
    assert decision_settings.load(settings).scale_up.ownership.owns("web") is all_groups


GROUP: dict[str, Any] = {"name": "web", "machine_type": "n1-standard-4"}


@pytest.mark.parametrize(
    ("group", "field"),
    [
        ({"machine_type": None}, "machine_type"),
        ({"name": "Web_1"}, "name"),
        ({"machine_type": "abacus"}, "machine_type"),
        ({"min": 3, "max": 2}, "min"),
        ({"min": -3}, "min"),
        ({"max": 2, "size": 3}, "size"),
        ({"boot_seconds": -1}, "boot_seconds"),
        ({"price": float("nan")}, "price"),
        ({"faults": {"stocks": 1}}, "faults"),
        ({"autoprovisioned": True}, "autoprovisioned"),
        ({"taints": [{"key": "", "effect": "NoSchedule"}]}, "taints[0].key"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, "taints[0].effect"),
        ({"labels": {"kubernetes.io/os": "windows"}}, "labels[kubernetes.io/os]"),
    ],
)
def test_a_group_of_the_simulated_cloud_that_cannot_be_is_refused_by_field(
    tmp_path: Path, group: dict[str, Any], field: str
) -> None:
    text = yaml.safe_dump({"groups": [GROUP | {"name": "main"}, GROUP | group]})
    with pytest.raises(InvalidInput) as refused:
        loaded("simulated", tmp_path, text)
    assert refused.value.field == f"groups[1].{field}"


@pytest.mark.parametrize(
    ("path", "value", "field", "problem"),
    [
        ("machine_types/0/allocatable/memory", "14", "machine_types[0].allocatable.memory", "the unit is a byte"),
        ("machine_types/0/allocatable/memory", "14T", "machine_types[0].allocatable.memory", "above the capacity"),
        ("machine_types/0/allocatable/cpu", "3920", "machine_types[0].allocatable.cpu", "the unit is a core"),
        ("machine_types/0/allocatable/cpu", "4x", "machine_types[0].allocatable.cpu", "not a quantity"),
        ("machine_types/0/offerings/0/price", 168.0, "machine_types[0].offerings[0].price", "per hour"),
        ("machine_types/0/offerings/0/price", -1, "machine_types[0].offerings[0].price", ">= 0"),
        ("machine_types/0/offerings/0/price_per_month", 1, "machine_types[0].offerings[0]", "unknown field"),
        ("machine_types/0/offerings/1/zone", "a", "machine_types[0].offerings[1]", "twice"),
        ("machine_types/1/name", "m6i.xlarge", "machine_types[1].name", "twice"),
        ("groups/0/machine_type", "m7i", "groups[0].machine_type", "not in machine_types"),
        ("groups/0/zone", "c", "groups[0].zone", "not offered there"),
        ("groups/0/min", 101, "groups[0].min", "above max"),
        ("groups/0/autoprovisioned", True, "groups[0].autoprovisioned", "only created by auto-provisioning"),
        (
            "groups/0/labels",
            {"karpenter.sh/nodepool": "x"},
            "groups[0].labels.karpenter.sh/nodepool",
            "must not set labels of this domain",
        ),
        ("groups/0/labels", {"team": "a b"}, "groups[0].labels.team", "not a label's value"),
        ("groups/0/taints", [{"key": "a", "effect": "x"}], "groups[0].taints[0].effect", "NoSchedule"),
        ("launch_timeout", "soon", "launch_timeout", "not a duration"),
        ("launch_timeout", "0s", "launch_timeout", "none"),
        ("sold_out", "5m", "sold_out", "skipped for 5 minutes"),
        ("machine_types/0/offerings", [], "machine_types[0].offerings", "needed without metrics_url"),
        ("metrics_url", "karpenter:8080", "metrics_url", "http://HOST:PORT/PATH"),
        ("metrics_url", "http://a:b@karpenter:8080/", "metrics_url", "http://HOST:PORT/PATH"),
        ("metrics_url", "http://karpenter:80800/", "metrics_url", "Port out of range"),
        ("node_pool", "default", "node_class", "either"),
        (
            "node_pool_class",
            {"group": "a.b", "version": "v1", "kind": "C", "name": "d"},
            "node_pool_class",
            "only with node_pool",
        ),
        ("autoprovisioning/machine_types", ["m7i"], "autoprovisioning.machine_types[0]", "not in machine_types"),
    ],
)
def test_a_mistake_in_karpenters_catalogue_is_named_by_field_and_problem(
    tmp_path: Path, path: str, value: object, field: str, problem: str
) -> None:
    document = yaml.safe_load(KARPENTER_FILE)
    at: Any = document
    *steps, last = path.split("/")
    for step in steps:
        at = at[int(step) if step.isdigit() else step]
    at[last] = value
    with pytest.raises(InvalidInput) as refused:
        loaded("karpenter", tmp_path, yaml.safe_dump(document))
    assert refused.value.field == field
    assert problem in refused.value.problem


def test_a_file_that_is_spoilt_later_changes_nothing_and_each_problem_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(yaml.safe_dump({"groups": [GROUP]}))
    file = ReloadedFile(path, simulated.load)
    for text, told in (("groups: 3", 1), ("groups: 3", 1), ("groups: 4", 2)):
        path.write_text(text)
        assert [each.name for each in file.reread().groups] == ["web"]
        assert len(caplog.records) == told
    path.write_text("groups: []")
    assert not file.reread().groups
    path.write_text("groups: 4")
    assert not file.reread().groups
    assert len(caplog.records) == 3
    assert "groups: 4: Expected `array`" in caplog.text


@pytest.mark.parametrize(
    ("cloud", "path"),
    [
        ("karpenter", "examples/karpenter/values.yaml"),
        ("karpenter", "deploy/helm/headroom/ci/karpenter-values.yaml"),
        ("karpenter", "docs/how-to/karpenter.md"),
        ("clusterapi", "examples/cluster-api/values.yaml"),
        ("clusterapi", "deploy/helm/headroom/ci/clusterapi-values.yaml"),
        ("clusterapi", "docs/how-to/cluster-api.md"),
    ],
)
def test_what_examples_and_documentation_configure_can_be_read(tmp_path: Path, cloud: str, path: str) -> None:
    text = (ROOT / path).read_text()
    blocks = [each.split("```")[0] for each in text.split("```yaml\n")[1:]] if path.endswith(".md") else [text]
    values = [yaml.safe_load(textwrap.dedent(block)) for block in blocks]
    clouds = [each["manager"]["autoscaler"]["cloudConfig"] for each in values if "manager" in (each or {})]
    assert clouds
    for given in clouds:
        loaded(cloud, tmp_path, yaml.safe_dump(given))


def test_the_documented_file_of_the_simulated_cloud_is_one(tmp_path: Path) -> None:
    assert simulated.__doc__ is not None
    _, _, text = simulated.__doc__.partition("\n\n")
    cloud = loaded("simulated", tmp_path, text.partition("\n\nFaults")[0])
    assert cloud.groups[0].faults.stock == 1
    assert cloud.offered == ("n1-standard-1", "n1-standard-2")


@pytest.mark.parametrize(("name", "file"), [("gce", "x"), ("simulated", ""), ("simulated", "missing.yaml")])
def test_an_unknown_provider_or_no_file_is_refused_at_the_start(tmp_path: Path, name: str, file: str) -> None:
    given: dict[str, Any] = {"client": NOBODY, "namespace": "default", "clock": ManualClock(), "loops": Loops()}
    with pytest.raises(InvalidInput):
        plugin.build(name, ProviderRequest(config=tmp_path / file if file else None, **given))


@pytest.mark.parametrize(
    ("library", "extra", "make"),
    [
        ("boto3", "aws", lambda: Session(aws.AwsConfig("eu-west-1"), ManualClock())),
        ("grpc", "grpc", lambda: ExternalGrpcProvider(GrpcConfig("a:1"), ManualClock())),
    ],
)
def test_without_its_library_a_provider_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, library: str, extra: str, make: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidInput, match=rf"pip install 'headroom-k8s\[{extra}\]'"):
        make()


def test_the_libraries_of_clouds_are_loaded_when_a_provider_needs_them() -> None:
    loaded = "{'botocore', 'grpc'} & set(sys.modules)"
    program = f"import sys, manager.autoscaler.cloudprovider.plugin; sys.exit(bool({loaded}))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_file_is_parsed_again_only_if_its_content_has_changed(tmp_path: Path) -> None:
    path, parsed = tmp_path / "cloud.yaml", list[str]()

    def load(file: Path) -> str:
        text = file.read_text()
        parsed.append(text)
        if text == "bad":
            raise InvalidInput(source=str(file), field="(document)", value=text, problem="expected another")
        return text

    path.write_text("one")
    file = ReloadedFile(path, load)
    for text, in_force in (("one", "one"), ("two", "two"), ("bad", "two"), ("bad", "two"), ("one", "one")):
        path.write_text(text)
        assert file.reread() == file.cloud == in_force
    assert parsed == ["one", "two", "bad", "one"]
