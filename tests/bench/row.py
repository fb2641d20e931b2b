"""One line of the benchmark table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A measured figure, the value to reach (None: no target), and a baseline measured in the same call.

    `peers`: what others' own code took for such work on a machine of this class, or what they publish. It was measured
    apart, so it has no ratio.
    """

    figure: str
    value: float
    unit: str
    target: float | None
    baseline: str
    baseline_value: float
    note: str = ""
    peers: str = ""

    @property
    def ratio(self) -> float | None:
        """The figure in units of its baseline; None where that is nothing."""
        return self.value / self.baseline_value if self.baseline_value else None


# Measures one thing, or several that share what it takes to measure them. If it fails, only its own rows are missing.
Measure = Callable[[], Iterable[Row]]


def instead(baseline: str, missing: Exception) -> str:
    """A baseline that stands in for a peer's own code, with the reason why that is `missing`."""
    return f"{baseline}, in place of the peer's own code: {' '.join(str(missing).split())[:200]}"
