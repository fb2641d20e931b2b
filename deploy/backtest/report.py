"""Writes the report of a backtest as one self-contained HTML file: tables, and matplotlib's plots as SVG.

Text and axes take the page's text colour, so that they are readable in light and dark mode.
"""

import html
import importlib.util
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.backtest import metrics, study
from agent.backtest.engine import BacktestPromise
from agent.predict_server.decay import Floats
from deploy import rendering
from deploy.backtest import answers
from deploy.backtest.running import Run
from shared.errors import HeadroomError, InvalidInput
from shared.node_kind import NodeKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

DAY_HOURS = 24
_INK = "#010203"  # replaced by the text colour
_COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#eab308", "#06b6d4", "#ec4899")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STYLE = """\
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --line: #d0d7de; --faint: #59636e }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --faint: #9198a1 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 76rem; padding: 0 1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1.5rem; margin-top: 1.5rem }
@media (min-width: 74rem) { figure.half { grid-column: span 2 } }
figure { margin: 0 } figure.full { grid-column: 1 / -1 } svg { width: 100%; height: auto; color: var(--ink) }
figcaption, p { color: var(--faint); font-size: 13px }
"""
_KIND_HEADINGS = ("model", "nodes with", "target", "violations", "worst node", "savings", "nodes")
_KINDS = (
    "By the pods in the middle of the recording. Replicas: one workload has half of the requests or more. Few large "
    "pods: fewer than eight equal ones, or as uneven. Replicas are known where the source names workloads."
)
_PLOT_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color"), _INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
}


def check(path: Path) -> None:
    """Raises InvalidInput if the plotting library, or the file's folder, is missing."""
    problem = "" if path.parent.is_dir() else "no such folder"
    if importlib.util.find_spec("matplotlib") is None:
        problem = "plots need matplotlib: pip install 'headroom-k8s[backtest]'"
    if problem:
        raise InvalidInput(source="command line", field="--html", value=str(path), problem=problem)


def write(path: Path, runs: Sequence[Run], target_percents: Sequence[float]) -> None:
    """Raises HeadroomError if the file cannot be written."""
    try:
        path.write_text(page(runs, target_percents), encoding="utf-8")
    except OSError as error:
        raise HeadroomError(f"{path}: {error}") from error


def page(runs: Sequence[Run], target_percents: Sequence[float]) -> str:
    """The whole document; equal runs give equal documents."""
    sections = "".join(_section(run, target_percents) for run in runs)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Headroom backtest</title>\n<style>\n{_STYLE}</style></head>\n"
        f"<body><h1>Backtest</h1>\n{sections}</body></html>\n"
    )


def _section(run: Run, target_percents: Sequence[float]) -> str:
    report = _Report(run, target_percents)
    shown = _label(report.shown)
    figures = [
        _figure(
            report.savings, "Savings over violations. The dashed lines are the targets, the dotted one the oracle."
        ),
        _figure(report.calibration, "Violations by target; within the band they are off by less than a factor of 2."),
        _figure(report.heat_map, f"Violations by weekday and hour (UTC) at which {shown} was promised."),
        _figure(report.spread, "Violations of each node, from the worst to the best."),
        _figure(report.withdrawals, "Withdrawn each day, in percent of what is lent.", "half"),
        _figure(
            report.one_node,
            f"The node with most violations of {shown}: usage, what was promised, and what came within the horizon.",
            "full",
        ),
    ]
    first = run.results[0]
    facts = f"{first.nodes} nodes, {first.resource}, {len(run.played.at)} hours"
    return (
        f"<section><h2>{html.escape(run.source)}</h2><p>{facts}; plots are for {report.horizon} h ahead.</p>\n"
        f'<div class="wide">{_table(run)}</div>\n<h3>By kind of node</h3>\n<p>{_KINDS}</p>\n'
        f'<div class="wide">{_rows(_KIND_HEADINGS, report.by_kind())}</div>\n'
        f'<div class="plots">{"".join(figures)}</div></section>\n'
    )


def _table(run: Run) -> str:
    headings = ("model", *(heading.removeprefix(">").lower() for heading, _, _ in answers.COLUMNS))
    return _rows(headings, ((result.model, *answers.cells(result)) for result in run.results))


def _rows(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class _Report:
    """The plots of one run: promises of the longest horizon, after the learning time."""

    def __init__(self, run: Run, target_percents: Sequence[float]) -> None:
        self._run, self._targets = run, target_percents
        played = run.played
        self.horizon = max(played.came)
        self._warm = study.warm_up_hours(len(played.at), self.horizon)
        self._came = played.came[self.horizon]
        hours = np.arange(len(self._came))
        self._judged = (hours >= self._warm) & ~np.isnan(self._came).any(axis=1)
        results = {
            BacktestPromise(one.model, one.target_percent, one.horizon_hours): one
            for one in run.results
            if one.horizon_hours == self.horizon
        }
        self._results = results
        models = list(dict.fromkeys(promise.model for promise in results))
        self._colours = {model: _COLOURS[place % len(_COLOURS)] for place, model in enumerate(models)}
        # One promise of each model, at the target that is nearest to 1 %.
        self._typical = [
            min((one for one in results if one.model == model), key=lambda one: abs((one.target_percent or 1) - 1))
            for model in models
        ]
        self.shown = self._typical[0]

    def by_kind(self) -> Iterator[tuple[str, ...]]:
        """The cells of each promise, for the nodes of each kind that there is."""
        kinds = study.node_kinds(self._run.fleet)
        requested = self._run.played.requested[self._judged]
        for promise in self._results:
            broken = self._violations(promise)
            promised = np.minimum(self._run.played.promised[promise][self._judged], requested)
            for kind in NodeKind:
                nodes = [node for node, of_node in enumerate(kinds) if of_node == kind]
                if not nodes:
                    continue
                by_node = broken[:, nodes].mean(axis=0) * 100
                saved = 100 * (1 - promised[:, nodes].sum() / requested[:, nodes].sum())
                target = rendering.UNKNOWN if promise.target_percent is None else f"{promise.target_percent:g} %"
                found = (f"{by_node.mean():.2f} %", f"{by_node.max():.1f} %", f"{saved:.1f} %", str(len(nodes)))
                yield (promise.model, kind, target, *found)

    def savings(self, axes: "Axes") -> None:
        for model, colour in self._colours.items():
            points = [(one.violation_percent, one.savings_percent) for one in self._of(model).values()]
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=model, markersize=4, clip_on=False)
        for target in self._targets:
            axes.axvline(target, color=_INK, linestyle="--", linewidth=0.8, alpha=0.6)
        oracle = next(iter(self._results.values())).oracle_savings_percent
        axes.axhline(oracle, color=_INK, linestyle=":", linewidth=0.8)
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set(xlabel="violations, %", ylabel="savings, %", xlim=(0, 100), ylim=(0, max(oracle * 1.1, 10)))
        _percents(axes, (0, 0.1, 1, 10, 100))
        axes.legend(frameon=False, fontsize=8)

    def calibration(self, axes: "Axes") -> None:
        ends = np.array([min(self._targets) / 2, max(self._targets) * 2])
        axes.fill_between(ends, ends / 2, ends * 2, color=_INK, alpha=0.08, linewidth=0)
        axes.plot(ends, ends, color=_INK, linewidth=0.8)
        for model, colour in self._colours.items():
            found = [(one.target_percent, one.violation_percent) for one in self._of(model).values()]
            points = [(target, violations) for target, violations in found if target is not None]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", color=colour, label=model, markersize=4, clip_on=False)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=ends[0] / 10)
        axes.set(xlabel="target, %", ylabel="violations, %", ylim=(0, None))
        axes.set_xticks(self._targets, [f"{target:g}" for target in self._targets])
        axes.minorticks_off()
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)

    def heat_map(self, axes: "Axes") -> None:
        hours = (self._times() // 3600).astype(np.int64)[self._judged]
        broken = self._violations(self.shown).mean(axis=1) * 100
        place = (hours // DAY_HOURS + 3) % 7 * DAY_HOURS + hours % DAY_HOURS  # 1970 began on a Thursday
        counts = np.bincount(place, minlength=7 * DAY_HOURS)
        sums = np.bincount(place, broken, 7 * DAY_HOURS)
        rates = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(7, DAY_HOURS)
        cells = axes.pcolormesh(rates, cmap=_heat(), vmin=0, vmax=max(float(np.nanmax(rates)), 0.1))
        axes.set_yticks(np.arange(7) + 0.5, _WEEKDAYS)
        axes.set_xticks(np.arange(0, 25, 6))
        axes.invert_yaxis()
        bar = axes.figure.colorbar(cells, ax=axes, label="%")
        bar.outline.set_visible(False)

    def spread(self, axes: "Axes") -> None:
        for promise in self._typical:
            by_node = np.sort(self._violations(promise).mean(axis=0) * 100)[::-1]
            share = (np.arange(len(by_node)) + 0.5) / len(by_node) * 100
            axes.plot(share, by_node, color=self._colours[promise.model], label=_label(promise))
        axes.set(xlabel="nodes, %", ylabel="violations, %", xlim=(0, 100), ylim=(0, None))
        axes.legend(frameon=False, fontsize=8)

    def withdrawals(self, axes: "Axes") -> None:
        days = self._days()
        for promise in self._typical:
            lent = np.maximum(self._run.played.requested - self._run.played.promised[promise], 0.0)
            taken = np.maximum(lent[:-1] - lent[1:], 0.0).sum(axis=1)
            each = range(0, len(taken) // DAY_HOURS * DAY_HOURS, DAY_HOURS)
            means = [lent[first : first + DAY_HOURS].sum(axis=1).mean() for first in each]
            amounts = [taken[first : first + DAY_HOURS].sum() for first in each]
            percents = [100 * amount / mean if mean else 0.0 for amount, mean in zip(amounts, means, strict=True)]
            axes.plot(days[: len(percents)], percents, color=self._colours[promise.model], label=_label(promise))
        axes.set(xlabel="day", ylabel="withdrawn a day, %", ylim=(0, None))
        axes.legend(frameon=False, fontsize=8)

    def one_node(self, axes: "Axes") -> None:
        node = int(self._violations(self.shown).sum(axis=0).argmax())
        played = self._run.played
        days = (self._times() - self._times()[0]) / 86_400
        unit = 1.0 if self._run.results[0].resource == "cpu" else float(1 << 30)
        axes.plot(days, self._usage(node) / unit, color=_INK, linewidth=0.6, label="usage")
        axes.plot(days, self._came[:, node] / unit, color=_COLOURS[2], linewidth=0.9, label="oracle")
        axes.plot(days, played.promised[self.shown][:, node] / unit, color=_COLOURS[0], label=_label(self.shown))
        axes.plot(days, played.requested[:, node] / unit, color=_INK, linestyle=":", linewidth=0.8, label="requested")
        axes.axvline(self._warm / DAY_HOURS, color=_INK, linestyle="--", linewidth=0.8, alpha=0.6)
        axes.set(
            xlabel="day",
            ylabel="cores" if unit == 1.0 else "GiB",
            ylim=(0, played.requested[:, node].max() / unit * 1.2),
            xlim=(0, days[-1]),
        )
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper right")

    def _of(self, model: str) -> Mapping[BacktestPromise, study.Result]:
        return {promise: one for promise, one in self._results.items() if promise.model == model}

    def _violations(self, promise: BacktestPromise) -> Floats:
        promised = np.minimum(self._run.played.promised[promise], self._run.played.requested)
        broken = metrics.violations(promised[self._judged], self._came[self._judged])
        return broken.astype(np.float64)

    def _times(self) -> Floats:
        return self._run.fleet.recorded.times()[self._run.played.at]

    def _days(self) -> Floats:
        return np.arange(1, len(self._run.played.at) // DAY_HOURS + 1, dtype=np.float64)

    def _usage(self, node: int) -> Floats:
        """The summed usage of a node's pods, hour by hour."""
        recorded, schedule = self._run.fleet.recorded, self._run.fleet.schedule
        usage = np.zeros(recorded.ticks)
        for pod in np.flatnonzero(schedule.node == node):
            ticks = slice(schedule.first[pod], schedule.end[pod])
            usage[ticks] += recorded.usage[schedule.series[pod], ticks]
        return usage[self._run.played.at]


def _label(promise: BacktestPromise) -> str:
    return promise.model if promise.target_percent is None else f"{promise.model} at {promise.target_percent:g} %"


def _heat() -> "Colormap":
    """A colour map from nearly transparent, on any page's background, to red."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", [(0.94, 0.27, 0.27, 0.05), (0.94, 0.27, 0.27, 1.0)])


def _percents(axes: "Axes", ticks: Sequence[float]) -> None:
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _figure(draw: Callable[["Axes"], None], caption: str, width: str = "") -> str:
    inches = {"": 5.2, "half": 10.7, "full": 16.2}[width]
    return (
        f'<figure class="{width}">{_svg(draw, (inches, 3.4))}<figcaption>{html.escape(caption)}</figcaption></figure>\n'
    )


def _svg(draw: Callable[["Axes"], None], inches: tuple[float, float]) -> str:
    import matplotlib
    from matplotlib.figure import Figure  # without pyplot: no state, no window

    with matplotlib.rc_context({**_PLOT_STYLE, "svg.hashsalt": draw.__name__}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    picture = out.getvalue()
    return picture[picture.index("<svg") :].replace(_INK, "currentColor")
