"""Checks the flags of a backtest one by one."""

import importlib.util
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from agent.backtest.engine import RESOURCES
from agent.predict_server import plugins, policy
from agent.predict_server.policy import PredictionPolicy
from agent.settings import AgentSettings
from deploy.backtest.fleets import SeriesPlacement
from deploy.backtest.prometheus import Period
from deploy.backtest.samples import AGGREGATES, UNITS
from deploy.backtest.server import Access
from shared import durations, yaml_file
from shared.api.nodemetric_spec import PredictPolicy
from shared.errors import InvalidInput

HOUR_SECONDS = 3600
MOST_HORIZON_HOURS = 7 * 24
MOST_SECONDS_BACK = 8760 * HOUR_SECONDS
_BETWEEN_MODELS = re.compile(r",(?![^(]*\))")  # not within max(a,b)


@dataclass(frozen=True)
class Options:
    """The checked flags: `limits` and `unit` apply to files, `period` and `access` to Prometheus; `aggregate` is what
    usage of an interval to take, empty for what a source has.

    `dask` is the HOST:PORT of a scheduler, empty to use processes on this machine.
    """

    sources: Sequence[str]
    limits: Path | None
    unit: str
    aggregate: str
    models: tuple[str, ...]
    target_percents: tuple[float, ...]
    horizons_hours: tuple[int, ...]
    resources: tuple[str, ...]
    policy: PredictionPolicy
    placement: SeriesPlacement
    workers: int
    dask: str
    period: Period
    access: Access


def unit(text: str) -> str:
    """Raises InvalidInput."""
    if text and text not in UNITS:
        raise _invalid("--unit", text, f"expected one of {', '.join(UNITS)}")
    return text


def aggregate(text: str) -> str:
    """Raises InvalidInput."""
    if text and text not in AGGREGATES:
        raise _invalid("--aggregate", text, f"expected one of {', '.join(AGGREGATES)}")
    return text


def models(text: str) -> tuple[str, ...]:
    """Names of predictors, and max(a,b) of them. Raises InvalidInput for an unknown one."""
    names = tuple(dict.fromkeys(one.strip() for one in _BETWEEN_MODELS.split(text)))
    for name in names:
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


def prediction_policy(path: Path | None) -> PredictionPolicy:
    """The agent's defaults, overridden by a file if there is one. Raises InvalidInput."""
    base = policy.from_settings(AgentSettings())
    if path is None:
        return base
    document = yaml_file.read(path, "--policy")
    if not isinstance(document, dict):
        raise _invalid("--policy", str(path), "expected a mapping, as spec.predictPolicy of a NodeMetric")
    known = [field.encode_name for field in msgspec.structs.fields(PredictPolicy)]
    for field, value in document.items():
        if field not in known:
            problem = f"unknown key (known: {', '.join(known)})"
            raise InvalidInput(source=path.name, field=str(field), value=value, problem=problem)
    return policy.overridden(base, document)


def placement(churn: str, *, node_cores: float | None, seeds: int, max_nodes: int | None) -> SeriesPlacement:
    """Raises InvalidInput."""
    size = SeriesPlacement.node_cores if node_cores is None else node_cores
    if not math.isfinite(size):
        raise _invalid("--node-cores", node_cores, "expected a number")
    if churn in ("", "recorded"):
        return SeriesPlacement(size, churn == "recorded" or None, None, seeds, max_nodes)
    hours = None if churn == "none" else _seconds("--churn", churn) / HOUR_SECONDS
    if hours is not None and hours < 1:
        raise _invalid("--churn", churn, "pods live for an hour at least")
    return SeriesPlacement(size, False, hours, seeds, max_nodes)


def period(since: str, until: str, step: str, now: float) -> Period:
    """Whole steps back from `until`, or from now. Raises InvalidInput."""
    step_seconds, back_seconds = _seconds("--step", step), _seconds("--since", since)
    if step_seconds < 1 or HOUR_SECONDS % step_seconds:
        raise _invalid("--step", step, "expected a part of an hour, as 5m")
    if not 0 < back_seconds <= MOST_SECONDS_BACK:
        raise _invalid("--since", since, "expected up to 8760h")
    try:
        end = durations.instant(until) if until else now
    except ValueError as error:
        raise _invalid("--until", until, str(error)) from None
    end -= end % step_seconds
    return Period(max(0.0, end - back_seconds), end, step_seconds)


def engine(text: str) -> str:
    """HOST:PORT of a Dask scheduler, empty for this machine. Raises InvalidInput."""
    if not text:
        return ""
    parts = urlsplit(text)
    try:
        named = parts.scheme == "dask" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        named = False
    if not named or parts.path or parts.query:
        raise _invalid("--engine", text, "expected dask://HOST:PORT")
    if importlib.util.find_spec("distributed") is None:
        raise _invalid("--engine", text, "needs dask.distributed: pip install 'headroom-k8s[dask]'")
    return parts.netloc


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
