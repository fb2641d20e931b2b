"""One answer of each operation, for the API's description."""

from typing import Any

_TIME = "2026-01-31T12:00:00Z"
_UID = "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"
_AMOUNT = {"cpu_milli": 1250, "memory_bytes": 2147483648}
_READINGS = {
    "memory_with_page_cache": {"value": 3221225472.0, "unit": "bytes"},
    "psi_cpu_some": {"value": 0.02, "unit": "ratio"},
}
_POD = {
    "uid": _UID,
    "namespace": "default",
    "name": "web-5d9c7b6f4-x2x7k",
    "priority": "koord-prod",
    "qos": "LS",
    "workload": "default/Deployment/web",
    "cpu_milli": 500,
    "memory_bytes": 1073741824,
    "request": {"cpu_milli": 2000, "memory_bytes": 4294967296},
}
_RECORD = {
    "outcomes": 648,
    "cpu_violation_percent": 0.617,
    "memory_violation_percent": 0.0,
    "cpu_lent_percent": 43.2,
    "memory_lent_percent": 60.8,
}
_UNKNOWN_RECORD = dict.fromkeys(_RECORD)
_NO_DEBT = {
    "surprises": 0,
    "last_surprise_time": None,
    "cause": "",
    "broken_promises": 0.0,
    "withheld": 0,
    "paid_time": None,
}
_LABELS = {"namespace": "default", "pod": _POD["name"], "priority": "koord-prod", "workload": _POD["workload"]}
_HISTORY = {
    "first_observed": "2026-01-30T12:00:00Z",
    "observed_seconds": 86400,
    "samples": 2880,
    "mean": {"cpu_milli": 480, "memory_bytes": 1063256064},
    "stdev": {"cpu_milli": 60, "memory_bytes": 10485760},
}

ANSWERS: dict[str, Any] = {
    "getNode": {
        "name": "node-1",
        "time": _TIME,
        "source": "cgroup v2 systemd",
        **_AMOUNT,
        "system": {"cpu_milli": 250, "memory_bytes": 536870912},
        "allocatable": {"cpu_milli": 16000, "memory_bytes": 68719476736},
        "classes": {"koord-prod": {"cpu_milli": 1000, "memory_bytes": 1610612736}},
        "readings": {**_READINGS, "load_1m": {"value": 0.8, "unit": "tasks"}},
    },
    "listPods": {"time": _TIME, "pods": [_POD]},
    "getPod": {
        **_POD,
        "time": _TIME,
        "created": "2026-01-30T12:00:00Z",
        "cold": False,
        "readings": _READINGS,
        "containers": [{"name": "web", "cpu_milli": 500, "memory_bytes": 1073741824, "readings": _READINGS}],
        "usage": [
            {
                "window_seconds": 300,
                "tier": "1s",
                "samples": 300,
                "avg": {"cpu_milli": 480, "memory_bytes": 1063256064},
                "p95": {"cpu_milli": 610, "memory_bytes": 1073741824},
                "max": {"cpu_milli": 700, "memory_bytes": 1073741824},
            }
        ],
        "history": _HISTORY,
        "workload_history": _HISTORY,
        "enforcer": {
            "tier": "mid",
            "bounds": [
                {
                    "cgroup": f"kubepods/besteffort/pod{_UID}",
                    "file": "cpu.max",
                    "term": "mid-cpu limit",
                    "amount": 400,
                    "unit": "milli",
                    "value": "40000 100000",
                    "outcome": "written",
                    "time": _TIME,
                    "before": "max 100000",
                    "problem": "",
                }
            ],
            "omitted": 0,
        },
    },
    "getSeries": {
        "kind": "pod",
        "metric": "cpu",
        "unit": "cores",
        "tier": "1s",
        "step_seconds": 1,
        "times": [1769860800, 1769860801, 1769860802],
        "series": [{"entity": _UID, "labels": _LABELS, "values": [0.48, None, 0.52]}],
    },
    "getAggregate": {
        "kind": "pod",
        "metric": "cpu",
        "agg": "p95",
        "unit": "cores",
        "window_seconds": 300,
        "time": _TIME,
        "tier": "1s",
        "values": [{"entity": _UID, "labels": _LABELS, "value": 0.61}],
    },
    "getPrediction": {
        "time": _TIME,
        "model": "peak-mix",
        "samples": 2880,
        "history_percent": 100,
        "requested": {"cpu_milli": 2000, "memory_bytes": 4294967296},
        "cold_requested": {"cpu_milli": 0, "memory_bytes": 0},
        "mean": {"cpu_milli": 730, "memory_bytes": 1600126976},
        "stdev": {"cpu_milli": 60, "memory_bytes": 10485760},
        "models": {
            "n-sigma-v1": {"cpu_milli": 1030, "memory_bytes": 1652555776} | _UNKNOWN_RECORD,
            "n-sigma-v2": {"cpu_milli": 1110, "memory_bytes": 1673527296} | _RECORD,
            "peak-mix": {"cpu_milli": 1090, "memory_bytes": 1663041536} | _RECORD,
        },
        "peak": {"cpu_milli": 1090, "memory_bytes": 1663041536},
        "node_peak": {"cpu_milli": 1700, "memory_bytes": 2684354560},
        "promises": [
            {
                "horizon_seconds": 86400,
                "peak": {"cpu_milli": 1090, "memory_bytes": 1663041536},
                **_RECORD,
                "coverage_percent": 96.429,
                "target_note": "1 % is not enforceable within 28 days on one node: one surprise breaks as many "
                "promises as are allowed in 100 days",
                "cpu_debt": {
                    "surprises": 1,
                    "last_surprise_time": _TIME,
                    "cause": "Bursting",
                    "broken_promises": 21.4,
                    "withheld": 180,
                    "paid_time": "2026-04-30T12:00:00Z",
                },
                "memory_debt": _NO_DEBT,
                "cpu_severity_percent": 0.031,
                "memory_severity_percent": 0.0,
                "cpu_over_estimate_percent": 18.2,
                "memory_over_estimate_percent": 3.9,
            }
        ],
        "withdrawals": [
            {"window_seconds": 86400, "cpu_percent_per_day": 2.1, "memory_percent_per_day": 0.0},
            {"window_seconds": 2419200, "cpu_percent_per_day": 1.4, "memory_percent_per_day": 0.2},
        ],
        "recommended": {
            "model": "n-sigma-v2",
            "sentence": "Keep n-sigma-v2: n-sigma-v2 was wrong in 0.6 % of 648 outcomes and lent 43 % of cpu and "
            "61 % of memory, with a target of 1 %.",
        },
        "target_violation_percent": 1.0,
        "prior": {"source": "fleet", "nodes": 4210},
        "reclaimable": {"cpu_milli": 910, "memory_bytes": 2631925760},
        "reason": "cpu bound by requested: requested 2000m, peak 1090m, allocatable 16000m; memory bound by requested: "
        "requested 4.00 GiB, peak 1.55 GiB, allocatable 64.00 GiB",
        "resources": {
            "cpu": {
                "terms": [
                    {"name": "requested", "value": 2000, "unit": "milli", "source": "prod pods", "time": _TIME},
                    {"name": "peak", "value": 1090, "unit": "milli", "source": "prediction", "time": _TIME},
                ],
                "bound": "requested",
                "result": 910,
            }
        },
        "policy_problem": "",
        "predictor_problem": "",
    },
    "getHistograms": {
        "cpu": {
            "unit": "cores",
            "reference_time": "2026-01-31T00:00:00Z",
            "bucket_weights": {"14": 10000, "15": 1200},
            "bucket_starts": {"14": 0.48996579, "15": 0.53946408},
            "total_weight": 1440.5,
        }
    },
    "getReport": {
        "time": _TIME,
        "reason": "PredictionChanged",
        "status": {"updateTime": _TIME, "prodReclaimableMetric": {"resource": {"resources": {"cpu": "910m"}}}},
    },
}
