"""The prediction policy in force: the agent's settings, overridden field by field by the NodeMetric's spec."""

import math

import msgspec

from agent.metric_cache.series import Usage
from agent.predict_server.models import PREDICTORS, Predictor
from agent.settings import LARGEST, AgentSettings
from shared.api.nodemetric import PredictPolicy
from shared.errors import InvalidInput

SOURCE = "NodeMetric spec.predictPolicy"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to predict, and which change of a prediction matters."""

    predictor: str
    sigma_cpu: float
    sigma_memory: float
    cold_start_seconds: float
    resource_diff_threshold_percent: float
    reclaim_ratio_percent: int
    cpu_half_life_seconds: float
    memory_half_life_seconds: float

    def model(self) -> Predictor:
        return PREDICTORS[self.predictor](Usage(self.sigma_cpu, self.sigma_memory))


def from_settings(settings: AgentSettings) -> Policy:
    """Raises InvalidInput for an unknown predictor."""
    _check_predictor(settings.predictor, source="settings")
    return Policy(**{field: getattr(settings, field) for field in Policy.__struct_fields__})


def overridden(base: Policy, raw: object) -> Policy:
    """`base` with what `raw`, a spec.predictPolicy as it came, says otherwise. Raises InvalidInput."""
    wire = _decoded(raw)
    if wire.predictor is not None:
        _check_predictor(wire.predictor, source=SOURCE)
    if wire.reclaim_ratio_percent is not None and wire.reclaim_ratio_percent > 100:
        raise InvalidInput(
            source=SOURCE,
            field="reclaimRatioPercent",
            value=wire.reclaim_ratio_percent,
            problem="more than was requested (100) cannot be reclaimed",
        )
    changes = {
        "predictor": wire.predictor,
        "sigma_cpu": _sigma("sigmaCPU", wire.sigma_cpu),
        "sigma_memory": _sigma("sigmaMemory", wire.sigma_memory),
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


def _check_predictor(name: str, *, source: str) -> None:
    if name not in PREDICTORS:
        raise InvalidInput(
            source=source, field="predictor", value=name, problem=f"unknown (known: {', '.join(sorted(PREDICTORS))})"
        )


def _sigma(field: str, value: str | int | None) -> float | None:
    """A sigma may be written "2.5", as custom resources carry no floats."""
    if value is None:
        return None
    try:
        sigma = float(value)
    except ValueError:
        sigma = math.nan
    if not 0 <= sigma <= LARGEST:
        raise InvalidInput(source=SOURCE, field=field, value=value, problem=f"expected a number from 0 to {LARGEST}")
    return sigma
