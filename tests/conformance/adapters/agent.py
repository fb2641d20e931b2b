"""Rows about decaying histograms, out of two tables: VPA's (`kind`) and Koordinator's (`group`); and about prediction.

Some rows ask their questions inside their answers (which buckets' starts, which values to find): functions answer them.
"""

import datetime as dt
import math
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from agent.metric_cache import aggregate, series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metrics_advisor.advisor import Roster
from agent.metrics_advisor.source import Sample, Usage
from agent.predict_server import checkpoint, compact, decay, histogram, lenders, percentile, reclaimable
from agent.predict_server.bank import Bank
from agent.predict_server.compact import CompactHistogram
from agent.predict_server.histogram import Buckets
from agent.predict_server.histories import History
from agent.predict_server.reclaimable import Inputs
from agent.predict_server.server import PredictServer
from agent.settings import AgentSettings
from agent.states_informer.informer import node_state
from agent.states_informer.pods import NodePod, describe
from shared import durations
from shared.api.core import Node, Pod
from shared.clock import ManualClock
from shared.names import PriorityClass
from shared.quantity import Resources
from tests.conformance.matching import Asked, Holds, KnownDifference

Input: TypeAlias = Any  # JSON of another project's making

NOW = 1_700_000_000.0

ROW = np.array([0])
DEFAULT_OPTIONS = {"type": "linear", "max": 10, "bucketSize": 1, "epsilon": 0.001}


class One:
    """A bank of one model, spoken to as the tables do."""

    def __init__(self, buckets: Buckets, half_life_seconds: float = math.inf) -> None:
        self.bank = Bank(buckets, half_life_seconds, rows=1)

    def add(self, value: float, weight: float = 1.0, time: float = 0.0) -> None:
        self.bank.add(ROW, np.array([value], float), time, weight)

    def subtract(self, value: float, weight: float = 1.0, time: float = 0.0) -> None:
        self.bank.subtract(ROW, np.array([value], float), time, weight)

    def percentile(self, p: float) -> float:
        return float(self.bank.histograms.percentiles(ROW, np.array([p]))[0, 0])

    @property
    def percentiles(self) -> Asked:
        return Asked(self.percentile)

    @property
    def empty(self) -> bool:
        return bool(self.bank.histograms.empty(ROW)[0])

    @property
    def weights(self) -> dict[str, float]:
        weights = self.bank.histograms.weights[0]
        return {str(bucket): float(weights[bucket]) for bucket in np.flatnonzero(weights)}

    @property
    def state(self) -> dict[str, object]:
        return {
            "total_weight": float(self.bank.histograms.totals[0]),
            "min_bucket": int(self.bank.histograms.first[0]),
            "max_bucket": int(self.bank.histograms.last[0]),
            "buckets": self.weights,
            "reference_timestamp": float(self.bank.references[0]),
        }

    def saved(self) -> dict[str, object]:
        found = compact.save(self.bank, 0)
        return {
            "referenceTimestamp": instant(found.reference_timestamp),
            "bucketWeights": {str(bucket): weight for bucket, weight in found.bucket_weights.items()},
            "totalWeight": found.total_weight,
        }

    def load(self, checkpoint: Input) -> None:
        reference, total = checkpoint.get("referenceTimestamp"), checkpoint.get("totalWeight", 0.0)
        weights = {int(bucket): weight for bucket, weight in (checkpoint.get("bucketWeights") or {}).items()}
        seconds = decay.ZERO_TIME if reference is None else dt.datetime.fromisoformat(reference).timestamp()
        compact.load(self.bank, 0, CompactHistogram(seconds, weights, total))


def instant(seconds: float) -> str:
    """RFC 3339, also of Go's zero time, which no C library formats with four digits of the year."""
    zero = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    return (zero + dt.timedelta(seconds=seconds - decay.ZERO_TIME)).isoformat().replace("+00:00", "Z")


def linear(max_value: float, bucket_size: float, epsilon: float) -> Buckets:
    """Buckets of equal size, in which most rows count; the product has none."""
    starts = np.array([bucket * bucket_size for bucket in range(math.ceil(max_value / bucket_size) + 1)])
    return Buckets(starts, starts[1:], epsilon)


def buckets(options: Input) -> Buckets:
    """Raises ValueError."""
    maximum = options.get("max_value", options.get("max", options.get("max_cores", options.get("max_bytes"))))
    first = options.get("first_bucket_size", options.get("firstBucketSize", options.get("first")))
    epsilon = options.get("epsilon", histogram.DEFAULT_EPSILON)
    if options.get("type", "exponential") == "linear":
        size = options.get("bucket_size", options.get("bucketSize"))
        return linear(maximum, size, epsilon)
    return histogram.exponential(max_value=maximum, first_bucket_size=first, ratio=options["ratio"], epsilon=epsilon)


def find(layout: Buckets, value: float) -> int:
    return int(layout.find(np.array([value]))[0])


def start(layout: Buckets, bucket: float) -> float:
    return float(layout.starts[int(bucket)])


def operations(given: Input) -> object:
    """VPA's kinds `histogram` and `decaying`: a list of steps, some of which carry what they must answer."""
    one = One(buckets(given["options"]), given.get("half_life_s", math.inf))
    for name, *arguments in given["ops"]:
        if name == "pct":
            p, expected = arguments
            got = one.percentile(p)
            assert math.isclose(got, expected, rel_tol=1e-9), f"percentile {p}: {got} is not {expected}"
        elif name == "empty":
            assert one.empty is arguments[0]
        elif name == "add":
            one.add(*arguments)
        else:
            one.subtract(*arguments)
    return one.state


def options_row(given: Input) -> object:
    if given.get("type") == "linear" or given.get("options", {}).get("type") == "linear":
        raise KnownDifference("no histogram has buckets of equal size")
    try:
        layout = buckets(given)
    except ValueError:
        return {"error": True}
    return {
        "num_buckets": layout.count,
        "starts": Asked(lambda bucket: start(layout, bucket)),
        "find": Asked(lambda value: find(layout, value)),
    }


def filled(given: Input, samples: Input) -> One:
    one = One(buckets(given["options"]), given.get("half_life_s", math.inf))
    for sample in samples:
        one.add(*sample)
    return one


def checkpoint_save(given: Input) -> object:
    found = compact.save(filled(given, given["samples"]).bank, 0)
    return {
        "referenceTimestamp": found.reference_timestamp,
        "bucketWeights": {str(bucket): weight for bucket, weight in found.bucket_weights.items()},
        "totalWeight": found.total_weight,
    }


def checkpoint_load(given: Input) -> object:
    one = One(buckets(given["options"]), given.get("half_life_s", math.inf))
    try:
        one.load(given["checkpoint"])
    except (ValueError, AttributeError):  # a null checkpoint has no fields
        return {"error": True}
    return {**one.state, "empty": one.empty, "reference_unix": float(one.bank.references[0])}


def checkpoint_roundtrip(given: Input) -> object:
    saved: dict[str, Input] = filled(given, given["samples"]).saved()
    one = One(buckets(given["options"]), given.get("half_life_s", math.inf))
    one.load(saved)
    return {
        "saved": {**saved, **saved["bucketWeights"]},  # some rows name the buckets alone
        "empty_after_load": one.empty,
        "min_bucket_after_load": int(one.bank.histograms.first[0]),
        "max_bucket_after_load": int(one.bank.histograms.last[0]),
        "loaded_buckets": one.weights,
    }


def merge(given: Input) -> object:
    raise KnownDifference("histograms are never merged: no model takes over the samples of another")


def reference_rounding(given: Input) -> object:
    return decay.rounded_reference(given["timestamp"], given["half_life_s"])


def koordinator(given: Input) -> object:
    """Koordinator's rows differ by the keys of their input."""
    for key, answer in _KOORDINATOR:
        if key in given:
            return answer(given)
    return golden(given) if "resource" in given else unit(given)


def golden(given: Input) -> object:
    layout = {"cpu": histogram.CPU, "memory": histogram.MEMORY}[given["resource"]]
    one = One(layout, given["halfLifeSeconds"])
    last, count = 1700000000.0, 0
    for value, weight, last in golden_samples(given):
        one.add(value, weight, last)
        count += 1
    assert count == given.get("numSamples", count)
    saved = one.saved()
    answers = {"checkpoint": saved, "percentiles": one.percentiles}
    restored, disturbed = One(layout, given["halfLifeSeconds"]), One(layout, given["halfLifeSeconds"])
    restored.load(saved)
    disturbed.load(saved)
    for minute in range(1, 11):
        disturbed.add(0.0, 1.0, last + 60 * minute)
    unit_scale = 1000 if given["resource"] == "cpu" else 1
    levels = {"p60": 0.6, "p90": 0.9, "p95": 0.95, "p98": 0.98, "max": 1.0}
    prediction = {name: int(one.percentile(p) * unit_scale) for name, p in levels.items()}
    return {
        **answers,
        "percentiles_after_restore": restored.percentiles,
        "percentiles_after_restore_plus_10_zero_samples": disturbed.percentiles,
        "prediction_milli": prediction,
        "prediction_bytes": prediction,
    }


def golden_samples(given: Input) -> Iterator[tuple[float, float, float]]:
    for sample in given.get("samples") or ():
        yield sample["value"], sample["weight"], sample["unix"]
    series = given.get("samples_series")
    if series:
        for index, value in enumerate(series["values"]):
            yield value, series.get("weight", 1.0), series["start_unix"] + index * series["interval_seconds"]


def layout_row(given: Input) -> object:
    """Where a row names a resource, the layout is that of its models."""
    layout = {"cpu": histogram.CPU, "memory": histogram.MEMORY}[given["resource"]] if "resource" in given else None
    made = buckets(given)
    assert layout is None or np.array_equal(layout.starts, made.starts)
    layout = made
    return {
        "numBuckets": layout.count,
        "epsilon": layout.epsilon,
        "bucketStart": Asked(lambda bucket: start(layout, bucket), "bucket", "start"),
        "findBucket": Asked(lambda value: find(layout, value), "value", "bucket"),
    }


def reference_times(given: Input) -> object:
    answers = []
    for case in given["cases"]:
        one = One(histogram.CPU, case["halfLifeSeconds"])
        one.add(1.0, 1.0, case["firstSampleUnix"])
        reference = float(one.bank.references[0])
        answers.append(
            {
                **case,
                "referenceTimestamp": instant(reference),
                "referenceTimestampUnix": reference,
                "totalWeight": float(one.bank.histograms.totals[0]),
            }
        )
    return {"cases": answers}


def unit(given: Input) -> object:
    """Samples [value, weight] or, with a half-life, [value, weight, half-lives after the start]."""
    layout = buckets(given.get("options", DEFAULT_OPTIONS))
    half_life = given.get("halfLifeSeconds", math.inf)
    one = One(layout, half_life)
    for value, weight, *offset in given.get("samples", ()):
        one.add(value, weight, given.get("startUnix", 0) + (offset[0] * half_life if offset else 0.0))
    for bucket, weight in given.get("weights", {}).items():
        one.add(start(layout, float(bucket)), weight)

    def after_adding(samples: Input) -> bool:
        for value, weight in samples:
            one.add(value, weight)
        return True

    # In the rows' own order: what comes after `afterAdding` asks about the model it has changed.
    return {
        **one.saved(),
        "percentiles": one.percentiles,
        "weights": one.weights,
        "numBuckets": layout.count,
        "bucketStart": Asked(lambda bucket: start(layout, bucket)),
        "findBucket": Asked(lambda value: find(layout, value)),
        "isEmpty": one.empty,
        "afterAdding": Holds(after_adding),
        "percentilesAfter": one.percentiles,
    }


def loaded(given: Input) -> object:
    one = One(buckets(given.get("options", DEFAULT_OPTIONS)))
    one.load(given["checkpoint"])
    return {"weights": one.weights, "totalWeight": float(one.bank.histograms.totals[0])}


def refused(given: Input) -> object:
    def error(checkpoint: Input) -> bool:
        answer = checkpoint_load({"options": DEFAULT_OPTIONS, "checkpoint": checkpoint})
        return isinstance(answer, dict) and "error" in answer

    return {"error": [error(checkpoint) for checkpoint in given["checkpoints"]]}


def steps(given: Input) -> object:
    one = One(buckets(given["options"]))
    empty = []
    for name, value, weight in given["steps"]:
        (one.add if name == "add" else one.subtract)(value, weight)
        empty.append(one.empty)
    return {"isEmptyAfterStep": empty}


def precision(given: Input) -> object:
    """Whether the outermost percentiles of a smallest and a largest sample are within the tolerance of those."""

    def within(layout: Buckets, low: float, high: float) -> bool:
        one = One(layout)
        one.add(low)
        one.add(high)
        tolerance = given["tolerance"]
        return math.isclose(one.percentile(0.0), low, rel_tol=tolerance) and math.isclose(
            one.percentile(1.0), high, rel_tol=tolerance
        )

    layouts = {"cpu": histogram.CPU, "memory": histogram.MEMORY}
    return {
        "withinTolerance": all(
            within(layout, given[name]["min"], given[name]["max"]) for name, layout in layouts.items()
        )
    }


def prod_reclaimable(given: Input) -> object:
    """Both levels of the percentile model's rule; the class level only where a row gives models of classes.

    What makes Koordinator give no result is `error`, beside what there is nevertheless.
    """
    factor = (100 + given["safetyMarginPercent"]) / 100

    def peak(predictions: list[Input]) -> Resources:
        amounts = [[each.get("p95_cpu_milli", 0), each.get("p98_memory_bytes", 0)] for each in predictions]
        (total,) = reclaimable.whole(percentile.with_margin(np.array([amounts], float), factor))
        return total

    predicted: dict[str, list[Input]] = {}
    pods: dict[str, NodePod] = {}
    for row in given["pods"]:  # a second one of the same uid is refused
        pod, prediction = described(row), row.get("prediction")
        if pods.setdefault(pod.uid, pod) is pod and prediction is not None:
            predicted[pod.uid] = [prediction]
    lending = lenders.lenders(
        pods.values(),
        lambda uid: pods[uid].created_at if uid in predicted else None,
        lambda uid: int(uid in predicted),
        NOW,
        cold_start_seconds=given["coldStartSeconds"],
        warm_up_samples=1,
    )
    seen = [
        percentile.as_koordinator(one, peak(predicted[one.pod.uid]) if one.pod.uid in predicted else None)
        for one in lending
    ]
    models = dict(given.get("classPredictions") or {})
    needed = [models.get(name) for name in ("sys", PriorityClass.PROD, PriorityClass.NONE)]
    known = [each for each in needed if each is not None]
    levels = {"pod": percentile.pod_level(seen)}
    if len(known) == len(needed):
        levels["priority"] = percentile.class_level(seen, peak(known))
    peaks = {f"{name}Peak": level.peak._asdict() for name, level in levels.items()}
    allocatable = _allocatable(given.get("node"))
    if allocatable is None or (models and "priority" not in levels):
        return {**peaks, "error": True}
    answers = {**{name: level.result(allocatable)._asdict() for name, level in levels.items()}, **peaks}
    if "priority" not in levels:
        return answers
    asked = lenders.requests(lending)
    untold = History(Usage(0, 0), Usage(0, 0), samples=0, first_observed=NOW)
    inputs = Inputs(allocatable, asked, untold, reclaimable.standing_in(asked), ratio_percent=100, now=NOW)
    made = percentile.by_pod_and_class(inputs, seen, peak(known))
    return {**answers, "min": made.result._asdict(), "peak": made.peak._asdict()}


def _allocatable(node: Input | None) -> Resources | None:
    """None of a node that says nothing of it."""
    known = dict(node or {})
    if not known.get("allocatable"):
        return None
    metadata = {"name": "n", "annotations": known.get("annotations") or {}}
    return node_state(
        msgspec.convert({"metadata": metadata, "status": {"allocatable": known["allocatable"]}}, Node)
    ).allocatable


def described(given: Input) -> NodePod:
    metadata = {
        **{key: given[key] for key in ("uid", "name", "labels") if key in given},
        "creationTimestamp": durations.timestamp(NOW - given.get("ageSeconds", 0)),
        "deletionTimestamp": durations.timestamp(NOW) if given.get("terminating") else None,
    }
    spec = {
        "priority": given.get("priority"),
        "containers": _containers(given.get("containers")),
        "initContainers": _containers(given.get("initContainers")),
        "overhead": given.get("overhead"),
    }
    status = {"phase": given.get("phase", "")}
    return describe(msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod))


def _containers(given: list[Input] | None) -> list[Input]:
    """On the wire; a row's containers hold their resources, and what else is said of them."""
    own = ("requests", "limits")
    return [
        {
            **{key: value for key, value in each.items() if key not in own},
            "resources": {key: each[key] for key in own if key in each},
        }
        for each in given or ()
    ]


def predict_server(given: Input) -> object:
    """Koordinator's rows differ by the keys of their input."""
    if "items" in given:
        named: dict[str, str] = {"sys": series.SYSTEM, **{name: series.of_class(name) for name in PriorityClass}}
        return {item: named[item] for item in given["items"]} | ({"node": series.NODE} if given.get("node") else {})
    if "models" in given:
        never = np.zeros(given["models"], np.int64)
        return {"checkpointsWritten": len(checkpoint.due(never, given["maxPerStep"]))}
    pods = given.get("pods", [])
    if isinstance(pods, int):
        pods = [{"cpu": 1, "memory": 2**20}] * pods
    if "node" in given:
        nodes = [Usage(given["node"]["cpu"], given["node"]["memory"])]
    else:
        cores_by_tick = given.get("node_cpu_samples_cores", [len(pods)] if given.get("nodePresent", True) else [])
        nodes = [Usage(cores, len(pods) * 2**20) for cores in cores_by_tick]
    return trained_once(nodes, [Usage(pod["cpu"], pod["memory"]) for pod in pods])


def trained_once(nodes: list[Usage], usages: list[Usage]) -> object:
    """The models after a tick for each usage of the node, and one training step. The one of prod and system together is
    not Koordinator's.
    """
    pods = [described({"uid": f"pod-{number}", "priority": 9000}) for number in range(len(usages))]
    on_pods = {pod.uid: usage for pod, usage in zip(pods, usages, strict=True)}
    cache, roster = MetricCache(), Roster(pods, on_pods, ())
    last = cache.second()
    for second, node in enumerate(nodes, last + 1 - len(nodes)):
        cache.append_values(second, roster.keys, roster.values(Sample(node, on_pods)).reshape(-1))
    with tempfile.TemporaryDirectory() as directory:
        server = PredictServer(AgentSettings(state_dir=directory), cache, ManualClock(), registry=CollectorRegistry())
        server.train(pods)

    def p90_cpu_milli(key: str) -> int:
        saved = server.histograms(key)
        assert saved is not None
        one = One(histogram.CPU)
        compact.load(one.bank, 0, saved["cpu"])
        return int(one.percentile(0.9) * 1000)

    return {
        "models": server.model_count - 1,
        "p90_cpu_milli": p90_cpu_milli(series.NODE),
        "node_p90_cpu_milli": p90_cpu_milli(series.NODE),
        "sys_p90_cpu_milli": p90_cpu_milli(series.SYSTEM),
        "sys_sample_memory_bytes": int(cache.usages(Aggregation.LAST, 1)[series.SYSTEM].memory_bytes),
    }


def percentile_indexes(_given: Input) -> object:
    """Of series whose samples are their own positions."""

    def chosen(rows: Input) -> bool:
        return all(
            aggregate.aggregate(np.arange(row["n"], dtype=np.float32)[::-1, np.newaxis], Aggregation(name)) == [index]
            for row in rows
            for name, index in row.items()
            if name != "n"
        )

    return Holds(chosen)


_KOORDINATOR: tuple[tuple[str, Callable[[Input], object]], ...] = (
    ("halfLifeSeconds", lambda given: golden(given) if "resource" in given else unit(given)),
    ("cases", reference_times),
    ("checkpoints", refused),
    ("checkpoint", loaded),
    ("steps", steps),
    ("tolerance", precision),
    ("ratio", layout_row),
)

ADAPTERS: dict[str, Callable[[Input], object]] = {
    "histogram": lambda given: operations(given) if "ops" in given else koordinator(given),
    "decaying": operations,
    "options": options_row,
    "checkpoint_save": checkpoint_save,
    "checkpoint_load": checkpoint_load,
    "checkpoint_roundtrip": checkpoint_roundtrip,
    "merge": merge,
    "reference_rounding": reference_rounding,
    "prod_reclaimable": prod_reclaimable,
    "predict_server": predict_server,
    "metric_cache": percentile_indexes,
}
