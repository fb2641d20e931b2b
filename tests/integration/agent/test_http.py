"""The endpoints of a whole agent: their units, their refusals, their description, and what Prometheus is shown."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter

from agent.http import examples, schemas
from agent.main import Agent
from agent.predict_server import plugins
from deploy.backtest import from_agent
from deploy.backtest.server import Access
from shared import durations
from shared.kube.resources import CONFIGMAPS
from tests.integration.agent.node import GIB, Node, get
from tests.support import certain, eventually

pytestmark = pytest.mark.embedded_only("the endpoints are the agent's own")

Fetch = Callable[[str], Any]


def answering(agent: Agent) -> Fetch:
    def fetch(path: str) -> Any:
        answer = get(agent, f"api/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    return fetch


def measured(node: Node, **settings: Any) -> tuple[Agent, Fetch, str]:
    """An agent that has measured the pod "web" that something owns, how to ask it, and the pod's uid."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{node.name}-owner"}}
    made = node.client.create(CONFIGMAPS, owner, "default")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": made.name, "uid": made.uid, "controller": True}
    node.add_pod("web", ownerReferences=[reference])
    agent = node.agent(**settings)
    eventually(lambda: get(agent, "readyz").status_code == 200)
    fetch = answering(agent)
    pod = certain(
        eventually(lambda: next((one for one in fetch("pods")["pods"] if one["cpu_milli"] is not None), None))
    )
    return agent, fetch, pod["uid"]


def test_usage_is_answered_in_the_units_its_names_say(node: Node) -> None:
    agent, fetch, uid = measured(node)
    usage = fetch("node")
    assert usage["cpu_milli"] == 750
    assert usage["memory_bytes"] == 3 * GIB
    assert usage["system"] == {"cpu_milli": 250, "memory_bytes": 2 * GIB}
    assert usage["allocatable"] == {"cpu_milli": 4000, "memory_bytes": 16 * GIB}
    assert usage["classes"]["koord-prod"] == {"cpu_milli": 500, "memory_bytes": GIB}
    (pod,) = fetch("pods")["pods"]
    assert (pod["uid"], pod["cpu_milli"], pod["memory_bytes"]) == (uid, 500, GIB)
    assert (pod["request"]["cpu_milli"], pod["workload"]) == (2000, f"default/ConfigMap/{node.name}-owner")
    assert get(agent, "healthz").json() == {"silent_loops": {}}


def test_a_pod_is_told_with_its_containers_its_past_and_its_workloads(node: Node) -> None:
    agent, fetch, uid = measured(node)
    pod = eventually(lambda: (found := fetch(f"pods/{uid}"))["workload_history"] and found)
    (container,) = pod["containers"]
    assert (container["name"], container["cpu_milli"], container["memory_bytes"]) == ("c", 500, GIB)
    assert pod["readings"] == {"psi_cpu_some": {"value": 0.25, "unit": "ratio"}}
    assert pod["history"]["mean"] == {"cpu_milli": 500, "memory_bytes": GIB}
    assert pod["workload_history"]["samples"] >= 1
    lately = pod["usage"][0]
    assert (lately["window_seconds"], lately["tier"], lately["samples"] > 0) == (300, "1s", True)
    assert lately["p95"] == {"cpu_milli": 500, "memory_bytes": GIB}
    missing = get(agent, "api/v1/pods/nobody")
    assert (missing.status_code, missing.json()) == (404, {"detail": "uid: no pod 'nobody' on this node"})


def test_series_are_chosen_by_entity_label_and_time(node: Node) -> None:
    began = int(time.time())
    _, fetch, uid = measured(node)
    found = eventually(lambda: len((one := fetch(f"series?kind=pod&metric=cpu&start={began}"))["times"]) > 2 and one)
    assert found
    (series,) = found["series"]
    assert (found["unit"], found["step_seconds"], series["entity"]) == ("cores", 1, uid)
    assert series["labels"]["pod"] == f"{node.name}-web"
    assert set(series["values"]) <= {0.5, None}
    assert began - 1 <= found["times"][0] < found["times"][-1] <= time.time() + 1
    assert len(series["values"]) == len(found["times"])
    start = durations.timestamp(began).replace("Z", "+00:00")
    by_instant = fetch(
        f"series?kind=pod&metric=cpu&start={start}&end={began + 1}&namespace=default&pod={node.name}-web"
    )
    assert by_instant["times"] == [began, began + 1]
    assert fetch("series?kind=pod&metric=cpu&priority=koord-batch")["series"] == []
    assert fetch(f"series?kind=container&metric=memory&entity={uid}/c")["unit"] == "bytes"
    assert fetch("series?kind=node&metric=cpu&tier=5m-max")["step_seconds"] == 300


def test_an_aggregate_is_of_one_series_or_all_and_says_what_answered(node: Node) -> None:
    _, fetch, uid = measured(node)
    one = fetch(f"aggregate?kind=pod&metric=memory&window=30s&agg=max&entity={uid}")
    assert (one["unit"], one["tier"], one["window_seconds"]) == ("bytes", "1s", 30)
    assert [value["value"] for value in one["values"]] == [GIB]
    every = fetch("aggregate?kind=container&metric=cpu&agg=count")
    assert every["unit"] == "samples"
    assert [value["labels"]["container"] for value in every["values"]] == ["c"]
    assert every["values"][0]["value"] >= 1


def test_the_prediction_names_every_models_peak(node: Node) -> None:
    agent, fetch, uid = measured(node)

    def predicted() -> Any:
        answer = fetch("prediction")
        return answer["models"] and not answer["cold_requested"]["cpu_milli"] and answer

    found = eventually(predicted)
    assert found["models"].keys() == set(plugins.built_in())
    assert [one["horizon_seconds"] for one in found["promises"]] == [86400, 3600]
    assert found["models"]["n-sigma-v1"]["cpu_milli"] == 750
    assert found["models"]["borg-default"]["cpu_milli"] == 1819
    assert [found["models"][name]["outcomes"] for name in ("n-sigma-v2", "percentile", "borg-default")] == [0, 0, None]
    judged = from_agent.judged("http://{}:{}".format(*agent.address), 1.0, Access())
    assert [model.model for model in judged.models] == ["n-sigma-v2", "percentile"]
    assert msgspec.to_builtins(judged.recommended) == found["recommended"]
    histogram = fetch(f"histograms/{uid}")["cpu"]
    (bucket,) = histogram["bucket_weights"]
    assert histogram["bucket_starts"][bucket] < 0.5 < histogram["bucket_starts"][bucket] * 1.06
    assert fetch(f"histograms/workload:default/ConfigMap/{node.name}-owner")["memory"]["unit"] == "bytes"


@pytest.fixture
def agent(node: Node) -> Agent:
    agent = node.agent()
    eventually(lambda: get(agent, "readyz").status_code == 200)
    return agent


BAD_QUERIES = [
    ("series", 422, "query: kind: must be given; metric: must be given"),
    ("series?kind=pods&metric=cpu", 422, "query: kind: 'pods': Input should be 'node', "),
    ("series?kind=node&metric=cpu&start=yesterday", 422, "query: start: 'yesterday': expected RFC 3339"),
    ("series?kind=node&metric=cpu&start=nan", 422, "query: start: 'nan': expected RFC 3339, for example "),
    ("series?kind=node&metric=cpu&start=20&end=10", 404, "query: start: '20': lies after the end"),
    ("series?kind=node&metric=cpu&namespace=a", 404, "query: namespace: 'a': kind node has no labels"),
    ("series?kind=pod&metric=cpu&container=a", 404, "query: container: 'a': kind pod has namespace, pod, "),
    ("series?kind=container&metric=cpu&tier=5m-max", 404, "query: tier: '5m-max': cpu of kind container has "),
    ("series?kind=pod&metric=cpu&entity=nobody", 404, "entity: no series cpu of pod 'nobody'"),
    ("aggregate?kind=node&metric=cpu&window=soon", 422, "query: window: 'soon': not a duration"),
    ("aggregate?kind=node&metric=cpu&window=8d", 422, "query: window: '8d': not a duration"),
    ("aggregate?kind=node&metric=cpu&window=169h", 422, "query: window: '169h': must be from 1s to 168h0m0s"),
    ("aggregate?kind=node&metric=cpu&agg=mean", 422, "query: agg: 'mean': Input should be 'avg', "),
    ("aggregate?kind=node&metric=cpu&windo=1s", 422, "query: windo: '1s': no such parameter; there are agg, "),
    ("aggregate?kind=node&kind=pod&metric=cpu", 422, "query: kind: 'pod': given twice"),
    ("node?kind=pod", 422, "query: kind: 'pod': no such parameter; there are none"),
    ("node?kind=pod&kind=pod", 422, "query: kind: 'pod': no such parameter; there are none"),
    ("pods/a?uid=b", 422, "query: uid: 'b': no such parameter; there are none"),
    ("series?kind=pods&metric=gpu", 422, "query: kind: 'pods': Input should be 'node', "),
    ("series?metric=gpu", 422, "query: kind: must be given; metric: 'gpu': Input should be 'cpu', "),
    ("nothing", 404, "Not Found"),
    ("histograms/nobody", 404, "key: no model 'nobody'"),
    ("report", 404, "no report has arrived yet"),
]


def test_a_bad_query_is_refused_by_field_and_value(agent: Agent) -> None:
    for path, status, detail in BAD_QUERIES:
        answer = get(agent, f"api/v1/{path}")
        assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail), path


def test_an_answer_that_would_be_too_large_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.http.answers.MOST_VALUES", 1)
    agent, fetch, _ = measured(node)
    eventually(lambda: fetch("aggregate?kind=node&metric=cpu&agg=count")["values"][0]["value"] > 1)
    answer = get(agent, "api/v1/series?kind=node&metric=cpu&start=0")
    assert answer.status_code == 422
    assert re.match(
        r"query: start: '1970-01-01T00:00:00Z': 1 series of \d+ values each are more", answer.json()["detail"]
    )


def test_every_operation_has_a_name_an_example_of_its_answer_and_a_page_that_needs_no_network(agent: Agent) -> None:
    page = get(agent, "docs").text
    assert "http://" not in page
    assert "https://" not in page
    paths = get(agent, "openapi.json").json()["paths"]
    operations = {path: methods["get"]["operationId"] for path, methods in paths.items()}
    assert operations == {
        "/healthz": "getHealth",
        "/readyz": "getReadiness",
        "/metrics": "getMetrics",
        "/api/v1/node": "getNode",
        "/api/v1/pods": "listPods",
        "/api/v1/pods/{uid}": "getPod",
        "/api/v1/series": "getSeries",
        "/api/v1/aggregate": "getAggregate",
        "/api/v1/prediction": "getPrediction",
        "/api/v1/histograms/{key}": "getHistograms",
        "/api/v1/report": "getReport",
    }
    for path, methods in paths.items():
        if path.startswith("/api/"):
            assert methods["get"]["responses"]["200"]["content"]["application/json"]["example"]


def test_the_description_has_each_parameter_and_refers_to_shapes_that_it_holds(agent: Agent) -> None:
    document = get(agent, "openapi.json").json()
    parameters = {one["name"]: one for one in document["paths"]["/api/v1/aggregate"]["get"]["parameters"]}
    assert [name for name, one in parameters.items() if one["required"]] == ["kind", "metric"]
    assert {one["in"] for one in parameters.values()} == {"query"}
    assert parameters["agg"]["schema"]["default"] == "avg"
    assert parameters["window"]["description"].startswith("a duration")
    (uid,) = document["paths"]["/api/v1/pods/{uid}"]["get"]["parameters"]
    assert (uid["in"], uid["required"]) == ("path", True)
    shapes = document["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document))) == shapes.keys()
    assert shapes["Kind"]["type"] == "string"
    assert "\n\nIn the tier" in shapes["Aggregate"]["description"]


def test_only_reads_are_answered(agent: Agent) -> None:
    host, port = agent.address
    answer = httpx.post(f"http://{host}:{port}/api/v1/node", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})


def test_examples_and_answers_are_what_the_description_promises(node: Node) -> None:
    """Each way: nothing is missing, and nothing is there that is not described."""
    node.add_node_metric()
    agent, fetch, uid = measured(node)
    eventually(lambda: get(agent, "api/v1/report").status_code == 200)
    eventually(lambda: get(agent, f"api/v1/histograms/{uid}").status_code == 200)
    asked = {
        "getNode": "node",
        "listPods": "pods",
        "getPod": f"pods/{uid}",
        "getSeries": "series?kind=pod&metric=cpu",
        "getAggregate": "aggregate?kind=pod&metric=cpu",
        "getPrediction": "prediction",
        "getHistograms": f"histograms/{uid}",
        "getReport": "report",
    }
    models = {
        "getNode": schemas.NodeUsage,
        "listPods": schemas.PodsSchema,
        "getPod": schemas.PodDetail,
        "getSeries": schemas.SeriesSchema,
        "getAggregate": schemas.Aggregate,
        "getPrediction": schemas.PredictionSchema,
        "getHistograms": dict[str, schemas.Histogram],
        "getReport": schemas.ReportSchema,
    }
    assert asked.keys() == examples.ANSWERS.keys()
    for operation, path in asked.items():
        adapter = TypeAdapter[Any](models[operation])
        for answer in (fetch(path), examples.ANSWERS[operation]):
            assert adapter.dump_python(adapter.validate_python(answer), mode="json") == answer


def samples(agent: Agent) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(get(agent, "metrics").text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def sample(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


CPU = {"resource": "cpu", "unit": "core"}
MEMORY = {"resource": "memory", "unit": "byte"}


def test_prometheus_is_shown_usage_prediction_and_the_agents_own_cost(node: Node) -> None:
    agent, fetch, uid = measured(node)
    eventually(lambda: fetch("prediction")["reclaimable"] == {"cpu_milli": 1250, "memory_bytes": GIB})
    eventually(lambda: samples(agent)[sample("headroom_agent_sweep_seconds_count")] >= 2)
    found = samples(agent)
    assert found[sample("headroom_agent_node_usage", **CPU)] == 0.75
    assert found[sample("headroom_agent_system_usage", **MEMORY)] == 2 * GIB
    assert found[sample("headroom_agent_class_usage", priority="koord-prod", **CPU)] == 0.5
    of_pod = {"namespace": "default", "pod": f"{node.name}-web", "priority": "koord-prod", "qos": "LS"}
    assert found[sample("headroom_agent_pod_usage", **of_pod, **MEMORY)] == GIB
    assert found[sample("headroom_agent_prod_reclaimable", **CPU)] == 1.25
    assert found[sample("headroom_agent_predictor_info", model="n-sigma-v2")] == 1
    assert found[sample("headroom_agent_n_sigma_v2_peak", **CPU)] == 0.75
    of_a_day = {"resource": "cpu", "horizon_seconds": "86400"}
    assert found[sample("headroom_agent_prediction_outcomes_total", **of_a_day)] == 0
    assert found[sample("headroom_agent_prediction_violations_total", **of_a_day)] == 0
    assert found[sample("headroom_agent_prediction_coverage_ratio", **of_a_day)] == 0
    assert found[sample("headroom_agent_shadow_outcomes", model="percentile", **of_a_day)] == 0
    withdrawn = sample("headroom_agent_prediction_withdrawn_ratio", resource="cpu", window_seconds="86400")
    assert withdrawn in found
    assert found[sample("headroom_loop_overruns_total", loop="sampling")] >= 0
    assert uid not in get(agent, "metrics").text
