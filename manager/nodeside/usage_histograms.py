"""The API's answer about how often Prod uses how much of one node, from its agent's report.

Reports are read for it only when it is asked for.
"""

from dataclasses import dataclass
from itertools import pairwise

import msgspec

from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.promises import RESOURCES
from shared.api.nodemetric import MOST_BARS, UsageHistogram
from shared.errors import InvalidInput
from shared.quantity import INT64_MAX

ALL_SHARES = 10_000
_WIRE = msgspec.json.Decoder(tuple[UsageHistogram, ...] | None)
_FIELD = "status.prediction.usageHistograms"


@dataclass(frozen=True)
class HistogramRow:
    """One resource, in milli-cores or bytes; older samples weigh less.

    Of the weight, `shares[i]` ten-thousandths lie from `bounds[i]` to `bounds[i + 1]`. `percentiles` are by their
    number, and `peak` is what is promised to be the most (null: nothing is).
    """

    resource: str
    bounds: list[int]
    shares: list[int]
    percentiles: dict[str, int]
    peak: int | None


@dataclass(frozen=True)
class NodeHistograms:
    """The usage of one node by Prod and the system, without pods of Mid, Batch and Free; empty without an agent's
    report.

        `problem` is why a report is left out.
    """

    node: str
    model: str
    histograms: list[HistogramRow]
    problem: str | None


def answer(node: str, report: NodeReport | None) -> NodeHistograms:
    """The answer from the node's report."""
    if report is None:
        return NodeHistograms(node, "", [], None)
    try:
        return NodeHistograms(node, report.model, _rows(report), None)
    except InvalidInput as problem:
        return NodeHistograms(node, report.model, [], str(problem))


def _rows(report: NodeReport) -> list[HistogramRow]:
    """Raises InvalidInput."""
    source = f"NodeMetric {report.name}"
    try:
        found = (_WIRE.decode(report.histograms) if report.histograms else None) or ()
    except (ValueError, RecursionError) as error:
        raise InvalidInput(source=source, field=_FIELD, value=report.histograms, problem=str(error)) from error
    for one in found:
        problem = _problem(one)
        if problem:
            raise InvalidInput(source=source, field=f"{_FIELD}[{one.resource}]", value=one, problem=problem)
    by_resource = {one.resource: one for one in found}
    peaks = dict(zip(RESOURCES, report.peak, strict=True))
    return [
        HistogramRow(
            resource=resource,
            bounds=list(one.bounds),
            shares=list(one.shares),
            percentiles={"50": one.p50, "95": one.p95, "98": one.p98, "99": one.p99},
            peak=peaks[resource],
        )
        for resource in RESOURCES
        if (one := by_resource.get(resource)) is not None
    ]


def _problem(one: UsageHistogram) -> str:
    """Why it cannot be a histogram; empty if it can."""
    amounts = (*one.bounds, one.p50, one.p95, one.p98, one.p99)
    if one.resource not in RESOURCES:
        return "the resource must be cpu or memory"
    if not 1 <= len(one.shares) <= MOST_BARS or len(one.bounds) != len(one.shares) + 1:
        return f"there must be 1 to {MOST_BARS} shares, and one bound more"
    if not 0 <= min(amounts) <= max(amounts) < INT64_MAX:
        return "an amount must be 0 or more and less than 2^63"
    if any(low > high for low, high in pairwise(one.bounds)):
        return "the bounds must ascend"
    if not 0 <= min(one.shares) <= max(one.shares) <= ALL_SHARES:
        return f"a share must be 0 to {ALL_SHARES}"
    return ""
