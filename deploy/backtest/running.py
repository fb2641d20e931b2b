"""Reads the sources of a backtest, replays them, and holds what models promised against what came."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from agent.backtest import study
from agent.backtest.engine import RESOURCES
from agent.backtest.study import Fleet, Played, Result, Trial
from deploy.backtest import fleets, matrix, tables
from deploy.backtest.options import Options
from deploy.backtest.samples import Samples
from shared.errors import InvalidInput

PROGRAM = "headroom backtest"


class Run(NamedTuple):
    """One source, what its replay brought, and its scores."""

    source: str
    fleet: Fleet
    played: Played
    results: Sequence[Result]


def runs(options: Options) -> Iterator[Run]:
    """One source after the other. Raises InvalidInput and HeadroomError."""
    requested = None if options.limits is None else tables.requested(options.limits)
    replayed = 0
    for source in options.sources:
        samples = _samples(source, options)
        if samples.unit.resource not in options.resources:
            _note(f"{samples.source} is of {samples.unit.resource}, which is not asked for")
            continue
        fleet = fleets.fleet(samples, requested, options.placement, _note)
        trial = Trial(
            RESOURCES.index(samples.unit.resource),
            options.models,
            options.target_percents,
            options.horizons_hours,
            options.policy,
        )
        played = _played(fleet, trial, options.workers, samples.source)
        yield Run(samples.source, fleet, played, study.results(samples.source, trial, played))
        replayed += 1
    if not replayed:
        asked = ",".join(options.resources)
        raise InvalidInput(source="command line", field="--resource", value=asked, problem="no source is of that")


def _samples(source: str, options: Options) -> Samples:
    path = Path(source)
    return matrix.saved(path, options.unit) if path.suffix == ".json" else tables.samples(path, options.unit)


def _played(fleet: Fleet, trial: Trial, workers: int, what: str) -> Played:
    if workers == 1:
        with _progress(what, fleet.recorded.ticks) as ticked:
            return study.play(fleet, trial, ticked)
    parts = fleet.parts(workers)
    with _progress(what, len(parts)) as ended, get_context("spawn").Pool(len(parts), _leave_interrupts) as pool:
        played = []
        for part in pool.imap(partial(study.play, trial=trial), parts):
            played.append(part)
            ended(1)
        return study.joined(played)


def _leave_interrupts() -> None:
    """The process that has started the others hears the keyboard, and ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, on a terminal alone."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console  # here, as most often there is no terminal
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield partial(bar.advance, task)


def _note(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr)
