"""The values below `examples/` are installed as they are: the chart takes them, and the manager reads its settings and
its cloud's configuration.
"""

from pathlib import Path

import pytest

from manager.autoscaler import checked_settings
from manager.autoscaler.settings.modes import Mode
from manager.daemon_settings import DaemonSettings
from shared import settings
from tests.chart.helm import Helm, one, pods
from tests.support.apiserver import ROOT

VALUES = sorted((ROOT / "examples").glob("*/values.yaml"))


@pytest.mark.parametrize("values", VALUES, ids=lambda values: values.parent.name)
def test_the_manager_runs_with_the_values_of_an_example_and_recommends(
    helm: Helm, tmp_path: Path, values: Path
) -> None:
    objects = helm.objects("--values", values)
    (config_map,) = [item for item in objects if "manager.yaml" in item.get("data", {})]
    file = tmp_path / "manager.yaml"
    file.write_text(config_map["data"]["manager.yaml"])
    (container,) = pods(objects)["manager"]["spec"]["containers"]
    flags = [argument for argument in container["args"] if not argument.startswith("--config=")]
    argv = [f"--config={file}", *flags]
    found = settings.load(DaemonSettings, program="test", description="", argv=argv, environment={})
    decides = checked_settings.load(found.autoscaler)
    assert decides.provider == values.parent.name.replace("cluster-api", "clusterapi")
    assert decides.mode is Mode.RECOMMEND
    assert one(objects, "ConfigMap", "headroom-cloud")["data"]["cloud.yaml"]
