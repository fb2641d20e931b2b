"""The values below `examples/` are installed as they are: the chart takes them, and the manager reads its settings and
its cloud's configuration.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.plugin import ProviderRequest
from manager.autoscaler.cloudprovider.rights import Right
from manager.autoscaler.settings.modes import Mode
from manager.daemon_settings import DaemonSettings
from shared import names, settings
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from tests.chart.helm import Helm, Manifest, one, pods
from tests.support.apiserver import ROOT

PROVIDERS = {"cluster-api": "clusterapi", "cluster-autoscaler-clouds": "externalgrpc"}  # others are named after theirs
VALUES = sorted((ROOT / "examples").glob("*/values.yaml"))


@pytest.mark.parametrize("values", VALUES, ids=lambda values: values.parent.name)
def test_the_manager_runs_with_the_values_of_an_example_and_recommends(
    helm: Helm, tmp_path: Path, values: Path
) -> None:
    objects = helm.objects("--values", values)
    (config_map,) = [item for item in objects if "manager.yaml" in item.get("data", {})]
    file = tmp_path / "manager.yaml"
    file.write_text(config_map["data"]["manager.yaml"])
    container = pods(objects)["manager"]["spec"]["containers"][0]
    flags = [argument for argument in container["args"] if not argument.startswith("--config=")]
    argv = [f"--config={file}", *flags]
    found = settings.load(DaemonSettings, program="test", description="", argv=argv, environment={})
    cloud = tmp_path / "cloud.yaml"
    cloud.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"]["cloud.yaml"])
    decides = decision_settings.load(msgspec.structs.replace(found.autoscaler, cloud_config=str(cloud)))
    assert found.autoscaler.cloud_provider == PROVIDERS.get(values.parent.name, values.parent.name)
    assert decides.mode is Mode.RECOMMEND
    assert set(_rights(found.autoscaler.cloud_provider, cloud)) <= _granted(objects)


def test_a_nodepool_and_the_node_class_that_it_names_may_be_read(helm: Helm, tmp_path: Path) -> None:
    ref = {"group": "karpenter.k8s.aws", "version": "v1", "kind": "EC2NodeClass", "name": "default"}
    at = "manager.autoscaler.cloudConfig"
    pool = ("--set-json", f'{at}.node_class=null,{at}.node_pool="all",{at}.node_pool_class={json.dumps(ref)}')
    objects = helm.objects("--values", ROOT / "examples" / "karpenter" / "values.yaml", *pool)
    cloud = tmp_path / "cloud.yaml"
    cloud.write_text(one(objects, "ConfigMap", "headroom-cloud")["data"]["cloud.yaml"])
    wanted = set(_rights("karpenter", cloud))
    assert Right("get", "karpenter.k8s.aws", "ec2nodeclasses", name="default") in wanted
    assert wanted <= _granted(objects)


def _rights(provider: str, config: Path) -> Sequence[Right]:
    client = Client(Connection("http://127.0.0.1:1"), "test")
    request = ProviderRequest(config=config, client=client, namespace=names.INSTALL_NAMESPACE, clock=ManualClock())
    return plugin.find(provider).rights(request)


def _granted(objects: list[Manifest]) -> set[Right]:
    """What the manager's roles allow."""
    roles = [
        each for each in objects if each["kind"] in ("ClusterRole", "Role") and "-manager" in each["metadata"]["name"]
    ]
    return {
        Right(verb, group, resource, role["metadata"].get("namespace", ""), name)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for name in rule.get("resourceNames", ("",))
    }
