"""Whether a NodeMetric says that more can be reclaimed than the node's pods have requested.

Reclaimable is what pods above Mid requested and will not use (seed, "Mid-tier Overcommitment": max(0, requested -
peak)), so no agent can find more of it than they requested, nor, by the seed, more than that less the peak it reports
itself. The manager counts requests on its own, from its watch of pods, and a report is older than that watch: a pod
that is gone since then was there when its requests were lent. So a report is held against the most that was requested
at any time since the report before it came, and what it contradicts there it said wrongly when it was made.

Koordinator's percentile model lends pod by pod, each never less than nothing. That may be more than the sums leave, so
of it, and of an agent that names no model, only the requests are a measure of contradiction.
"""

from collections.abc import Iterator

import msgspec

from manager.noderesource.situation import NOTHING, NodeSituation
from shared import explanation, names
from shared.api.predictpolicy import PERCENTILE
from shared.quantity import Resources

_UNITS = (names.CPU, "milli"), (names.MEMORY, "bytes")


class ReportHistory(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of one node from report to report: native requests of the pods above Mid, and contradictions.

    `updated` names the newest report, in whose time at most `requested` was requested at once, and `requested_before`
    in the time of the one before. Each `contradicts` where its report does.
    """

    updated: str | None = None
    requested: Resources = NOTHING
    requested_before: Resources = NOTHING
    contradicts: bool = False
    contradicts_before: bool = False

    def looked(self, updated: str | None, requested: Resources) -> "ReportHistory":
        """After a look that found this report, and this much requested."""
        if updated == self.updated:
            return msgspec.structs.replace(self, requested=self.requested.most(requested))
        return ReportHistory(updated, requested, self.requested, False, self.contradicts)

    def judged(self, contradicts: bool) -> "ReportHistory":
        return msgspec.structs.replace(self, contradicts=contradicts)

    @property
    def most_requested(self) -> Resources:
        return self.requested.most(self.requested_before)

    @property
    def is_confirmed(self) -> bool:
        """Whether two reports in a row contradict: one alone may have met a watch that lagged, or a manager that just
        began.
        """
        return self.contradicts and self.contradicts_before


def limit(requested: int, peak: int | None) -> int:
    """The most that can be reclaimed of what is requested, with a peak where one counts."""
    return requested if peak is None else max(0, requested - peak)


def contradiction(seen: NodeSituation) -> str:
    """What the report contradicts itself or the node's pods in, on one line; empty where it does not."""
    return "; ".join(_contradictions(seen))


def _contradictions(seen: NodeSituation) -> Iterator[str]:
    report = seen.report
    if report is None or report.reclaimable is None:
        return
    peak = report.peak if report.model not in ("", PERCENTILE) else None
    for where, (name, unit) in enumerate(_UNITS):
        reclaimable, requested = report.reclaimable[where], seen.most_requested[where]
        if reclaimable <= max(0, limit(requested, None if peak is None else peak[where])):
            continue
        said = f"{name}: {explanation.amount(reclaimable, unit)} is said to be reclaimable, but pods above Mid request "
        said += explanation.amount(requested, unit)
        yield said if peak is None else f"{said} and their peak is {explanation.amount(peak[where], unit)}"
