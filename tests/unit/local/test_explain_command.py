"""`headroom explain node -f`: the manager's own answer out of what kubectl printed, or one line for a bad file."""

import re
import time
from pathlib import Path

import msgspec
import pytest
import yaml

from deploy import cli, explain, progress
from deploy.access import ClusterContext
from deploy.nodeside import ConfigKey
from shared import durations
from shared.errors import HeadroomError, InvalidInput

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {cpu: "4", memory: 8Gi}
  allocatable: {cpu: "4", memory: 8Gi}
"""
METRIC = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata: {name: n1}
status:
  updateTime: 2026-01-01T00:00:00Z
  nodeMetric:
    nodeUsage: {resources: {cpu: 500m, memory: 1Gi}}
    systemUsage: {resources: {cpu: "0", memory: "0"}}
  prodReclaimableMetric: {resource: {resources: {cpu: 1500m, memory: 2Gi}}}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: headroom-system}
data: {colocation-config: '{"enable": true, "midCPUThresholdPercent": 25}'}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "2", memory: 4Gi}}}]}
status: {phase: Running}
"""
SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "explain.json"


def written(tmp_path: Path, *documents: str) -> Path:
    path = tmp_path / "objects.yaml"
    path.write_text("---\n".join(documents))
    return path


def answer(path: Path, name: str = "n1", style: str = "json", config_key: ConfigKey | None = None) -> str:
    return explain.node(name, files=[path], access=ClusterContext(), style=style, config_key=config_key)


def cpu_of(answered: str) -> int:
    return int(msgspec.json.decode(answered)["resources"]["cpu"]["result"])


def test_files_are_explained_by_the_managers_formula(tmp_path: Path) -> None:
    found = msgspec.json.decode(answer(written(tmp_path, NODE, METRIC, CONFIG, POD)))
    assert found["node"] == "n1"
    assert found["resources"]["cpu"]["result"] == 1000  # 25 % of 4 cores is less than what can be reclaimed
    assert found["resources"]["memory"]["result"] == 2 << 30
    assert set(found) == set(msgspec.json.decode(SCHEMA.read_bytes())["$defs"]["Explained"]["required"])
    term = found["resources"]["cpu"]["terms"][0]
    assert set(term) == {"name", "value", "unit", "source", "time"}


def test_lists_as_kubectl_prints_them_are_taken_apart(tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(each) for each in (NODE, CONFIG, POD)]}
    path = written(tmp_path, yaml.safe_dump(listed), METRIC)
    assert msgspec.json.decode(answer(path))["resources"]["cpu"]["result"] == 1000


def test_both_tiers_are_explained_with_what_the_node_says_of_them(tmp_path: Path) -> None:
    found = msgspec.json.decode(answer(written(tmp_path, NODE, METRIC, CONFIG, POD)))
    assert found["tiers"]["mid"]["cpu"] == found["resources"]["cpu"]
    batch = found["tiers"]["batch"]
    assert batch["cpu"]["result"] == 4000 - 1600 - 2000  # the margin of 40 %, and what the pod requests
    assert batch["on_offer"] is None
    assert found["pending"]["reason"] == "kubernetes.io/mid-cpu absent -> 1000"
    threshold = next(term for term in found["resources"]["cpu"]["terms"] if term["name"] == "threshold")
    assert "ConfigMap headroom-system/slo-controller-config" in threshold["source"]
    assert threshold["time"] == "2026-01-01T00:00:00Z"
    table = answer(written(tmp_path, NODE, METRIC, CONFIG, POD), style="table")
    assert "Batch cpu (by usage)" in table
    assert "Not written to the Node yet: kubernetes.io/mid-cpu absent -> 1000" in table


def test_the_table_begins_with_the_answer_and_ends_with_what_its_marks_mean(tmp_path: Path) -> None:
    table = answer(written(tmp_path, NODE, METRIC, CONFIG, POD), style="table").splitlines()
    found = msgspec.json.decode(answer(written(tmp_path, NODE, METRIC, CONFIG, POD)))["tiers"]["batch"]
    assert found["memory"]["result"] > 0
    batch = f"400m CPU and {found['memory']['result'] / 2**30:.2f} GiB as Batch"
    assert table[0] == f"Node n1 can offer 1 CPU and 2.00 GiB as Mid, {batch}."
    assert "* decides the result, = is the result." in table
    fresher = NODE.replace("name: n1", "name: n1, creationTimestamp: '2026-01-01T01:00:00Z'")
    stale = answer(written(tmp_path, fresher, METRIC, CONFIG), style="table")
    assert stale.startswith("Node n1 can offer nothing as Mid, nothing as Batch.\n")


def test_yaml_and_table_say_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, NODE, METRIC, CONFIG, POD)
    assert yaml.safe_load(answer(path, style="yaml")) == msgspec.json.decode(answer(path))
    assert "Mid cpu (by" in answer(path, style="table")


def test_a_metric_far_older_than_the_rest_of_the_files_is_stale(tmp_path: Path) -> None:
    fresher = NODE.replace("name: n1", "name: n1, creationTimestamp: '2026-01-01T01:00:00Z'")
    found = msgspec.json.decode(answer(written(tmp_path, fresher, METRIC, CONFIG)))
    assert found["resources"]["cpu"]["bound"] == "stale"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("just text", ["not a Kubernetes object"]),
        ("a: [", ["(document)"]),
        (NODE.replace('{cpu: "4", memory: 8Gi}', "[1]"), ["Node n1 status.capacity"]),
        (METRIC.replace("name: n1", "name: 3"), ["NodeMetric metadata.name", "3"]),
        (CONFIG.replace("true", "maybe"), ["colocation-config"]),
    ],
)
def test_a_bad_file_is_refused_with_its_name_field_and_value(document: str, words: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, *([NODE] if document.lstrip().startswith("apiVersion: v1\nkind: Conf") else []), document)
    with pytest.raises(InvalidInput) as caught:
        answer(path)
    for word in words:
        assert word in str(caught.value)


def test_a_node_that_is_not_in_the_files_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'n2'.*nodes: n1"):
        answer(written(tmp_path, NODE), name="n2")


def test_pods_of_other_nodes_are_not_read_beyond_where_they_are(tmp_path: Path) -> None:
    elsewhere = POD.replace("nodeName: n1", "nodeName: n2").replace("name: p,", "name: q,")
    unreadable = elsewhere.replace("containers: [", "containers: [3, ")
    alone = answer(written(tmp_path, NODE, METRIC, CONFIG, POD))
    assert answer(written(tmp_path, NODE, METRIC, CONFIG, POD, unreadable)) == alone
    with pytest.raises(InvalidInput, match=r"Pod q spec\.containers"):
        answer(written(tmp_path, NODE, NODE.replace("n1", "n2"), unreadable), name="n2")


def test_pods_that_are_all_elsewhere_are_told_of_and_none_is_missed(tmp_path: Path) -> None:
    elsewhere = POD.replace("nodeName: n1", "nodeName: n2")
    missed = "There is no Pod in the files"
    assert missed not in answer(written(tmp_path, NODE, METRIC, CONFIG, elsewhere), style="table")
    assert missed in answer(written(tmp_path, NODE, METRIC, CONFIG), style="table")


def test_a_large_file_shows_how_far_it_is_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is piped stays as it is."""
    monkeypatch.setattr(progress, "LEAST", 1)
    path = tmp_path / "large.json"
    path.write_text(msgspec.json.encode({"kind": "List", "items": [yaml.safe_load(NODE)] * 3}).decode())
    found = answer(path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert answer(path) == found
    assert "Reading large.json" in capsys.readouterr().err


def test_the_command_ends_with_status_2_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.yaml"
    monkeypatch.setattr("sys.argv", ["headroom", "explain", "node", "n1", "-f", str(missing)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert str(missing) in lines[0]


def test_a_manager_is_not_asked_about_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, NODE)
    monkeypatch.setattr("sys.argv", ["headroom", "explain", "node", "n1", "-f", str(path), "--manager", "http://m"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "--manager" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nowhere", "http://["])
def test_a_manager_that_does_not_answer_is_named(url: str) -> None:
    with pytest.raises(HeadroomError, match=re.escape(url)):
        explain.by_manager("n1", url, style="json")


MID_POD = """
apiVersion: v1
kind: Pod
metadata: {name: m, namespace: default, labels: {koordinator.sh/priority-class: koord-mid}}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {kubernetes.io/mid-cpu: "3000"}}}]}
status: {phase: Running}
"""


def test_the_config_map_is_the_managers_whatever_stands_beside_it(tmp_path: Path) -> None:
    other = CONFIG.replace("headroom-system", "koordinator-system").replace("25", "12")
    renamed = CONFIG.replace("name: slo-controller-config", "name: mine").replace("25", "6")
    for documents in ((CONFIG, other, renamed), (renamed, other, CONFIG)):
        path = written(tmp_path, NODE, METRIC, POD, *documents)
        assert cpu_of(answer(path)) == 1000
        assert cpu_of(answer(path, config_key=ConfigKey("koordinator-system"))) == 480
        assert cpu_of(answer(path, config_key=ConfigKey(name="mine"))) == 240


def test_without_the_managers_config_map_the_table_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, NODE, METRIC, CONFIG)
    said = "There is no ConfigMap elsewhere/slo-controller-config, so the defaults apply"
    assert said in answer(path, style="table", config_key=ConfigKey("elsewhere"))
    assert "There is no ConfigMap" not in answer(path, style="table")


def test_without_any_pod_the_table_says_so(tmp_path: Path) -> None:
    said = "There is no Pod in the files, so none is counted"
    assert said in answer(written(tmp_path, NODE, METRIC, CONFIG), style="table")
    assert said not in answer(written(tmp_path, NODE, METRIC, CONFIG, POD), style="table")


def test_one_object_that_is_dated_ahead_does_not_make_the_others_old(tmp_path: Path) -> None:
    now = durations.timestamp(time.time())
    ahead = METRIC.replace("n1", "n2").replace("2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z")
    both = (NODE, NODE.replace("n1", "n2"), METRIC.replace("2026-01-01T00:00:00Z", now), ahead)
    path = written(tmp_path, *both, POD, POD.replace("name: p", "name: q").replace("n1", "n2"), CONFIG)
    assert cpu_of(answer(path)) == 1000
    assert cpu_of(answer(path, name="n2")) == 0


def test_what_is_withheld_since_prod_was_slowed_is_a_term(tmp_path: Path) -> None:
    waits = "  interference: {waits: [{resource: cpu, waitPercent: '1', slowedPercent: '0.450'}]}\n"
    thresholds = """, resource-threshold-config: '{"clusterStrategy": {"enable": true, "evictEnabled": true}}'}"""
    path = written(tmp_path, NODE, METRIC + waits, CONFIG.replace("'}", f"'{thresholds}"), POD)
    assert cpu_of(answer(path)) == 748
    assert "25.2 % less, since Prod was slowed for 0.45 % of a day" in " ".join(answer(path, style="table").split())


def test_pods_that_hold_more_than_there_is_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, NODE, METRIC, CONFIG, POD, MID_POD)
    assert "Mid is short: pods request cpu 3 and memory 0 MiB, the node can offer cpu 1 " in answer(path, style="table")
    short = msgspec.json.decode(answer(path))["tiers"]["mid"]["shortfall"]
    assert (short["missing"]["cpu_milli"], short["since"], short["pods"][0]["pod"]) == (2000, None, "default/m")
