"""The prediction policy in force: the agent's settings, overridden field by field by the NodeMetric's spec."""

from collections.abc import Mapping

import msgspec
import numpy as np

from agent.metric_cache.aggregate import Aggregation
from agent.predict_server import plugins
from agent.predict_server.models import HOUR_SECONDS, Parameters, Uses
from agent.settings import AgentSettings
from shared.api import predictionprior, predictpolicy
from shared.api.nodemetric import PredictPolicy, TrainingInput
from shared.api.predictionprior import Prior
from shared.errors import InvalidInput
from shared.explanation import Term

SOURCE = "NodeMetric spec.predictPolicy"

_TRAINING_INPUTS: dict[TrainingInput, Aggregation] = {
    "mean": Aggregation.AVG,
    "p90": Aggregation.P90,
    "p95": Aggregation.P95,
    "max": Aggregation.MAX,
}


class PredictionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How to predict, and which change of a prediction matters. Percentiles are 0 to 100."""

    predictor: str
    target_violation_percent: float
    horizon_seconds: int
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
    prior: Prior | None = None  # the fleet's, for which there is no setting

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            sigma=np.array([self.sigma_cpu, self.sigma_memory]),
            percentiles=np.array([self.cpu_percentile, self.memory_percentile]) / 100,
            safety_margin_percent=self.safety_margin_percent,
            borg_ratio=self.borg_ratio,
            target_violation_percent=self.target_violation_percent,
            prior=self.prior,
        )

    @property
    def horizons_seconds(self) -> tuple[float, ...]:
        """How far ahead to predict peaks; the first one decides what is lent."""
        return tuple(dict.fromkeys((float(self.horizon_seconds), HOUR_SECONDS)))

    @property
    def training_aggregation(self) -> Aggregation:
        return _TRAINING_INPUTS[self.training_input]

    def identity(self, names: tuple[str, ...]) -> str:
        """Identifies whose promises they are: those models' names, and their parameters in the policy.

        The fleet's prior is not included: it changes by itself, and the promises remain the same model's.
        """
        own = msgspec.structs.replace(self, prior=None)
        terms = [f"{term.name}={term.value}{term.unit}" for resource in (0, 1) for term in own.terms(resource, names)]
        return " ".join([",".join(names), *terms])

    def terms(self, resource: int, names: tuple[str, ...]) -> list[Term]:
        """The parameters of those models for one resource (0: cpu, 1: memory), in hundredths where they are ratios."""

        def term(name: str, percent: float) -> Term:
            points = round(100 * percent)
            value, unit = (points, "basisPoints") if points % 100 else (points // 100, "percent")
            return Term(str(name), value, unit, "policy")

        terms = []
        uses = plugins.uses(names)
        if Uses.SIGMA in uses:
            terms.append(term(Uses.SIGMA, 100 * (self.sigma_cpu, self.sigma_memory)[resource]))
        if Uses.TARGET in uses:
            terms.append(term(Uses.TARGET, self.target_violation_percent))
            start = predictionprior.tails(self.prior, self.horizon_seconds)[resource]
            source = "built-in prior" if self.prior is None else f"prior of {self.prior.nodes} nodes"
            for name, scales in (("priorQuantile", start.quantile), ("priorExcess", start.excess)):
                terms.append(msgspec.structs.replace(term(name, 100 * scales), source=source))
        if Uses.PERCENTILE in uses:
            terms.append(term(Uses.PERCENTILE, (self.cpu_percentile, self.memory_percentile)[resource]))
        if Uses.BORG_RATIO in uses:
            terms.append(term(Uses.BORG_RATIO, 100 * self.borg_ratio))
        margin = self.safety_margin_percent
        if margin is None:
            margin = plugins.default_margin_percent(names)
        if margin is not None:
            terms.append(term("safetyMargin", margin))
        return terms


def from_settings(settings: AgentSettings) -> PredictionPolicy:
    """Raises InvalidInput for an unknown predictor."""
    plugins.members(settings.predictor, source="settings")
    return PredictionPolicy(
        **{field: getattr(settings, field) for field in PredictionPolicy.__struct_fields__ if field != "prior"}
    )


def followed(
    base: PredictionPolicy, before: PredictionPolicy, spec: Mapping[str, object]
) -> tuple[PredictionPolicy, tuple[InvalidInput, ...]]:
    """The policy of a NodeMetric's spec, and its refused parts, which stay as they were `before`."""
    found, prior, problems = before, before.prior, []
    try:
        found = overridden(base, spec.get("predictPolicy"))
    except InvalidInput as problem:
        problems.append(problem)
    try:
        prior = predictionprior.of_raw(spec.get("predictionPrior"))
    except InvalidInput as problem:
        problems.append(problem)
    return msgspec.structs.replace(found, prior=prior), tuple(problems)


def overridden(base: PredictionPolicy, raw: object) -> PredictionPolicy:
    """`base` overridden by `raw`, an undecoded spec.predictPolicy. Raises InvalidInput."""
    wire = _decoded(raw)
    if wire.predictor is not None:
        plugins.members(wire.predictor, source=SOURCE)
    changes = {
        "predictor": wire.predictor,
        "target_violation_percent": _number(wire.target_violation_percent),
        "horizon_seconds": wire.horizon_seconds,
        "sigma_cpu": _number(wire.sigma_cpu),
        "sigma_memory": _number(wire.sigma_memory),
        "cpu_percentile": _number(wire.cpu_percentile),
        "memory_percentile": _number(wire.memory_percentile),
        "safety_margin_percent": wire.safety_margin_percent,
        "borg_ratio": _number(wire.borg_ratio),
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
    for field, value, problem in predictpolicy.violations(wire):
        raise InvalidInput(source=SOURCE, field=field, value=value, problem=problem)
    return wire


def _number(value: str | int | None) -> float | None:
    return None if value is None else predictpolicy.number(value)
