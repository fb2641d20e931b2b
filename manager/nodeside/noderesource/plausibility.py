"""Whether a NodeMetric reports more reclaimable resources than the node's pods have requested.

Reclaimable is the part of the requests of pods above Mid that will not be used (seed, "Mid-tier Overcommitment": max(0,
requested - peak)), so it cannot exceed the requests, nor, under the seed, the requests less the reported peak. The
manager counts requests itself, from its watch of pods, and a report is older than that watch: a pod that has ended
since then may have been present when the report was made. So a report is compared with the maximum of the requests
since the previous report; a contradiction to that was wrong when it was made.

Koordinator's percentile model lends pod by pod, each at least zero. The total may exceed the difference of the sums, so
for this model, and for an agent without a model name, only the requests prove a contradiction.
"""

from collections.abc import Iterator

import msgspec

from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import NOTHING, UNITS
from shared import explanation
from shared.api.predictpolicy import PERCENTILE
from shared.quantity import Resources


class ReportHistory(msgspec.Struct, frozen=True, gc=False):
    """One node's memory from report to report: native requests of the pods above Mid, and contradictions.

    `updated` is the time of the newest report; since then at most `requested` was requested at once, and
    `requested_before` in the period of the previous report. Each `contradicts` says whether its report does.
    """

    updated: str | None = None
    requested: Resources = NOTHING
    requested_before: Resources = NOTHING
    contradicts: bool = False
    contradicts_before: bool = False

    def after_report(self, updated: str | None, requested: Resources) -> "ReportHistory":
        """The history after a look with this report and these requests."""
        if updated == self.updated:
            return msgspec.structs.replace(self, requested=self.requested.most(requested))
        return ReportHistory(updated, requested, self.requested, False, self.contradicts)

    def with_verdict(self, contradicts: bool) -> "ReportHistory":
        return msgspec.structs.replace(self, contradicts=contradicts)

    @property
    def most_requested(self) -> Resources:
        return self.requested.most(self.requested_before)

    @property
    def is_confirmed(self) -> bool:
        """Whether two reports in a row contradict: a single one may coincide with a lagging watch, or a manager that
        has just started.
        """
        return self.contradicts and self.contradicts_before


def limit(requested: int, peak: int | None) -> int:
    """The maximum of the reclaimable amount, with a peak if one counts."""
    return requested if peak is None else max(0, requested - peak)


def contradiction(seen: NodeSituation) -> str:
    """The report's contradiction with itself or with the node's pods, on one line; empty without one."""
    return "; ".join(_contradictions(seen))


def _contradictions(seen: NodeSituation) -> Iterator[str]:
    report = seen.report
    if report is None or report.reclaimable is None:
        return
    peaks = report.peak if report.model not in ("", PERCENTILE) else (None, None)
    for where, (name, unit) in enumerate(UNITS):
        reclaimable, requested = report.reclaimable[where], seen.most_requested[where]
        peak = peaks[where]
        if reclaimable <= max(0, limit(requested, peak)):
            continue
        said = f"{name}: {explanation.amount(reclaimable, unit)} is said to be reclaimable, but pods above Mid request "
        said += explanation.amount(requested, unit)
        yield said if peak is None else f"{said} and their peak is {explanation.amount(peak, unit)}"
