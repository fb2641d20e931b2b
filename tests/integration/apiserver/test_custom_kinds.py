"""Custom kinds: our own NodeMetric, and definitions that come and go at run time."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import MERGE, Api, node_metric
from tests.support import eventually

NM = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "replicas": {"type": "integer"},
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "limit": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+%?$"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "when": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        },
        "status": {"type": "object", "properties": {"seen": {"type": "integer"}, "replicas": {"type": "integer"}}},
    },
}


def definition(plural: str) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    names = {"plural": plural, "kind": plural.capitalize(), "shortNames": [f"{plural}s"]}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": spec}


def thing(path: str, name: str, **fields: Any) -> dict[str, Any]:
    """An object of the custom kind of that path."""
    kind = path.rpartition("/")[2].capitalize()
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}, **fields}


@pytest.fixture
def things(api: Api, namespace: str, unique: str) -> str:
    """The path of a custom kind of the test's own, in a namespace of its own."""
    plural = unique.replace("-", "")
    api.ok("POST", CRDS, definition(plural))

    def conditions() -> dict[str, str]:
        status = api.ok("GET", f"{CRDS}/{plural}.example.com")["status"]
        return {c["type"]: c["status"] for c in status.get("conditions") or ()}

    eventually(lambda: conditions() == {"NamesAccepted": "True", "Established": "True"})
    path = namespace.replace("/api/v1", "/apis/example.com/v1") + f"/{plural}"
    eventually(lambda: api.call("GET", path).is_success)  # who serves them hears of it later, and has to begin
    return path


def test_objects_are_defaulted_and_pruned(api: Api, things: str) -> None:
    body = thing(things, "a", spec={"unknown": 1, "free": {"any": ["thing"]}}, extra=2)
    response = api.call("POST", things, body)
    assert response.json()["spec"] == {"free": {"any": ["thing"]}, "size": 3}
    assert "extra" not in response.json()
    assert 'unknown field \\"spec.unknown\\"' in response.headers["warning"]
    status = api.fails(400, "POST", f"{things}?fieldValidation=Strict", body | {"metadata": {"name": "b"}})
    assert "strict decoding error: unknown field" in status["message"]
    assert '"spec.unknown"' in status["message"]
    assert '"extra"' in status["message"]


INVALID: list[tuple[str, dict[str, Any]]] = [
    ("size", {"size": "3"}),
    ("size", {"size": 0}),
    ("colour", {"colour": "green"}),
    ("limit", {"limit": "x"}),
    ("when", {"when": "today"}),
    ("tags[1]", {"tags": ["a", "a"]}),
    ("tags[0]", {"tags": [None]}),
]


def test_a_field_that_may_not_be_null_counts_as_absent(api: Api, things: str) -> None:
    spec = {"colour": None, "size": None, "tags": None, "free": {"kept": None}}
    assert api.ok("POST", things, thing(things, "a", spec=spec))["spec"] == {"size": 3, "free": {"kept": None}}


@pytest.mark.parametrize(("field", "spec"), INVALID)
def test_invalid_objects_are_refused_with_the_cause(api: Api, things: str, field: str, spec: dict[str, Any]) -> None:
    status = api.fails(422, "POST", things, thing(things, "a", spec=spec))
    assert status["reason"] == "Invalid"
    assert [cause["field"] for cause in status["details"]["causes"]] == [f"spec.{field}"]


def test_a_required_field_is_required(api: Api, things: str) -> None:
    status = api.fails(422, "POST", things, thing(things, "a"))
    assert status["details"]["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec"}
    ]


def test_a_new_kind_is_discovered_and_a_removed_one_takes_its_objects_along(api: Api, things: str) -> None:
    plural = things.rpartition("/")[2]

    def discovered() -> set[str]:
        response = api.call("GET", "/apis/example.com/v1")
        return {resource["name"] for resource in response.json()["resources"]} if response.is_success else set()

    def explained() -> set[str]:
        response = api.call("GET", "/openapi/v3/apis/example.com/v1")
        return set(response.json()["components"]["schemas"]) if response.is_success else set()

    eventually(lambda: {plural, f"{plural}/status"} <= discovered())
    eventually(lambda: f"com.example.v1.{plural.capitalize()}" in explained())
    api.ok("POST", things, thing(things, "a", spec={}))
    api.ok("DELETE", f"{CRDS}/{plural}.example.com")
    eventually(lambda: api.gone(f"{CRDS}/{plural}.example.com") and api.gone(things))
    api.ok("POST", CRDS, definition(plural))
    eventually(lambda: api.call("GET", things).is_success)
    assert api.ok("GET", things)["items"] == []


BROKEN = [
    ({"spec": {}}, "spec.group"),
    (definition("bees") | {"metadata": {"name": "wrong"}}, "metadata.name"),
]


@pytest.mark.parametrize(("body", "field"), BROKEN)
def test_a_definition_that_cannot_be_served_is_refused(api: Api, body: dict[str, Any], field: str) -> None:
    status = api.fails(422, "POST", CRDS, {"metadata": {"name": "bees.example.com"}} | body)
    assert field in [cause["field"] for cause in status["details"]["causes"]]


USAGE = {"resources": {"cpu": "1500m", "memory": 2147483648}}
STATUS = {
    "updateTime": "2026-01-01T00:00:00Z",
    "nodeMetric": {
        "nodeUsage": USAGE,
        "systemUsage": USAGE,
        "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": USAGE, "avg": {}}}],
        "numaUsages": [{"numaNodeID": 0, "nodeUsage": USAGE}],
    },
    "podsMetric": [
        {
            "name": "p",
            "namespace": "n",
            "podUsage": USAGE,
            "priority": "koord-prod",
            "qos": "LS",
            "extensions": {"a": {"b": 1}},
        }
    ],
    "hostApplicationMetric": [{"name": "h", "usage": USAGE, "priority": "koord-batch", "qos": "BE"}],
    "prodReclaimableMetric": {"resource": USAGE},
    "prodPeakMetric": {"resource": USAGE},
    "prediction": {
        "model": "n-sigma-v2",
        "mean": {"cpu": "1"},
        "stdev": {"cpu": "10m"},
        "peak": {"cpu": "1050m"},
        "nSigmaV1Peak": {"cpu": "1"},
        "nSigmaV2Peak": {"cpu": "1050m"},
        "promises": [
            {
                "horizonSeconds": 86400,
                "peak": {"cpu": "1050m"},
                "targetViolationPercent": "0.5",
                "outcomes": 648,
                "cpuViolationPercent": "0.62",
                "memoryViolationPercent": "0.00",
                "coveragePercent": "96.43",
                "cpuSeverityPercent": "0.03",
                "memorySeverityPercent": "0.00",
                "cpuLentPercent": "61.20",
                "memoryLentPercent": "48.00",
            }
        ],
        "withdrawals": [{"windowSeconds": 86400, "cpuPercentPerDay": "2.10", "memoryPercentPerDay": "0.00"}],
        "shadows": [
            {
                "model": "percentile",
                "outcomes": 648,
                "cpuViolationPercent": "3.40",
                "memoryViolationPercent": "0.00",
                "cpuLentPercent": "55.00",
                "memoryLentPercent": "40.10",
            }
        ],
        "samples": 9,
        "historyPercent": 50,
        "confidencePercent": 50,
        "reportReason": "periodic",
    },
}
SPEC = {
    "metricCollectPolicy": {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    },
    "predictPolicy": {"predictor": "n-sigma-v2", "sigmaCPU": "5", "sigmaMemory": 5, "coldStartPeriodSeconds": 10}
    | {"targetViolationPercent": "0.5", "horizonSeconds": 3600},
    "midPolicy": {"midFormula": "seed", "midCPUThresholdPercent": 100, "midBuffer": "auto"},
}


def test_a_node_metric_keeps_every_field_of_the_contract(api: Api, unique: str) -> None:
    api.ok("POST", f"{NM}?fieldValidation=Strict", node_metric(unique, spec=SPEC))
    patched = api.patch(f"{NM}/{unique}/status?fieldValidation=Strict", {"status": STATUS})
    assert (patched["spec"], patched["status"]) == (SPEC, STATUS)


@pytest.mark.parametrize(
    "status",
    [
        {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "much"}}}},
        {"nodeMetric": {"nodeUsage": {"resources": {"cpu": 1.5}}}},
        {"updateTime": 5},
        {"podsMetric": {}},
        {"prediction": {"historyPercent": 101}},
        {"prediction": {"shadows": [{"model": str(number)} for number in range(9)]}},
        {"prediction": {"promises": [{"outcomes": 1}]}},
        {"nodeMetric": {"numaUsages": [{}]}},
    ],
)
def test_a_node_metric_with_wrong_types_is_refused_and_the_last_one_kept(
    api: Api, unique: str, status: dict[str, Any]
) -> None:
    made = api.ok("POST", NM, node_metric(unique))
    api.fails(422, "PATCH", f"{NM}/{unique}/status", {"status": status}, "application/merge-patch+json")
    assert api.ok("GET", f"{NM}/{unique}") == made


def test_replicas_are_read_and_written_as_a_scale_and_only_from_the_version_that_it_names(
    api: Api, things: str
) -> None:
    made = api.ok("POST", things, thing(things, "a", spec={"replicas": 2, "colour": "red"}))
    api.patch(f"{things}/a/status", {"status": {"replicas": 1}})
    scale = api.ok("GET", f"{things}/a/scale")
    assert (scale["kind"], scale["apiVersion"], scale["metadata"]["uid"]) == (
        "Scale",
        "autoscaling/v1",
        made["metadata"]["uid"],
    )
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 2}, 1)
    version = {"resourceVersion": scale["metadata"]["resourceVersion"]}
    assert (
        api.patch(f"{things}/a/scale", {"metadata": version, "spec": {"replicas": 0}})["spec"].get("replicas", 0) == 0
    )
    now = api.ok("GET", f"{things}/a")
    assert (now["spec"], now["metadata"]["generation"]) == ({"replicas": 0, "colour": "red", "size": 3}, 2)
    api.fails(409, "PATCH", f"{things}/a/scale", {"metadata": version, "spec": {"replicas": 5}}, MERGE)
    api.fails(422, "PATCH", f"{things}/a/scale", {"spec": {"replicas": -1}}, MERGE)
    api.fails(404, "GET", f"{things}/b/scale")
    api.fails(404, "GET", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/a/scale")
    api.ok("PUT", f"{things}/a/scale", scale | {"metadata": {"name": "a"}, "spec": {"replicas": 3}})
    assert api.ok("GET", f"{things}/a")["spec"]["replicas"] == 3
