"""The actual future: the peak oracle of the literature (Bashir et al., EuroSys 2021). Pure."""

from collections.abc import Sequence

import numpy as np

from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows


def future_peaks(recorded: RecordedUsage, schedule: PodSchedule, at: Rows, horizons_ticks: Sequence[int]) -> Floats:
    """For each horizon, tick of `at` and node: max over the horizon of the summed usage of the pods that run now.

    Shape (horizons, len(at), nodes). The present sample is not part of the future; pods that arrive later do not count,
    and pods that leave stop counting. NaN where the recording ends within the horizon. Usage must be capped and the
    schedule split at gaps.
    """
    longest = max(horizons_ticks)
    peaks = np.full((len(horizons_ticks), len(at), schedule.nodes), np.nan)
    for row, tick in enumerate(at.tolist()):
        ahead = min(longest, recorded.ticks - 1 - tick)
        if ahead < min(horizons_ticks):
            continue
        nodes, totals = _future(recorded, schedule, tick, ahead)
        for index, horizon in enumerate(horizons_ticks):
            if horizon <= ahead:
                peaks[index, row] = 0.0
                peaks[index, row, nodes] = totals[:, :horizon].max(axis=1)
    return peaks


def _future(recorded: RecordedUsage, schedule: PodSchedule, tick: int, ahead: int) -> tuple[Rows, Floats]:
    """The nodes with pods, and the usage of today's pods on each over the next `ahead` ticks."""
    pods = schedule.present(tick)
    nodes, starts = np.unique(schedule.node[pods], return_index=True)
    if not len(pods):
        return nodes, np.zeros((0, ahead))
    usage = recorded.usage[schedule.series[pods], tick + 1 : tick + 1 + ahead]
    remaining = schedule.end[pods] - tick - 1
    for leaving in np.flatnonzero(remaining < ahead):
        usage[leaving, remaining[leaving] :] = 0.0
    return nodes, np.add.reduceat(usage, starts, axis=0)
