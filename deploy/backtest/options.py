"""What a backtest is asked for, checked flag by flag."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from agent.backtest.engine import PEAK_MIX, RESOURCES
from agent.predict_server import plugins, policy
from agent.predict_server.policy import Policy
from agent.settings import AgentSettings
from deploy.backtest.fleets import Placement
from deploy.backtest.samples import UNITS
from shared import durations
from shared.api.nodemetric import PredictPolicy
from shared.errors import InvalidInput

HOUR_SECONDS = 3600
MOST_HORIZON_HOURS = 7 * 24
_BETWEEN_MODELS = re.compile(r",(?![^(]*\))")  # not within max(a,b)


@dataclass(frozen=True)
class Options:
    """`limits` and `unit` are those of files."""

    sources: Sequence[str]
    limits: Path | None
    unit: str
    models: tuple[str, ...]
    target_percents: tuple[float, ...]
    horizons_hours: tuple[int, ...]
    resources: tuple[str, ...]
    policy: Policy
    placement: Placement
    workers: int


def unit(text: str) -> str:
    """Raises InvalidInput."""
    if text and text not in UNITS:
        raise _invalid("--unit", text, f"expected one of {', '.join(UNITS)}")
    return text


def models(text: str) -> tuple[str, ...]:
    """Names of predictors, and max(a,b) of them. Raises InvalidInput for one that is not there."""
    names = tuple(dict.fromkeys(one.strip() for one in _BETWEEN_MODELS.split(text)))
    for name in names:
        if name != PEAK_MIX:
            plugins.members(name, source="--model")
    return names


def targets(text: str) -> tuple[float, ...]:
    """Percent above 0 and below 100, in order. Raises InvalidInput."""
    found = {_number("--target", one) for one in text.split(",")}
    if not all(0 < percent < 100 for percent in found):
        raise _invalid("--target", text, "expected percents above 0 and below 100")
    return tuple(sorted(found))


def horizons(text: str) -> tuple[int, ...]:
    """Whole hours, in order. Raises InvalidInput."""
    found = {_seconds("--horizon", one) / HOUR_SECONDS for one in text.split(",")}
    if not all(hours == int(hours) and 1 <= hours <= MOST_HORIZON_HOURS for hours in found):
        raise _invalid("--horizon", text, f"expected whole hours, {MOST_HORIZON_HOURS}h at most")
    return tuple(sorted(map(int, found)))


def resources(text: str) -> tuple[str, ...]:
    """Raises InvalidInput."""
    found = tuple(dict.fromkeys(one.strip() for one in text.split(",")))
    if not set(found) <= set(RESOURCES):
        raise _invalid("--resource", text, f"expected {' or '.join(RESOURCES)}, or both")
    return found


def prediction_policy(path: Path | None) -> Policy:
    """The agent's defaults, overridden by a file if there is one. Raises InvalidInput."""
    base = policy.from_settings(AgentSettings())
    if path is None:
        return base
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _invalid("--policy", str(path), str(error)) from error
    if not isinstance(document, dict):
        raise _invalid("--policy", str(path), "expected a mapping, as spec.predictPolicy of a NodeMetric")
    known = [field.encode_name for field in msgspec.structs.fields(PredictPolicy)]
    for field, value in document.items():
        if field not in known:
            problem = f"unknown key (known: {', '.join(known)})"
            raise InvalidInput(source=path.name, field=str(field), value=value, problem=problem)
    return policy.overridden(base, document)


def placement(churn: str, *, node_cores: float | None, seeds: int, max_nodes: int | None) -> Placement:
    """Raises InvalidInput."""
    size = Placement.node_cores if node_cores is None else node_cores
    if not math.isfinite(size):
        raise _invalid("--node-cores", node_cores, "expected a number")
    if churn in ("", "recorded"):
        return Placement(size, churn == "recorded" or None, None, seeds, max_nodes)
    hours = None if churn == "none" else _seconds("--churn", churn) / HOUR_SECONDS
    if hours is not None and hours < 1:
        raise _invalid("--churn", churn, "pods live for an hour at least")
    return Placement(size, False, hours, seeds, max_nodes)


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _invalid(flag, text, "not a number") from None


def _seconds(flag: str, text: str) -> float:
    try:
        return durations.parse(text.strip())
    except ValueError as error:
        raise _invalid(flag, text, str(error)) from None


def _invalid(flag: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source="command line", field=flag, value=value, problem=problem)
