"""NodeMetric: defaults, pruning and validation of a custom kind."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.objects import NODE_METRIC, USAGE
from tests.parity.calls import Json, Step, get, given, patch, post

customs = Area("customs", "The custom kind NodeMetric")

_METRIC = given("$nm", NODE_METRIC)


def _spec(query: str = "", **spec: Json) -> Step:
    return post(f"$nm{query}", NODE_METRIC | {"spec": spec})


def _status(query: str = "", **status: Json) -> list[Step]:
    return [_METRIC, patch(f"$nm/$me/status{query}", {"status": status})]


customs.table({
    "a custom object is made and read": [_spec(metricCollectPolicy={"reportIntervalSeconds": 7}), get("$nm/$me")],
    "an unknown field is pruned with a warning": _spec(nothing=1, metricCollectPolicy={"nothing": 2}),
    "an unknown field is refused": _spec("?fieldValidation=Strict", nothing=1, metricCollectPolicy={"nothing": 2}),
    "an unknown field of a patch is pruned with a warning": [_METRIC, patch("$nm/$me", {"spec": {"nothing": 1}})],
    "an unknown field of a status is pruned with a warning": _status(nothing=1),
    "a number for a text is refused": _spec(predictPolicy={"predictor": 7}),
    "a number below its minimum is refused": _spec(predictPolicy={"coldStartPeriodSeconds": -1}),
    "a number above its maximum is refused": _spec(predictPolicy={"reclaimRatioPercent": 101}),
    "a text that is none of its values is refused": _spec(midPolicy={"midFormula": "best"}),
    "a text that does not match is refused": _spec(predictPolicy={"sigmaCPU": "many"}),
    "a status's usage takes quantities": _status(nodeMetric={"nodeUsage": USAGE}, updateTime="2020-01-01T00:00:00Z"),
    "a status's quantities stay as they are written":
        _status(nodeMetric={"nodeUsage": {"resources": {"cpu": "1000m", "memory": 1024}}}),
    "a status's quantity that is none is refused": _status(nodeMetric={"nodeUsage": {"resources": {"cpu": "many"}}}),
    "a pod metric needs what it needs": _status(podsMetric=[{}]),
    "labels of a custom object are checked":
        post("$nm", {**NODE_METRIC, "metadata": {"name": "$me", "labels": {"a b": "c"}}}),
    "a custom object's name is checked": post("$nm", {**NODE_METRIC, "metadata": {"name": "A_b"}}),
    "the group is found": get("/apis/slo.koordinator.sh"),
})  # fmt: skip
