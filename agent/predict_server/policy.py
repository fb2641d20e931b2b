"""The prediction policy in force: the agent's settings, overridden field by field by the NodeMetric's spec."""

import math

import msgspec
import numpy as np

from agent.metric_cache.aggregate import Aggregation
from agent.predict_server import plugins
from agent.predict_server.models import Parameters
from agent.predict_server.percentile import DEFAULT_MARGIN_PERCENT
from agent.settings import LARGEST, AgentSettings
from shared.api.nodemetric import PredictPolicy, TrainingInput
from shared.errors import InvalidInput
from shared.explanation import Term

SOURCE = "NodeMetric spec.predictPolicy"

_TRAINING_INPUTS: dict[TrainingInput, Aggregation] = {
    "mean": Aggregation.AVG,
    "p90": Aggregation.P90,
    "p95": Aggregation.P95,
    "max": Aggregation.MAX,
}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to predict, and which change of a prediction matters. Percentiles are 0 to 100."""

    predictor: str
    sigma_cpu: float
    sigma_memory: float
    cpu_percentile: float
    memory_percentile: float
    safety_margin_percent: float | None
    borg_ratio: float
    training_input: TrainingInput
    warm_up_samples: int
    cold_start_seconds: float
    resource_diff_threshold_percent: float
    reclaim_ratio_percent: int
    cpu_half_life_seconds: float
    memory_half_life_seconds: float

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            sigma=np.array([self.sigma_cpu, self.sigma_memory]),
            percentiles=np.array([self.cpu_percentile, self.memory_percentile]) / 100,
            safety_margin_percent=self.safety_margin_percent,
            borg_ratio=self.borg_ratio,
        )

    @property
    def training_aggregation(self) -> Aggregation:
        return _TRAINING_INPUTS[self.training_input]

    def terms(self, resource: int, names: tuple[str, ...]) -> list[Term]:
        """The parameters of those models for one resource (0: cpu, 1: memory), in hundredths where they are ratios."""

        def term(name: str, value: float) -> Term:
            return Term(name, round(value), "percent", "policy")

        terms = []
        if any(name.startswith("n-sigma") for name in names):
            terms.append(term("sigma", 100 * (self.sigma_cpu, self.sigma_memory)[resource]))
        if "percentile" in names or "resource-central" in names:
            terms.append(term("percentile", (self.cpu_percentile, self.memory_percentile)[resource]))
        if "borg-default" in names:
            terms.append(term("borgRatio", 100 * self.borg_ratio))
        if self.safety_margin_percent is not None:
            terms.append(term("safetyMargin", self.safety_margin_percent))
        elif "percentile" in names:
            terms.append(term("safetyMargin", DEFAULT_MARGIN_PERCENT))
        return terms


def from_settings(settings: AgentSettings) -> Policy:
    """Raises InvalidInput for an unknown predictor."""
    plugins.members(settings.predictor, source="settings")
    return Policy(**{field: getattr(settings, field) for field in Policy.__struct_fields__})


def overridden(base: Policy, raw: object) -> Policy:
    """`base` with what `raw`, a spec.predictPolicy as it came, says otherwise. Raises InvalidInput."""
    wire = _decoded(raw)
    if wire.predictor is not None:
        plugins.members(wire.predictor, source=SOURCE)
    if wire.reclaim_ratio_percent is not None and wire.reclaim_ratio_percent > 100:
        raise InvalidInput(
            source=SOURCE,
            field="reclaimRatioPercent",
            value=wire.reclaim_ratio_percent,
            problem="more than was requested (100) cannot be reclaimed",
        )
    changes = {
        "predictor": wire.predictor,
        "sigma_cpu": _number("sigmaCPU", wire.sigma_cpu),
        "sigma_memory": _number("sigmaMemory", wire.sigma_memory),
        "cpu_percentile": _number("cpuPercentile", wire.cpu_percentile, most=100),
        "memory_percentile": _number("memoryPercentile", wire.memory_percentile, most=100),
        "safety_margin_percent": wire.safety_margin_percent,
        "borg_ratio": _number("borgRatio", wire.borg_ratio, least=1),
        "training_input": wire.training_input,
        "warm_up_samples": wire.warm_up_samples,
        "cold_start_seconds": wire.cold_start_period_seconds,
        "resource_diff_threshold_percent": wire.resource_diff_threshold_percent,
        "reclaim_ratio_percent": wire.reclaim_ratio_percent,
        "cpu_half_life_seconds": wire.cpu_half_life_seconds,
        "memory_half_life_seconds": wire.memory_half_life_seconds,
    }
    return msgspec.structs.replace(base, **{field: value for field, value in changes.items() if value is not None})


def _decoded(raw: object) -> PredictPolicy:
    try:
        wire = msgspec.convert({} if raw is None else raw, PredictPolicy)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        field = path.strip(".`") or "predictPolicy"
        value = raw.get(field) if isinstance(raw, dict) else raw
        raise InvalidInput(source=SOURCE, field=field, value=value, problem=problem) from error
    for name, number in msgspec.to_builtins(wire).items():
        if isinstance(number, int) and number > LARGEST:
            raise InvalidInput(source=SOURCE, field=name, value=number, problem=f"must be at most {LARGEST}")
    return wire


def _number(field: str, value: str | int | None, *, least: float = 0, most: float = LARGEST) -> float | None:
    """A number may be written "2.5", as custom resources carry no floats."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        problem = f"expected a number from {least:g} to {most:.10g}"
        raise InvalidInput(source=SOURCE, field=field, value=value, problem=problem)
    return number
