"""Turns Prometheus' answer to a range query, live or saved to a file, into samples. Pure but for `saved`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from deploy.backtest.samples import UNITS, Samples, Unit, unit_named
from shared.errors import HeadroomError, InvalidInput

Labels: TypeAlias = Mapping[str, str]

_NAMED = {"container_memory_working_set_bytes": UNITS["memory_bytes"]}
_COUNTER = "container_cpu_usage_seconds_total"


class PrometheusSeries(msgspec.Struct, frozen=True):
    """The values of one series: Unix seconds, and a number as text."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class Matrix(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a range query."""

    result_type: Literal["matrix"]
    result: list[PrometheusSeries]


class PrometheusAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """An answer of Prometheus' HTTP API, version 1."""

    status: Literal["success", "error"]
    data: Matrix | None = None
    error: str = ""


def decoded(content: bytes, source: str) -> list[PrometheusSeries]:
    """The series of an answer. Raises InvalidInput if it is not an answer, HeadroomError if it is an error."""
    try:
        answer = msgspec.json.decode(content, type=PrometheusAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        start = content[:60].decode(errors="replace")
        problem = f"no answer to a range query: {error}"
        raise InvalidInput(source=source, field="(document)", value=start, problem=problem) from error
    if answer.data is None:
        raise HeadroomError(f"{source}: {answer.error or 'an error without a text'}")
    return answer.data.result


def saved(path: Path, unit: str) -> Samples:
    """The samples of a saved answer, one series for each pod or node. Raises InvalidInput and HeadroomError."""
    try:
        found = decoded(path.read_bytes(), path.name)
    except OSError as error:
        raise InvalidInput(source=path.name, field="file", value=str(path), problem=str(error)) from error
    metric = next((series.metric.get("__name__", "") for series in found), "")
    if metric == _COUNTER:
        problem = "a counter, whose rate is what is used: ask for sum by (namespace, pod, node) (rate(...[5m]))"
        raise InvalidInput(source=path.name, field="metric", value=metric, problem=problem)
    counted = UNITS.get(unit) or _NAMED.get(metric) or unit_named(path.name.split(".")[0])
    if counted is None:
        problem = f"what it counts is not known; name it with --unit ({', '.join(UNITS)})"
        raise InvalidInput(source=path.name, field="metric", value=metric, problem=problem)
    return samples(found, counted, path.name)


def samples(found: Iterable[PrometheusSeries], unit: Unit, source: str) -> Samples:
    """The samples of all series; a series may come in several pieces.

    Raises InvalidInput for two series of the same pod.
    """
    labels: dict[tuple[str, str], Labels] = {}
    codes: dict[tuple[str, str], int] = {}
    times, values, lengths = [], [], []
    for series in found:
        key = (name_of(series.metric), series.metric.get("node", ""))
        if labels.setdefault(key, series.metric) != series.metric:
            problem = "two series are of the same pod; ask for sum by (namespace, pod, node)"
            raise InvalidInput(source=source, field="metric", value=dict(series.metric), problem=problem)
        try:
            piece = np.array(series.values, np.float64).reshape(-1, 2)
        except ValueError as error:
            raise InvalidInput(source=source, field=key[0], value=series.values[:2], problem=str(error)) from error
        known = ~np.isnan(piece[:, 1])
        if not ((piece[known, 1] >= 0) & (piece[known, 1] < math.inf)).all():
            bad = piece[known, 1].min(), piece[known, 1].max()
            raise InvalidInput(source=source, field=key[0], value=bad, problem="expected numbers of 0 or more")
        times.append(piece[known, 0])
        values.append(piece[known, 1] * unit.factor)
        lengths.append((codes.setdefault(key, len(codes)), int(known.sum())))
    if not codes:
        raise InvalidInput(source=source, field="result", value=[], problem="no series")
    places, counts = np.array(lengths, np.intp).T
    nodes = [node for _, node in codes]
    return Samples(
        source,
        unit,
        np.concatenate(times),
        np.repeat(places, counts),
        np.concatenate(values),
        [name for name, _ in codes],
        nodes if all(nodes) else (),
    )


def name_of(labels: Labels) -> str:
    """Namespace and name of the pod, or the node, or all labels without either."""
    if "pod" in labels:
        return f"{labels['namespace']}/{labels['pod']}" if "namespace" in labels else labels["pod"]
    plain: Sequence[str] = [labels[name] for name in ("node", "instance") if name in labels]
    return plain[0] if plain else ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
