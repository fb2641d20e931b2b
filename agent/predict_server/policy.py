"""The prediction policy in force: the agent's settings, overridden field by field by the NodeMetric's spec."""

from collections.abc import Mapping

import msgspec
import numpy as np

from agent.metric_cache.aggregate import Aggregation
from agent.predict_server import plugins
from agent.predict_server.models import HOUR_SECONDS, Parameters, Uses
from agent.settings import AgentSettings
from shared.api import predictionprior, predictpolicy
from shared.api.nodemetric_spec import PredictPolicy, TrainingInput
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

# Fields of a NodeMetric's policy: those with another name here, and those whose numbers may be text.
_OTHER_NAMES = {"cold_start_period_seconds": "cold_start_seconds"}
_DECIMALS = frozenset(
    {"target_violation_percent", "sigma_cpu", "sigma_memory", "cpu_percentile", "memory_percentile", "borg_ratio"}
)


class PredictionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How to predict, and which change of a prediction matters. Percentiles are 0 to 100."""

    predictor: str
    target_violation_percent: float
    horizon_seconds: int
    sigma_cpu: float
    sigma_memory: float
    sigma_cap_pods: bool
    cpu_percentile: float
    memory_percentile: float
    safety_margin_percent: float | None
    training_input: TrainingInput
    warm_up_samples: int
    cold_start_seconds: float
    resource_diff_threshold_percent: float
    reclaim_ratio_percent: int
    cpu_half_life_seconds: float
    memory_half_life_seconds: float
    borg_ratio: float = 1.1  # the policy alone sets this, and the fleet's prior
    prior: Prior | None = None

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            sigma=np.array([self.sigma_cpu, self.sigma_memory]),
            sigma_cap_pods=self.sigma_cap_pods,
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
        """Identifies the models behind the promises: their names, and their parameters in the policy."""
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
            if self.sigma_cap_pods:
                terms.append(term("podCap", 100))
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
        **{field: getattr(settings, field) for field in PredictionPolicy.__struct_fields__ if hasattr(settings, field)}
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
        _OTHER_NAMES.get(name, name): predictpolicy.number(value) if name in _DECIMALS else value
        for name, value in msgspec.structs.asdict(wire).items()
        if value is not None
    }
    return msgspec.structs.replace(base, **changes)


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
